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

// consoleAudit implements console.AuditLog. It verifies only while somebody looks.
type consoleAudit struct {
	gateway *gateway
	config  *config.Config

	verifying sync.Mutex // held during a part
	verified  audit.ResumableVerification

	mu    sync.Mutex
	ended time.Time          // of the last part
	state console.AuditState // the members that verification sets
}

func newConsoleAudit(g *gateway, c *config.Config) *consoleAudit {
	return &consoleAudit{gateway: g, config: c, verified: audit.ResumableVerification{
		Verification: audit.Verification{File: c.Audit.File}}}
}

// State implements console.AuditLog.
func (a *consoleAudit) State(ctx context.Context) (*console.AuditState, error) {
	a.verify(ctx)
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

// verify verifies a part of the log, unless another viewer does, or did a moment ago.
func (a *consoleAudit) verify(ctx context.Context) {
	if !a.verifying.TryLock() {
		return
	}
	defer a.verifying.Unlock()
	a.mu.Lock()
	isSoon := time.Since(a.ended) < verifyInterval
	a.mu.Unlock()
	if isSoon {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	state := continueVerification(ctx, &a.verified)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.ended = state, time.Now()
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
