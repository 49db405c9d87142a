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

// legacySite is a legacy server over HTTP. It answers initialize itself. It refuses the messages of
// all sessions except the last. onRequest answers the MCP requests of the last session.
type legacySite struct {
	*fakeHTTP
	proxy.Server
	upstream   *upstream.Upstream
	client     *upstreamtest.Client
	version    string
	sessions   int                                    // opened so far; only the last is valid
	withoutIDs bool                                   // sessions have no ids
	onGet      func(r request) *upstream.HTTPResponse // nil: 405
	onRequest  func(r request) *upstream.HTTPResponse
}

func newLegacySite(t *testing.T, o upstream.Options) *legacySite {
	t.Helper()
	s := &legacySite{fakeHTTP: &fakeHTTP{}, client: &upstreamtest.Client{}, version: "2025-11-25"}
	s.serve = s.handle
	o.Name, o.Era, o.Dial.HTTP = "web", "legacy", s.fakeHTTP
	s.upstream = upstream.New(o)
	s.Server = openSession(t, s.upstream, mcp.Rev20251125, s.client)
	return s
}

func (s *legacySite) sessionID() string { return fmt.Sprint("session-", s.sessions) }

func (s *legacySite) handle(r request) *upstream.HTTPResponse {
	if r.Method == "initialize" {
		s.sessions++
		a := resultResponse(r.ID, replace(initializeResult, "2025-11-25", s.version))
		if !s.withoutIDs {
			a.Header.Set("Mcp-Session-Id", s.sessionID())
		}
		return a
	}
	if got := r.header.Get("Mcp-Session-Id"); !s.withoutIDs && got != s.sessionID() {
		return httpResponse(
			404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	}
	switch {
	case r.method == "GET" && s.onGet == nil:
		return httpResponse(405, "")
	case r.method == "GET":
		return s.onGet(r)
	case r.method == "DELETE":
		return httpResponse(204, "")
	case r.ID == nil || r.Method == "":
		return httpResponse(202, "")
	}
	return s.onRequest(r)
}

// initialize sends initialize and notifications/initialized.
func (s *legacySite) initialize(t *testing.T) {
	t.Helper()
	p := upstreamtest.StartCall(t, s, s.client, initializeRequest)
	p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + replace(initializeResult,
		"2025-11-25", s.version) + `}`)
	if err := s.Notify(t.Context(), upstreamtest.Pass(t, initializedNotification)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (s *legacySite) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.Close(), s.upstream.Close()); err != nil {
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
		withoutIDs      bool
	}{{"2024-11-05", "", false}, {"2025-03-26", "", false}, {"2025-06-18", "2025-06-18", false},
		{"2025-11-25", "2025-11-25", true}} {
		t.Run(c.version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLegacySite(t, upstream.Options{})
				s.version, s.withoutIDs = c.version, c.withoutIDs
				s.onRequest = func(r request) *upstream.HTTPResponse {
					a := resultResponse(r.ID, `{}`)
					a.Header.Set("Mcp-Session-Id", "another") // ignored after initialize
					return a
				}
				s.initialize(t)
				upstreamtest.StartCall(t, s, s.client,
					toolsList).ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
				upstreamtest.StartCall(t, s, s.client,
					toolsList).ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
				s.close(t)
				want := []string{"POST initialize", "POST notifications/initialized",
					"GET", "POST tools/list", "POST tools/list"}
				session := ""
				if !c.withoutIDs {
					want, session = append(want, "DELETE"), "session-1"
				}
				if got := s.requestLog(); !slices.Equal(got, want) {
					t.Errorf("the server saw %q, want %q", got, want)
				}
				for i, r := range s.seen {
					wantSession, wantVersion := session, c.header
					if i == 0 {
						wantSession, wantVersion = "", ""
					}
					if r.header.Get("Mcp-Session-Id") != wantSession ||
						r.header.Get("MCP-Protocol-Version") != wantVersion {
						t.Errorf("%s %s has the session %q and version %q, want %q and %q",
							r.method, r.Method, r.header.Get("Mcp-Session-Id"),
							r.header.Get("MCP-Protocol-Version"), wantSession, wantVersion)
					}
				}
			})
		})
	}
}

