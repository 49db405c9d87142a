package proxy_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// changes returns the notifications of changed lists that the client of the session has received.
func (w *fixture) changes() (n int) {
	for _, text := range w.feed.received() {
		if strings.Contains(text, "/list_changed") {
			n++
		}
	}
	return n
}

func TestNewCredentialsRepeatAFailedInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isLoggedIn atomic.Bool
		good := &fakeServer{answer: fixedResults(map[string]string{
			"initialize": `{"capabilities":{"tools":{}}}`})}
		locked := &fakeServer{answer: func(_ context.Context, m *mcp.Message,
			_ proxy.Handler) string {
			if !isLoggedIn.Load() {
				return "dead"
			}
			return `{"capabilities":{"tools":{}}}`
		}}
		w := open(t, map[string]*fakeServer{"good": good, "locked": locked}, nil)
		w.call(t, "initialize", initializeParams)
		time.Sleep(time.Hour) // the pauses between the attempts have their longest time
		synctest.Wait()
		before, attempts := time.Now(), len(locked.seen())
		isLoggedIn.Store(true)
		w.proxy.UseNewCredentials("locked", func(p string) bool { return p == "other" })
		synctest.Wait()
		equal(t, "attempts for a login of another principal", len(locked.seen())-attempts, 0)
		w.proxy.UseNewCredentials("locked", func(p string) bool { return p == "p" })
		synctest.Wait()
		equal(t, "attempts", len(locked.seen())-attempts, 1)
		equal(t, "notifications", w.changes(), 1)
		equal(t, "waited", time.Since(before), time.Duration(0))
	})
}

func TestNewCredentialsOfAWorkingServerAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, map[string]*fakeServer{"a": {answer: fixedResults(map[string]string{
			"initialize": `{"capabilities":{"tools":{}}}`})}}, nil)
		w.call(t, "initialize", initializeParams)
		synctest.Wait()
		w.proxy.UseNewCredentials("b", func(string) bool { return true })
		w.proxy.UseNewCredentials("a", func(p string) bool { return p == "other" })
		synctest.Wait()
		equal(t, "notifications for others", w.changes(), 0)
		w.proxy.UseNewCredentials("a", func(p string) bool { return p == "p" })
		synctest.Wait()
		equal(t, "notifications", w.changes(), 1)
	})
}
