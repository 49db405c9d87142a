package tokenstore_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/transport/tokenstore"
)

func TestReplicasShareRecords(t *testing.T) {
	values := &shared.Memory{}
	one, two := tokenstore.NewShared(values), tokenstore.NewShared(values)
	if _, err := one.Load(record().ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load without a record: %v; want fs.ErrNotExist", err)
	}
	want := record()
	if err := one.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := two.Load(want.ID)
	if err != nil || got.Secrets != want.Secrets || !got.Saved.Equal(want.Saved) ||
		got.AuthorizationServer != want.AuthorizationServer || !got.Expiry.Equal(want.Expiry) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	list, err := tokenstore.All(two)
	if err != nil || len(list) != 1 || list[0].ID != want.ID ||
		list[0].Secrets != (tokenstore.Secrets{}) {
		t.Errorf("All: got %+v, %v; want the record without secrets", list, err)
	}
	again := record() // another login
	again.Secrets.Access = "acc-other"
	if err := two.Save(again); err != nil {
		t.Fatal(err)
	}
	if got, err := one.Load(want.ID); err != nil || got.Secrets.Access != "acc-other" {
		t.Errorf("after another Save: %+v, %v", got, err)
	}
	for range 2 {
		if err := one.Delete(want.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := two.Load(want.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load after Delete: %v; want fs.ErrNotExist", err)
	}
}

// There is room for more records than one listing of the state can have.
func TestManyRecordsAreShared(t *testing.T) {
	s := tokenstore.NewShared(&shared.Memory{})
	const n = 4 * shared.MaxListed
	for i := range n {
		r := record()
		r.Principal = strings.Repeat("p", i%7) + time.Duration(i).String()
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := tokenstore.All(s); err != nil || len(list) != n {
		t.Errorf("got %d records, %v; want %d", len(list), err, n)
	}
}

// A replica that dies with a lock delays others only until the lock ends.
func TestSharedLockOfADeadReplicaEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := &shared.Memory{}
		dead, alive := tokenstore.NewShared(values), tokenstore.NewShared(values)
		if err := alive.Save(record()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		held, _, err := dead.Lock(t.Context(), record().ID)
		if err != nil {
			t.Fatal(err)
		}
		_, unlock, err := alive.Lock(t.Context(), record().ID)
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		if held.Err() == nil {
			t.Error("the first holder may still use the token")
		}
		if took := time.Since(began); took > 21*time.Second {
			t.Errorf("the second holder has waited for %v", took)
		}
	})
}

// refreshing returns the record whose refresh a store has begun.
func refreshing(t *testing.T, s tokenstore.Store) (r *tokenstore.Record, giveUp, unlock func()) {
	t.Helper()
	_, unlock, err := s.Lock(t.Context(), record().ID)
	if err == nil {
		r, err = s.Load(record().ID)
	}
	if err == nil {
		giveUp, err = s.BeginRefresh(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, giveUp, unlock
}

func refreshed() *tokenstore.Record {
	r := record()
	r.Secrets = tokenstore.Secrets{Access: "acc-2", Refresh: "ref-2"}
	return r
}

// A refresh token that may have been used is not used again while the answer may still be stored:
// the replica that has it may just have been cut off from the state.
func TestNextHolderWaitsForALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := &shared.Memory{}
		first, second := tokenstore.NewShared(values), tokenstore.NewShared(values)
		if err := first.Save(record()); err != nil {
			t.Fatal(err)
		}
		was, _, unlock := refreshing(t, first)
		unlock() // the answer is not stored yet
		time.AfterFunc(time.Second, func() {
			if err := first.Replace(was, refreshed()); err != nil {
				t.Error(err)
			}
		})
		_, unlock, err := second.Lock(t.Context(), record().ID)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
		if r, err := second.Load(record().ID); err != nil || r.Secrets.Refresh != "ref-2" {
			t.Errorf("the next holder finds %+v, %v", r, err)
		}
		// If the first replica has died, the token is tried once more. If it has given up, at once.
		for _, c := range []struct {
			givesUp bool
			longest time.Duration
		}{{false, 3 * time.Second}, {true, 0}} {
			_, giveUp, unlock := refreshing(t, first)
			if c.givesUp {
				giveUp()
			}
			unlock()
			began := time.Now()
			if _, unlock, err = second.Lock(t.Context(), record().ID); err != nil {
				t.Fatal(err)
			}
			unlock()
			if took := time.Since(began); took > c.longest {
				t.Errorf("gives up %t: the next holder waits for %v", c.givesUp, took)
			}
		}
	})
}

