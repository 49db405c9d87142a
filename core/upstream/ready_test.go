package upstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// asked is what Ready answers, when it has.
func asked(t *testing.T, u *upstream.Upstream) func(want string) {
	t.Helper()
	done := make(chan string, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		state, err := u.Ready(ctx)
		done <- fmt.Sprint(state, " ", err)
	}()
	return func(want string) {
		t.Helper()
		if got := <-done; !strings.HasPrefix(got, want) {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
}

func TestReadyAsksTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := modernUp(upstream.Options{})
		defer u.Close()
		asked(t, u)("idle <nil>")
		if st.Count() != 0 {
			t.Error("a process was started to know whether there is one")
		}
		s := openFor(t, u, "a", "ann")
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "tools/list").ID, `{"resultType":"complete","tools":[]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[]}}`)

		is := asked(t, u)
		srv.Answer(srv.Expect(t, "server/discover").ID, `{}`)
		is("up <nil>")
		is = asked(t, u)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`,
			srv.Expect(t, "server/discover").ID)
		is("up <nil>") // an error is an answer
		asked(t, u)(`down server "files" is not available: the server did not answer server/discover in time`)
		if u.State() != "up" {
			t.Errorf("its state is %s; that it hangs is known to who asks it alone", u.State())
		}
	})
}

func TestReadyPingsALegacyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacy(t, upstream.Options{})
		defer l.end(t)
		is := asked(t, l.up)
		l.srv.Answer(l.srv.Expect(t, "ping").ID, `{}`)
		is("up <nil>")
		l.srv.Close()
		synctest.Wait()
		asked(t, l.up)("down")
	})
}

// watching is an Observer that sets something in the _meta of each request.
type watching struct{ ended []string }

func (w *watching) Send(_ context.Context, m *mcp.Message) ([]mcp.Edit, func(*mcp.Message, error)) {
	return []mcp.Edit{mcp.Set("/_meta/mark", []byte(`1`))}, func(answer *mcp.Message, err error) {
		w.ended = append(w.ended, fmt.Sprint(m.Method, " ", answer != nil, " ", err))
	}
}

func TestAnObserverMayAddToMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watching{}
		l := startLegacy(t, upstream.Options{Observer: w})
		defer l.end(t)
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"a":1.0},"_meta":{"k": 2}}}`)
		got := l.srv.Expect(t, "tools/call")
		if !strings.Contains(string(got.Raw),
			`"params":{"name":"x","arguments":{"a":1.0},"_meta":{"k": 2,"mark":1}}`) {
			t.Errorf("the server got %s", got.Raw)
		}
		l.srv.Answer(got.ID, `{"content":[]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`)
		p = upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":8,"method":"tools/list","params":{"_meta":5}}`)
		if got := l.srv.Expect(t, "tools/list"); !strings.Contains(string(got.Raw),
			`"params":{"_meta":5}`) {
			t.Errorf("what has no place for it became %s", got.Raw)
		} else {
			l.srv.Answer(got.ID, `{}`)
		}
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":8,"result":{}}`)
		if ended := fmt.Sprint(w.ended); !strings.HasSuffix(ended,
			"tools/call true <nil> tools/list true <nil>]") {
			t.Errorf("it was told of %s", ended)
		}
	})
}
