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
//   - A service that is down or slow, or that sends invalid data, costs bounded memory and time. No
//     message waits for a service.
//   - Open fails unless it gets every bundle from its service or from the cache.
//   - Decisions pass through a bounded queue. A decision that does not fit there, or in the buffer
//     of the upload, is dropped and counted, and a warning is logged. A decision log event contains
//     the message's method, server and name, and the rule that decided. It contains no body, no
//     argument and no reason.
//   - Credentials are sent only to the configured address, and are in no log and no error.
//     Redirects to another address are refused.
//
// # How a bundle is downloaded
//
// OPA's downloader sends the requests (ETag, delays, back-off). transport reads the whole response
// within bounds, and parses it as a bundle, before OPA sees it: OPA bounds each file of a bundle,
// but not all files together. The function given to Start then activates all bundles, and the new
// bundle is cached.
//
// # Why OPA's downloader and not its bundle plugin
//
// OPA's bundle plugin compiles each bundle alone, with the built-in functions of the whole process.
// It stores the bundle before Gatekit can reject it. Gatekit compiles all bundles together with the
// rules of the library and the policy files. It allows only the functions that policies may use,
// and checks the policies against the schema of their input. A bundle that fails changes nothing.
//
// # Why decision logs and status are sent by OPA's plugins
//
// Control planes accept the data that these plugins send. The plugins import OPA's server, so this
// server is part of the binary, but it is never started. When a service does not accept data, it
// takes up to a few seconds to stop the plugins.
package service
