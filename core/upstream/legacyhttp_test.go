package upstream_test

import (
	"context"
	"errors"
	"fmt"
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

// site is a legacy server over HTTP: it gives sessions, and leaves the rest to then.
type site struct {
	*web
	proxy.Server
	up       *upstream.Upstream
	feed     *upstreamtest.Client
	version  string
	sessions int                                    // given so far; the last one is alive
	bare     bool                                   // give no session ids
	get      func(r request) *upstream.HTTPResponse // nil: 405
	then     func(r request) *upstream.HTTPResponse
}

func newSite(t *testing.T, o upstream.Options) *site {
	t.Helper()
	s := &site{web: &web{}, feed: &upstreamtest.Client{}, version: "2025-11-25"}
	s.serve = s.handle
	o.Name, o.Era, o.Dial.HTTP = "web", "legacy", s.web
	s.up = upstream.New(o)
	s.Server = open(t, s.up, mcp.Rev20251125, s.feed)
	return s
}

func (s *site) id() string { return fmt.Sprint("session-", s.sessions) }

func (s *site) handle(r request) *upstream.HTTPResponse {
	if r.Method == "initialize" {
		s.sessions++
		a := reply(r.ID, replace(welcome, "2025-11-25", s.version))
		if !s.bare {
			a.Header.Set("Mcp-Session-Id", s.id())
		}
		return a
	}
	if got := r.header.Get("Mcp-Session-Id"); !s.bare && got != s.id() {
		return status(404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	}
	switch {
	case r.method == "GET" && s.get == nil:
		return status(405, "")
	case r.method == "GET":
		return s.get(r)
	case r.method == "DELETE":
		return status(204, "")
	case r.ID == nil || r.Method == "":
		return status(202, "")
	}
	return s.then(r)
}

// start shakes hands.
func (s *site) start(t *testing.T) {
	t.Helper()
	p := upstreamtest.StartCall(t, s, s.feed, hello)
	p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + replace(welcome,
		"2025-11-25", s.version) + `}`)
	if err := s.Notify(t.Context(), upstreamtest.Pass(t, initialized)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (s *site) end(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.Close(), s.up.Close()); err != nil {
		t.Error(err)
	}
}

const (
	toolsCall = `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a","_meta":{"progressToken":"p"}}}`
	toolsList = `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`
)

func TestHeadersOfALegacySession(t *testing.T) {
	for _, c := range []struct {
		version, header string
		bare            bool
	}{{"2024-11-05", "", false}, {"2025-03-26", "", false}, {"2025-06-18", "2025-06-18", false},
		{"2025-11-25", "2025-11-25", true}} {
		t.Run(c.version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, upstream.Options{})
				s.version, s.bare = c.version, c.bare
				s.then = func(r request) *upstream.HTTPResponse {
					a := reply(r.ID, `{}`)
					a.Header.Set("Mcp-Session-Id", "another") // is nobody's
					return a
				}
				s.start(t)
				upstreamtest.StartCall(t, s, s.feed,
					toolsList).ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
				upstreamtest.StartCall(t, s, s.feed,
					toolsList).ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
				s.end(t)
				want := []string{"POST initialize", "POST notifications/initialized",
					"GET", "POST tools/list", "POST tools/list"}
				session := ""
				if !c.bare {
					want, session = append(want, "DELETE"), "session-1"
				}
				if got := s.log(); !slices.Equal(got, want) {
					t.Errorf("the server saw %q, want %q", got, want)
				}
				for i, r := range s.seen {
					wantSession, wantVersion := session, c.header
					if i == 0 {
						wantSession, wantVersion = "", ""
					}
					if r.header.Get("Mcp-Session-Id") != wantSession ||
						r.header.Get("MCP-Protocol-Version") != wantVersion {
						t.Errorf("%s %s came with session %q and version %q", r.method, r.Method,
							r.header.Get("Mcp-Session-Id"), r.header.Get("MCP-Protocol-Version"))
					}
				}
			})
		})
	}
}

