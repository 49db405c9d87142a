// Package sink sends the records of the audit log to other systems: a file, stderr, syslog, an OTLP
// collector or a webhook.
//
// # Guarantees
//
// A sink reads the log after it was written. So messages never wait for a sink. The log itself is
// the queue of the records that were not sent; there is no other spool. A sink holds only one
// batch in memory, whatever its backlog is: at most 512 records, and at most 1 MiB plus one record.
//
// Every record is sent at least once, and in order. The position of the last record that was sent
// is saved in a file, the cursor. After a crash the records of the last second are sent again; the
// receiver recognises them by their seq. The cursor is saved at most once a second, and the log is
// synced first, whatever the durability of the log is. Otherwise a power cut that removes the end
// of the log would leave a cursor that seems to belong to another log.
//
// A record counts as sent when the receiver (a file, an OTLP collector or a webhook) has confirmed
// it. Syslog has no confirmations. Over TCP and TLS, a record counts as sent on Linux when the
// receiver's system has the bytes, and on other systems when Gatekit's system has them. Records
// that were sent in the minute before a connection ended are sent again over the next connection.
// Over UDP there is no guarantee.
//
// The sink tries a failing receiver again after a delay. The delay has a random part and grows to a
// minute. If the receiver asks for a longer delay, the sink waits longer. A receiver may be down
// for any time and for any reason. After the third failed try, the sink reports the failure once,
// to the operator's log and as a record "sink lost". When the receiver works again, the sink writes
// a record "sink back". When Gatekit stops, the sink sends the remaining records for a bounded
// time. The rest is sent after the next start.
//
// # Rejected records
//
// A working receiver may reject a batch that is too large or malformed (413, 400, 422; over gRPC
// RESOURCE_EXHAUSTED and INVALID_ARGUMENT; a datagram over the maximal size). One record must not
// block the records behind it. So a rejected batch is split in halves, until a rejected half is a
// single record. This record is sent three times in full and three times in a short form (see
// package format), and is then skipped. A record "sink gap" then has the seq of the skipped record,
// and the receiver's message.
//
// Records that an OTLP collector rejects from a partially accepted batch are skipped at once,
// because OTLP forbids sending that batch again; the "sink gap" has the range. In any case the
// record stays in the log. A receiver that has never accepted a record, or that rejects more than
// eight in a row, is treated as failing.
//
// # Removed records and another log
//
// The log removes expired records even if a sink has not sent them, so a sink that is down does not
// fill the disk. If records were removed before they were sent, the sink writes a record "sink gap"
// with their range, and sends that record like any other. If the cursor does not match the log
// (because another log or an older copy has replaced the log), the sink writes a record "sink
// reset" and begins at the first record of the log.
//
// # Checkpoints
//
// A sink may also, or only, send the signed checkpoints of the log. A checkpoint that is kept
// elsewhere proves that the records before it were not changed. While a checkpoint is being sent,
// only the newest waiting checkpoint is kept, because it covers the records of all others.
//
// # Reading order
//
// sink.go, cursor.go and backoff.go are the sink; blocking.go helps receivers. The receivers are
// file.go, writer.go, syslog.go (with unacked_*.go), and http.go with webhook.go and otlp.go.
package sink
