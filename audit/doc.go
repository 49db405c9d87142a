// Package audit is the log of every decision: a pipeline.Recorder that writes one JSON object a
// line, each bound to the line before it by its SHA-256, and all of them to signed checkpoints of a
// Merkle tree.
//
// # What it promises
//
// When Record returns nil, the line is as safe as [Options.Durability] says, and the message may
// move. When it returns an error, the log holds no line of it (or one that is taken back before the
// next is written), and the message does not move. A line is always whole, always valid JSON of
// bounded length (bodies apart), whatever names and reasons hold. Seq and prev run without a gap
// over restarts and files; two processes never share a log.
//
// # Its files
//
//	gatekit.jsonl                        the file that is written
//	gatekit-00000000000000000001.jsonl   one that was written before, with the number of its first record
//	gatekit.jsonl.tree/checkpoint        the last checkpoint
//	gatekit.jsonl.tree/tile/0/x001/234   hashes of the tree, as C2SP's tlog-tiles has them
//	gatekit.jsonl.key, .pub              the key that signs checkpoints, mode 0600, and the public one
//	gatekit.jsonl.lock                   is locked by the process that writes
//
// A file that would grow beyond [Options.SegmentBytes] is renamed and another begun; chain and tree
// go on. Files whose time is over by [Options.Keep] are removed after a record with the action
// "prune" says so, with from and through, the numbers of the first and last record that go, and
// that has a checkpoint; their hashes stay in the tree. With For the file that is written ends when
// its first record is as old, so that records stay at most twice as long; the last up to 255, whose
// tile is not full, until more come. A full disk is not freed by that: the record that says so
// needs space, too. That is a known limit. Whoever else moves the file that is written away, or
// removes it, ends the log: with Fsync the next record is an error, else the next one after a tenth
// of a second, and from then on messages are denied.
//
// # The log's own records
//
// A record of one of these actions is about the log: "recovered" (a last line that a crash had torn
// was cut off, before it was answered for unless with [DurabilityAsync]; or there were records that
// had no checkpoint, which from and through name), "gap" (records could not be written, how many
// and since when; their messages did not move), "prune", "anchor lost" and "anchor back" (whether
// [Options.AnchorFile] can be written), and "clock" (the clock was set back, or is behind the last
// record). Seq is the order of records. Time is that of the beginning of a decision, as the clock
// had it: it may go back by a little with decisions at the same time, and by more where a record
// says so.
//
// # What a line holds
//
// In this order, what is empty left out: seq, time, prev, session, exchange, principal, direction,
// kind, method, server, name, action, reason, steps (each: stage, action, reason, micros, findings,
// changed), before, after (each: size, sha256 or hmac, and body where wanted), values, code,
// failed, micros, error. Before and after speak of the message's body as it came and as it goes;
// there is no after when nothing went. Prev is the hex SHA-256 of the line before, without its line
// feed, or 64 zeros.
//
// A call has a record when it was decided, before it moved, and one for what came of it: the
// response or error to the client with the same exchange, which is judged and recorded before it
// moves, too, or, where no answer came (a time-out, a lost server, a refusal), Gatekit's own with
// the action "answer". Code is that of an error, failed says that the result of a tool does. Micros
// is what judging took; how long the call took is the time between the two records. There is no
// third record, that would say the same again.
//
// No content is in a line but names and reasons, and the body with [BodiesRedacted]: always the one
// that went after the stages, never the one that came if anything was changed, and none of what was
// denied. What was changed or denied has in before, in place of its hash, one with a key of the log
// (hmac): a short secret that a stage took out cannot be found by trying. The hash of what went on
// as it came is a plain one, so that others can recognise it; who cannot have that sets
// [BodiesNone]. Values are keyed hashes of the first 16 texts of a request's arguments, of up to 4
// KiB: equal ones can be found ([ValueHasher]) and not be read. Nothing says where in the arguments
// they are, as the names in there are the client's words.
//
// A name, a method that the protocol does not have, and what Gatekit's own words quote stand in a
// line where the stages have judged them: all that want the message were asked, none failed, and
// none found anything there; or where a server has listed the name. (Where there are no stages they
// stand there always.) Else they are left out: who calls a tool by what plugin "secrets" looks for,
// or asks for a resource that there is not, has said what is not to be kept. Their keyed hashes are
// then the first of values, and before and after have an hmac and no body.
//
// # How a line is written
//
// Hashes of bodies and everything of the line but its place in the chain are made by each Record on
// its own, in parallel. Under a lock the line gets its number and joins the lines that wait. The
// first of them writes, once the write before is done, for all that have joined by then, in one
// write (and one fsync).
//
// # Why a failed write is taken back
//
// A write may fail in part, or report a failure though all was done. Either way the messages were
// refused, so the file is cut back to the last line that was answered for, and seq and prev go back
// with it: the chain holds exactly the decisions that took effect. The lines that were chained to
// the failed ones fail with them. Until the file could be cut, nothing more is written. With
// [DurabilityAsync] the lines were answered for before they were written; they stay in the queue,
// and are tried again with the next Record, which fails until they are written.
//
// # What the chain does not show, and the tree does
//
// Whoever can write the file can cut lines off its end, change the last one, or make all of it
// anew. So the lines are the leaves of a Merkle tree (RFC 6962, record 1 is leaf 0), and what it is
// after so many records is signed: a [Checkpoint] in C2SP's tlog-checkpoint form, a second
// after a record or after 1,000 (though not more often than five times a second), and at stop. A
// checkpoint speaks for all records before it; those after the last one are bound by the chain
// alone.
//
// The log is on the disk before a checkpoint of it is. Tiles follow without waiting for the disk:
// what a crash leaves is made whole from the log at the next start. A log that is shorter than its
// checkpoint, or than the newest in [Options.AnchorFile], or another than it says, is refused
// there, and so is a checkpoint that another key has signed. Of a file that is missing between
// others the operator is told; Verification says more. A log has a checkpoint before its first
// record, of none: records without any are refused. The one that is made when the log is closed
// says so, in the line "closed" after its root, and the one with which it is opened again does not:
// records after a closed log are refused, those after a crash are taken, and a record says which.
// Nothing shows whether somebody has changed those in between. When checkpoints cannot be written
// the log goes on for 65,536 records.
//
// [VerificationConfig] holds a log against its chain, its checkpoint and others, while it is written,
// too, and names the first record that is not as it was. A [Proof] shows to who has nothing but the
// public key that one record is in the log, in C2SP's tlog-proof form.
//
// Who holds the key and may write here can still make all anew. Against that checkpoints go
// elsewhere: [Options.AnchorFile], [Options.Anchor]. The origin in a checkpoint is the log's own,
// made at random when it begins: two logs are never taken for one.
//
// # What it costs
//
// Measured on two cores of an AMD EPYC and a virtual disk that others used at the same time (load 5
// to 12), so the lower figure of each pair is nearer to what a machine of its own shows:
//
//	go test ./audit -run - -bench Record/1KiB        # a record of a call with 1 KiB of text
//	           one at a time        32 at a time
//	memory     5 µs                 6 to 7 µs          the log's own work, nothing written
//	write      6 to 17 µs           5 to 12 µs         a checkpoint for each 1,000 records included
//	fsync      180 to 2,800 µs      39 to 76 µs        some 30 records share a sync
//	async      7 µs                 10 µs              with a queue that is often full: as fast as the disk
//
//	go run ./test/bench -parts audit -routes http-http -eras modern -sizes 1KiB   # a call is two records
//
// There write added 27 to 45 µs to a median of 130 to 200 µs, and took 8 to 18 % of the calls per
// second at 32 at a time; what is to be reached, 15 µs and 5 %, was not, under that load. A million
// records are verified in 4 to 6 s, 1.8 s of processor time:
//
//	go test ./audit -run - -bench Verification -benchtime 1x
package audit
