package allowances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatekit/core/display"
	"gatekit/core/shared"
)

// Shared has the allowances that replicas share, in place of the folder of a Store. An allowance
// that was made or removed at one replica is so at all of them within shared.WatchInterval. While
// the shared state is not available, no allowance holds. Its methods may be called at the same
// time.
type Shared struct {
	Values shared.Values
	// Observer is told what holds here; nil for a command, which lets no messages pass.
	Observer Observer

	mu      sync.Mutex
	known   map[string]knownAllowance // by id
	seen    uint64                    // the version of the listing that known is from
	looked  time.Time                 // when the store was asked last
	failing bool                      // the store did not answer then, so nothing in known holds
}

// Observer learns which allowances of other replicas hold at this one. Shared calls one method at a
// time, and waits for it.
type Observer interface {
	// Began is called before an allowance holds. If it returns an error, the allowance does not
	// hold, and Began is called again.
	Began(a Allowance) error
	// Ended is called when an allowance no longer holds: it has expired, or it was used or removed
	// at another replica, or the shared state was lost.
	Ended(a Allowance, expired bool)
	// Unavailable is called when the known allowances, one or more, no longer hold because the
	// shared state is not available. It is called with nil when they hold again; if it then returns
	// an error, they do not, and it is called again.
	Unavailable(err error, known int) error
}

// knownAllowance is an allowance, and its generation in the store.
type knownAllowance struct {
	Allowance
	generation uint64
}

const (
	sharedKind = "allowance"
	// maxSharedText bounds the name and the cause of a shared allowance, in bytes, so that its
	// value is small enough. They are only for people.
	maxSharedText = 4 << 10
	// addAttempts is how often Add tries while others change the same allowance.
	addAttempts = 5
)

func sharedKey(id string) shared.Key {
	return shared.Key{Kind: sharedKind, Name: id, Listed: true}
}

// Look asks the store what holds, if it was not asked within shared.WatchInterval, and returns what
// holds, in the order of expiry. A replica calls it regularly, so that changes of other replicas
// are noticed while no message needs an allowance.
func (s *Shared) Look() (valid []Allowance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	if s.failing {
		return nil
	}
	for _, a := range s.known {
		valid = append(valid, a.Allowance)
	}
	sortByExpiry(valid)
	return valid
}

// look updates what is known. s.mu must be held.
func (s *Shared) look() {
	if now := time.Now(); s.looked.IsZero() || now.Sub(s.looked) >= shared.WatchInterval {
		err := s.update()
		s.looked = time.Now()
		if err != nil && !s.failing {
			s.failing = true
			if len(s.known) > 0 && s.Observer != nil {
				_ = s.Observer.Unavailable(err, len(s.known)) // nothing holds in any case
			}
		}
	}
	now := time.Now()
	for id, a := range s.known {
		if !now.Before(a.Until) {
			s.end(id, true)
		}
	}
}

// update asks the store. s.mu must be held.
func (s *Shared) update() error {
	l, err := s.Values.List(context.Background(), sharedKind, s.seen)
	if err != nil {
		s.seen = 0
		return err
	}
	if l.Changed {
		if err := s.apply(l.Entries); err != nil {
			s.seen = 0
			return err
		}
	}
	s.seen = l.Version
	if s.failing {
		if len(s.known) > 0 && s.Observer != nil {
			if err := s.Observer.Unavailable(nil, len(s.known)); err != nil {
				return err
			}
		}
		s.failing = false
	}
	return nil
}

