// Package sink sends the records of the audit log on: to a file, stderr, syslog, an OTLP collector
// or a webhook.
//
// # What it promises
//
// A sink follows the log that was written; it is no part of writing it. So the message path never
// waits for a sink, and what a sink has not sent is kept where it is safest, in the log: there is
// no other spool, and a sink holds one batch (512 records or 1 MiB, and one record more) in memory,
// whatever is behind.
//
// Every record is sent at least once and in order. What was sent is kept in a file, the cursor; a
// process that was killed in between sends the last second again, and a receiver tells those by
// their seq. Before the cursor is written, once a second at most, the log is synced, whatever its
// durability is: a power cut that took the end of the log would else leave a cursor that is of
// another one. Where a receiver answers (a file, OTLP, a webhook), sent means that it said so.
// Syslog has no answers: over TCP and TLS, sent means that the receiver's system has the bytes (on
// Linux; elsewhere, that ours has them), and what went in the minute before a connection ended goes
// again over the next; over UDP it means nothing.
//
// A receiver that takes nothing is tried again, with a pause that grows to a minute and is never
// the same, or is what the receiver asked for. It may be down for as long as it likes, and whatever
// the reason. After the third try the sink says so, once: to the operator's log, and as a record
// "sink lost"; and "sink back" when it is over. When Gatekit stops, it sends what is in the log,
// for a bounded time; the rest is sent after the next start.
//
// # What a receiver refuses
//
// A receiver may be well and refuse what it is sent: as too large or malformed (413, 400, 422; over
// gRPC RESOURCE_EXHAUSTED and INVALID_ARGUMENT; a datagram that no network takes). One record must
// not stop those behind it. So the batch is sent by halves until one record is left; that is sent
// three times whole and three times short (see package format), and is then left out, which a
// record "sink gap" says, with its seq and what the receiver answered. What an OTLP collector
// refuses of a batch that it has taken in part is left out at once, for OTLP has no such batch sent
// again: the "sink gap" has the range. In any case the evidence stays in the log. A receiver that
// never took a record, or refuses more than eight in a row, is set up wrongly or broken: it is
// waited for, as one that is down.
//
// # When the log has moved on
//
// How long records are kept is for the log to say: a sink that is down does not fill the disk. If
// records were removed before they were sent, the sink says which, as a record "sink gap", which it
// sends as any other. If the log is not the one that the cursor is of (made anew, or set back to an
// older copy), the sink says "sink reset" and begins at its first record.
//
// # Checkpoints
//
// A sink may also, or only, be sent the signed checkpoints of the log: who holds one elsewhere can
// prove that what came before it was not changed. Of those that come while one is being sent, only
// the last is kept, since it stands for the others.
package sink
