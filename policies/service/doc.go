// Package service speaks with the services that policies come from and that are told of them, as Open Policy Agent does: bundles are polled, decision logs and status are sent
// (https://www.openpolicyagent.org/docs/management-introduction).
//
// # What it promises
//
//   - A bundle is in force when whoever asked for it says so, and not before: Options.Activate compiles it together with the other policies, and what it refuses leaves the bundles before it
//     where they are. The same answer goes into the status.
//   - What is downloaded is bounded, verified, and read as a bundle in a file is (policies.ReadBundle). What is kept in the folder is verified again when it is read.
//   - A service that is down, slow, or sends what it likes costs memory and time that are bounded, and no message ever waits for it: decisions are taken from the policies through a bounded
//     queue, and what does not fit is counted, and told as an event.
//   - Credentials go to the address in the configuration: a redirect to another one is refused. They are in no log.
//
// # How a bundle comes
//
// OPA's downloader asks (ETag, long polling, back-off); transport reads the answer whole, within bounds, before OPA sees it. The answer is read by policies.ReadBundle, put beside the latest
// of the other bundles, and offered to Activate once none is missing. Then it is kept, and told in the status.
//
// # Why OPA's downloader and not its bundle plugin
//
// The plugin compiles each bundle by itself, with the functions that the whole process knows, and puts it into a store before anybody can refuse it. Here bundles are compiled with the
// library's rules and the files in one go, with the functions that policies may use and against the schema of their input, and one that fails changes nothing.
//
// # Why decision logs and status are OPA's plugins
//
// What they send is what control planes take, masks and all: no second implementation of either. Their price is that OPA's whole server is in the binary; it is never started.
package service
