// Package audit is the log of every decision: a pipeline.Recorder that writes one JSON object a line, each bound to the line before it
// by its SHA-256.
//
// # What it promises
//
// When Record returns nil, the line is as safe as [Options.Durability] says, and the message may move. When it returns an error,
// the log holds no line of it (or one that is taken back before the next is written), and the message does not move. A line is always whole, always valid
// JSON of bounded length (bodies apart), whatever names and reasons hold. Seq and prev run without a gap over restarts; two
// processes never share a file.
//
// # What a line holds
//
// In this order, what is empty left out: seq, time, prev, session, exchange, principal, direction, kind, method, server, name, action,
// reason, steps (each: stage, action, reason, micros, findings, changed), before, after (each: size, sha256, and body where wanted), micros, error. Before and after
// speak of the message's body as it came and as it goes; there is no after when nothing went. Prev is the hex SHA-256 of the line before, without
// its line feed, or 64 zeros.
//
// No content is in a line but names and reasons, and the body with [Redacted]: always the one that went after the stages,
// never the one that came if anything was changed, and none of what was denied. The hash of a body that held a short secret can be found by trying; who
// cannot have that sets [None].
//
// # How a line is written
//
// Hashes of bodies and everything of the line but its place in the chain are made by each Record on its own, in parallel. Under a lock the line gets its number and
// joins the lines that wait. The first of them writes, once the write before is done, for all that have joined by then, in one write (and one fsync).
//
// # Why a failed write is taken back
//
// A write may fail in part, or report a failure though all was done. Either way the messages were refused, so the file is cut back to the
// last line that was answered for, and seq and prev go back with it: the chain holds exactly the decisions that took effect. The lines that were
// chained to the failed ones fail with them. Until the file could be cut, nothing more is written. With [Async] the lines were
// answered for before they were written; they stay in the queue, and are tried again with the next Record, which fails until they are written.
//
// # What the chain does not show
//
// Whoever can write the file can cut lines off its end, change the last one, or make all of it anew. Against that the head has to be kept elsewhere.
package audit
