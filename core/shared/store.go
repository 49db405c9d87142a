package shared

import (
	"context"
	"errors"
	"time"
)

// Errors of stores. All other errors are mistakes of the caller, such as a value that is too large.
var (
	// ErrUnavailable means that the store did not answer as it should. The call may have been
	// carried out or not.
	ErrUnavailable = errors.New("shared state is not available")
	// ErrLost means that the store has forgotten what it must not, all or a part of it. The call
	// changed nothing. The next call works.
	ErrLost = errors.New("shared state was lost")
	// ErrChanged means that the value has not the generation that Swap expects. The call changed
	// nothing.
	ErrChanged = errors.New("shared value has changed")
	// ErrFull means that one of the bounds below is reached. The call changed nothing.
	ErrFull = errors.New("shared state is full")
)

// Bounds of every store. Larger names and values are an error that matches ErrFull.
const (
	MaxName        = 16 << 10 // bytes of a kind, principal, name, label or lease
	MaxValue       = 1 << 20  // bytes of a value
	MaxListedValue = 32 << 10 // bytes of a value that is listed
	MaxListed      = 1000     // listed values of one kind
	MaxLabels      = 1000     // labels of one key
	MaxCounts      = 4096     // names that are counted for one key
	MaxBuckets     = 4096     // counts of one second in the last minute, for one key
	MaxLimits      = 64       // limits of one admission
	MaxLeases      = 4096     // leases of one limit
)

// Store keeps the state that replicas share. All methods may be called at the same time. The
// package comment says what all of them promise.
type Store interface {
	Values
	Admitter
	Tracker
	// Lost returns when the store last lost what it knew, as far as this process knows, by the
	// clock of this process. It returns the zero time if the store never lost anything.
	Lost() time.Time
}

// Key names one thing in a store. Keys are equal if all members are.
type Key struct {
	// Kind names the use of the key, such as "task". Each use of the store has its own. It cannot
	// be empty.
	Kind string
	// Principal is the ID of the principal whose thing it is; "" for what belongs to nobody.
	Principal string
	// Name tells the things of one kind and principal apart. Join makes one of several parts.
	Name string
	// Listed values are in the listing of their kind. See Values.List.
	Listed bool
}

// Values are values by key. Each has a generation, which changes whenever the value does. No
// generation is used twice, and later ones are larger, also after the store was lost.
type Values interface {
	// Get returns a value. If there is none, its generation is 0.
	Get(ctx context.Context, k Key) (value []byte, generation uint64, err error)
	// Swap replaces the value if its generation is was; 0 means that there is none. A nil value
	// removes it, and the returned generation is 0. The value is forgotten after ttl; 0 means
	// never. Of several calls with the same generation, one succeeds at most. The others return
	// ErrChanged.
	Swap(ctx context.Context, k Key, was uint64, value []byte, ttl time.Duration) (
		generation uint64, err error)
	// Take removes a value and returns it. Of several calls, one at most gets the value. ok is
	// false for the others, and if there is none.
	Take(ctx context.Context, k Key) (value []byte, ok bool, err error)
	// List returns the listed values of a kind. seen is the version of an earlier listing of the
	// same store, or 0. If nothing has changed since, the listing has no entries, and Changed is
	// false.
	List(ctx context.Context, kind string, seen uint64) (Listing, error)
}

// Listing has the listed values of one kind.
type Listing struct {
	Entries []Entry // in the order of their generations
	Version uint64  // for the next List; never 0
	Changed bool    // whether Version is another one than seen
}

// Entry is a listed value.
type Entry struct {
	Key        Key
	Value      []byte
	Generation uint64
}

// Admitter limits how often something happens, and how many are open at once.
type Admitter interface {
	// Admit counts what happens in all limits, or in none if one of them refuses it.
	Admit(ctx context.Context, a Admission) (Admitted, error)
	// Renew sets the time until which a lease is held, counted from now. If the lease is not held
	// any more, Renew does nothing.
	Renew(ctx context.Context, l Lease, ttl time.Duration) error
	// Release ends a lease. If the lease is not held any more, Release does nothing.
	Release(ctx context.Context, l Lease) error
}

// Admission is something that happens once, and is counted in several limits.
type Admission struct {
	Limits []Limit
	// Lease is a name for what is open from now on, in the limits with Concurrent. It is needed if
	// there is such a limit. If a lease of this name is held already, it is renewed, and does not
	// count again.
	Lease string
	TTL   time.Duration // of the lease, unless it is renewed or released earlier
}

// Limit is a limit by key. All calls with one key have to use the same values.
type Limit struct {
	Key Key
	// Rate is how often something may happen per Per, in the long run; 0 means that the limit has
	// no rate. Burst is how often it may happen at once, and at least 1. In any time t, it happens
	// at most Burst + t × Rate / Per times (GCRA).
	Rate  int
	Per   time.Duration
	Burst int
	// Concurrent is how many leases may be held at once; 0 means that leases do not count.
	Concurrent int
}

// Admitted is the result of an admission.
type Admitted struct {
	// Refused is the index of the first limit that refused, or -1 if the admission is counted.
	Refused int
	// TooMany is set if the limit refused because of Concurrent, and not because of Rate.
	TooMany bool
	// RetryAfter is how long the refusing limit will refuse, by its rate; 0 if TooMany is set.
	RetryAfter time.Duration
}

// OK reports whether the admission is counted.
func (a Admitted) OK() bool { return a.Refused < 0 }

// Lease names what Admit has opened.
type Lease struct {
	Name string // Admission.Lease
	Keys []Key  // of the limits with Concurrent
}

// Tracker keeps labels and counts by key, for example of a session.
type Tracker interface {
	// Track applies a change, and returns what is known after it. When it returns without an error,
	// new labels are in as many copies of the store as are configured. With the zero Change, it
	// only returns what is known.
	Track(ctx context.Context, k Key, c Change) (Tracked, error)
}

// Change is a change of labels and counts.
type Change struct {
	Labels []string       // to add; labels are never removed before TTL
	Counts map[string]int // to add to the counts; negative to take back. No count is negative
	// Minute also counts in the last minute, and returns Tracked.Minute.
	Minute bool
	// At is the second in which Minute counts; 0 means now. To take a count back, it has to be
	// Tracked.At of the change that counted.
	At int64
	// TTL is how long everything known for the key is kept after this change. A change with TTL 0
	// leaves the time as it is; a new key is then kept for ever.
	TTL time.Duration
}

// Tracked has the labels and counts of a key.
type Tracked struct {
	Labels []string       // in the order in which they were added
	Counts map[string]int // those that are not 0
	// Minute has the counts of the last minute, to the next full second.
	Minute map[string]int
	At     int64 // the second in which the change was counted; for Change.At
}
