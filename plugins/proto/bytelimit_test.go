package proto

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestByteLimitBoundsLargeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewByteLimit(16 << 20)
		var mu sync.Mutex // guards inFlight and peak
		var inFlight, peak int
		began := time.Now()
		for _, size := range []int{6 << 20, 6 << 20, 6 << 20, 64 << 20, 1 << 20, 6 << 20} {
			go func() {
				release, err := l.Acquire(t.Context(), size)
				if err != nil {
					t.Error(err)
					return
				}
				counted := min(size, 16<<20)
				mu.Lock()
				inFlight += counted
				peak = max(peak, inFlight)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				inFlight -= counted
				mu.Unlock()
				release()
			}()
			synctest.Wait()
		}
		if release, err := l.Acquire(t.Context(), SmallMessage); err != nil {
			t.Error("a small message did not pass:", err)
		} else {
			release()
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("a small message waited %s for large ones", waited)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		if _, err := l.Acquire(gone, 6<<20); err == nil || err.Error() != "gone" {
			t.Errorf("a message of a client that is gone got the error %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := peak; n > 16<<20 || n < 12<<20 {
			t.Errorf("up to %d bytes were in flight, want at most 16 MiB and at least 12 MiB", n)
		}
		if len(l.units) != 0 || len(l.turn) != 0 {
			t.Errorf("%d units and %d turns were not released", len(l.units), len(l.turn))
		}
	})
}
