// Package audit is the log of every decision: a pipeline.Recorder that writes one JSON object per
// line. Each line holds the SHA-256 of the line before it, and signed checkpoints of a Merkle tree
// cover all lines.
//
// # Guarantees
//
// When Record returns nil, the line is as safe as [Options.Durability] promises, and the message
// may be forwarded. When Record returns an error, the message is not forwarded, and the log has no
// line for the message. The remains of a failed write are cut off before the next line is written.
// Every line is complete and valid JSON, whatever names and reasons contain. Apart from bodies, its
// length is bounded. Seq and prev have no gap, even across restarts and files. Two processes never
// write to the same log.
//
// # Files
//
//	gatekit.jsonl                        the active file
//	gatekit-00000000000000000001.jsonl   a segment, named after its first record
//	gatekit.jsonl.tree/checkpoint        the last checkpoint
//	gatekit.jsonl.tree/origin            the origin of the log, which its checkpoints name
//	gatekit.jsonl.tree/gap               count of records that could not be written
//	gatekit.jsonl.tree/ages              ages of the segments, with Retention.For
//	gatekit.jsonl.tree/tile/0/x001/234   hashes of the tree, in the layout of C2SP's tlog-tiles
//	gatekit.jsonl.key, .pub              the key pair that signs checkpoints, mode 0600
//	gatekit.jsonl.lock                   locked by the process that writes the log
//
// An active file that would exceed [Options.SegmentBytes] is renamed to a segment, and a new file
// is started. Chain and tree continue across files.
//
// Segments beyond the bounds of [Options.Keep] are removed. Before that, a record with the action
// "prune" names the first and last removed record (from, through), and a checkpoint covers that
// record. The hashes of removed records stay in the tree.
//
// With Retention.For, the active file is rotated when its first record has reached that age. So
// records stay at most twice as long. An age counts the time for which the log was open, and no
// change of the wall clock: a clock that jumps forward removes nothing. Of the time between two
// processes, which only the wall clock tells, a tenth of Retention.For counts at most. Ages are
// kept in a file, and begin at 0 for segments that it does not name. A segment also stays until the
// tiles of all its records are full, which can take 255 further records. Retention cannot free a
// full disk, because the record of the removal needs space, too. This is a known limit.
//
// If anybody else moves, removes, cuts or changes the active file, the log ends: a record fails,
// and from then on messages are denied. The length of the file is compared after each write. Its
// identity and its last 256 bytes are compared before the write with DurabilityFsync, otherwise
// before the first write that is a tenth of a second or more after the last check, and once a
// second while records are written. A change further up in the file is found at the next start.
//
// # Records about the log
//
// Records with these actions are about the log itself:
//
//   - "recovered": a crash had torn the last line, which was cut off (its message was not
//     forwarded, except with [DurabilityAsync]), or records (from, through) had no checkpoint when
//     Gatekit started;
//   - "gap": records could not be written, and their messages were denied; the reason says how many
//     and since when. If Gatekit ends before the log can be written again, the next start writes
//     this record: the count is saved in a file whose space was allocated before;
//   - "prune": segments were removed;
//   - "anchor lost", "anchor back": [Options.AnchorFile] cannot be written, and can be again;
//   - "clock": the clock was set back or is behind the last record, was set forward by a minute or
//     more, or is so far ahead of the last stop that Retention.For does not count all of the time.
//
// The order of records is that of seq. Time is the wall clock at the beginning of a decision. It
// may go back a little between concurrent decisions, and by more where a "clock" record says so.
//
// # Members of a line
//
// A line has these members in this order, without the empty ones: seq, time, prev, session,
// exchange, principal, direction, kind, method, server, name, action, reason, steps (each: stage,
// action, reason, micros, findings, changed), before, after (each: size, sha256 or hmac, and body
// if configured), values, code, failed, micros, error. Before and after describe the message's body
// before and after the stages. There is no after if nothing was forwarded. Prev is the hex SHA-256
// of the previous line without its line feed, or 64 zeros.
//
// A call has one record of the decision, before the request is forwarded, and one of its response,
// with the same exchange. The response or error is evaluated and recorded before it is forwarded,
// too. If the server sends no response (a time-out, a lost server, a denial), the second record is
// that of Gatekit's own error, with the action "answer". Code is the JSON-RPC error code; failed is
// true when the result of a tool has isError: true. Micros is the time that the evaluation took.
// The duration of a call is the time between its two records.
//
// # What a line does not reveal
//
// A line contains no content other than names and reasons, unless bodies are [BodiesRedacted]. Then
// it contains the body after the stages, never a body that was changed or denied. The record of a
// changed or denied body has an hmac with a key of the log instead of a plain hash. Otherwise a
// short secret that a stage removed could be found by hashing guesses. A body that was forwarded
// unchanged gets a plain hash, which others can compare. To avoid that, use [BodiesNone].
//
// Values are keyed hashes of the first 16 strings, each of up to 4 KiB, in a request's arguments.
// Equal values can be found ([ValueHasher]) but not read. The line does not contain their places in
// the arguments, because the client chooses the names there.
//
// The name in a message and a method that MCP does not define are written only if the stages have
// checked them: every stage that applies was asked, no stage failed, and no stage found anything in
// them. The same holds for quotations of them in reasons. A name that a server has listed is
// written, too, and without any stage all names are written.
//
// Otherwise these names are left out: a client that sends a secret as the name of a tool would
// write the secret into the log. The keyed hashes of the names then come first in values, and
// before and after have an hmac and no body.
//
// In the name of a record, and where a reason quotes that name, a keyed hash replaces the query and
// the fragment of a URI: they often hold a token.
//
// # How a line is written
//
// Calls of Record encode their records in parallel. Under a lock, the line then gets its seq and
// joins the pending batch. The goroutine that started the batch writes the batch when the previous
// write has ended: one write (and one fsync) for all lines that have joined by then.
//
// # Why a failed write is taken back
//
// A write may fail in part, or report an error although it wrote everything. In both cases the
// messages were denied. So the file is truncated to the last committed line, and seq and prev go
// back with it: the chain holds exactly the decisions that took effect. Lines that were chained to
// the failed lines fail, too. Nothing is written until the file has been truncated. With
// [DurabilityAsync], Record had already returned for the lines. They stay in the queue, and each
// later Record fails until they are written.
//
// # What the tree adds to the chain
//
// Whoever can write the file can remove lines at its end, change the last one, or rewrite all of
// it. Therefore the lines are also the leaves of a Merkle tree (RFC 6962; record 1 is leaf 0),
// whose root is signed in a [Checkpoint], in the form of C2SP's tlog-checkpoint. A checkpoint is
// made a second after a record, or after 1,000 records, and at Close. The next one begins at least
// 20 ms after the last one has ended. So after a kill under load, 1,000 records and those of the
// last 30 ms or so have none. A checkpoint covers all records before it. Records after the last
// checkpoint are protected by the chain only.
//
// Records are on the disk before a checkpoint covers them. Tiles are not flushed; after a crash
// they are rebuilt from the log. Open compares the log with its checkpoint and with the newest
// checkpoint in [Options.AnchorFile]. It refuses a log that is shorter than one of the two, and a
// checkpoint that another key has signed. A checkpoint also has the length of the file with its
// last record (the line "file FIRST BYTES", where FIRST is the seq of the file's first record).
// Open refuses that file when it was cut or begins with another record, and, up to 64 MiB, when the
// hash of one of its records is not in the tree. Older segments are compared by Verification only;
// a missing one is logged.
//
// The first checkpoint, of no records, is made before the first record, so records without any
// checkpoint are refused. The checkpoint at Close has the line "closed" after its root. Open
// refuses records that were added after such a checkpoint; its own next checkpoint does not have
// the line. Records after a crash are accepted, and a "recovered" record names them. Whether
// somebody changed them before Gatekit started again is unknown. When checkpoints cannot be
// written, the log accepts 65,536 more records.
//
// [Verification] compares a log, even while it is written, with its chain, its checkpoint and other
// checkpoints, and names the first record that was changed. A [Proof] proves that one record is in
// the log, in the form of C2SP's tlog-proof; verifying it needs the public key and not the log.
//
// Whoever has the private key and can write to the log's folder can still rewrite everything.
// Against that, checkpoints are kept elsewhere: [Options.AnchorFile], [Options.OnCheckpoint]. The
// origin in a checkpoint is random, so that no log is mistaken for another.
//
// # Costs
//
// These figures were measured on two cores of an AMD EPYC with a virtual disk, while other
// processes ran (load average 5 to 12). The lower figure of each range is closer to an idle
// machine:
//
//	go test ./audit -run - -bench Record/1KiB        # a record of a call with 1 KiB of text
//	           one at a time        32 concurrent
//	memory     5 µs                 6 to 7 µs          the log's own work, nothing written
//	write      6 to 17 µs           5 to 12 µs         with a checkpoint per 1,000 records
//	fsync      180 to 2,800 µs      39 to 76 µs        some 30 records share a sync
//	async      7 µs                 10 µs              the queue is often full: the disk's speed
//
//	go run ./test/bench -parts audit -routes http-http -eras modern -sizes 1KiB
//
// In that benchmark, where a call is two records, write added 27 to 45 µs to a median of 130 to
// 200 µs. With 32 concurrent calls, write cost 8 to 18 % of the calls per second. The goal of 15 µs
// and 5 % was not met under that load. Verifying a million records takes 4 to 6 s, of which 1.8 s
// are processor time:
//
//	go test ./audit -run - -bench Verification -benchtime 1x
//
// # Reading order
//
// Records: record.go, values.go, encode.go. Files: segments.go, paths.go, lock_unix.go, files.go.
// Writing: log.go, batch.go, write.go, gapfile.go. Tree and checkpoints: key.go, checkpoint.go,
// tree.go, recovery.go, maintenance.go, anchor.go, age.go, retention.go. Reading and verifying:
// lines.go, reader.go, chain.go, verification.go, proof.go.
package audit
