package upstream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

var (
	legacyOnes = []string{mcp.Rev20251125, mcp.Rev20250618, mcp.Rev20250326, mcp.Rev20241105}
)

func TestProbeOfAProcess(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string // "" is silence, "die" its end
		want   []string
		spared bool   // the process that was probed serves the session
		fails  string // instead of want
	}{
		{"a modern server", `"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}`,
			[]string{mcp.Rev20260728}, true, ``},
		{"one of both eras", `"result":{"supportedVersions":["2024-11-05","2026-07-28","2025-11-25"]}`, []string{mcp.Rev20260728, mcp.Rev20251125, mcp.Rev20241105}, true, ``},
		{"one that lists legacy revisions only", `"result":{"supportedVersions":["2025-06-18"]}`,
			[]string{mcp.Rev20250618}, false, ``},
		{"one of the future that has not forgotten",
			`"result":{"supportedVersions":["2031-01-01","2025-11-25"]}`, []string{mcp.Rev20251125},
			false, ``},
		{"one of the future", `"result":{"supportedVersions":["2031-01-01"]}`, nil, false,
			`"2031-01-01"`},
		{"unsupported version, but this one is",
			`"error":{"code":-32022,"message":"?","data":{"supported":["2026-07-28"]}}`,
			[]string{mcp.Rev20260728}, true, ``},
		{"unsupported version, and only legacy ones are",
			`"error":{"code":-32022,"message":"?","data":{"supported":["2025-11-25"]}}`,
			[]string{mcp.Rev20251125}, true, ``},
		{"a modern error", `"error":{"code":-32021,"message":"?"}`, []string{mcp.Rev20260728}, true,
			``},
		{"method not found", `"error":{"code":-32601,"message":"?"}`, legacyOnes, true, ``},
		{"an error of no code", `"error":{"code":0,"message":"?"}`, legacyOnes, true, ``},
		{"an error of a draft", `"error":{"code":-32004,"message":"?"}`, legacyOnes, true, ``},
		{"an empty result", `"result":{}`, legacyOnes, true, ``},
		{"an error to nobody", `nobody`, legacyOnes, true, ``},
		{"silence", ``, legacyOnes, true, ``},
		{"its end", `die`, legacyOnes, false, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &upstreamtest.Launcher{}
				u := upstream.New(upstream.Options{Name: "files", Version: `1."0`,
					Dial: upstream.Dial{Pipe: st.Start}})
				defer u.Close()
				type found struct {
					revisions []string
					err       error
				}
				got := make(chan found, 2)
				for range 2 { // both wait for the one probe
					go func() {
						revisions, err := u.Revisions(t.Context())
						got <- found{revisions, err}
					}()
				}
				srv := st.Last(t)
				m := srv.Expect(t, "server/discover")
				if want := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"gatekit","version":"1.\"0"},"io.modelcontextprotocol/clientCapabilities":{}}}`; string(m.Params) != want {
					t.Errorf("probed with %s", m.Params)
				}
				switch c.answer {
				case "":
					time.Sleep(5 * time.Second)
				case "die":
					srv.Close()
				case "nobody":
					srv.Send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"?"}}`)
				default:
					srv.Send(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, c.answer)
				}
				for range 2 {
					f := <-got
					if c.fails != "" {
						if f.err == nil || !contains(f.err.Error(), c.fails) {
							t.Errorf("got %v, %v, want the error %q", f.revisions, f.err, c.fails)
						}
						continue
					}
					if f.err != nil || !slices.Equal(f.revisions, c.want) {
						t.Errorf("got %v, %v, want %v", f.revisions, f.err, c.want)
					}
				}
				if c.fails != "" {
					return
				}
				srv.ExpectNothing(t)
				if c.answer == "" { // an answer that comes now and says nothing new is nobody's
					srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"?"}}`,
						m.ID)
				}
				s := open(t, u, c.want[0], &upstreamtest.Client{})
				request := hello
				if c.want[0] == mcp.Rev20260728 {
					request = upstreamtest.ModernRequest(`1`, "tools/list", ``, ``)
				}
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, request)
				if n := st.Count(); (n == 1) != c.spared {
					t.Errorf("%d processes were started for the probe and a session", n)
				}
				srv = st.Last(t)
				srv.Answer(srv.Next(t).ID, welcome)
				synctest.Wait()
				if p.Err != nil {
					t.Error(p.Err)
				}
			})
		})
	}
}

func TestTheProcessThatWasProbedIsNotKeptForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		go u.Revisions(t.Context())
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID,
			`{"supportedVersions":["2026-07-28","2025-11-25"]}`)
		// A legacy client cannot use it: it would refuse initialize.
		s := open(t, u, mcp.Rev20251125, &upstreamtest.Client{})
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, hello)
		second := st.Last(t)
		second.Answer(second.Expect(t, "initialize").ID, welcome)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + welcome + `}`)
		if srv.HasEnded() {
			t.Error("it ended at once")
		}
		time.Sleep(time.Minute)
		if !srv.HasEnded() || second.HasEnded() {
			t.Errorf("after a minute: the probed one ended %v, the used one %v", srv.HasEnded(),
				second.HasEnded())
		}
	})
}

func TestAProbeThatIsNoEvidenceIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{Fail: errors.New("no such program")}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		if _, err := u.Revisions(t.Context()); err == nil || !contains(err.Error(),
			"could not be started") {
			t.Errorf("got %v", err)
		}
		st.Fail = nil
		if _, err := u.Revisions(t.Context()); err == nil {
			t.Error("it was probed again at once")
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := u.Revisions(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a probe that takes long: %v", err)
		}
		time.Sleep(5 * time.Second)
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got, legacyOnes) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestSettingsSkipTheProbe(t *testing.T) {
	for era, want := range map[string][]string{"legacy": legacyOnes, "modern": {mcp.Rev20260728}} {
		u := upstream.New(upstream.Options{Name: "files", Era: era})
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("era %s: %v, %v", era, got, err)
		}
	}
}

func TestProbeOfAURL(t *testing.T) {
	one := func(code int, body string) func(request) *upstream.HTTPResponse {
		return func(r request) *upstream.HTTPResponse {
			return status(code, replace(body, "ID", string(r.ID)))
		}
	}
	for _, c := range []struct {
		name  string
		serve func(request) *upstream.HTTPResponse
		want  []string
		fails string
	}{
		{"a modern server", one(200,
			`{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2026-07-28"]}}`),
			[]string{mcp.Rev20260728}, ``},
		{"a stream", func(r request) *upstream.HTTPResponse {
			s := newEvents(conn.Event{ID: "1"}, conn.Event{Name: "endpoint",
				Data: []byte("/x")})
			s.send("", `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28","2025-11-25"]}}`, r.ID)
			return stream(s)
		}, []string{mcp.Rev20260728, mcp.Rev20251125}, ``},
		{"legacy ones listed", one(200,
			`{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2025-11-25"]}}`),
			[]string{mcp.Rev20251125}, ``},
		{"no method", one(404, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`),
			legacyOnes, ``},
		{"no session", one(400, `Missing session ID`), legacyOnes, ``},
		{"no session, to nobody",
			one(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"?"}}`),
			legacyOnes, ``},
		{"a modern error", one(400,
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32020,"message":"?"}}`),
			[]string{mcp.Rev20260728}, ``},
		{"other versions", one(400,
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"?","data":{"supported":["2025-06-18"]}}}`), []string{mcp.Rev20250618}, ``},
		{"no POST", one(405, ``), legacyOnes, ``},
		{"something else", one(200, `hello`), legacyOnes, ``},
		{"no credentials", one(401, ``), nil, `credentials (HTTP 401)`},
		{"wrong ones", one(403, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`),
			nil, `credentials (HTTP 403)`},
		{"a redirect", one(307, ``), nil, `redirects`},
		{"a fault", one(502, `bad gateway`), nil, `HTTP 502`},
		{"too many", one(429, ``), nil, `HTTP 429`},
		{"no network", func(request) *upstream.HTTPResponse {
			return nil
		}, nil, `no response from the URL`},
		{"no end", func(r request) *upstream.HTTPResponse {
			<-r.ctx.Done()
			return nil
		}, nil, `did not respond in time`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &web{serve: c.serve}
				u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{HTTP: w}})
				defer u.Close()
				got, err := u.Revisions(t.Context())
				if c.fails != "" {
					if err == nil || !contains(err.Error(), c.fails) {
						t.Errorf("got %v, %v, want the error %q", got, err, c.fails)
					}
				} else if err != nil || !slices.Equal(got, c.want) {
					t.Errorf("got %v, %v, want %v", got, err, c.want)
				}
				h := w.requests("POST server/discover")[0].header
				for name, want := range map[string]string{"MCP-Protocol-Version": "2026-07-28",
					"Mcp-Method": "server/discover", "Mcp-Name": ""} {
					if h.Get(name) != want {
						t.Errorf("%s: %q, want %q", name, h.Get(name), want)
					}
				}
			})
		})
	}
}

func TestAModernServerThatTakesLongToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got, legacyOnes) {
			t.Errorf("while it is silent: %v, %v", got, err)
		}
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID, `{"supportedVersions":["2026-07-28"]}`)
		synctest.Wait()
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got,
			[]string{mcp.Rev20260728}) {
			t.Errorf("when it has answered: %v, %v", got, err)
		}
		p := upstreamtest.StartCall(t, openFor(t, u, "a", ""), &upstreamtest.Client{},
			upstreamtest.ModernRequest(`1`, "tools/list", ``, ``))
		srv.Answer(srv.Expect(t, "tools/list").ID, `{}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if n := st.Count(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

func TestAServerThatEndedWhenItWasProbedIsProbedAgainForAModernClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		go u.Revisions(t.Context())
		st.Last(t).Close()
		synctest.Wait()
		modern := proxy.OpenOptions{Revision: mcp.Rev20260728}
		for range 3 {
			_, err := u.Open(t.Context(), modern, &upstreamtest.Client{})
			const want = "there is no bridge for clients of revision 2026-07-28"
			if err == nil || !contains(err.Error(), want) {
				t.Errorf("got the error %v, want %q", err, want)
			}
		}
		if n := st.Count(); n != 1 {
			t.Errorf("%d processes: it was probed again at once", n)
		}
		time.Sleep(time.Minute)
		u.Open(t.Context(), modern, &upstreamtest.Client{})
		go u.Revisions(t.Context())
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID, `{"supportedVersions":["2026-07-28"]}`)
		if _, err := u.Open(t.Context(), modern, &upstreamtest.Client{}); err != nil {
			t.Error(err)
		}
	})
}

func TestASessionOfAServerThatChangedItsEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		go u.Revisions(t.Context())
		srv := st.Last(t)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"?"}}`,
			srv.Expect(t, "server/discover").ID)
		s := open(t, u, mcp.Rev20251125, &upstreamtest.Client{})
		time.Sleep(time.Minute)
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, hello)
		srv = st.Last(t)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"?"}}`,
			srv.Expect(t, "initialize").ID)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","error":{"code":-32022,"message":"?"}}`)
		go u.Revisions(t.Context())
		srv = st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID, `{"supportedVersions":["2026-07-28"]}`)
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got,
			[]string{mcp.Rev20260728}) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
