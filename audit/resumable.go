package audit

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// ResumableVerification verifies a log in parts, while the log grows. It verifies the records that
// the log's checkpoint covers. A record that was verified is not read again, so a later change of
// it is not found: [Verification] reads all records. The zero value with File set is ready to use.
// It is not safe for concurrent use.
type ResumableVerification struct {
	Verification // without Checkpoints, Progress and Witnesses, which are ignored

	verifier *verifier // nil before the first part, and after an error
}

// Continue verifies the records after those that were verified before, up to the current checkpoint
// or until ctx ends. The end of ctx is no error: then, complete is false. The result describes all
// records that were verified so far; the caller must not change it. After any other error, the next
// call begins with the first record again.
func (v *ResumableVerification) Continue(ctx context.Context) (result *VerificationResult,
	complete bool, err error) {
	for range 2 {
		result, complete, err = v.advance(ctx)
		if !errors.Is(err, errExpired) {
			break
		}
		v.verifier = nil // the next records have expired, so begin with the first that exists
	}
	if err != nil {
		v.verifier = nil
	}
	return result, complete, err
}

// errExpired reports that the next record was removed before it was verified.
var errExpired = errors.New("the next records were removed before they were verified")

func (v *ResumableVerification) advance(ctx context.Context) (*VerificationResult, bool, error) {
	w := v.verifier
	if w == nil {
		w = &verifier{Verification: &Verification{File: v.File, Key: v.Key},
			dir: v.File + ".tree"}
	}
	before := w.result
	w.result = &VerificationResult{InUse: isLocked(v.File)}
	if before != nil {
		w.result.First = before.First
	}
	w.largest, w.tile, w.leaves = nil, tlog.Tile{N: -1}, nil
	if err := w.loadCheckpoints(); err != nil {
		return nil, false, err
	}
	own := w.result.Checkpoint
	if before != nil && before.Checkpoint.Origin != own.Origin {
		return nil, false, fmt.Errorf("the checkpoint is of another log than before: %s, not %s",
			own.Origin, before.Checkpoint.Origin)
	}
	if uint64(own.Size) < w.chain.seq {
		return nil, false, fmt.Errorf("the checkpoint signed by %s covers %d records, but %d "+
			"were covered before: the log was shortened", own.Signer, own.Size, w.chain.seq)
	}
	v.verifier = w
	if uint64(own.Size) == w.chain.seq {
		if w.chain.seq > 0 && w.tree.root() != own.Root {
			return nil, false, w.rootMismatch(own)
		}
		return v.end(w)
	}
	resumes := w.chain.seq > 0
	lines := &Reader{File: v.File, From: w.chain.seq + 1, Through: uint64(own.Size), Seek: true}
	for line, err := range lines.Lines(ctx) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, false, err
		}
		if seq, _, err := parseLineHead(line); resumes && err == nil && seq > w.chain.seq+1 {
			return nil, false, errExpired
		}
		resumes = false
		if err := w.verifyLine(lines.Position(), line); err != nil {
			return nil, false, err
		}
	}
	if ctx.Err() != nil {
		w.result.Last, w.result.Recovered = w.chain.seq, w.recovered
		return w.result, false, nil
	}
	return v.end(w)
}

// end checks what can be checked when all records that the checkpoint covers were read.
func (*ResumableVerification) end(w *verifier) (*VerificationResult, bool, error) {
	if err := w.finish(); err != nil {
		return nil, false, err
	}
	return w.result, true, nil
}
