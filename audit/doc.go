// Package audit is the log of every decision: a pipeline.Recorder that writes one JSON object per
// line. Each line holds the SHA-256 of the line before it, and signed checkpoints of a Merkle tree
// cover all lines.
//
// # Guarantees
//
// When Record returns nil, the line of the record is as safe as [Options.Durability] promises, and
// the message may be forwarded. When Record returns an error, the message is not forwarded, and the
// log has no line for the message. The remains of a failed write are cut off before the next line
// is written. Every line is complete and valid JSON, whatever names and reasons contain. The length
// of a line, apart from its bodies, is bounded. The record numbers (the member "seq") have no gap,
// and the chain of hashes (the member "prev") is not broken, even across restarts and files. Two
// processes never write to the same log.
//
// # Files
//
//	gatekit.jsonl                        the active file
//	gatekit-00000000000000000001.jsonl   a segment, named after its first record
//	gatekit.jsonl.tree/checkpoint        the last checkpoint
//	gatekit.jsonl.tree/origin            the origin of the log, which its checkpoints name
//	gatekit.jsonl.tree/gap               count of records that could not be written
//	gatekit.jsonl.tree/ages              ages of the segments, with Retention.For
//	gatekit.jsonl.tree/roster            logs of other replicas, with Options.Replica
//	gatekit.jsonl.tree/cosigned          checkpoints that witnesses have cosigned
//	gatekit.jsonl.tree/witnesses         states of the witnesses, from package audit/witness
//	gatekit.jsonl.tree/tile/0/x001/234   hashes of the tree, in the layout of C2SP's tlog-tiles
//	gatekit.jsonl.key, .pub              the key pair that signs checkpoints, mode 0600
//	gatekit.jsonl.lock                   locked by the process that writes the log
//
// An active file that would exceed [Options.SegmentBytes] is renamed to a segment, and a new file
// is started. Chain and tree continue across files.
//
// Segments beyond the bounds of [Options.Keep] are removed. Before that, a record with the action
// "prune" is written. Its members "from" and "through" name the first and the last removed record.
// A checkpoint covers the record "prune". The hashes of removed records stay in the tree.
//
// With Retention.For, the active file is rotated when its first record is older than Retention.For.
// So a record stays for at most twice that time. An age counts the time for which the log was open.
// A change of the wall clock does not count, so a clock that jumps forward removes nothing. The
// time between two processes is known only from the wall clock; it counts up to a tenth of
// Retention.For. The file gatekit.jsonl.tree/ages keeps the ages. A segment that is not in this
// file begins with age 0. A segment also stays until the tiles of all its records are full, which
// can take 255 further records. Retention cannot free a full disk, because the record of the
// removal needs space, too. This is a known limit.
//
// If anybody but Gatekit moves, removes, cuts or changes the active file, the log ends: a record
// fails, and from then on messages are denied. The log checks the length of the file after each
// write. It also checks the identity and the last 256 bytes of the file. With [DurabilityFsync],
// this check comes before each write. With any other durability, it comes before a write if the
// last check is at least a tenth of a second old. While records are written, a timer also starts
// the check once a second. A change further up in the file is found at the next start.
//
// # Records about the log
//
// Records with these actions are about the log itself:
//
//   - "recovered": a crash had left an incomplete last line, which was cut off; or the records
//     "from" to "through" had no checkpoint when Gatekit started. The message of a line that was
//     cut off was not forwarded, except with [DurabilityAsync];
//   - "gap": records could not be written, and their messages were denied; the reason says how many
//     and since when. If Gatekit ends before the log can be written again, the next start writes
//     this record: the count is saved in a file whose space was allocated before;
//   - "prune": segments were removed;
//   - "anchor lost", "anchor back": the file [Options.AnchorFile] could not be written, or could be
//     written again;
//   - "roster": the logs of the replicas of a cluster that this one knows. Each Open writes such a
//     record, so it is the first record of a new log. [Log.Meet] writes one about a single other
//     log. The member "roster" has the entries (each: replica, origin, key, since, checkpoint);
//   - "clock": while the log was open, the clock was set back, or set forward by a minute or more;
//     or, when Gatekit started, the clock was behind the last record, or so far ahead of the last
//     stop that Retention.For counts only a part of the time since that stop.
//
// The order of the records is the order of their seqs. Time is the wall clock at the beginning of a
// decision. From one record to the next, time may go back a little, because decisions are
// concurrent. It goes back further only where a "clock" record says so.
//
// # Members of a line
//
// A line has the members of this list, in this order: seq, time, prev, session, exchange,
// principal, client, authentication, scope, direction, kind, method, server, name, action, reason,
// steps (each: stage, action, reason, micros, findings, changed, hidden, ids, hidden_ids, allowed),
// before, after (each: size, sha256 or hmac, and body if configured), values, code, failed, micros,
// error. Some records about the log also have "from" and "through", or "roster". Empty members are
// left out.
// The principal is its ID: issuer#subject, if a token proved it. The client is the OAuth client id
// of the token. The members authentication and scope are only in records of messages to servers; an
// answer has the same exchange as its request. Claims are never recorded. The members "before" and
// "after" describe the message's body before the stages and after the stages. The member "after" is
// missing if nothing was forwarded. Prev is the hex SHA-256 of the previous line without its line
// feed; in the first line it is 64 zeros.
//
// A call has two records with the same exchange. The first is about the decision, and is written
// before the request is forwarded. The second is about the response. The response or error is
// evaluated and recorded before it is forwarded, too. If the server sends no response (a time-out,
// a lost server, a denial), the second record is about Gatekit's own error, and has the action
// "answer". Code is the JSON-RPC error code; failed is true when the result of a tool has isError:
// true. Micros is the time that the evaluation took. The duration of a call is the time between its
// two records.
//
// # What a line does not reveal
//
// A line contains no content other than names and reasons. With [BodiesRedacted] only, a line also
// contains the body that was forwarded, as the stages left it. A line never contains a body as it
// was before a stage changed or denied it. The record of a changed or denied body has an hmac with
// a key of the log instead of a plain hash. Otherwise a short secret that a stage removed could be
// found by hashing guesses. A body that was forwarded unchanged gets a plain hash, which any reader
// of the log can compare with hashes of guesses. To avoid that, use [BodiesNone].
//
// The member "values" holds keyed hashes of the first 16 strings, each of up to 4 KiB, in a
// request's arguments. Equal strings can be found ([ValueHasher]) but not read. The line does not
// say where in the arguments a string is, because the client chooses the names of the arguments.
//
// The name in a message and a method that MCP does not define are written only if the stages have
// checked them: every stage that applies was asked, no stage failed, and no stage found anything in
// them. The same holds for reasons that quote such a name or method. A name that a server has
// listed is written, too. If there is no stage at all, all names are written.
//
// A name or method that the stages have not checked is left out. Otherwise a client that sends a
// secret as the name of a tool would write the secret into the log. The keyed hashes of the texts
// that are left out come first in "values", and the members "before" and "after" have an hmac and
// no body.
//
// If the name of a record is a URI, keyed hashes replace the user name and password, and the query
// and fragment of the URI, because they often hold a secret. The same holds for a reason that
// quotes the name.
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
// messages were denied. So the file is truncated to the last committed line, and seq and prev
// continue from that line: the chain holds exactly the decisions that took effect. Lines that were
// chained to the failed lines fail, too. Nothing is written until the file has been truncated. With
// [DurabilityAsync], Record had already returned for the failed lines. These lines stay in the
// queue, and each later call of Record fails until they are written.
//
// # What the tree adds to the chain
//
// Whoever can write the file can remove lines at its end, change its last line, or rewrite the
// whole file. Therefore the lines are also the leaves of a Merkle tree (RFC 6962; record 1 is leaf
// 0), whose root is signed in a [Checkpoint], in the form of C2SP's tlog-checkpoint. A checkpoint
// begins a second after a record, or after 1,000 records, and at Close. The next checkpoint begins
// at least 20 ms after the last one has ended. A checkpoint covers all records before it. No record
// waits for a checkpoint, so there is no fixed bound for the records that a kill leaves without
// one. There are up to 1,000 of them, or those of 20 ms if these are more, and in addition those
// that were written while a checkpoint went to the disk: some 10 ms, on a slow disk longer. Records
// after the last checkpoint are protected by the chain only.
//
// Records are on the disk before a checkpoint covers them. Tiles are not flushed; after a crash
// they are rebuilt from the log. Open compares the log with its checkpoint and with the newest
// checkpoint in [Options.AnchorFile]. It refuses a log that is shorter than one of the two
// checkpoints says, and a checkpoint that another key has signed. A checkpoint also says how long
// the file with its last record is: the line "file FIRST BYTES" has the seq of the file's first
// record and the length. Open refuses the log when that file was cut or begins with another record.
// If the file has at most 64 MiB, Open also refuses the log when the hash of one of the file's
// records is not in the tree. Only Verification compares older segments; Open logs a missing
// segment.
//
// The first checkpoint covers no records and is made before the first record. So Open refuses
// records without any checkpoint. The checkpoint at Close has the line "closed" after its root.
// Open refuses records that were added after such a checkpoint. Before Open adds a record itself,
// it replaces this checkpoint by one without the line "closed". After a crash, Open accepts records
// that have no checkpoint, and a "recovered" record names them. Whether somebody changed these
// records before Gatekit started again is unknown. When checkpoints cannot be written, the log
// accepts 65,536 more records.
//
// [Verification] verifies the chain of a log, and compares the log with its checkpoint and with
// other checkpoints. It names the first record that was changed, and also works while the log is
// written. A [Proof] proves that one record is in the log, in the form of C2SP's tlog-proof;
// verifying it needs the public key and not the log.
//
// Whoever has the private key and can write to the log's folder can still rewrite everything.
// Against that, checkpoints are kept elsewhere: [Options.AnchorFile], [Options.OnCheckpoint]. And
// witnesses cosign checkpoints (C2SP tlog-cosignature): see package audit/witness. The
// origin in a checkpoint is random, so that no log is mistaken for another.
//
// # Costs
//
// These figures were measured on two cores of an AMD EPYC with a virtual disk, while other
// processes ran (load average 5 to 12). The lower figure of each range is closer to that of an idle
// machine:
//
//	go test ./audit -run - -bench Record/1KiB        # a record of a call with 1 KiB of text
//	           one at a time        32 concurrent
//	memory     5 µs                 6 to 7 µs          the log's own work, nothing written
//	write      6 to 17 µs           5 to 12 µs         with a checkpoint per 1,000 records
//	fsync      180 to 2,800 µs      39 to 76 µs        some 30 records share a sync
//	async      7 µs                 10 µs              the disk's speed: the queue is often full
//
//	go run ./test/bench -parts audit -routes http-http -eras modern -sizes 1KiB
//
// In that benchmark, a call makes two records. [DurabilityWrite] added 27 to 45 µs to a median of
// 130 to 200 µs. With 32 concurrent calls, it cost 8 to 18 % of the calls per second. The goals
// were 15 µs and 5 %, and were not met under that load. Verifying a million records takes 4 to 6 s,
// of which 1.8 s are processor time:
//
//	go test ./audit -run - -bench Verification -benchtime 1x
//
// # Reading order
//
// Records: record.go, values.go, encode.go. Files: segments.go, paths.go, lock_unix.go, files.go.
// Writing: log.go, batch.go, write.go, gapfile.go. Tree and checkpoints: key.go, checkpoint.go,
// tree.go, recovery.go, maintenance.go, anchor.go, age.go, retention.go. Reading and verifying:
// lines.go, reader.go, chain.go, verification.go, proof.go. Several replicas:
// roster.go. Witnesses: cosignature.go.
package audit
