// Package witness asks witnesses to cosign the checkpoints of the audit log (C2SP tlog-witness and
// tlog-cosignature).
//
// A witness remembers the newest checkpoint of a log, and cosigns a new one only if the log proves
// that the new one contains the old one. So whoever has the log's key and its files can still
// rewrite the log, but no witness cosigns the rewritten one. gatekit audit verify --witness then
// shows which records are cosigned.
//
// # Guarantees
//
// No message and no record waits for a witness. A Submitter sends the newest checkpoint to all
// witnesses at the same time, at most once in ten seconds, and once more when Gatekit stops. The
// valid cosignatures are kept with their checkpoint, in the file gatekit.jsonl.tree/cosigned: one
// checkpoint for each witness, its newest. They are on the disk before they count.
//
// The time of a request and the size of an answer are bounded by the HTTP client that the caller
// gives; the answer is at most 64 KiB in any case. A witness that fails is asked again after a
// delay that grows to five minutes. After the third failure in a row, the failure is recorded as
// "witness lost", and the next success as "witness back".
//
// # Forks
//
// A witness that has cosigned another history of the log refuses the checkpoint: the consistency
// proof does not verify, or the witness has seen more records than the log has. This is no failure
// of the witness, but evidence that the log was forked, cut or restored from an older copy. It is
// recorded at once as "witness refused", and stays in the state until the witness cosigns again.
// Traffic goes on, as after other failures.
//
// # Reading order
//
// submitter.go decides when to ask, request.go asks one witness once, state.go keeps the results.
package witness
