package upstream_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	legacyRevisions = []string{mcp.Rev20251125, mcp.Rev20250618, mcp.Rev20250326, mcp.Rev20241105}
)

func TestProbeOfAProcess(t *testing.T) {
	for _, c := range []struct {
		name string
		// members of the answer; "" for no answer, "exit" for the end of the process, "no id" for
		// an error without an id
		answer string
		want   []string
		reused bool   // the process that was probed also serves the session
		fails  string // a part of the error, instead of want
	}{
		{"a modern server", `"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}`,
			[]string{mcp.Rev20260728}, true, ``},
		{"a server of both eras",
			`"result":{"supportedVersions":["2024-11-05","2026-07-28","2025-11-25"]}`,
			[]string{mcp.Rev20260728, mcp.Rev20251125, mcp.Rev20241105}, true, ``},
		{"a server that lists legacy revisions only",
			`"result":{"supportedVersions":["2025-06-18"]}`,
			[]string{mcp.Rev20250618}, false, ``},
		{"a future revision and a known one",
			`"result":{"supportedVersions":["2031-01-01","2025-11-25"]}`, []string{mcp.Rev20251125},
			false, ``},
		{"a future revision only", `"result":{"supportedVersions":["2031-01-01"]}`, nil, false,
			`"2031-01-01"`},
		{"unsupported version, but the requested version is listed",
			`"error":{"code":-32022,"message":"?","data":{"supported":["2026-07-28"]}}`,
			[]string{mcp.Rev20260728}, true, ``},
		{"unsupported version, only legacy versions are supported",
			`"error":{"code":-32022,"message":"?","data":{"supported":["2025-11-25"]}}`,
			[]string{mcp.Rev20251125}, true, ``},
		{"a modern error", `"error":{"code":-32021,"message":"?"}`, []string{mcp.Rev20260728}, true,
			``},
		{"method not found", `"error":{"code":-32601,"message":"?"}`, legacyRevisions, true, ``},
		{"an error with the code 0", `"error":{"code":0,"message":"?"}`, legacyRevisions, true, ``},
		{"an error code of a draft", `"error":{"code":-32004,"message":"?"}`, legacyRevisions, true, ``},
		{"an empty result", `"result":{}`, legacyRevisions, true, ``},
		{"an error without an id", `no id`, legacyRevisions, true, ``},
		{"no answer", ``, legacyRevisions, true, ``},
		{"the end of the process", `exit`, legacyRevisions, false, ``},
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
				for range 2 { // both calls wait for the same probe
					go func() {
						revisions, err := u.Revisions(t.Context())
						got <- found{revisions, err}
					}()
				}
				srv := st.Last(t)
				m := srv.Expect(t, "server/discover")
				if want := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"gatekit","version":"1.\"0"},"io.modelcontextprotocol/clientCapabilities":{}}}`; string(m.Params) != want {
					t.Errorf("the probe has the params %s, want %s", m.Params, want)
				}
				switch c.answer {
				case "":
					time.Sleep(5 * time.Second)
				case "exit":
					srv.Close()
				case "no id":
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
				if c.answer == "" { // a late answer that confirms the era is dropped
					srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"?"}}`,
						m.ID)
				}
				s := openSession(t, u, c.want[0], &upstreamtest.Client{})
				request := initializeRequest
				if c.want[0] == mcp.Rev20260728 {
					request = upstreamtest.ModernRequest(`1`, "tools/list", ``, ``)
				}
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, request)
				if n := st.Count(); (n == 1) != c.reused {
					t.Errorf("%d processes were started for the probe and the session; want one "+
						"process for both: %v", n, c.reused)
				}
				srv = st.Last(t)
				srv.Answer(srv.Next(t).ID, initializeResult)
				synctest.Wait()
				if p.Err != nil {
					t.Error(p.Err)
				}
			})
		})
	}
}

func TestUnusedProbedProcessIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		go u.Revisions(t.Context())
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID,
			`{"supportedVersions":["2026-07-28","2025-11-25"]}`)
		// A legacy client cannot use the process, which would refuse initialize.
		s := openSession(t, u, mcp.Rev20251125, &upstreamtest.Client{})
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, initializeRequest)
		second := st.Last(t)
		second.Answer(second.Expect(t, "initialize").ID, initializeResult)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
		if srv.HasEnded() {
			t.Error("the probed process ended at once, want it kept for a while")
		}
		time.Sleep(time.Minute)
		if !srv.HasEnded() || second.HasEnded() {
			t.Errorf("after a minute: the probed process has ended: %v, want true; "+
				"the used process has ended: %v, want false", srv.HasEnded(), second.HasEnded())
		}
	})
}

func TestFailedProbeIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{Fail: errors.New("no such program")}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		const want = "could not be started"
		if _, err := u.Revisions(t.Context()); err == nil || !contains(err.Error(), want) {
			t.Errorf("got the error %v, want %q", err, want)
		}
		st.Fail = nil
		if _, err := u.Revisions(t.Context()); err == nil {
			t.Error("the server was probed again at once, want the same error")
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := u.Revisions(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a slow probe ended with %v, want the deadline", err)
		}
		time.Sleep(5 * time.Second)
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got, legacyRevisions) {
			t.Errorf("got %v, %v, want %v", got, err, legacyRevisions)
		}
	})
}

func TestConfiguredEraSkipsTheProbe(t *testing.T) {
	for era, want := range map[string][]string{"legacy": legacyRevisions,
		"modern": {mcp.Rev20260728}} {
		u := upstream.New(upstream.Options{Name: "files", Era: era})
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("era %s: got %v, %v, want %v", era, got, err, want)
		}
	}
}

