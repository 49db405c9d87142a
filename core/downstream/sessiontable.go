package downstream

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	errTooManySessions = errors.New("too many sessions: end a session, or wait until a session " +
		"has been idle for long enough")
	errClosed = errors.New("gatekit is closing")
)

// sessionTable holds the sessions of HTTP clients between their requests, by key. It bounds the
// number of sessions, and closes a session that has been idle for a while.
type sessionTable[T interface{ close() }] struct {
	max  int
	idle time.Duration  // how long an idle session is kept
	wg   sync.WaitGroup // counts the sessions that are being closed

	mu      sync.Mutex // guards the fields below, and the fields of entries
	entries map[string]*sessionEntry[T]
	closing int // how many removed sessions are being closed
	closed  bool
	empty   chan struct{} // closed when entries becomes empty; nil while nothing waits for it
}

// sessionEntry is one session in a sessionTable.
type sessionEntry[T any] struct {
	key       string
	value     T
	uses      int         // how many requests and calls use the session; it is idle at zero
	idleSince time.Time   // when uses last fell
	timer     *time.Timer // calls expire
}

func newSessionTable[T interface{ close() }](most int, idle time.Duration) *sessionTable[T] {
	return &sessionTable[T]{max: most, idle: idle, entries: map[string]*sessionEntry[T]{}}
}

// acquire returns the entry of key, which the caller must release. If there is no such entry,
// acquire calls make for a new session. If make is nil, acquire returns with ok false instead. When
// the table is full, acquire closes the session that has been idle for longest. It returns an error
// if the table is closed, if too many sessions are still being closed, or if the table is full and
// no session is idle.
func (t *sessionTable[T]) acquire(key string,
	make func() T) (r *sessionEntry[T], ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.entries[key]; r != nil {
		r.uses++
		return r, true, nil
	}
	switch {
	case make == nil:
		return nil, false, nil
	case t.closed:
		return nil, false, errClosed
	case t.closing >= t.max, len(t.entries) >= t.max && !t.evictIdle():
		return nil, false, errTooManySessions
	}
	r = &sessionEntry[T]{key: key, value: make(), uses: 1}
	t.entries[key] = r
	r.timer = time.AfterFunc(t.idle, func() { t.expire(r) })
	return r, true, nil
}

// retain adds a use of r. The caller must end the use with release.
func (t *sessionTable[T]) retain(r *sessionEntry[T]) {
	t.mu.Lock()
	r.uses++
	t.mu.Unlock()
}

// release ends a use of r.
func (t *sessionTable[T]) release(r *sessionEntry[T]) {
	t.mu.Lock()
	r.uses--
	r.idleSince = time.Now()
	t.mu.Unlock()
}

// remove removes r and starts to close its session.
func (t *sessionTable[T]) remove(r *sessionEntry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(r)
}

// removeIf removes the sessions for which isRemoved returns true, and starts to close them.
func (t *sessionTable[T]) removeIf(isRemoved func(T) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.entries {
		if isRemoved(r.value) {
			t.removeLocked(r)
		}
	}
}

// waitUntilEmpty waits until the table has no session, or until ctx ends.
func (t *sessionTable[T]) waitUntilEmpty(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.entries) > 0 && ctx.Err() == nil {
		if t.empty == nil {
			t.empty = make(chan struct{})
		}
		empty := t.empty
		t.mu.Unlock()
		select {
		case <-empty:
		case <-ctx.Done():
		}
		t.mu.Lock()
	}
}

// removeLocked does the work of remove. The caller holds t.mu.
func (t *sessionTable[T]) removeLocked(r *sessionEntry[T]) {
	if t.entries[r.key] != r {
		return
	}
	delete(t.entries, r.key)
	if len(t.entries) == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
	r.timer.Stop()
	t.closing++
	t.wg.Go(func() {
		r.value.close()
		t.mu.Lock()
		t.closing--
		t.mu.Unlock()
	})
}

// evictIdle removes the session that has been idle for longest, and reports whether any session was
// idle. The caller holds t.mu.
func (t *sessionTable[T]) evictIdle() bool {
	var oldest *sessionEntry[T]
	for _, r := range t.entries {
		if r.uses == 0 && (oldest == nil || r.idleSince.Before(oldest.idleSince)) {
			oldest = r
		}
	}
	if oldest != nil {
		t.removeLocked(oldest)
	}
	return oldest != nil
}

// expire removes r if it has been idle for long enough. Otherwise it sets the timer of r again.
func (t *sessionTable[T]) expire(r *sessionEntry[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.idle
	if r.uses == 0 {
		left -= time.Since(r.idleSince)
	}
	if left > 0 && t.entries[r.key] == r {
		r.timer.Reset(left)
		return
	}
	t.removeLocked(r)
}

// close removes all sessions, and waits until all of them are closed. The table then accepts no new
// session.
func (t *sessionTable[T]) close() {
	t.mu.Lock()
	t.closed = true
	for _, r := range t.entries {
		t.removeLocked(r)
	}
	t.mu.Unlock()
	t.wg.Wait()
}