func TestAnswersThatComeLate(t *testing.T) {
	for _, c := range []struct {
		name string
		// happens between the refresh and Replace
		meanwhile func(t *testing.T, other *tokenstore.Shared, state *sharedtest.Faulty)
		err       error
		want      string // the refresh token in the end; "" for no record
	}{
		{"nothing", func(*testing.T, *tokenstore.Shared, *sharedtest.Faulty) {}, nil, "ref-2"},
		{"the user has logged out", func(t *testing.T, other *tokenstore.Shared,
			_ *sharedtest.Faulty) {
			if err := other.Delete(record().ID); err != nil {
				t.Fatal(err)
			}
		}, fs.ErrNotExist, ""},
		{"the user has logged in again", func(t *testing.T, other *tokenstore.Shared,
			_ *sharedtest.Faulty) {
			r := record()
			r.Secrets.Refresh = "ref-new"
			if err := other.Save(r); err != nil {
				t.Fatal(err)
			}
		}, shared.ErrChanged, "ref-new"},
		{"the state has an older record", func(t *testing.T, other *tokenstore.Shared,
			_ *sharedtest.Faulty) {
			if err := other.Save(record()); err != nil {
				t.Fatal(err)
			}
		}, nil, "ref-2"},
		{"the state was lost", func(_ *testing.T, _ *tokenstore.Shared,
			state *sharedtest.Faulty) {
			state.Lose()
		}, fs.ErrNotExist, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := sharedtest.NewFaulty(&shared.Memory{})
			s, other := tokenstore.NewShared(state), tokenstore.NewShared(state)
			if err := s.Save(record()); err != nil {
				t.Fatal(err)
			}
			was, _, unlock := refreshing(t, s)
			defer unlock()
			c.meanwhile(t, other, state)
			next := refreshed()
			for range 2 { // the second time, as if the answer to the first call was lost
				if err := s.Replace(was, next); !errors.Is(err, c.err) {
					t.Errorf("got %v, want %v", err, c.err)
				}
			}
			r, err := other.Load(record().ID)
			if c.want == "" && !errors.Is(err, fs.ErrNotExist) ||
				c.want != "" && (err != nil || r.Secrets.Refresh != c.want) {
				t.Errorf("in the end: %+v, %v; want the refresh token %q", r, err, c.want)
			}
		})
	}
}

func TestRefusedTokenIsRemovedOnce(t *testing.T) {
	s := tokenstore.NewShared(&shared.Memory{})
	if err := s.Save(record()); err != nil {
		t.Fatal(err)
	}
	was, _, unlock := refreshing(t, s)
	defer unlock()
	other := record()
	other.Secrets.Refresh = "ref-new"
	if err := s.Save(other); err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(was, nil); !errors.Is(err, shared.ErrChanged) {
		t.Errorf("a login of others: got %v, want shared.ErrChanged", err)
	}
	was, err := s.Load(record().ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Replace(was, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Load(record().ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestSharedStoreThatIsAway(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	s := tokenstore.NewShared(state)
	r := record()
	if err := s.Save(r); err != nil {
		t.Fatal(err)
	}
	state.Fail(shared.ErrUnavailable)
	_, loadErr := s.Load(r.ID)
	_, lockedErr := s.BeginRefresh(r)
	_, _, lockErr := s.Lock(t.Context(), r.ID)
	_, allErr := tokenstore.All(s)
	for name, err := range map[string]error{"Load": loadErr, "Save": s.Save(r),
		"Delete": s.Delete(r.ID), "Lock": lockErr, "BeginRefresh": lockedErr, "All": allErr,
		"Replace": s.Replace(r, refreshed())} {
		if !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("%s: got %v, want shared.ErrUnavailable", name, err)
		}
	}
}
