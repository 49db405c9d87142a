package tokenstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/shared"

	"github.com/go-json-experiment/json"
)

const (
	// shards is the number of listings into which the records are divided, because a listing has at
	// most shared.MaxListed values.
	shards = 64
	// lockFor is how long others wait at most for a replica that died with a lock.
	lockFor = 20 * time.Second
	// lockMargin is how much earlier the holder has to be done. It is more than the longest time
	// that the store may take to lock.
	lockMargin = 6 * time.Second
	// lateAnswer is how long a new holder waits for the outcome of a refresh that the holder before
	// has begun. lateAnswerPoll is how often it looks.
	lateAnswer     = 2 * time.Second
	lateAnswerPoll = 100 * time.Millisecond
	// sharedFreshFor is how long other replicas may use a token that one has removed.
	sharedFreshFor = time.Second
	// attempts is how often a call is repeated that has changed nothing.
	attempts = 5
)

// Shared is the Store of several replicas: each record is a value in the state that they share. The
// state encrypts the values, and binds them to the principal and the server.
//
// A lock ends after 20 seconds, if its holder has died. A holder that lives is done before: the
// context of its lock ends earlier. If the shared state was away meanwhile, the answer to a refresh
// may still be missing. So whoever gets the lock next waits 2 seconds for the answer.
type Shared struct{ values shared.Values }

var (
	_ Store = (*Folder)(nil)
	_ Store = (*Shared)(nil)
)

// NewShared returns the store in a shared state.
func NewShared(values shared.Values) *Shared { return &Shared{values} }

// sharedRecord is a record as a value.
type sharedRecord struct {
	Record
	Tokens Secrets `json:"tokens,omitzero"`
	UsedUp bool    `json:"used_up,omitzero"`
}

func (id ID) key() shared.Key {
	name := shared.Join(id.Kind, id.Server, id.Issuer)
	sum := sha256.Sum256([]byte(shared.Join(name, id.Principal)))
	return shared.Key{Kind: shardKind(int(sum[0]) % shards), Principal: id.Principal, Name: name,
		Listed: true}
}

func shardKind(i int) string { return fmt.Sprintf("token-%d", i) }

// again calls do again if it has changed nothing because the state was lost, or because another
// process has changed the record.
func again(do func(context.Context) error) (err error) {
	for range attempts {
		err = do(context.Background()) // each call has the timeout of the state
		if !errors.Is(err, shared.ErrLost) && !errors.Is(err, shared.ErrChanged) {
			return err
		}
	}
	return err
}

