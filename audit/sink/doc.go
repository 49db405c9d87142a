// Package sink sends the records of the audit log to other systems: a file, stderr, syslog, an OTLP
// collector or a webhook.
//
// # Guarantees
//
// A sink reads the log after it was written. So messages never wait for a sink, and the log itself
// is the queue of what was not sent: there is no other spool. A sink holds one batch (512 records
// or 1 MiB, and one record more) in memory, whatever its backlog is.
//
// Every record is sent at least once, and in order. The position of the last record that was sent
// is saved in a file, the cursor. After a crash the records of the last second are sent again; the
// receiver recognises them by their seq. The cursor is saved at most once a second, and the log is
// synced first, whatever its durability is. Otherwise a power cut that removes the end of the log
// would leave a cursor that seems to belong to another log.
//
// A record counts as sent when the receiver has confirmed it (a file, OTLP, a webhook). Syslog has
// no confirmations. Over TCP and TLS, a record counts as sent when the receiver's system has the
// bytes (on Linux; elsewhere, when ours has them), and what was sent in the minute before a
// connection ended is sent again over the next one. Over UDP there is no guarantee.
//
// A failing receiver is tried again with a delay that grows to a minute, with a random part, or
// with the delay that it asks for. It may be down for any time and reason. After the third failed
// try, the sink reports it once, to the operator's log and as a record "sink lost", and "sink back"
// when it works again. When Gatekit stops, the sink sends what is in the log for a bounded time.
// The rest is sent after the next start.
//
// # Rejected records
//
// A working receiver may reject what it gets, because it is too large or malformed (413, 400, 422;
// over gRPC RESOURCE_EXHAUSTED and INVALID_ARGUMENT; a datagram over the maximal size). One record
// must not block those behind it. So the batch is sent in halves until one record is left. That is
// sent three times in full and three times short (see package format), and is then skipped. A
// record "sink gap" has its seq and the receiver's message. Records that an OTLP collector rejects
// from a partially accepted batch are skipped at once, because OTLP forbids sending that batch
// again; the "sink gap" has the range. In any case the record stays in the log. A receiver that has
// never accepted a record, or that rejects more than eight in a row, is treated as failing.
//
// # Removed records and another log
//
// Retention is up to the log: a sink that is down does not fill the disk. If records were removed
// before they were sent, the sink writes a record "sink gap" with their range, and sends it like
// any other. If the log is not the one of the cursor (it was replaced, or set back to an older
// copy), the sink writes a record "sink reset" and begins at its first record.
//
// # Checkpoints
//
// A sink may also, or only, send the signed checkpoints of the log. With a checkpoint that is kept
// elsewhere, one can prove that the records before it were not changed. Of checkpoints that arrive
// while one is being sent, only the newest is kept, because it covers the others.
//
// # Reading order
//
// sink.go, cursor.go and backoff.go are the sink; blocking.go helps receivers. The receivers are
// file.go, writer.go, syslog.go (with unacked_*.go), and http.go with webhook.go and otlp.go.
package sink
