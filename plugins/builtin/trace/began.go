package trace

import (
	"sync"
	"time"
)

// maxCalls bounds the calls whose beginning is remembered. The oldest are forgotten first: nearly
// all of those were answered, denied, or failed.
const maxCalls = 10_000

// call is one exchange of one session.
type call struct{ session, exchange string }

// began remembers when calls began. The zero began is empty and ready.
type began struct {
	mu     sync.Mutex // guards what follows
	at     map[call]time.Time
	order  []call // a ring of what was noted; most of it was taken since
	oldest int
}

// note remembers c, unless it is: a call may be put to its server several times.
func (b *began) note(c call, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.at[c]; again {
		return
	}
	if b.at == nil {
		b.at = map[call]time.Time{}
	}
	b.at[c] = now
	if len(b.order) < maxCalls {
		b.order = append(b.order, c)
		return
	}
	delete(b.at, b.order[b.oldest])
	b.order[b.oldest] = c
	b.oldest = (b.oldest + 1) % maxCalls
}

// take answers when c began, and forgets it.
func (b *began) take(c call) (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok = b.at[c]
	delete(b.at, c)
	return at, ok
}