func TestAnswersOfALegacyURL(t *testing.T) {
	const done = `{"jsonrpc":"2.0","id":"c","result":{"done":1}}`
	told := []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`}
	for _, c := range []struct {
		name  string
		then  func(r request) *upstream.HTTPResponse
		want  string
		fails string
		told  []string
	}{
		{"JSON", func(r request) *upstream.HTTPResponse {
			return reply(r.ID, `{"done":1}`)
		}, done, ``, nil},
		{"a batch", func(r request) *upstream.HTTPResponse {
			return status(200, fmt.Sprintf(
				`[%s,{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}},{"jsonrpc":"2.0","id":%s,"result":{"done":1}}]`, told[0], r.ID))
		}, done, ``, told},
		{"a stream", func(r request) *upstream.HTTPResponse {
			e := newEvents(conn.Event{ID: "0"}, conn.Event{Name: "other",
				Data: []byte("?")}, conn.Event{Data: []byte("noise")})
			e.send("1", `%s`, told[0])
			e.send("2", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
			e.send("3", `{"jsonrpc":"2.0","id":%s,"result":{"done":1}}`, r.ID)
			return stream(e)
		}, done, ``, told},
		{"an error with its status", func(r request) *upstream.HTTPResponse {
			return status(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no"}}`)
		}, `{"jsonrpc":"2.0","id":"c","error":{"code":-32602,"message":"no"}}`, ``, nil},
		{"nothing", func(r request) *upstream.HTTPResponse {
			return status(202, ``)
		}, ``, `the server sent no answer (HTTP 202)`, nil},
		{"no credentials", func(r request) *upstream.HTTPResponse {
			return status(401, `<html>secret`)
		}, ``, `(HTTP 401)`, nil},
		{"a fault", func(r request) *upstream.HTTPResponse {
			return status(500, `oops`)
		}, ``, `HTTP 500`, nil},
		{"no network", func(r request) *upstream.HTTPResponse {
			return nil
		}, ``, `no response from the URL`, nil},
		{"a stream that breaks and has no ids", func(r request) *upstream.HTTPResponse {
			e := newEvents()
			e.send("", `%s`, told[0])
			e.end()
			return stream(e)
		}, ``, `broke`, told[:1]},
		{"an answer that cannot be read", func(r request) *upstream.HTTPResponse {
			e := newEvents()
			e.send("", `{"jsonrpc":"2.0","id":%s,"result":{"a":1,"a":2}}`, r.ID)
			return stream(e)
		}, ``, `the answer is not a valid message`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, upstream.Options{})
				s.then = c.then
				s.start(t)
				defer s.end(t)
				caller := &upstreamtest.Client{}
				p := upstreamtest.StartCall(t, s, caller, toolsCall)
				if c.fails != "" {
					p.ExpectError(c.fails)
				} else {
					p.ExpectAnswer(c.want)
				}
				caller.ExpectReceived(t, c.told...)
				if n := len(s.requests("POST tools/call")); n != 1 {
					t.Errorf("the call was put %d times", n)
				}
			})
		})
	}
}

func TestABrokenStreamIsTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, upstream.Options{})
		var id string
		s.then = func(r request) *upstream.HTTPResponse {
			id = string(r.ID)
			e := newEvents(conn.Event{ID: "7", Retry: 3000})
			e.end() // on purpose: the client is to poll
			return stream(e)
		}
		polls := 0
		s.get = func(r request) *upstream.HTTPResponse {
			last := r.header.Get("Last-Event-ID")
			if last == "" {
				return status(405, "")
			}
			e := newEvents()
			switch polls++; polls {
			case 1:
				return nil // the network fails
			case 2:
				e.send("8", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
			default:
				e.send("9", `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
			}
			e.end()
			return stream(e)
		}
		s.start(t)
		defer s.end(t)
		caller := &upstreamtest.Client{}
		began := time.Now()
		p := upstreamtest.StartCall(t, s, caller, toolsCall)
		<-p.Done
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
		caller.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
		if took := time.Since(began); took != (3+6+3)*time.Second {
			t.Errorf("it took %v: the server asked for 3 s between attempts", took)
		}
		if n := len(s.requests("POST tools/call")); n != 1 {
			t.Errorf("the call was put %d times", n)
		}
		if last := s.seen[len(s.seen)-1].header.Get("Last-Event-ID"); last != "8" {
			t.Errorf("resumed after %q", last)
		}
	})
}

func TestAStreamThatCannotBeTakenUpAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		get   *upstream.HTTPResponse
		gets  int
		fails string
	}{
		{"not offered", status(405, ""), 1, "does not resume it"},
		{"the session has ended", status(404, ""), 1, "the server has ended the session"},
		{"a fault", status(502, ""), 4, "could not be resumed"},
		{"no network", nil, 4, "could not be resumed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, upstream.Options{})
				s.then = func(r request) *upstream.HTTPResponse {
					e := newEvents(conn.Event{ID: "7"})
					e.end()
					return stream(e)
				}
				gets := 0
				s.get = func(r request) *upstream.HTTPResponse {
					if r.header.Get("Last-Event-ID") == "" {
						return status(405, "")
					}
					gets++
					return c.get
				}
				s.start(t)
				defer s.end(t)
				p := upstreamtest.StartCall(t, s, s.feed, toolsCall)
				time.Sleep(time.Minute)
				p.ExpectError(c.fails)
				if gets != c.gets {
					t.Errorf("asked for %d times, want %d", gets, c.gets)
				}
			})
		})
	}
}

// A server ends each stream of a call as soon as it was asked for, and wants it to be asked for
// again at once.
func TestAServerDoesNotChooseHowOftenItIsAsked(t *testing.T) {
	for _, c := range []struct {
		name  string
		each  conn.Event    // on each stream that was asked for again; none when empty
		lasts time.Duration // how long such a stream is open
		gets  int           // in a minute
		fails string        // "" when the call goes on
	}{
		{"nothing comes", conn.Event{}, 0, 4, "could not be resumed"},
		{"nothing comes, for as long as a proxy bears it", conn.Event{}, 12 * time.Second, 5,
			""},
		{"there is always something", conn.Event{ID: "8", Retry: 1}, 0, 599, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, upstream.Options{})
				s.then = func(r request) *upstream.HTTPResponse {
					e := newEvents(conn.Event{ID: "7", Retry: 1})
					e.end()
					return stream(e)
				}
				gets := 0
				s.get = func(r request) *upstream.HTTPResponse {
					if r.header.Get("Last-Event-ID") == "" {
						return status(405, "")
					}
					gets++
					e := newEvents()
					if c.each.ID != "" {
						e.ch <- c.each
					}
					time.AfterFunc(c.lasts, e.end)
					return stream(e)
				}
				s.start(t)
				defer s.end(t)
				p := upstreamtest.StartCall(t, s, s.feed, toolsCall)
				time.Sleep(time.Minute - time.Millisecond)
				if c.fails == "" {
					p.ExpectWaiting()
				} else {
					p.ExpectError(c.fails)
				}
				if gets != c.gets {
					t.Errorf("asked for %d times in a minute, want %d", gets, c.gets)
				}
				p.Cancel(context.Canceled)
			})
		})
	}
}

func TestAnEventThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, upstream.Options{})
		s.then = func(r request) *upstream.HTTPResponse {
			return stream(newEvents(conn.Event{ID: "7"}, conn.Event{Name: "too large"}))
		}
		s.start(t)
		defer s.end(t)
		upstreamtest.StartCall(t, s, s.feed, toolsCall).ExpectError("is too large")
	})
}

func TestAStreamOfNothingButNoiseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, upstream.Options{})
		e := newEvents()
		go func() {
			for range 200 {
				e.send("", `noise`)
			}
		}()
		s.then = func(r request) *upstream.HTTPResponse { return stream(e) }
		s.start(t)
		p := upstreamtest.StartCall(t, s, s.feed, toolsCall)
		p.ExpectError("broke")
		s.end(t)
		for len(e.ch) > 0 {
			<-e.ch
		}
	})
}

func TestCancelOverLegacyHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, upstream.Options{})
		e := newEvents()
		s.then = func(request) *upstream.HTTPResponse { return stream(e) }
		s.start(t)
		defer s.end(t)
		p := upstreamtest.StartCall(t, s, s.feed, toolsCall)
		synctest.Wait()
		p.Cancel(&proxy.CancelledError{Notification: upstreamtest.Pass(t,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c","reason":"r"}}`)})
		p.ExpectError("cancelled")
		id := string(s.requests("POST tools/call")[0].ID)
		if n := s.requests("POST notifications/cancelled"); len(n) != 1 ||
			string(n[0].Params) != `{"requestId":`+id+`,"reason":"r"}` {
			t.Errorf("the server was told %v", n)
		}
		if !e.closed() {
			t.Error("the stream is still open")
		}
	})
}

func TestTheStreamWithoutACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, upstream.Options{})
		streams := []*events{newEvents(), newEvents(), newEvents()}
		opened := 0
		s.get = func(r request) *upstream.HTTPResponse {
			opened++
			if opened == 2 {
				return status(503, "")
			}
			return stream(streams[opened-1])
		}
		s.feed.OnAsk = upstreamtest.AnswerWith(`{"roots":[]}`)
		s.then = func(r request) *upstream.HTTPResponse { return status(202, "") }
		s.start(t)
		defer s.end(t)
		streams[0].send("e1", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		streams[0].send("e2", `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		streams[0].send("e3", `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		s.feed.ExpectReceived(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		replies := []string{s.seen[len(s.seen)-1].body, s.seen[len(s.seen)-2].body}
		slices.Sort(replies)
		if want := []string{`{"jsonrpc":"2.0","id":"p","result":{}}`,
			`{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`}; !slices.Equal(replies, want) {
			t.Errorf("the server got %q, want %q", replies, want)
		}
		streams[0].end()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if opened != 3 {
			t.Fatalf("opened %d times", opened)
		}
		gets := s.requests("GET")
		if got := gets[2].header.Get("Last-Event-ID"); got != "e3" {
			t.Errorf("it went on after %q", got)
		}
		// Some servers send all answers there.
		p := upstreamtest.StartCall(t, s, s.feed, toolsList)
		p.ExpectWaiting()
		streams[2].send("", `{"jsonrpc":"2.0","id":%s,"result":{"x":1}}`,
			s.requests("POST tools/list")[0].ID)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{"x":1}}`)
	})
}

func TestWhatAServerAsksOnACallsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, upstream.Options{})
		e := newEvents()
		streams := []*events{e, newEvents()}
		s.then = func(r request) *upstream.HTTPResponse {
			first := streams[0]
			streams = streams[1:]
			return stream(first)
		}
		s.start(t)
		defer s.end(t)
		c := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"action":"accept"}`)}
		p := upstreamtest.StartCall(t, s, c, toolsCall)
		p.ExpectWaiting()
		// the stream says whose it is, however many there are
		upstreamtest.StartCall(t, s, s.feed, replace(toolsCall, `"c"`, `"d"`))
		synctest.Wait()
		e.send("", `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		synctest.Wait()
		if got := s.seen[len(
			s.seen)-1].body; got != `{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}` {
			t.Errorf("the server got %s", got)
		}
		p.ExpectWaiting()
	})
}

func TestAnExpiredSession(t *testing.T) {
	for _, c := range []struct {
		name string
		lost *upstream.HTTPResponse
	}{
		{"404", status(404, "")},
		{"what the TypeScript SDK's examples say",
			status(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, upstream.Options{})
				s.then = func(r request) *upstream.HTTPResponse { return reply(r.ID, `{}`) }
				s.start(t)
				defer s.end(t)
				upstreamtest.StartCall(t, s, s.feed,
					`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`)
				synctest.Wait()
				time.Sleep(time.Minute)

				serve := s.serve
				s.serve = func(r request) *upstream.HTTPResponse {
					if r.header.Get("Mcp-Session-Id") == "session-1" {
						return c.lost
					}
					return serve(r)
				}
				p := upstreamtest.StartCall(t, s, s.feed, toolsList)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
				want := []string{"POST initialize", "POST notifications/initialized",
					"GET", "POST logging/setLevel", "POST tools/list",
					"POST initialize", "POST notifications/initialized", "POST logging/setLevel",
					"POST tools/list"}
				// which runs beside
				got := slices.DeleteFunc(s.log()[3:], func(s string) bool { return s == "GET" })
				if !slices.Equal(got, want[3:]) {
					t.Errorf("the server saw\n%q, want\n%q", got, want[3:])
				}
				if s.sessions != 2 {
					t.Errorf("%d sessions", s.sessions)
				}
				s.feed.ExpectReceived(
					t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			})
		})
	}
	t.Run("a tools/call is not put again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, upstream.Options{})
			s.then = func(r request) *upstream.HTTPResponse { return reply(r.ID, `{}`) }
			s.start(t)
			defer s.end(t)
			s.sessions++ // the server has another now
			p := upstreamtest.StartCall(t, s, s.feed, toolsCall)
			p.ExpectError("the server has ended the session")
			time.Sleep(time.Second)
			if n := len(s.requests("POST tools/call")); n != 1 {
				t.Errorf("it was put %d times", n)
			}
			upstreamtest.StartCall(t, s, s.feed,
				toolsCall).ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
		})
	})
	t.Run("a server that forgets all the time is not asked all the time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, upstream.Options{})
			s.get = func(request) *upstream.HTTPResponse { return status(404, "") }
			s.start(t)
			defer s.end(t)
			time.Sleep(time.Hour)
			if n := len(s.requests("POST initialize")); n > 130 {
				t.Errorf("%d sessions in an hour", n)
			}
		})
	})
}

func TestFallbackToSSE(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer *upstream.HTTPResponse
		sse    bool
		want   string
	}{
		{"405", status(405, ""), true, ``},
		{"404", status(404, "<html>"), true, ``},
		{"400", status(400, "what?"), true, ``},
		{"an error of the modern era is no reason",
			status(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"?"}}`), false,
			``},
		{"a fault is no reason", status(500, ""), false, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &upstreamtest.Launcher{}
				w := &web{serve: func(request) *upstream.HTTPResponse { return c.answer }}
				u := upstream.New(upstream.Options{Name: "web", Era: "legacy",
					Dial: upstream.Dial{HTTP: w, SSE: st.Start}})
				defer u.Close()
				for i := range 2 {
					s := open(t, u, mcp.Rev20241105, &upstreamtest.Client{})
					p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, hello)
					if !c.sse {
						if n := st.Count(); n != 0 {
							t.Error("SSE was tried")
						}
						continue
					}
					srv := st.Last(t)
					srv.Answer(srv.Expect(t, "initialize").ID, welcome)
					p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + welcome + `}`)
					if n := len(w.log()); n != 1 {
						t.Errorf("session %d: POST was tried %d times", i+1, n)
					}
				}
			})
		})
	}
	t.Run("what POST said stands when there is no SSE", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &web{serve: func(request) *upstream.HTTPResponse { return status(404, "") }}
			u := upstream.New(upstream.Options{Name: "web", Era: "legacy",
				Dial: upstream.Dial{HTTP: w,
					SSE: (&upstreamtest.Launcher{Fail: errors.New("no")}).Start}})
			defer u.Close()
			upstreamtest.StartCall(t, open(t, u, mcp.Rev20241105, &upstreamtest.Client{}),
				&upstreamtest.Client{}, hello).ExpectError("HTTP 404")
		})
	})
}

func TestClosingALegacyURLEndsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, upstream.Options{})
		e, g := newEvents(), newEvents()
		s.then = func(request) *upstream.HTTPResponse { return stream(e) }
		s.get = func(request) *upstream.HTTPResponse { return stream(g) }
		s.start(t)
		p := upstreamtest.StartCall(t, s, s.feed, toolsCall)
		p.ExpectWaiting()
		s.end(t)
		p.ExpectError("closed")
		if !e.closed() || !g.closed() {
			t.Error("a stream is still open")
		}
		if got := s.log(); got[len(got)-1] != "DELETE" {
			t.Errorf("the server saw %q", got)
		}
	})
}