func TestAnswersOverLegacyHTTP(t *testing.T) {
	const done = `{"jsonrpc":"2.0","id":"c","result":{"done":1}}`
	notifications := []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`}
	for _, c := range []struct {
		name  string
		then  func(r request) *upstream.HTTPResponse
		want  string
		fails string   // a part of the error, instead of want
		also  []string // the notifications that the client gets
	}{
		{"JSON", func(r request) *upstream.HTTPResponse {
			return resultResponse(r.ID, `{"done":1}`)
		}, done, ``, nil},
		{"a batch", func(r request) *upstream.HTTPResponse {
			return httpResponse(200, fmt.Sprintf(
				`[%s,{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}},{"jsonrpc":"2.0","id":%s,"result":{"done":1}}]`, notifications[0], r.ID))
		}, done, ``, notifications},
		{"a stream", func(r request) *upstream.HTTPResponse {
			e := newFakeStream(conn.Event{ID: "0"}, conn.Event{Name: "other",
				Data: []byte("?")}, conn.Event{Data: []byte("noise")})
			e.send("1", `%s`, notifications[0])
			e.send("2", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
			e.send("3", `{"jsonrpc":"2.0","id":%s,"result":{"done":1}}`, r.ID)
			return streamResponse(e)
		}, done, ``, notifications},
		{"a JSON-RPC error with HTTP 400", func(r request) *upstream.HTTPResponse {
			return httpResponse(
				400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no"}}`)
		}, `{"jsonrpc":"2.0","id":"c","error":{"code":-32602,"message":"no"}}`, ``, nil},
		{"an empty body", func(r request) *upstream.HTTPResponse {
			return httpResponse(202, ``)
		}, ``, `the server sent no answer (HTTP 202)`, nil},
		{"no credentials", func(r request) *upstream.HTTPResponse {
			return httpResponse(401, `<html>secret`)
		}, ``, `(HTTP 401)`, nil},
		{"an HTTP 500", func(r request) *upstream.HTTPResponse {
			return httpResponse(500, `oops`)
		}, ``, `HTTP 500`, nil},
		{"no network", func(r request) *upstream.HTTPResponse {
			return nil
		}, ``, `no response from the URL`, nil},
		{"a stream that breaks and has no event ids", func(r request) *upstream.HTTPResponse {
			e := newFakeStream()
			e.send("", `%s`, notifications[0])
			e.end()
			return streamResponse(e)
		}, ``, `broke`, notifications[:1]},
		{"an invalid answer", func(r request) *upstream.HTTPResponse {
			e := newFakeStream()
			e.send("", `{"jsonrpc":"2.0","id":%s,"result":{"a":1,"a":2}}`, r.ID)
			return streamResponse(e)
		}, ``, `the answer is not a valid message`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLegacySite(t, upstream.Options{})
				s.onRequest = c.then
				s.initialize(t)
				defer s.close(t)
				caller := &upstreamtest.Client{}
				p := upstreamtest.StartCall(t, s, caller, toolsCall)
				if c.fails != "" {
					p.ExpectError(c.fails)
				} else {
					p.ExpectAnswer(c.want)
				}
				caller.ExpectReceived(t, c.also...)
				if n := len(s.requests("POST tools/call")); n != 1 {
					t.Errorf("the call was sent %d times, want 1", n)
				}
			})
		})
	}
}

func TestBrokenStreamIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLegacySite(t, upstream.Options{})
		var id string
		s.onRequest = func(r request) *upstream.HTTPResponse {
			id = string(r.ID)
			e := newFakeStream(conn.Event{ID: "7", Retry: 3000})
			e.end() // the client has to poll
			return streamResponse(e)
		}
		polls := 0
		s.onGet = func(r request) *upstream.HTTPResponse {
			last := r.header.Get("Last-Event-ID")
			if last == "" {
				return httpResponse(405, "")
			}
			e := newFakeStream()
			switch polls++; polls {
			case 1:
				return nil // the network fails
			case 2:
				e.send("8", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
			default:
				e.send("9", `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
			}
			e.end()
			return streamResponse(e)
		}
		s.initialize(t)
		defer s.close(t)
		caller := &upstreamtest.Client{}
		began := time.Now()
		p := upstreamtest.StartCall(t, s, caller, toolsCall)
		<-p.Done
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
		caller.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
		if took := time.Since(began); took != (3+6+3)*time.Second {
			t.Errorf("the call took %v, want 12 s: the server asked for 3 s between attempts", took)
		}
		if n := len(s.requests("POST tools/call")); n != 1 {
			t.Errorf("the call was sent %d times, want 1", n)
		}
		if last := s.seen[len(s.seen)-1].header.Get("Last-Event-ID"); last != "8" {
			t.Errorf("the stream was resumed after the event %q, want 8", last)
		}
	})
}

func TestStreamThatCannotBeResumedFailsTheCall(t *testing.T) {
	for _, c := range []struct {
		name  string
		get   *upstream.HTTPResponse
		gets  int
		fails string
	}{
		{"the server does not resume streams", httpResponse(405, ""), 1, "does not resume it"},
		{"the session has ended", httpResponse(404, ""), 1, "the server has ended the session"},
		{"an HTTP 502", httpResponse(502, ""), 4, "could not be resumed"},
		{"no network", nil, 4, "could not be resumed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLegacySite(t, upstream.Options{})
				s.onRequest = func(r request) *upstream.HTTPResponse {
					e := newFakeStream(conn.Event{ID: "7"})
					e.end()
					return streamResponse(e)
				}
				gets := 0
				s.onGet = func(r request) *upstream.HTTPResponse {
					if r.header.Get("Last-Event-ID") == "" {
						return httpResponse(405, "")
					}
					gets++
					return c.get
				}
				s.initialize(t)
				defer s.close(t)
				p := upstreamtest.StartCall(t, s, s.client, toolsCall)
				time.Sleep(time.Minute)
				p.ExpectError(c.fails)
				if gets != c.gets {
					t.Errorf("the stream was requested %d times, want %d", gets, c.gets)
				}
			})
		})
	}
}

// The server ends each stream of a call at once, and asks the client to reconnect at once.
func TestResumesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		event conn.Event    // on each stream after the first; empty for no event
		lasts time.Duration // how long each stream after the first is open
		gets  int           // GET requests in a minute
		fails string        // a part of the error; "" when the call goes on
	}{
		{"no event comes", conn.Event{}, 0, 4, "could not be resumed"},
		{"no event comes, and the streams stay open for a while", conn.Event{}, 12 * time.Second, 5,
			""},
		{"an event comes on each stream", conn.Event{ID: "8", Retry: 1}, 0, 599, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLegacySite(t, upstream.Options{})
				s.onRequest = func(r request) *upstream.HTTPResponse {
					e := newFakeStream(conn.Event{ID: "7", Retry: 1})
					e.end()
					return streamResponse(e)
				}
				gets := 0
				s.onGet = func(r request) *upstream.HTTPResponse {
					if r.header.Get("Last-Event-ID") == "" {
						return httpResponse(405, "")
					}
					gets++
					e := newFakeStream()
					if c.event.ID != "" {
						e.ch <- c.event
					}
					time.AfterFunc(c.lasts, e.end)
					return streamResponse(e)
				}
				s.initialize(t)
				defer s.close(t)
				p := upstreamtest.StartCall(t, s, s.client, toolsCall)
				time.Sleep(time.Minute - time.Millisecond)
				if c.fails == "" {
					p.ExpectWaiting()
				} else {
					p.ExpectError(c.fails)
				}
				if gets != c.gets {
					t.Errorf("the stream was requested %d times in a minute, want %d", gets, c.gets)
				}
				p.Cancel(context.Canceled)
			})
		})
	}
}

func TestTooLargeEventFailsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLegacySite(t, upstream.Options{})
		s.onRequest = func(r request) *upstream.HTTPResponse {
			return streamResponse(newFakeStream(conn.Event{ID: "7"}, conn.Event{Name: "too large"}))
		}
		s.initialize(t)
		defer s.close(t)
		upstreamtest.StartCall(t, s, s.client, toolsCall).ExpectError("is too large")
	})
}

func TestStreamOfInvalidMessagesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLegacySite(t, upstream.Options{})
		e := newFakeStream()
		go func() {
			for range 200 {
				e.send("", `noise`)
			}
		}()
		s.onRequest = func(r request) *upstream.HTTPResponse { return streamResponse(e) }
		s.initialize(t)
		p := upstreamtest.StartCall(t, s, s.client, toolsCall)
		p.ExpectError("broke")
		s.close(t)
		for len(e.ch) > 0 {
			<-e.ch
		}
	})
}

func TestCancelOverLegacyHTTPIsPostedAndClosesTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLegacySite(t, upstream.Options{})
		e := newFakeStream()
		s.onRequest = func(request) *upstream.HTTPResponse { return streamResponse(e) }
		s.initialize(t)
		defer s.close(t)
		p := upstreamtest.StartCall(t, s, s.client, toolsCall)
		synctest.Wait()
		p.Cancel(&proxy.CancelledError{Notification: upstreamtest.Pass(t,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c","reason":"r"}}`)})
		p.ExpectError("cancelled")
		id := string(s.requests("POST tools/call")[0].ID)
		if n := s.requests("POST notifications/cancelled"); len(n) != 1 ||
			string(n[0].Params) != `{"requestId":`+id+`,"reason":"r"}` {
			t.Errorf("the server got the cancellations %v, want one for the request %s", n, id)
		}
		if !e.isClosed() {
			t.Error("the stream is still open after the call was cancelled")
		}
	})
}

func TestSessionStreamCarriesMessagesAndIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLegacySite(t, upstream.Options{})
		streams := []*fakeStream{newFakeStream(), newFakeStream(), newFakeStream()}
		opened := 0
		s.onGet = func(r request) *upstream.HTTPResponse {
			opened++
			if opened == 2 {
				return httpResponse(503, "")
			}
			return streamResponse(streams[opened-1])
		}
		s.client.OnAsk = upstreamtest.AnswerWith(`{"roots":[]}`)
		s.onRequest = func(r request) *upstream.HTTPResponse { return httpResponse(202, "") }
		s.initialize(t)
		defer s.close(t)
		streams[0].send("e1", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		streams[0].send("e2", `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		streams[0].send("e3", `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		s.client.ExpectReceived(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
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
			t.Fatalf("the stream was opened %d times, want 3", opened)
		}
		gets := s.requests("GET")
		if got := gets[2].header.Get("Last-Event-ID"); got != "e3" {
			t.Errorf("the stream was resumed after the event %q, want e3", got)
		}
		// Some servers send all answers on the session's stream.
		p := upstreamtest.StartCall(t, s, s.client, toolsList)
		p.ExpectWaiting()
		streams[2].send("", `{"jsonrpc":"2.0","id":%s,"result":{"x":1}}`,
			s.requests("POST tools/list")[0].ID)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{"x":1}}`)
	})
}

// The servers of the TypeScript SDK drop a question that belongs to no call while the session has
// no stream.
func TestCallsWaitForTheSessionStream(t *testing.T) {
	for _, c := range []struct {
		name      string
		get       time.Duration // until the server answers the request for the stream
		status    int
		wantAfter time.Duration
	}{
		{"the stream opens", time.Second, 200, time.Second},
		{"the server has no stream", time.Second, 405, time.Second},
		{"the server cannot open it now", time.Second, 503, time.Second},
		{"the server does not answer", time.Hour, 200, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLegacySite(t, upstream.Options{})
				s.onGet = func(r request) *upstream.HTTPResponse {
					select {
					case <-time.After(c.get):
					case <-r.ctx.Done():
					}
					if c.status != 200 {
						return httpResponse(c.status, "")
					}
					return streamResponse(newFakeStream())
				}
				s.onRequest = func(r request) *upstream.HTTPResponse {
					return resultResponse(r.ID, `{}`)
				}
				s.initialize(t)
				defer s.close(t)
				first := upstreamtest.StartCall(t, s, s.client, toolsList)
				time.Sleep(c.wantAfter - time.Nanosecond)
				first.ExpectWaiting()
				time.Sleep(time.Nanosecond)
				first.ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
				next := upstreamtest.StartCall(t, s, s.client, toolsList)
				next.ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
			})
		})
	}
}

func TestServerRequestOnACallsStreamReachesThatCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLegacySite(t, upstream.Options{})
		e := newFakeStream()
		streams := []*fakeStream{e, newFakeStream()}
		s.onRequest = func(r request) *upstream.HTTPResponse {
			first := streams[0]
			streams = streams[1:]
			return streamResponse(first)
		}
		s.initialize(t)
		defer s.close(t)
		c := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"action":"accept"}`)}
		p := upstreamtest.StartCall(t, s, c, toolsCall)
		p.ExpectWaiting()
		// The stream shows which of the two calls in flight the server's request belongs to.
		upstreamtest.StartCall(t, s, s.client, replace(toolsCall, `"c"`, `"d"`))
		synctest.Wait()
		e.send("", `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		synctest.Wait()
		const want = `{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`
		if got := s.seen[len(s.seen)-1].body; got != want {
			t.Errorf("the server got %s, want %s", got, want)
		}
		p.ExpectWaiting()
	})
}

func TestExpiredSessionIsOpenedAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		lost *upstream.HTTPResponse
	}{
		{"HTTP 404", httpResponse(404, "")},
		{"HTTP 400, which the TypeScript SDK's examples send",
			httpResponse(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLegacySite(t, upstream.Options{})
				s.onRequest = func(r request) *upstream.HTTPResponse {
					return resultResponse(r.ID, `{}`)
				}
				s.initialize(t)
				defer s.close(t)
				upstreamtest.StartCall(t, s, s.client,
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
				p := upstreamtest.StartCall(t, s, s.client, toolsList)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
				want := []string{"POST initialize", "POST notifications/initialized",
					"GET", "POST logging/setLevel", "POST tools/list",
					"POST initialize", "POST notifications/initialized", "POST logging/setLevel",
					"POST tools/list"}
				// Each GET is sent at the same time as another request, so their order varies.
				got := slices.DeleteFunc(s.requestLog()[3:], func(s string) bool {
					return s == "GET"
				})
				if !slices.Equal(got, want[3:]) {
					t.Errorf("the server saw\n%q, want\n%q", got, want[3:])
				}
				if s.sessions != 2 {
					t.Errorf("%d sessions were opened, want 2", s.sessions)
				}
				s.client.ExpectReceived(
					t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			})
		})
	}
	t.Run("a tools/call that has not been run is sent again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLegacySite(t, upstream.Options{})
			s.onRequest = func(r request) *upstream.HTTPResponse {
				return resultResponse(r.ID, `{}`)
			}
			s.initialize(t)
			defer s.close(t)
			time.Sleep(time.Minute)
			s.sessions++ // the server does not know the session any more
			p := upstreamtest.StartCall(t, s, s.client, toolsCall)
			time.Sleep(time.Second)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
			if n := len(s.requests("POST tools/call")); n != 2 {
				t.Errorf("the call was sent %d times, want 2", n)
			}
		})
	})
	t.Run("a tools/call that is running is not sent again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLegacySite(t, upstream.Options{})
			running, slow, release := true, true, make(chan struct{})
			s.onRequest = func(r request) *upstream.HTTPResponse {
				if running {
					running = false
					return streamResponse(newFakeStream())
				}
				return resultResponse(r.ID, `{}`)
			}
			s.initialize(t)
			defer s.close(t)
			time.Sleep(time.Minute)
			first := upstreamtest.StartCall(t, s, s.client, toolsCall)
			first.ExpectWaiting()
			s.sessions++ // the server does not know the session any more
			serve := s.serve
			s.serve = func(r request) *upstream.HTTPResponse {
				if r.Method == "tools/call" && slow {
					slow = false
					<-release
				}
				return serve(r)
			}
			// The server responds to the call next with 404, and after that to the call late. Each
			// 404 shows that its call has not been run, so both calls are sent again.
			late := upstreamtest.StartCall(t, s, s.client, toolsCall)
			late.ExpectWaiting()
			next := upstreamtest.StartCall(t, s, s.client, toolsCall)
			synctest.Wait()
			close(release)
			time.Sleep(time.Second)
			first.ExpectError("the server has ended the session")
			late.ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
			next.ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
			if n := len(s.requests("POST tools/call")); n != 5 {
				t.Errorf("the calls were sent %d times, want 5", n)
			}
		})
	})
	t.Run("sessions that expire at once are opened again with delays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLegacySite(t, upstream.Options{})
			s.onGet = func(request) *upstream.HTTPResponse { return httpResponse(404, "") }
			s.initialize(t)
			defer s.close(t)
			time.Sleep(time.Hour)
			if n := len(s.requests("POST initialize")); n > 130 {
				t.Errorf("%d sessions were opened in an hour, want at most 130", n)
			}
		})
	})
}

func TestServerWithoutStreamableHTTPIsReachedOverSSE(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer *upstream.HTTPResponse
		sse    bool
		want   string
	}{
		{"HTTP 405", httpResponse(405, ""), true, ``},
		{"HTTP 404", httpResponse(404, "<html>"), true, ``},
		{"HTTP 400", httpResponse(400, "what?"), true, ``},
		{"a modern error is no reason to try SSE",
			httpResponse(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"?"}}`),
			false,
			``},
		{"an HTTP 500 is no reason to try SSE", httpResponse(500, ""), false, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &upstreamtest.Launcher{}
				web := &fakeHTTP{serve: func(request) *upstream.HTTPResponse { return c.answer }}
				u := upstream.New(upstream.Options{Name: "web", Era: "legacy",
					Dial: upstream.Dial{HTTP: web, SSE: st.Start}})
				defer u.Close()
				for i := range 2 {
					s := openSession(t, u, mcp.Rev20241105, &upstreamtest.Client{})
					p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, initializeRequest)
					if !c.sse {
						if n := st.Count(); n != 0 {
							t.Error("SSE was tried, want no attempt")
						}
						continue
					}
					srv := st.Last(t)
					srv.Answer(srv.Expect(t, "initialize").ID, initializeResult)
					p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
					if n := len(web.requestLog()); n != 1 {
						t.Errorf("session %d: POST was tried %d times, want once for both sessions",
							i+1, n)
					}
				}
			})
		})
	}
	t.Run("when SSE fails too, the call fails with the response to the POST", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			web := &fakeHTTP{serve: func(request) *upstream.HTTPResponse {
				return httpResponse(404, "")
			}}
			u := upstream.New(upstream.Options{Name: "web", Era: "legacy",
				Dial: upstream.Dial{HTTP: web,
					SSE: (&upstreamtest.Launcher{Fail: errors.New("no")}).Start}})
			defer u.Close()
			upstreamtest.StartCall(t, openSession(t, u, mcp.Rev20241105, &upstreamtest.Client{}),
				&upstreamtest.Client{}, initializeRequest).ExpectError("HTTP 404")
		})
	})
}

func TestCloseEndsCallsOverLegacyHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLegacySite(t, upstream.Options{})
		answer, session := newFakeStream(), newFakeStream()
		s.onRequest = func(request) *upstream.HTTPResponse { return streamResponse(answer) }
		s.onGet = func(request) *upstream.HTTPResponse { return streamResponse(session) }
		s.initialize(t)
		p := upstreamtest.StartCall(t, s, s.client, toolsCall)
		p.ExpectWaiting()
		s.close(t)
		p.ExpectError("closed")
		if !answer.isClosed() || !session.isClosed() {
			t.Error("a stream is still open after Close")
		}
		if got := s.requestLog(); got[len(got)-1] != "DELETE" {
			t.Errorf("the server saw %q, want DELETE at the end", got)
		}
	})
}
