package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/taskgroup"
)

const (
	// how long a client's first message waits for the probe of a server that is being started
	maxWaitForProbe = 30 * time.Second
	// how old a result must be before it is discarded; an immediate second probe would find the
	// same result
	discardableAfter = 10 * time.Second
	// A URL must respond within this many times ProbeTimeout. A process that does not answer is
	// taken for a legacy server. When a URL does not respond, the probe fails, so a URL gets more
	// time.
	urlProbeTimeouts = 3
	// how many revisions of a server's list are read
	maxListedRevisions = 100
)

// probeID is the id of the probe's request at a URL.
const probeID mcp.ID = "1"

// prober finds out, and remembers, which revisions a server speaks.
type prober struct {
	opts       *Options
	goroutines *taskgroup.Group
	connector  *connector

	mu       sync.Mutex // taken before connector.mu
	current  *probe     // the last probe; nil before the first probe and after discardIf
	failures int        // how many probes in a row have failed
}

// probe is one attempt to find out which revisions a server speaks.
type probe struct {
	principal string        // whose credentials the probe has
	done      chan struct{} // closed when the fields below are set
	endedAt   time.Time
	revisions []string
	guessed   bool      // revisions is a guess: no answer came, or the process ended
	err       error     // why the probe failed
	retryAt   time.Time // when the next probe may be made, if err is set
}

// probeResult is the result of a probe.
type probeResult struct {
	revisions  []string
	discovered bool         // the server knows server/discover
	guessed    bool         // revisions is a guess: no answer came, or the process ended
	late       *pendingCall // the probe's request, if it has not been answered yet
	err        error        // why the probe failed
}

// legacyResult returns the result for a server that does not know server/discover.
func legacyResult() probeResult { return probeResult{revisions: mcp.Legacy.Revisions()} }

