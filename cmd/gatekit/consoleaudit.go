package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"gatekit/audit"
	"gatekit/core/config"
	"gatekit/core/regularfile"
	"gatekit/transport/console"
)

// Bounds of one view of the audit page.
const (
	verifyBudget   = time.Second
	verifyInterval = 2 * time.Second // between the ends of two parts
	maxAnchorBytes = 4 << 20
)

// verifyTurns lets the viewers of an audit page verify one part after the other: only while
// somebody looks, one part at a time, and with a pause between them.
type verifyTurns struct {
	verifying sync.Mutex // held during a part
	ended     time.Time  // of the last part; guarded by verifying
}

// next calls verify with a context that lasts verifyBudget, unless another viewer verifies a part,
// or did so a moment ago.
func (t *verifyTurns) next(ctx context.Context, verify func(context.Context)) {
	if !t.verifying.TryLock() {
		return
	}
	defer t.verifying.Unlock()
	if time.Since(t.ended) < verifyInterval {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	verify(ctx)
	t.ended = time.Now()
}

// consoleAudit implements console.AuditLog.
type consoleAudit struct {
	gateway *gateway
	config  *config.Config

	turns    verifyTurns
	verified audit.ResumableVerification // only the viewer whose turn it is uses it

	mu    sync.Mutex
	state console.AuditState // the members that verification sets
}

func newConsoleAudit(g *gateway, c *config.Config) *consoleAudit {
	return &consoleAudit{gateway: g, config: c, verified: audit.ResumableVerification{
		Verification: audit.Verification{File: c.Audit.File}}}
}

// State implements console.AuditLog.
func (a *consoleAudit) State(ctx context.Context) (*console.AuditState, error) {
	a.turns.next(ctx, a.verify)
	a.mu.Lock()
	state := a.state
	a.mu.Unlock()
	log, c := a.gateway.recording.audit, a.config.Audit
	state.File, state.Bodies, state.Durability = displayPath(c.File), c.Bodies, c.Durability
	state.Committed = log.Committed()
	if err := log.Health(); err != nil {
		state.Health = err.Error()
	}
	if err := addFiles(&state, c.File); err != nil {
		return nil, err
	}
	a.addAnchor(&state)
	for _, s := range a.gateway.recording.sinks.running() {
		one := console.SinkState{Name: s.Name, Backlog: s.Backlog()}
		if i := slices.IndexFunc(c.Sinks, func(c config.Sink) bool {
			return c.Name == s.Name
		}); i >= 0 {
			one.Description = describeSink(c.Sinks[i])
		}
		state.Sinks = append(state.Sinks, one)
	}
	return &state, nil
}

// addFiles adds the number and the size of the files of a log.
func addFiles(state *console.AuditState, log string) error {
	files, err := audit.Segments(log)
	if err != nil {
		return err
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil { // retention may have removed it
			state.Files++
			state.Size += info.Size()
		}
	}
	return nil
}

// verify verifies a part of the log.
func (a *consoleAudit) verify(ctx context.Context) {
	state := continueVerification(ctx, &a.verified)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = state
}

// continueVerification verifies a further part of a log, until ctx ends, and returns what it knows.
func continueVerification(ctx context.Context,
	v *audit.ResumableVerification) (state console.AuditState) {
	result, complete, err := v.Continue(ctx)
	now := time.Now()
	if err != nil {
		return console.AuditState{Failure: err.Error(), FailureAt: now}
	}
	state = console.AuditState{First: result.First, Verified: result.Last, VerifiedAt: now,
		Complete: complete, Covered: result.Checkpoint.Size,
		Key: fmt.Sprint(result.Checkpoint.Signer)}
	for i, span := range result.Recovered {
		if i == maxRecovered {
			state.Recovered = append(state.Recovered, fmt.Sprintf("and %d more ranges",
				len(result.Recovered)-i))
			break
		}
		state.Recovered = append(state.Recovered, fmt.Sprintf("%d to %d", span.From,
			span.Through))
	}
	return state
}

// addAnchor adds the newest checkpoint in the anchor.
func (a *consoleAudit) addAnchor(state *console.AuditState) {
	file := a.config.Audit.Anchor
	if file == "" {
		return
	}
	state.Anchor = displayPath(file)
	fail := func(err error) { state.AnchorError = "The anchor cannot be read: " + err.Error() }
	text, written, err := readEnd(file, maxAnchorBytes)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("it does not exist yet; it is written within a minute")
	}
	if err != nil {
		fail(err)
		return
	}
	key, err := audit.ReadPublicKey(audit.PublicKeyFile(a.config.Audit.File))
	if err != nil {
		fail(err)
		return
	}
	all, _, err := audit.OpenCheckpoints(text, key)
	if err != nil {
		fail(err)
		return
	}
	state.AnchorAt = written
	for _, c := range all {
		state.AnchorCovered = max(state.AnchorCovered, c.Size)
	}
}

// readEnd returns the last bytes of a regular file, and when it was written.
func readEnd(file string, limit int64) (b []byte, written time.Time, err error) {
	f, err := regularfile.Open(file)
	if err != nil {
		return nil, written, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, written, err
	}
	b = make([]byte, min(info.Size(), limit))
	_, err = f.ReadAt(b, info.Size()-int64(len(b)))
	return b, info.ModTime(), err
}
