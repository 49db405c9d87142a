// Package service connects Gatekit to the services of a policy control plane, with OPA's protocols
// (https://www.openpolicyagent.org/docs/management-introduction): it downloads bundles, and sends
// decision logs and status.
//
// # Guarantees
//
//   - A bundle becomes active only through the function given to Start. When that function fails,
//     the previous bundles stay active.
//   - A download is bounded and verified, and read in the same way as a bundle in a file
//     (policies.ReadBundle). A cached bundle is verified again when it is read.
//   - A service that is down, slow, or sends invalid data costs bounded memory and time. No message
//     waits for a service.
//   - Open fails unless it has every bundle, from its service or from its cache.
//   - Decisions pass through a bounded queue. A decision that does not fit there, or in the buffer
//     of the upload, is dropped and counted, and a warning is logged. An event contains the
//     message's method, server and name, and the rule that decided. It contains no body, no
//     argument and no reason.
//   - Credentials are sent only to the configured address, and are in no log and no error.
//     Redirects to another address are refused.
//
// # How a bundle is downloaded
//
// OPA's downloader sends the requests (ETag, delays, back-off). transport reads the whole response
// within bounds, and parses it as a bundle, before OPA sees it: OPA bounds each file of a bundle,
// but not all files together. The bundle is activated together with the others through Start's
// function, and then cached.
//
// # Why OPA's downloader and not its bundle plugin
//
// The plugin compiles each bundle by itself, with the built-in functions of the whole process, and
// stores it before anything can reject it. Here bundles are compiled together with the library's
// rules and the policy files, with the functions that policies may use and against the schema of
// their input. A bundle that fails changes nothing.
//
// # Why decision logs and status are sent by OPA's plugins
//
// Control planes accept what these plugins send. For that, OPA's server is part of the binary,
// but never started. When a service does not accept data, stopping the plugins takes up to a few
// seconds.
package service