// revisions returns the revisions that the server speaks, the newest first. The first call probes
// the server; the result is kept until it proves wrong. After a failed probe, a later call makes
// another probe, with growing delays. A probe that the server refuses has not failed, because the
// refusal is an answer. A call that waits too long for a probe gets an error.
//
// A URL is probed with the credentials of the principal, who is nil for the local user. If the
// server refuses the credentials of another principal, this principal makes another probe.
func (p *prober) revisions(ctx context.Context, who *identity.Principal) ([]string, error) {
	switch p.opts.Era {
	case "modern":
		return mcp.Modern.Revisions(), nil
	case "legacy":
		return mcp.Legacy.Revisions(), nil
	}
	timer := time.NewTimer(maxWaitForProbe)
	defer timer.Stop()
	for {
		current, err := p.start(who)
		if err != nil {
			return nil, err
		}
		select {
		case <-current.done:
		case <-timer.C:
			return nil, unavailable(p.opts.Name,
				"the server has not answered yet which protocol revisions it speaks", nil)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !errors.As(current.err, new(*CredentialsError)) || current.principal == who.ID() {
			return current.revisions, current.err
		}
	}
}

// start returns the current probe. It starts a probe if there is none, or if the last probe failed
// and may be repeated.
func (p *prober) start(who *identity.Principal) (*probe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failures := 0
	if current := p.current; current != nil {
		select {
		case <-current.done:
			if current.err == nil || time.Now().Before(current.retryAt) {
				return current, nil
			}
			failures = p.failures
		default:
			return current, nil
		}
	}
	next := &probe{principal: who.ID(), done: make(chan struct{})}
	if !p.goroutines.Go(func(ctx context.Context) { p.run(ctx, next, who, failures) }) {
		return nil, closingError(p.opts.Name)
	}
	p.current = next
	return next, nil
}

// run makes a probe and publishes its result. failures is the number of probes in a row that have
// failed before.
func (p *prober) run(ctx context.Context, current *probe, who *identity.Principal, failures int) {
	var result probeResult
	var conn *pipeConn // to the probed process, if a session can use it
	if p.opts.Dial.Pipe != nil {
		result, conn = p.probeProcess(ctx, who)
	} else {
		result = p.probeURL(ctx, who)
	}
	p.mu.Lock()
	current.endedAt, current.revisions = time.Now(), result.revisions
	current.guessed, current.err = result.guessed, result.err
	p.failures = 0
	switch {
	case errors.As(result.err, new(*CredentialsError)):
		current.retryAt = current.endedAt // the credentials limit how often they are tried
	case result.err != nil:
		p.failures = failures + 1
		current.retryAt = (&restartSchedule{failures: p.failures}).next(current.endedAt)
	}
	kept := conn != nil && p.current == current && p.connector.keepProbed(conn, result.discovered,
		who.ID())
	close(current.done)
	p.mu.Unlock()
	if result.late != nil {
		p.goroutines.Go(func(ctx context.Context) { p.awaitLateAnswer(ctx, result.late, conn) })
	}
	if conn != nil && (!kept || p.connector.expireProbed(ctx, conn)) {
		p.connector.discard(conn)
	}
}

// awaitLateAnswer waits for the answer to a probe that timed out. Some servers take long to start,
// for example with npx. If the late answer shows that the server is modern, its revisions replace
// the guess.
func (p *prober) awaitLateAnswer(ctx context.Context, request *pendingCall, conn *pipeConn) {
	var r reply
	select {
	case r = <-request.done:
	case <-ctx.Done():
	}
	if r.m == nil {
		return
	}
	conn.records().receiveOwn(r.m, request.request)
	result := p.classify(r.m)
	if result.err != nil || !isModern(result.revisions[0]) {
		return
	}
	p.opts.Log.Info("late answer to the probe: the server is modern", "server", p.opts.Name)
	found := &probe{done: make(chan struct{}), endedAt: time.Now(), revisions: result.revisions}
	close(found.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = found
	p.connector.markProbedModern(conn)
}

// knownEra returns the newest era that the server is known to speak, or "". It sends nothing.
func (p *prober) knownEra() string {
	if p.opts.Era == "modern" || p.opts.Era == "legacy" {
		return p.opts.Era
	}
	p.mu.Lock()
	current := p.current
	p.mu.Unlock()
	if current == nil {
		return ""
	}
	select {
	case <-current.done:
		if current.err != nil || len(current.revisions) == 0 {
			return ""
		}
		if isModern(current.revisions[0]) {
			return "modern"
		}
		return "legacy"
	default:
		return ""
	}
}

// speaksModern reports whether the server is known to speak a modern revision.
func (p *prober) speaksModern() bool {
	p.mu.Lock()
	current := p.current
	p.mu.Unlock()
	if current == nil {
		return false
	}
	select {
	case <-current.done:
		return slices.ContainsFunc(current.revisions, isModern)
	default:
		return false
	}
}

// discardAny discards the probe's result, guessed or not, because the server contradicted it. The
// next use probes the server again.
func (p *prober) discardAny() { p.discardIf(func(*probe) bool { return true }) }

// discardGuess discards the probe's result if it is only a guess. The next use then probes the
// server again.
func (p *prober) discardGuess() {
	p.discardIf(func(current *probe) bool { return current.guessed })
}

// discardIf discards the current result if isDoubted returns true and the result is at least
// discardableAfter old.
func (p *prober) discardIf(isDoubted func(current *probe) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return
	}
	select {
	case <-p.current.done:
		if time.Since(p.current.endedAt) >= discardableAfter && isDoubted(p.current) {
			p.current = nil
		}
	default:
	}
}

// probeProcess sends server/discover to a new process. It also returns the connection if a session
// can use it.
func (p *prober) probeProcess(ctx context.Context, who *identity.Principal) (probeResult,
	*pipeConn) {
	startCtx, cancel := p.opts.startContext(ctx)
	conn, err := p.connector.start(startCtx, who)
	cancel()
	if err != nil {
		return probeResult{err: err}, nil
	}
	version := p.opts.Version
	request, err := conn.calls.begin(ctx, nil, discoverRequest("0", version).m, nil, nil)
	if err != nil {
		return probeResult{err: err}, conn
	}
	probe := discoverRequest(request.id, version)
	if probe, err = conn.records().record(ctx, probe); err == nil {
		err = conn.write(ctx, probe)
	}
	if err == nil {
		select {
		case r := <-request.done:
			if err = r.err; err != nil {
				break
			}
			conn.records().receiveOwn(r.m, probe.m)
			result := p.classify(r.m)
			if result.err == nil && (!result.discovered || isModern(result.revisions[0])) {
				return result, conn
			}
			// The process may take server/discover for the beginning of a session, so no other
			// session can use it.
			p.connector.discard(conn)
			return result, nil
		case <-time.After(p.opts.ProbeTimeout):
			// Some servers answer nothing before initialize. The process can still be initialized.
			result := legacyResult()
			result.guessed, result.late = true, request
			return result, conn
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	p.connector.discard(conn)
	if ctx.Err() != nil {
		return probeResult{err: err}, nil
	}
	// Some servers end when they do not know a method. If this server always ends, its first
	// session will report that.
	p.opts.Log.Info("process ended during the probe: taken for a legacy server",
		"server", p.opts.Name, "error", err)
	result := legacyResult()
	result.guessed = true
	return result, nil
}

// probeURL sends server/discover to a URL, with the credentials of a principal.
func (p *prober) probeURL(ctx context.Context, who *identity.Principal) probeResult {
	o := p.opts
	ctx, cancel := context.WithTimeoutCause(ctx, urlProbeTimeouts*o.ProbeTimeout,
		unavailable(o.Name, "the server's URL did not respond in time", nil))
	defer cancel()
	records := recorder{opts: o}
	if _, ok := o.Dial.HTTP.(Authenticated); ok {
		records.principal = who
	}
	request, err := records.record(ctx, discoverRequest(probeID, o.Version))
	if err != nil {
		return probeResult{err: err}
	}
	request, write, err := records.beginWrite(ctx, request)
	if err != nil {
		return probeResult{err: err}
	}
	postCtx, post := untilWritten(ctx, write)
	defer post.end()
	response, err := o.httpFor(who).Post(postCtx, modernHeader(request.m, false),
		request.parts()...)
	switch {
	case ctx.Err() != nil:
		return probeResult{err: context.Cause(ctx)}
	case err != nil:
		return probeResult{err: noResponse(o.Name, err)}
	}
	var answer *mcp.Message
	find := func(m *mcp.Message, invalid error) bool {
		if invalid == nil && isAnswer(m) && (m.ID() == probeID || isErrorWithoutID(m)) {
			answer = m
		}
		return answer == nil
	}
	switch {
	case isStream(response):
		err = readMessages(ctx, response.Events, o.Limits, &streamPosition{}, find)
		switch {
		case answer != nil:
		case ctx.Err() != nil:
			return probeResult{err: context.Cause(ctx)}
		default:
			return probeResult{err: unavailable(o.Name, "the stream broke before the answer", err)}
		}
	case isSuccess(response.Status):
		messages(o.Limits, response.Body)(find)
	default:
		if response.Events != nil {
			response.Events.Close()
		}
		switch response.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed,
			http.StatusNotAcceptable, http.StatusUnsupportedMediaType,
			http.StatusUnprocessableEntity:
			answer, _ = bodyError(o.Limits, response, probeID)
		default:
			// Other statuses do not show the era.
			return probeResult{err: statusError(o.Name, response)}
		}
	}
	if answer == nil {
		return legacyResult()
	}
	records.receiveOwn(answer, request.m)
	return p.classify(answer)
}

// classify returns the result of a probe that was answered with m.
func (p *prober) classify(m *mcp.Message) probeResult {
	pointer, discovered := "/supportedVersions", true
	if m.Kind == mcp.Error {
		discovered = false
		switch m.ErrorCode() {
		case mcp.CodeUnsupportedVersion:
			pointer = "/data/supported"
		case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability:
			p.opts.Log.Warn("the server rejected the probe", "server", p.opts.Name,
				"code", m.ErrorCode())
			return probeResult{revisions: mcp.Modern.Revisions(), discovered: true}
		default:
			return legacyResult()
		}
	}
	if m.Len(pointer) < 0 {
		return legacyResult() // the server answers any request with a result
	}
	var listed, known []string
	for i := range min(m.Len(pointer), maxListedRevisions) {
		if v, ok := m.Text(pointer + "/" + strconv.Itoa(i)); ok {
			listed = append(listed, v)
		}
	}
	for _, r := range mcp.Revisions() {
		if slices.Contains(listed, r) {
			known = append(known, r)
		}
	}
	if len(known) == 0 {
		return probeResult{err: unavailable(p.opts.Name, fmt.Sprintf(
			"the server speaks only MCP revisions %q, which Gatekit does not know", listed), nil)}
	}
	return probeResult{revisions: known, discovered: discovered || isModern(known[0])}
}

// isModern reports whether a revision is a modern one.
func isModern(revision string) bool { return mcp.EraOf(revision) == mcp.Modern }
