// Package sink sends the records of the audit log on: to a file, stderr, syslog, an OTLP collector or a webhook.
//
// # What it promises
//
// A sink follows the log that was written; it is no part of writing it. So the message path never waits for a sink, and what a sink has not sent is kept where it is safest, in the log:
// there is no other spool, and a sink holds one batch (512 records or 1 MiB, and one record more) in memory, whatever is behind.
//
// Every record is sent at least once and in order. What was sent is kept in a file, the cursor; a process that was killed in between sends the last second again, and a
// receiver tells those by their seq. Where a receiver answers (a file, OTLP, a webhook), sent means that it said so. Syslog has no answers: over TCP and TLS, sent means that the receiver's
// system has the bytes (on Linux; elsewhere, that ours has them), and what went in the minute before a connection ended goes again over the next; over UDP it means nothing.
//
// A receiver that does not take records is tried again, with a pause that grows to a minute and is never the same, or is what the receiver asked for. It may refuse for
// as long as it likes, and whatever the reason: a sink never leaves a record out on its own. After the third try it says so, once: to the operator's log, and as a record "sink lost"; and "sink back"
// when it is over. When Gatekit stops, it sends what is in the log, for a bounded time; the rest is sent after the next start.
//
// # When the log has moved on
//
// How long records are kept is for the log to say: a sink that is down does not fill the disk. If records were removed before they were sent, the sink
// says which, as a record "sink gap", which it sends as any other. If the log is not the one that the cursor is of (made anew, or set back to an older copy), the sink says "sink reset" and begins
// at its first record.
//
// # Checkpoints
//
// A sink may also, or only, be sent the signed checkpoints of the log: who holds one elsewhere can prove that what came before it was not changed. Of those that come while one is being
// sent, only the last is kept, since it stands for the others.
package sink
