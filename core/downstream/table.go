package downstream

import (
	"errors"
	"sync"
	"time"
)

var (
	errFull = errors.New("too many sessions: end some, or wait until they have been idle for " +
		"long enough")
	errClosed = errors.New("gatekit is closing")
)

// table holds what lives from one HTTP request to the next, by key: bounded, and closed when nobody
// has used it for a while.
type table[T interface{ close() }] struct {
	max  int
	idle time.Duration
	wg   sync.WaitGroup // of what is being closed

	mu      sync.Mutex // guards what follows, and the fields of rows
	rows    map[string]*row[T]
	closing int // rows that were taken out and are being closed
	closed  bool
}

type row[T any] struct {
	key   string
	value T
	uses  int       // while above zero it is not idle
	since time.Time // when uses fell to zero
	timer *time.Timer
}

func newTable[T interface{ close() }](most int, idle time.Duration) *table[T] {
	return &table[T]{max: most, idle: idle, rows: map[string]*row[T]{}}
}

// use answers the row of key, to be released. When there is none it is made, or, with no make,
// refused with ok false. When the table is full, the row that was idle for longest goes; when as
// many are being closed as it can hold, none is made.
func (t *table[T]) use(key string, make func() T) (r *row[T], ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.rows[key]; r != nil {
		r.uses++
		return r, true, nil
	}
	switch {
	case make == nil:
		return nil, false, nil
	case t.closed:
		return nil, false, errClosed
	case t.closing >= t.max, len(t.rows) >= t.max && !t.evict():
		return nil, false, errFull
	}
	r = &row[T]{key: key, value: make(), uses: 1}
	t.rows[key] = r
	r.timer = time.AfterFunc(t.idle, func() { t.expire(r) })
	return r, true, nil
}

// hold is one more use of r.
func (t *table[T]) hold(r *row[T]) {
	t.mu.Lock()
	r.uses++
	t.mu.Unlock()
}

func (t *table[T]) release(r *row[T]) {
	t.mu.Lock()
	r.uses--
	r.since = time.Now()
	t.mu.Unlock()
}

// remove takes r out and closes it. It does not wait for that.
func (t *table[T]) remove(r *row[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(r)
}

// drop is remove for who holds the lock.
func (t *table[T]) drop(r *row[T]) {
	if t.rows[r.key] != r {
		return
	}
	delete(t.rows, r.key)
	r.timer.Stop()
	t.closing++
	t.wg.Go(func() {
		r.value.close()
		t.mu.Lock()
		t.closing--
		t.mu.Unlock()
	})
}

// evict drops the row that was idle for longest, if any is.
func (t *table[T]) evict() bool {
	var oldest *row[T]
	for _, r := range t.rows {
		if r.uses == 0 && (oldest == nil || r.since.Before(oldest.since)) {
			oldest = r
		}
	}
	if oldest != nil {
		t.drop(oldest)
	}
	return oldest != nil
}

// expire drops r when it has been idle for long enough, and looks again later when not.
func (t *table[T]) expire(r *row[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.idle
	if r.uses == 0 {
		left -= time.Since(r.since)
	}
	if left > 0 && t.rows[r.key] == r {
		r.timer.Reset(left)
		return
	}
	t.drop(r)
}

// close drops all rows, takes no more, and waits until all are closed.
func (t *table[T]) close() {
	t.mu.Lock()
	t.closed = true
	for _, r := range t.rows {
		t.drop(r)
	}
	t.mu.Unlock()
	t.wg.Wait()
}
