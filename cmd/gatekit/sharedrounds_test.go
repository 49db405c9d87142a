package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
)

// TestSharedRoundsAreUsedOnce has two replicas that share a store.
func TestSharedRoundsAreUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		replicas := []sharedRounds{{state}, {state}}
		time.Sleep(time.Hour)
		use := func(replica int, principal, id string, made time.Time) (bool, error) {
			return replicas[replica].Use(t.Context(), principal, id, made,
				made.Add(10*time.Minute))
		}
		made := time.Now()
		for _, tt := range []struct {
			name, principal, id string
			replica             int
			want                bool
		}{
			{"the first answers", "ann", "1", 0, true},
			{"again at another replica", "ann", "1", 1, false},
			{"again at the same replica", "ann", "1", 0, false},
			{"another principal", "bob", "1", 1, true},
			{"other questions", "ann", "2", 1, true},
		} {
			if ok, err := use(tt.replica, tt.principal, tt.id, made); ok != tt.want || err != nil {
				t.Errorf("%s: got %t and the error %v, want %t", tt.name, ok, err, tt.want)
			}
		}
		time.Sleep(10*time.Minute + 59*time.Second) // a clock may be a minute behind
		if ok, err := use(1, "ann", "1", made); ok || err != nil {
			t.Errorf("at the end: got %t and the error %v, want that they were used", ok, err)
		}

		state.Fail(shared.ErrUnavailable)
		if ok, err := use(0, "ann", "3", time.Now()); ok || !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("without the store: got %t and the error %v, want the store's", ok, err)
		}
		state.Fail(nil)

		made = time.Now()
		time.Sleep(time.Second)
		state.Lose()
		for replica := range replicas {
			if ok, err := use(replica, "ann", "4", made); ok || err != nil {
				t.Errorf("replica %d, asked before the loss: got %t and the error %v, want that "+
					"they may have been used", replica, ok, err)
			}
		}
		ahead := made.Add(clockSkew) // of a replica whose clock is ahead
		if ok, err := use(1, "ann", "6", ahead); ok || err != nil {
			t.Errorf("asked before the loss by a replica whose clock is ahead: got %t and the "+
				"error %v, want that they may have been used", ok, err)
		}
		time.Sleep(clockSkew + time.Second)
		if ok, err := use(1, "ann", "5", time.Now()); !ok || err != nil {
			t.Errorf("asked after the loss: got %t and the error %v", ok, err)
		}
	})
}
