package upstream

import (
	"context"
	"slices"
	"strconv"
	"time"

	"gatekit/core/mcp"
)

// spareFor is how long the process that was probed is kept for a session to take it.
const spareFor = 30 * time.Second

// probeWait is how long a client's first message waits for a server that was never seen before: it
// is being started.
const probeWait = 30 * time.Second

// doubtAfter is how old a finding has to be before it can prove wrong: what was found a moment ago
// would be found again.
const doubtAfter = 10 * time.Second

// probe is one attempt to find out which revisions a server speaks (protocol.md 4.2, 4.3).
type probe struct {
	done      chan struct{} // closed when what follows is set
	at        time.Time
	revisions []string
	weak      bool      // concluded from what the server did not say
	err       error     // the probe is no evidence
	retry     time.Time // with err: when the next one may be made
}

// Revisions are those that the server was found to speak, newest first. The first call probes the
// server; what was found is kept until it proves wrong. A probe that failed (which is not the same
// as one that was refused) is repeated by a later call, with back-off. One that takes long is an
// error for those who wait.
func (u *Upstream) Revisions(ctx context.Context) ([]string, error) {
	switch u.o.Era {
	case "modern":
		return mcp.Modern.Revisions(), nil
	case "legacy":
		return mcp.Legacy.Revisions(), nil
	}
	p, err := u.probing()
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		return p.revisions, p.err
	default:
	}
	timer := time.NewTimer(probeWait)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.revisions, p.err
	case <-timer.C:
		return nil, unavailable(u.o.Name, "it is still being asked which revisions it speaks", nil)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// probing answers the probe that counts, and starts it where there is none.
func (u *Upstream) probing() (*probe, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fails := 0
	if p := u.probe; p != nil {
		select {
		case <-p.done:
			if p.err == nil || time.Now().Before(p.retry) {
				return p, nil
			}
			fails = u.fails
		default:
			return p, nil
		}
	}
	p := &probe{done: make(chan struct{})}
	if !u.life.run(func(ctx context.Context) { u.run(ctx, p, fails) }) {
		return nil, unavailable(u.o.Name, "it is being closed", errClosed)
	}
	u.probe = p
	return p, nil
}

// run makes the probe and publishes what it found.
func (u *Upstream) run(ctx context.Context, p *probe, fails int) {
	var f finding
	var w *wire
	if u.o.Dial.Pipe != nil {
		f, w = u.probePipe(ctx)
	} else {
		f = u.probeHTTP(ctx)
	}
	u.mu.Lock()
	p.at, p.revisions, p.weak, p.err = time.Now(), f.revisions, f.weak, f.err
	u.fails = 0
	if f.err != nil {
		u.fails = fails + 1
		p.retry = (&pace{fails: u.fails}).due(p.at)
	}
	keep := w != nil && !u.closed && u.probe == p
	if keep {
		u.spare, u.met = w, f.met
	}
	close(p.done)
	u.mu.Unlock()
	if f.late != nil {
		u.life.run(func(ctx context.Context) { u.hear(ctx, f.late, w) })
	}
	if w != nil && (!keep || u.unclaimed(ctx, w)) {
		u.drop(w)
	}
}

// unclaimed takes back the process that was probed when no session has taken it for a while.
func (u *Upstream) unclaimed(ctx context.Context, w *wire) bool {
	sleep(ctx, spareFor)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.spare != w {
		return false // a session has it, or Close
	}
	u.spare = nil
	return true
}

// hear waits for the answer to a probe that was given up. A server that takes long to start (npx)
// and then says that it is modern is believed.
func (u *Upstream) hear(ctx context.Context, c *call, w *wire) {
	var r reply
	select {
	case r = <-c.done:
	case <-ctx.Done():
	}
	if r.m == nil {
		return
	}
	f := u.classify(r.m)
	if f.err != nil || !isModern(f.revisions[0]) {
		return
	}
	u.log.Info("a server answered the probe late: it is modern", "server", u.o.Name)
	found := &probe{done: make(chan struct{}), at: time.Now(), revisions: f.revisions}
	close(found.done)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.probe = found
	if u.spare == w {
		u.met = true
	}
}

