// Package service speaks with the services that policies come from and that are told of them, as
// Open Policy Agent does (https://www.openpolicyagent.org/docs/management-introduction): bundles
// are polled, decision logs and status are sent.
//
// # What it promises
//
//   - A bundle is in force when whoever asked for it says so, and not before: what Start's function
//     refuses leaves the bundles before it where they are.
//   - What is downloaded is bounded, verified, and read as a bundle in a file is
//     (policies.ReadBundle). What was kept in a file is verified again when it is read.
//   - A server that is down, slow, or sends what it likes costs memory and time that are bounded,
//     and no message ever waits for it.
//   - What it does not have at first it is without: Open fails unless each bundle came, or was
//     kept.
//   - Decisions are taken from the policies through a bounded queue; what does not fit there, or in
//     the buffer that waits for the service, is dropped, counted, and said. What is told of one is
//     what the message is about and which rule decided: no body, no argument, no reason.
//   - Credentials go to the address in the configuration, and are in no log and no error: a
//     redirect to another one is refused.
//
// # How a bundle comes
//
// OPA's downloader asks (ETag, delays, back-off). Transport reads the answer whole, within bounds,
// and as a bundle, before OPA sees it: OPA bounds each file of a bundle and not all together. The
// bundle is put beside the others, and offered to Start's function; then it is kept.
//
// # Why OPA's downloader and not its bundle plugin
//
// The plugin compiles each bundle by itself, with the functions that the whole process knows, and
// puts it into a store before anybody can refuse it. Here bundles are compiled with the library's
// rules and the files in one go, with the functions that policies may use and against the schema of
// their input, and one that fails changes nothing.
//
// # Why decision logs and status are OPA's plugins
//
// What they send is what control planes take. Their price is that OPA's server is in the binary; it
// is never started. Where a service takes nothing, they take up to a few seconds to end.
package service
