package plugins

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
)

// newCall returns a call of a server. Calls with another text have another body.
func newCall(server, text string) *mcp.Message {
	m := mcp.NewRequest("1", "tools/call", []byte(`{"text":"`+text+`"}`))
	m.Direction, m.Server = mcp.ToServer, server
	return m
}

// newResult returns a result of a server, and its request.
func newResult(server, text, request string) *mcp.Message {
	m := mcp.NewResponse("1", []byte(`{"text":"`+text+`"}`))
	m.Direction, m.Server, m.Method = mcp.ToClient, server, "tools/call"
	m.Request = newCall(server, request)
	return m
}

// wantCheck checks whether o isolates m, and with which error it refuses m; "" is no error.
func wantCheck(t *testing.T, o *offenses, m *mcp.Message, isolate bool, refusal string) {
	t.Helper()
	got, err := o.check(m)
	if got != isolate || (err != nil) != (refusal != "") ||
		err != nil && !strings.Contains(err.Error(), refusal) {
		t.Errorf("%v %s: isolate %v, error %v; want %v, %q", originOf(m), m.Body(), got, err,
			isolate, refusal)
	}
}

const sameMessage = "not asked: the same message has ended the plugin's process before"

// Only the messages of the origin are isolated, for a minute after the last offense. Only the same
// message is refused at once, for ten minutes.
func TestOffensesAreRememberedForTheirOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o offenses
		hostile := newResult("a", "one", "p")
		wantCheck(t, &o, hostile, false, "")
		o.add(hostile, true)
		time.Sleep(isolatedFor)
		for _, c := range []struct {
			m       *mcp.Message
			isolate bool
			refusal string
		}{
			{newResult("a", "one", "p"), false, sameMessage},
			{newResult("a", "two", "p"), true, ""},
			{newResult("a", "one", "q"), true, ""},
			{newResult("a", "three", "p"), true, ""},
			{newResult("b", "one", "p"), false, ""},
			{newCall("a", "one"), false, ""},
		} {
			wantCheck(t, &o, c.m, c.isolate, c.refusal)
		}
		other := newResult("a", "one", "p")
		other.Method = "resources/read"
		wantCheck(t, &o, other, true, "")
		time.Sleep(time.Nanosecond)
		wantCheck(t, &o, newResult("a", "two", "p"), false, "")
		wantCheck(t, &o, hostile, false, sameMessage)
		time.Sleep(culpritFor - isolatedFor - 2)
		wantCheck(t, &o, hostile, false, sameMessage)
		time.Sleep(2 * time.Nanosecond)
		wantCheck(t, &o, hostile, false, "")
		if n := o.count.Load(); n != 0 || len(o.culprits)+len(o.origins) != 0 {
			t.Errorf("%d offenses are still remembered", n)
		}
	})
}

// A message that was not alone in the process is not refused when it comes again.
func TestUncertainOffenseRefusesNoMessage(t *testing.T) {
	var o offenses
	o.add(newCall("a", "x"), false)
	wantCheck(t, &o, newCall("a", "x"), true, "")
	if !o.has(newCall("a", "y")) || o.has(newCall("b", "x")) {
		t.Error("the offense is not that of its origin")
	}
}

// From the third offense, an origin is refused for a second, then for two, up to half a minute.
func TestRefusalOfAnOriginGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o offenses
		for number, wait := range []time.Duration{0, 0, 1, 2, 4, 8, 16, 30, 30} {
			o.add(newCall("a", fmt.Sprint(number)), true)
			if wait > 0 {
				wantCheck(t, &o, newCall("a", "x"), false, fmt.Sprintf("not asked: messages to "+
					"the server \"a\" have ended the plugin's process %d times; retry in %ds",
					number+1, wait))
				wantCheck(t, &o, newCall("b", "x"), false, "")
				time.Sleep(40 * time.Millisecond) // the time in the error is rounded
				wantCheck(t, &o, newCall("a", "x"), false, fmt.Sprintf("retry in %ds", wait))
				time.Sleep(wait*time.Second - 40*time.Millisecond - 1)
				wantCheck(t, &o, newCall("a", "x"), false, "retry in")
				time.Sleep(time.Nanosecond)
			}
			wantCheck(t, &o, newCall("a", "x"), true, "")
		}
		for number := range 64 {
			o.add(newCall("a", fmt.Sprint("again", number)), true)
		}
		wantCheck(t, &o, newCall("a", "x"), false, "retry in 30s")
		o.add(newResult("c", "x", ""), false)
		o.add(newResult("c", "x", ""), false)
		o.add(newResult("c", "x", ""), false)
		wantCheck(t, &o, newResult("c", "y", ""), false, `messages of the server "c" have ended`)
	})
}

func TestOffensesAreBounded(t *testing.T) {
	var o offenses
	for number := range maxOrigins + 1 {
		o.add(newCall(fmt.Sprint(number), "x"), true)
	}
	wantCheck(t, &o, newCall(fmt.Sprint(maxOrigins-1), "y"), true, "")
	wantCheck(t, &o, newCall(fmt.Sprint(maxOrigins), "y"), false, "")
	wantCheck(t, &o, newCall(fmt.Sprint(maxCulprits-1), "x"), false, sameMessage)
	wantCheck(t, &o, newCall(fmt.Sprint(maxCulprits), "x"), true, "")
}