// Load implements Store.
func (s *Shared) Load(id ID) (r *Record, err error) {
	err = again(func(ctx context.Context) error {
		b, generation, err := s.values.Get(ctx, id.key())
		if err != nil {
			return err
		}
		if generation == 0 {
			return fs.ErrNotExist
		}
		r, err = decodeShared(b, generation)
		if err == nil && r.ID != id {
			err = errors.New("it is the record of another principal or server")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load the shared tokens of server %q: %w", id.Server, err)
	}
	return r, nil
}

func decodeShared(b []byte, generation uint64) (*Record, error) {
	var v sharedRecord
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("they are not those of this version of Gatekit: %w\nhint: log out, "+
			"and in again", err)
	}
	r := v.Record
	r.Secrets, r.usedUp, r.generation = v.Tokens, v.UsedUp, generation
	return &r, nil
}

// swap replaces the value of the generation was.
func (s *Shared) swap(ctx context.Context, was uint64, r *Record) error {
	b, err := json.Marshal(sharedRecord{*r, r.Secrets, r.usedUp}, json.Deterministic(true))
	if err != nil {
		return err
	}
	generation, err := s.values.Swap(ctx, r.key(), was, b, 0)
	if err == nil {
		r.generation = generation
	}
	return err
}

// Save implements Store.
func (s *Shared) Save(r *Record) error {
	r.stamp()
	err := again(func(ctx context.Context) error {
		_, was, err := s.values.Get(ctx, r.key())
		if err == nil {
			err = s.swap(ctx, was, r)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("save the shared tokens of server %q: %w", r.Server, err)
	}
	return nil
}

// Delete implements Store.
func (s *Shared) Delete(id ID) error {
	err := again(func(ctx context.Context) error {
		_, _, err := s.values.Take(ctx, id.key())
		return err
	})
	if err != nil {
		return fmt.Errorf("remove the shared tokens of server %q: %w", id.Server, err)
	}
	return nil
}

// Records implements Store. If the shared state is not available, it ends with that error.
func (s *Shared) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for i := range shards {
			var l shared.Listing
			err := again(func(ctx context.Context) (err error) {
				l, err = s.values.List(ctx, shardKind(i), 0)
				return err
			})
			if err != nil {
				yield(Record{}, fmt.Errorf("list the shared tokens: %w", err))
				return
			}
			for _, e := range l.Entries {
				r, err := decodeShared(e.Value, e.Generation)
				if err != nil {
					r = &Record{}
				}
				r.Secrets = Secrets{}
				if !yield(*r, err) {
					return
				}
			}
		}
	}
}

// Lock implements Store.
func (s *Shared) Lock(ctx context.Context, id ID) (context.Context, func(), error) {
	k := id.key()
	k.Kind, k.Listed = "token-lock", false
	var l *shared.Locked
	var until time.Time
	err := again(func(context.Context) (err error) {
		l, err = shared.Lock(ctx, s.values, k, lockFor)
		until = time.Now().Add(lockFor - lockMargin)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("lock the shared tokens of server %q: %w", id.Server, err)
	}
	held, cancel := context.WithDeadlineCause(ctx, until, errors.New("it took too long: the lock "+
		"of the shared tokens is about to end"))
	unlock := func() {
		cancel()
		_ = l.Unlock(context.WithoutCancel(ctx)) // else it ends by itself
	}
	if err := s.awaitAnswer(held, id); err != nil {
		unlock()
		return nil, nil, err
	}
	return held, unlock, nil
}

// awaitAnswer waits for the outcome of a refresh, if an earlier holder of the lock has begun one.
func (s *Shared) awaitAnswer(ctx context.Context, id ID) error {
	for end := time.Now().Add(lateAnswer); ; {
		r, err := s.Load(id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !r.usedUp || !time.Now().Before(end):
			return nil
		case !backoff.Sleep(ctx, lateAnswerPoll):
			return context.Cause(ctx)
		}
	}
}

// BeginRefresh implements Store.
func (s *Shared) BeginRefresh(r *Record) (giveUp func(), err error) {
	idle, next := *r, *r
	idle.usedUp, next.usedUp = false, true
	if err := again(func(ctx context.Context) error {
		return s.swap(ctx, r.generation, &next)
	}); err != nil {
		return nil, fmt.Errorf("begin to refresh the shared tokens of server %q: %w", r.Server, err)
	}
	*r = next
	return func() { _ = s.swap(context.Background(), next.generation, &idle) }, nil
}

// Replace implements Store.
func (s *Shared) Replace(was, next *Record) error {
	generation := was.generation
	if next != nil {
		next.stamp()
		next.usedUp = false
	}
	err := again(func(ctx context.Context) error {
		var err error
		if next == nil {
			_, err = s.values.Swap(ctx, was.key(), generation, nil, 0)
		} else {
			err = s.swap(ctx, generation, next)
		}
		if !errors.Is(err, shared.ErrChanged) {
			return err
		}
		// An earlier call may have been carried out, although its answer was lost. Or the state has
		// lost that the refresh had begun.
		now, loadErr := s.Load(was.ID)
		switch {
		case errors.Is(loadErr, fs.ErrNotExist) && next == nil:
			return nil
		case errors.Is(loadErr, fs.ErrNotExist):
			return fs.ErrNotExist // somebody has logged out
		case loadErr != nil:
			return loadErr
		case next != nil && now.Secrets == next.Secrets && !now.usedUp:
			next.generation = now.generation
			return nil
		case now.Secrets.Refresh == was.Secrets.Refresh && now.generation != generation:
			generation = now.generation
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("save the shared tokens of server %q: %w", was.Server, err)
	}
	return nil
}

// FreshFor implements Store.
func (s *Shared) FreshFor() time.Duration { return sharedFreshFor }
