package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A check that hangs, such as on a disk, must not make the probes of a balancer pile up.
func TestReadinessDoesNotWaitForACheckInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks, failure := 0, errors.New("the log cannot be written")
		proceed := make(chan error)
		r := newReadiness(func(context.Context) error {
			checks++
			return <-proceed
		})
		begin := func() { go r.current(); synctest.Wait() }
		begin()
		if got := r.current(); got != errNotChecked {
			t.Errorf("during the first check, got %v, want %v", got, errNotChecked)
		}
		proceed <- nil
		synctest.Wait()
		if got := r.current(); got != nil || checks != 1 {
			t.Errorf("after the first check, got %v and %d checks, want no error, and one check",
				got, checks)
		}
		time.Sleep(healthInterval)
		begin()
		if got := r.current(); got != nil || checks != 2 {
			t.Errorf("during the second check, got %v and %d checks, want the result of the first",
				got, checks)
		}
		proceed <- failure
		synctest.Wait()
		if got := r.current(); got != failure || checks != 2 {
			t.Errorf("after the second check, got %v and %d checks, want %v and two checks", got,
				checks, failure)
		}
	})
}
