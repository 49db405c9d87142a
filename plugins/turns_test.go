package plugins

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
)

// A message whose sender gives up leaves no turn behind, whether it still waits or was granted the
// process meanwhile. A process without messages ends after a minute.
func TestGivenUpTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"x"}`))
		process := &pluginProcess{}
		i := &isolated{busy: true, process: process}
		acquire := func() (giveUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if p, err := i.acquire(ctx, m); p != nil || err == nil {
					t.Errorf("got the process %v and the error %v, want an error", p, err)
				}
			}()
			synctest.Wait()
			return func() {
				cancel()
				synctest.Wait()
			}
		}
		locked := func(f func()) {
			i.mu.Lock()
			defer i.mu.Unlock()
			f()
		}
		acquire()()
		locked(func() {
			if len(i.waiting) != 0 {
				t.Fatalf("%d turns wait after the sender has given up", len(i.waiting))
			}
		})
		giveUp := acquire()
		var granted *turn
		locked(func() { granted, i.waiting = i.waiting[0], nil })
		giveUp()
		granted.granted <- grant{process: process}
		synctest.Wait()
		locked(func() {
			if i.busy {
				t.Error("the process is busy after the sender of its message has given up")
			}
		})
		time.Sleep(isolatedIdle - 1)
		locked(func() {
			if i.process != process {
				t.Error("the process has ended in less than a minute")
			}
		})
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		locked(func() {
			if i.process != nil {
				t.Error("the process runs although it had no message for a minute")
			}
		})
	})
}

// The messages that wait get the process one after the other: small messages first, and messages of
// an origin that has ended a process last.
func TestOrderOfTurns(t *testing.T) {
	i := &isolated{}
	message := func(server string, size int) *mcp.Message {
		m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"x","pad":`+
			string(mcp.Quote(strings.Repeat("x", size)))+`}`))
		m.Server, m.Direction = server, mcp.ToServer
		return m
	}
	i.offenses.add(message("offender", 0), false)
	names := map[*turn]string{}
	for _, w := range []struct {
		server string
		size   int
	}{{"offender", 10}, {"a", 3000}, {"a", 1000}, {"b", 2000}, {"offender", 1}} {
		next := &turn{message: message(w.server, w.size)}
		names[next] = fmt.Sprintf("%s %d", w.server, w.size)
		i.waiting = append(i.waiting, next)
	}
	var order []string
	for len(i.waiting) > 0 {
		order = append(order, names[i.takeTurn()])
	}
	want := []string{"a 1000", "b 2000", "a 3000", "offender 1", "offender 10"}
	if !slices.Equal(order, want) {
		t.Errorf("the messages get the process in the order %q, want %q", order, want)
	}
}