// speaksModern says whether the server is known to be modern.
func (u *Upstream) speaksModern() bool {
	u.mu.Lock()
	p := u.probe
	u.mu.Unlock()
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return slices.ContainsFunc(p.revisions, isModern)
	default:
		return false
	}
}

// doubt says that a server did not behave as what was found of it: the next use probes it again.
func (u *Upstream) doubt() { u.reconsider(func(*probe) bool { return true }) }

// doubtWeak is doubt where what was found is only a conclusion.
func (u *Upstream) doubtWeak() { u.reconsider(func(p *probe) bool { return p.weak }) }

func (u *Upstream) reconsider(doubted func(p *probe) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.probe == nil {
		return
	}
	select {
	case <-u.probe.done:
		if time.Since(u.probe.at) >= doubtAfter && doubted(u.probe) {
			u.probe = nil
		}
	default:
	}
}

// finding is what an answer to server/discover says.
type finding struct {
	revisions []string
	met       bool  // it was a result of server/discover
	weak      bool  // it is a conclusion from silence, or from the process's end
	late      *call // the question that is still open
	err       error
}

// probePipe asks a new process, and answers it too if a session can use it.
func (u *Upstream) probePipe(ctx context.Context) (finding, *wire) {
	start, cancel := context.WithTimeoutCause(ctx, u.o.StartTimeout, unavailable(u.o.Name,
		"it took too long to start", nil))
	w, err := u.start(start)
	cancel()
	if err != nil {
		return finding{err: err}, nil
	}
	c, err := w.calls.begin(ctx, nil, discover("0", u.o.Version).m, nil, nil)
	if err != nil {
		return finding{err: err}, w
	}
	err = w.pipe.Write(ctx, discover(c.id, u.o.Version).bytes())
	if err == nil {
		select {
		case r := <-c.done:
			if err = r.err; err != nil {
				break
			}
			f := u.classify(r.m)
			if f.err == nil && (!f.met || isModern(f.revisions[0])) {
				return f, w
			}
			u.drop(w) // it took server/discover for the beginning of what it will not go on with
			return f, nil
		case <-time.After(u.o.ProbeTimeout):
			// Some servers say nothing before they are initialized. The process can be.
			return finding{revisions: mcp.Legacy.Revisions(), weak: true, late: c}, w
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	u.drop(w)
	if ctx.Err() != nil {
		return finding{err: err}, nil
	}
	// It ended. Some servers do when they do not know a method; if this one ends in any case, its
	// session will tell.
	u.log.Info("a server ended when it was probed; taken for a legacy one", "server", u.o.Name,
		"error", err)
	return finding{revisions: mcp.Legacy.Revisions(), weak: true}, nil
}

// classify reads the answer to server/discover (protocol.md 4.3).
func (u *Upstream) classify(m *mcp.Message) finding {
	at, met := "/supportedVersions", true
	if m.Kind == mcp.Error {
		met = false
		switch m.ErrorCode() {
		case mcp.CodeUnsupportedVersion:
			at = "/data/supported"
		case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability:
			u.log.Warn("a server found a fault in the probe", "server", u.o.Name,
				"code", m.ErrorCode())
			return finding{revisions: mcp.Modern.Revisions(), met: true}
		default:
			return finding{revisions: mcp.Legacy.Revisions()}
		}
	}
	if m.Len(at) < 0 {
		// no DiscoverResult: it answers anything with something
		return finding{revisions: mcp.Legacy.Revisions()}
	}
	var listed, known []string
	for i := range min(m.Len(at), 100) {
		if v, ok := m.Text(at + "/" + strconv.Itoa(i)); ok {
			listed = append(listed, v)
		}
	}
	for _, r := range mcp.Revisions() {
		if slices.Contains(listed, r) {
			known = append(known, r)
		}
	}
	if len(known) == 0 {
		return finding{err: declaredUnknown(u.o.Name, listed)}
	}
	return finding{revisions: known, met: met || isModern(known[0])}
}

func isModern(revision string) bool { return mcp.EraOf(revision) == mcp.Modern }