func TestProbeOfAURL(t *testing.T) {
	respond := func(code int, body string) func(request) *upstream.HTTPResponse {
		return func(r request) *upstream.HTTPResponse {
			return httpResponse(code, replace(body, "ID", string(r.ID)))
		}
	}
	for _, c := range []struct {
		name  string
		serve func(request) *upstream.HTTPResponse
		want  []string
		fails string
	}{
		{"a modern server", respond(200,
			`{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2026-07-28"]}}`),
			[]string{mcp.Rev20260728}, ``},
		{"a stream", func(r request) *upstream.HTTPResponse {
			s := newFakeStream(conn.Event{ID: "1"}, conn.Event{Name: "endpoint",
				Data: []byte("/x")})
			s.send("", `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28","2025-11-25"]}}`, r.ID)
			return streamResponse(s)
		}, []string{mcp.Rev20260728, mcp.Rev20251125}, ``},
		{"only legacy revisions listed", respond(200,
			`{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2025-11-25"]}}`),
			[]string{mcp.Rev20251125}, ``},
		{"method not found", respond(404, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`),
			legacyRevisions, ``},
		{"a missing session id", respond(400, `Missing session ID`), legacyRevisions, ``},
		{"a missing session id, in an error without an id",
			respond(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"?"}}`),
			legacyRevisions, ``},
		{"a modern error", respond(400,
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32020,"message":"?"}}`),
			[]string{mcp.Rev20260728}, ``},
		{"unsupported version", respond(400,
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"?","data":{"supported":["2025-06-18"]}}}`), []string{mcp.Rev20250618}, ``},
		{"POST not allowed", respond(405, ``), legacyRevisions, ``},
		{"a body that is not JSON", respond(200, `hello`), legacyRevisions, ``},
		{"no credentials", respond(401, ``), nil, `credentials (HTTP 401)`},
		{"invalid credentials", respond(403,
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`),
			nil, `the server refused the request (HTTP 403): "{`},
		{"a refused Host header", respond(403, "Invalid Host: \"127.0.0.1\"\n\x1b[2J"), nil,
			`(HTTP 403): "Invalid Host: \"127.0.0.1\"\n\x1b[2J"`},
		{"a misdirected request", respond(421, strings.Repeat("x", 1000)), nil,
			`(HTTP 421): "` + strings.Repeat("x", 200) + `"`},
		{"a refusal without a body", respond(403, ``), nil,
			`the server refused the request (HTTP 403)`},
		{"a redirect", respond(307, ``), nil, `redirects`},
		{"a bad gateway", respond(502, `bad gateway`), nil, `HTTP 502`},
		{"too many requests", respond(429, ``), nil, `HTTP 429`},
		{"no network", func(request) *upstream.HTTPResponse {
			return nil
		}, nil, `no response from the URL`},
		{"a response that does not end", func(r request) *upstream.HTTPResponse {
			<-r.ctx.Done()
			return nil
		}, nil, `did not respond in time`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := &fakeHTTP{serve: c.serve}
				u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{HTTP: web}})
				defer u.Close()
				got, err := u.Revisions(t.Context())
				if c.fails != "" {
					if err == nil || !contains(err.Error(), c.fails) {
						t.Errorf("got %v, %v, want the error %q", got, err, c.fails)
					}
				} else if err != nil || !slices.Equal(got, c.want) {
					t.Errorf("got %v, %v, want %v", got, err, c.want)
				}
				h := web.requests("POST server/discover")[0].header
				for name, want := range map[string]string{"MCP-Protocol-Version": "2026-07-28",
					"Mcp-Method": "server/discover", "Mcp-Name": ""} {
					if h.Get(name) != want {
						t.Errorf("the header %s is %q, want %q", name, h.Get(name), want)
					}
				}
			})
		})
	}
}

func TestLateAnswerToTheProbeReplacesTheGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got, legacyRevisions) {
			t.Errorf("before the answer: got %v, %v, want %v", got, err, legacyRevisions)
		}
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID, `{"supportedVersions":["2026-07-28"]}`)
		synctest.Wait()
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got,
			[]string{mcp.Rev20260728}) {
			t.Errorf("after the answer: got %v, %v, want only %s", got, err, mcp.Rev20260728)
		}
		p := upstreamtest.StartCall(t, openModernSession(t, u, "a", ""), &upstreamtest.Client{},
			upstreamtest.ModernRequest(`1`, "tools/list", ``, ``))
		srv.Answer(srv.Expect(t, "tools/list").ID, `{}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if n := st.Count(); n != 1 {
			t.Errorf("%d processes were started, want 1", n)
		}
	})
}

func TestGuessedEraIsProbedAgainForAModernClient(t *testing.T) {
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
			t.Errorf("%d processes were started, want 1: the probe is not repeated at once", n)
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

func TestServerThatChangedItsEraIsProbedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start}})
		defer u.Close()
		go u.Revisions(t.Context())
		srv := st.Last(t)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"?"}}`,
			srv.Expect(t, "server/discover").ID)
		s := openSession(t, u, mcp.Rev20251125, &upstreamtest.Client{})
		time.Sleep(time.Minute)
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, initializeRequest)
		srv = st.Last(t)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"?"}}`,
			srv.Expect(t, "initialize").ID)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","error":{"code":-32022,"message":"?"}}`)
		go u.Revisions(t.Context())
		srv = st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID, `{"supportedVersions":["2026-07-28"]}`)
		if got, err := u.Revisions(t.Context()); err != nil || !slices.Equal(got,
			[]string{mcp.Rev20260728}) {
			t.Errorf("got %v, %v, want only %s", got, err, mcp.Rev20260728)
		}
	})
}