// apply makes what is known that of a listing. s.mu must be held.
func (s *Shared) apply(entries []shared.Entry) error {
	listed := map[string]knownAllowance{}
	for _, e := range entries {
		a, err := decodeShared(e.Key.Name, e.Value)
		if err != nil {
			return err
		}
		listed[a.ID] = knownAllowance{a, e.Generation}
	}
	now := time.Now()
	for id, a := range s.known {
		if _, still := listed[id]; !still {
			s.end(id, !now.Before(a.Until))
		}
	}
	var errs []error
	for id, a := range listed {
		if s.known[id].generation == a.generation || !now.Before(a.Until) {
			continue
		}
		delete(s.known, id) // another one has replaced it
		if s.Observer != nil {
			if err := s.Observer.Began(a.Allowance); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		s.know(a)
	}
	return errors.Join(errs...)
}

// know adds an allowance. s.mu must be held.
func (s *Shared) know(a knownAllowance) {
	if s.known == nil {
		s.known = map[string]knownAllowance{}
	}
	s.known[a.ID] = a
}

// end removes an allowance from what is known. s.mu must be held.
func (s *Shared) end(id string, expired bool) {
	a := s.known[id]
	delete(s.known, id)
	if s.Observer != nil {
		s.Observer.Ended(a.Allowance, expired)
	}
}

func decodeShared(id string, value []byte) (a Allowance, err error) {
	if err := json.Unmarshal(value, &a); err != nil || a.ID != id {
		return a, fmt.Errorf("%w: allowance %s cannot be read", shared.ErrUnavailable, id)
	}
	return a, nil
}

// find returns an allowance that holds. s.mu must be held.
func (s *Shared) find(id string) (a knownAllowance, ok bool) {
	s.look()
	if s.failing {
		return a, false
	}
	a, ok = s.known[id]
	return a, ok
}

func (s *Shared) holds(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.find(id)
	return ok
}

// use is Store.Use. If the store does not answer, an allowance that is valid once may be used up,
// and is not used.
func (s *Shared) use(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.find(id)
	if !ok || !a.Once {
		return ok
	}
	_, err := s.Values.Swap(context.Background(), sharedKey(id), a.generation, nil, 0)
	if errors.Is(err, shared.ErrChanged) || errors.Is(err, shared.ErrLost) {
		s.looked = time.Time{} // it does not hold any more: learn that before the next message
	}
	if err != nil {
		return false
	}
	delete(s.known, id)
	return true
}

// add stores an allowance.
func (s *Shared) add(a Allowance, now time.Time) (err error) {
	a.Name, a.Cause = display.Clip(a.Name, maxSharedText), display.Clip(a.Cause, maxSharedText)
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := context.Background()
	for range addAttempts {
		var generation uint64
		if _, generation, err = s.Values.Get(ctx, sharedKey(a.ID)); err == nil {
			generation, err = s.Values.Swap(ctx, sharedKey(a.ID), generation, value,
				a.Until.Sub(now))
		}
		if err == nil {
			s.know(knownAllowance{a, generation}) // the caller has recorded it
			return nil
		}
		if !errors.Is(err, shared.ErrChanged) && !errors.Is(err, shared.ErrLost) {
			break
		}
	}
	return fmt.Errorf("store the allowance: %w", err)
}

func (s *Shared) get(id string) (Allowance, error) {
	value, generation, err := s.Values.Get(context.Background(), sharedKey(id))
	switch {
	case err != nil:
		return Allowance{}, fmt.Errorf("get allowance %s: %w", id, err)
	case generation == 0:
		return Allowance{}, noAllowance(id)
	}
	return decodeShared(id, value)
}

func (s *Shared) remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok, err := s.Values.Take(context.Background(), sharedKey(id))
	switch {
	case err != nil:
		return fmt.Errorf("remove allowance %s: %w", id, err)
	case !ok:
		return noAllowance(id)
	}
	delete(s.known, id) // the caller has recorded it
	return nil
}

func (s *Shared) list() (all []Allowance, err error) {
	l, err := s.Values.List(context.Background(), sharedKind, 0)
	if err != nil {
		return nil, fmt.Errorf("list the allowances: %w", err)
	}
	for _, e := range l.Entries {
		a, err := decodeShared(e.Key.Name, e.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

func sortByExpiry(all []Allowance) {
	slices.SortFunc(all, func(a, b Allowance) int { return a.Until.Compare(b.Until) })
}
