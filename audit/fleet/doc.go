// Package fleet verifies the audit logs of all replicas of a cluster together.
//
// Each replica writes a log of its own, with its own key and origin. A log shows whether it was
// changed, but not whether a whole other log was removed. So the logs name each other: records with
// the action "roster" hold the name, the origin, the public key and the newest checkpoint of the
// logs that the replica knows. [Verify] compares these statements with the logs that are there:
//
//   - a log that a roster names and that is not there is missing;
//   - a log that is complete in itself, but shorter than a checkpoint in another log says, is
//     behind: it is an older copy, or its end was removed;
//   - a log with another key than a roster says, or with other records than a checkpoint in another
//     log covers, is damaged: it was written anew, or it was forked;
//   - a record of a forwarded request (the member "via") must name a replica that is known.
//
// # What is not found
//
// Nobody names a log before its replica has met another one, unless the configuration has its name.
// Whoever can write to all logs, and has all keys, can rewrite all of them together. Witnesses help
// against that: see package witness.
package fleet
