package upstream

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"gatekit/core/mcp"
)

// maxInitializeAnswers is how many answers to initialize are kept for one server.
const maxInitializeAnswers = 64

// initializeAnswers holds the answers of a server to the initialize requests of recent sessions. A
// client that sends an equal initialize gets the same answer. The server is started only when the
// client's session uses the server. This saves processes: many clients connect and vanish without a
// request. The zero value is empty.
type initializeAnswers struct {
	mu    sync.Mutex
	known map[initializeKey]*initializeAnswer
}

// initializeKey is the digest of a principal and the params of its initialize.
type initializeKey [sha256.Size]byte

// initializeAnswer is the answer to one initialize.
type initializeAnswer struct {
	done   chan struct{} // closed when the fields below are set
	answer *mcp.Message  // nil when initialize failed
	at     time.Time     // when the answer arrived, or initialize failed
}

// initializeKeyOf returns the key of an initialize. The _meta does not count, because it holds the
// progress token and the trace of one request.
func initializeKeyOf(principal string, m *mcp.Message) (key initializeKey, err error) {
	if _, has := m.Get("/_meta"); has {
		if m, err = m.Edit(mcp.Remove("/_meta")); err != nil {
			return key, err
		}
	}
	h := sha256.New()
	owner := sha256.Sum256([]byte(principal))
	h.Write(owner[:])
	h.Write(m.Body())
	h.Sum(key[:0])
	return key, nil
}

// find returns the entry for a key. The answer may not have arrived yet. isNew means that the
// caller has to send initialize and then call finish. An answer older than maxAge is not returned.
func (a *initializeAnswers) find(key initializeKey, maxAge time.Duration) (e *initializeAnswer,
	isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e = a.known[key]; e != nil {
		select {
		case <-e.done:
			if time.Since(e.at) < maxAge {
				return e, false
			}
		default:
			return e, false
		}
	}
	e = &initializeAnswer{done: make(chan struct{})}
	if a.known == nil {
		a.known = make(map[initializeKey]*initializeAnswer)
	}
	a.known[key] = e
	a.shrink()
	return e, true
}

// shrink removes the oldest answer when there are too many. a.mu is held.
func (a *initializeAnswers) shrink() {
	if len(a.known) <= maxInitializeAnswers {
		return
	}
	var oldest initializeKey
	var at time.Time
	for key, e := range a.known {
		select {
		case <-e.done:
			if at.IsZero() || e.at.Before(at) {
				oldest, at = key, e.at
			}
		default: // the answer has not arrived yet
		}
	}
	delete(a.known, oldest)
}

// finish sets the answer of an entry that find has returned as new. answer is nil when initialize
// failed.
func (a *initializeAnswers) finish(key initializeKey, e *initializeAnswer, answer *mcp.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.answer, e.at = answer, time.Now()
	close(e.done)
	if answer == nil && a.known[key] == e {
		delete(a.known, key)
	}
}

// wait waits for the answer of an entry, and returns the answer, or nil when initialize failed. The
// error is context.Cause(ctx).
func (e *initializeAnswer) wait(ctx context.Context) (*mcp.Message, error) {
	select {
	case <-e.done:
		return e.answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// forget discards all answers that have arrived. It is called when the server failed or gave a
// different answer.
func (a *initializeAnswers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, e := range a.known {
		select {
		case <-e.done:
			delete(a.known, key)
		default: // the answer has not arrived yet
		}
	}
}
