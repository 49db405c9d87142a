package upstream_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// httpSession is a session of an HTTP client with a legacy server over a pipe.
type httpSession struct {
	proxy.Server
	client    *upstreamtest.Client
	hasStream atomic.Bool
}

// legacyUpstream is a legacy server over a pipe, for sessions of HTTP clients.
type legacyUpstream struct {
	*upstreamtest.Launcher
	*upstream.Upstream

	mu     sync.Mutex
	events []string
}

// reported returns the actions that Options.Event was called with.
func (l *legacyUpstream) reported() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func newLegacyUpstream(o upstream.Options) *legacyUpstream {
	l := &legacyUpstream{Launcher: &upstreamtest.Launcher{}}
	o.Name, o.Era, o.Restart, o.Dial.Pipe = "files", "legacy", true, l.Start
	o.Event = func(action, _ string, _ error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, action)
	}
	l.Upstream = upstream.New(o)
	return l
}

func (l *legacyUpstream) open(t *testing.T, principal string) *httpSession {
	t.Helper()
	s := &httpSession{client: &upstreamtest.Client{}}
	server, err := l.Open(t.Context(), proxy.OpenOptions{Principal: identity.FromID(principal),
		Revision: mcp.Rev20251125, HasStream: s.hasStream.Load}, s.client)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = server
	return s
}

// connect opens a session, lets a new process answer its initialize, and sends
// notifications/initialized.
func (l *legacyUpstream) connect(t *testing.T, principal string) *httpSession {
	t.Helper()
	s, before := l.open(t, principal), l.Count()
	c := upstreamtest.StartCall(t, s, s.client, initializeRequest)
	if l.Count() == before {
		t.Fatal("initialize started no process, want one")
	}
	p := l.Last(t)
	p.Answer(p.Expect(t, "initialize").ID, initializeResult)
	c.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
	s.notifyInitialized(t)
	p.Expect(t, "notifications/initialized")
	return s
}

func (s *httpSession) notifyInitialized(t *testing.T) {
	t.Helper()
	if err := s.Notify(t.Context(), upstreamtest.Pass(t, initializedNotification)); err != nil {
		t.Error(err)
	}
}

func (s *httpSession) call(t *testing.T, method, params string) *upstreamtest.Call {
	t.Helper()
	return upstreamtest.StartCall(t, s, s.client,
		`{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`)
}

// answered makes a call and lets p answer it.
func (s *httpSession) answered(t *testing.T, p *upstreamtest.PipeServer, method, params,
	result string) {
	t.Helper()
	c := s.call(t, method, params)
	p.Answer(p.Expect(t, method).ID, result)
	c.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"result":` + result + `}`)
}

const idle = 15 * time.Minute

func TestUnusedProcessEndsAndTheNextRequestRestoresTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLegacyUpstream(upstream.Options{ServerIdle: idle})
		defer l.Close()
		s := l.connect(t, "ann")
		first := l.Last(t)
		s.answered(t, first, "logging/setLevel", `{"level":"error"}`, `{}`)
		s.answered(t, first, "resources/subscribe", `{"uri":"file:///a"}`, `{}`)
		time.Sleep(idle - time.Minute)
		if first.HasEnded() {
			t.Fatal("the process ended before server_idle had passed")
		}
		s.answered(t, first, "tools/list", `{}`, `{"tools":[]}`) // counts as use
		time.Sleep(idle - time.Minute)
		if first.HasEnded() {
			t.Fatal("the process ended before server_idle had passed since its last use")
		}
		time.Sleep(idle)
		if !first.HasEnded() {
			t.Fatal("the process still runs, want it ended for lack of use")
		}
		if got := l.State(); got != "idle" {
			t.Errorf("the server's state is %q, want idle", got)
		}
		if l.Count() != 1 {
			t.Fatal("a process was started before the next request, want none")
		}

		c := s.call(t, "tools/list", `{}`)
		second := l.Last(t)
		for _, method := range []string{"initialize", "notifications/initialized",
			"logging/setLevel", "resources/subscribe"} {
			if m := second.Expect(t, method); m.ID != nil {
				result := `{}`
				if method == "initialize" {
					result = initializeResult
				}
				second.Answer(m.ID, result)
			}
		}
		second.Answer(second.Expect(t, "tools/list").ID, `{"tools":[]}`)
		c.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}`)
		s.client.ExpectReceived(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if want := []string{"ended", "resumed"}; !slices.Equal(l.reported(), want) {
			t.Errorf("the events are %q, want %q", l.reported(), want)
		}
		if n := l.Processes(); n != (upstream.ProcessCounts{Running: 1, Ended: 1}) {
			t.Errorf("the counts are %+v, want one process running and one ended", n)
		}
		time.Sleep(2 * idle)
		if !second.HasEnded() {
			t.Error("the second process still runs, want it ended for lack of use, too")
		}
	})
}

func TestProcessIsKept(t *testing.T) {
	for _, c := range []struct {
		name    string
		options upstream.Options
		use     func(t *testing.T, s *httpSession, p *upstreamtest.PipeServer)
	}{
		{"the server has Options.Keep", upstream.Options{ServerIdle: idle, Keep: true}, nil},
		{"no idle time is configured", upstream.Options{}, nil},
		{"the client has a stream open", upstream.Options{ServerIdle: idle},
			func(_ *testing.T, s *httpSession, _ *upstreamtest.PipeServer) {
				s.hasStream.Store(true)
			}},
		{"a call is in flight", upstream.Options{ServerIdle: idle},
			func(t *testing.T, s *httpSession, _ *upstreamtest.PipeServer) {
				s.call(t, "tools/call", `{"name":"long"}`)
			}},
		{"the server works on a task", upstream.Options{ServerIdle: idle},
			func(t *testing.T, s *httpSession, p *upstreamtest.PipeServer) {
				s.answered(t, p, "tools/call", `{"name":"long","task":{}}`,
					`{"task":{"taskId":"1","status":"working","ttl":2400000}}`)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLegacyUpstream(c.options)
				defer l.Close()
				s := l.connect(t, "ann")
				if c.use != nil {
					c.use(t, s, l.Last(t))
				}
				time.Sleep(29 * time.Minute) // a task keeps its server for at most 30 minutes
				if l.Last(t).HasEnded() {
					t.Error("the process has ended, want it kept")
				}
			})
		})
	}
	t.Run("the client is on a pipe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := startLegacyServer(t, upstream.Options{ServerIdle: idle,
				Processes: upstream.NewProcesses(1)})
			defer l.close(t)
			time.Sleep(24 * time.Hour)
			if l.process.HasEnded() {
				t.Error("the process has ended, want it kept")
			}
		})
	})
}

func TestStreamThatIsOpenedAgainCountsAsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLegacyUpstream(upstream.Options{ServerIdle: idle})
		defer l.Close()
		s := l.connect(t, "ann")
		for range 10 {
			s.hasStream.Store(false)
			time.Sleep(idle / 2)
			s.hasStream.Store(true)
			time.Sleep(idle / 2)
		}
		if l.Last(t).HasEnded() {
			t.Error("the process has ended although the client opened its stream again")
		}
	})
}

func TestServerIsStartedAtItsFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLegacyUpstream(upstream.Options{ServerIdle: idle})
		defer l.Close()
		l.connect(t, "ann")
		s := l.open(t, "ann")
		withToken := strings.Replace(initializeRequest, `"params":{`,
			`"params":{"_meta":{"progressToken":5},`, 1)
		upstreamtest.StartCall(t, s, s.client, withToken).ExpectAnswer(
			`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
		s.notifyInitialized(t)
		if n := l.Count(); n != 1 {
			t.Fatalf("%d processes were started, want 1: the second session has sent no request", n)
		}
		c := s.call(t, "tools/list", `{}`)
		p := l.Last(t)
		p.Answer(p.Expect(t, "initialize").ID, initializeResult)
		p.Expect(t, "notifications/initialized")
		p.Answer(p.Expect(t, "tools/list").ID, `{"tools":[]}`)
		c.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}`)
		s.client.ExpectReceived(t) // nothing has changed
		if n := l.Count(); n != 2 {
			t.Errorf("%d processes were started for two sessions, want 2", n)
		}
	})
}

func TestInitializeWithoutAKnownAnswerStartsTheServer(t *testing.T) {
	for _, c := range []struct {
		name    string
		options upstream.Options
		change  func(t *testing.T, l *legacyUpstream) (s *httpSession, initialize string)
	}{
		{"another principal", upstream.Options{ServerIdle: idle},
			func(t *testing.T, l *legacyUpstream) (*httpSession, string) {
				return l.open(t, "bob"), initializeRequest
			}},
		{"another client", upstream.Options{ServerIdle: idle},
			func(t *testing.T, l *legacyUpstream) (*httpSession, string) {
				return l.open(t, "ann"), strings.Replace(initializeRequest, `"c"`, `"d"`, 1)
			}},
		{"an old answer", upstream.Options{ServerIdle: idle},
			func(t *testing.T, l *legacyUpstream) (*httpSession, string) {
				time.Sleep(idle)
				return l.open(t, "ann"), initializeRequest
			}},
		{"the server has ended since its answer", upstream.Options{ServerIdle: idle},
			func(t *testing.T, l *legacyUpstream) (*httpSession, string) {
				l.Last(t).Close()
				synctest.Wait()
				return l.open(t, "ann"), initializeRequest
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLegacyUpstream(c.options)
				defer l.Close()
				l.connect(t, "ann")
				s, initialize := c.change(t, l)
				before := l.Count()
				call := upstreamtest.StartCall(t, s, s.client, initialize)
				if l.Count() == before {
					t.Fatal("initialize started no process, want one")
				}
				p := l.Last(t)
				p.Answer(p.Expect(t, "initialize").ID, `{"protocolVersion":"2025-11-25"}`)
				call.ExpectAnswer(
					`{"jsonrpc":"2.0","id":"hi","result":{"protocolVersion":"2025-11-25"}}`)
			})
		})
	}
}

func TestClientsThatConnectAtOnceStartOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLegacyUpstream(upstream.Options{ServerIdle: idle})
		defer l.Close()
		var calls []*upstreamtest.Call
		for range 200 {
			s := l.open(t, "ann")
			calls = append(calls, upstreamtest.StartCall(t, s, s.client, initializeRequest))
		}
		if n := l.Count(); n != 1 {
			t.Fatalf("before the answer: %d processes were started, want 1", n)
		}
		p := l.Last(t)
		p.Answer(p.Expect(t, "initialize").ID, initializeResult)
		for _, c := range calls {
			c.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
		}
		if n := l.Count(); n != 1 {
			t.Errorf("after the answer: %d processes were started, want 1", n)
		}
	})
}

func TestChangedAnswerToInitializeIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLegacyUpstream(upstream.Options{ServerIdle: idle})
		defer l.Close()
		l.connect(t, "ann")
		s := l.open(t, "ann")
		upstreamtest.StartCall(t, s, s.client, initializeRequest).ExpectAnswer(
			`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
		s.call(t, "tools/list", `{}`)
		p := l.Last(t)
		p.Answer(p.Expect(t, "initialize").ID, strings.Replace(initializeResult, `"s"`, `"t"`, 1))
		s.client.ExpectReceived(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		before := l.Count()
		upstreamtest.StartCall(t, l.open(t, "ann"), s.client, initializeRequest)
		if l.Count() != before+1 {
			t.Error("the old answer was used again, want another initialize")
		}
	})
}

func TestFailedStartOfAnUnusedServerIsReportedAndDelaysTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLegacyUpstream(upstream.Options{ServerIdle: idle})
		defer l.Close()
		s := l.connect(t, "ann")
		time.Sleep(2 * idle)
		l.Fail = errors.New("no such program")
		s.call(t, "tools/list", `{}`).ExpectError("the process could not be started")
		l.Fail = nil
		s.call(t, "tools/list", `{}`).ExpectError("the process could not be started") // too early
		time.Sleep(time.Second)
		s.call(t, "tools/list", `{}`).ExpectWaiting()
		if n := l.Count(); n != 2 {
			t.Errorf("%d processes were started, want 2", n)
		}
	})
}

func TestProcessesOfAPrincipalAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes := upstream.NewProcesses(2)
		o := upstream.Options{ServerIdle: idle, Processes: processes}
		// two servers share the limit
		serverA, serverB := newLegacyUpstream(o), newLegacyUpstream(o)
		defer serverA.Close()
		defer serverB.Close()
		a := serverA.connect(t, "ann")
		first := serverA.Last(t)
		time.Sleep(time.Second)
		serverB.connect(t, "ann")
		time.Sleep(time.Second)
		// after this call, the process of serverB has been unused for longer than that of serverA
		a.answered(t, first, "tools/list", `{}`, `{"tools":[]}`)
		serverA.connect(t, "bob")
		if first.HasEnded() || serverB.Last(t).HasEnded() {
			t.Fatal("a process of ann has ended when bob's process was started")
		}

		time.Sleep(2 * time.Second)
		c := serverB.open(t, "ann")
		c.hasStream.Store(true)
		upstreamtest.StartCall(t, c, c.client, strings.Replace(initializeRequest, `"c"`, `"d"`, 1))
		if !serverB.First(t).HasEnded() || first.HasEnded() {
			t.Fatal("the process of serverB still runs, or the process of serverA has ended")
		}
		p := serverB.Last(t)
		p.Answer(p.Expect(t, "initialize").ID, initializeResult)
		synctest.Wait()

		// both processes of ann are in use now
		a.hasStream.Store(true)
		d := serverB.open(t, "ann")
		refused := upstreamtest.StartCall(t, d, d.client,
			strings.Replace(initializeRequest, `"c"`, `"e"`, 1))
		time.Sleep(time.Second)
		refused.ExpectWaiting()
		time.Sleep(5 * time.Second)
		refused.ExpectError("the limit [limits] processes is reached, and all processes are in use")
		counts := upstream.ProcessCounts{Running: 1, Ended: 1, Refused: 1}
		if got := serverB.Processes(); got != counts {
			t.Errorf("the counts are %+v, want one process running, one ended, one refused", got)
		}

		// a start that waits gets the slot of a session that ends
		e := serverB.open(t, "ann")
		upstreamtest.StartCall(t, e, e.client, strings.Replace(initializeRequest, `"c"`, `"f"`, 1))
		before := serverB.Count()
		a.Close()
		if serverB.Count() != before+1 {
			t.Error("the start still waits although a process has ended")
		}
		time.Sleep(time.Second)
		if alive := len(serverA.Alive()) + len(serverB.Alive()); alive != 3 {
			t.Errorf("%d processes run, want 2 of ann and 1 of bob", alive)
		}
	})
}

func TestKeptServersHaveALimitOfTheirOwnAndAreNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := upstream.Options{ServerIdle: idle, Processes: upstream.NewProcesses(1)}
		other := newLegacyUpstream(o)
		defer other.Close()
		o.Keep = true
		kept := newLegacyUpstream(o)
		defer kept.Close()
		kept.connect(t, "ann")
		other.connect(t, "ann")
		if len(kept.Alive()) != 1 || len(other.Alive()) != 1 {
			t.Error("a kept process and another process share a limit, want separate limits")
		}
		s := kept.open(t, "ann")
		upstreamtest.StartCall(t, s, s.client, initializeRequest).ExpectAnswer(
			`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
		c := s.call(t, "tools/list", `{}`)
		time.Sleep(6 * time.Second)
		c.ExpectError("[limits] processes is reached")
		if kept.Last(t).HasEnded() {
			t.Error("a server that is configured to be kept has ended")
		}
	})
}

func TestCloseWaitsForAnUnusedProcessThatIsBeingEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLegacyUpstream(upstream.Options{ServerIdle: idle})
		l.CloseDelay = time.Minute
		l.connect(t, "ann")
		for !slices.Contains(l.reported(), "ended") {
			time.Sleep(10 * time.Second)
		}
		l.Close()
		if len(l.Alive()) > 0 {
			t.Error("Close returned while the process was still running")
		}
	})
}

func TestUnusedModernProcessEnds(t *testing.T) {
	for _, c := range []struct {
		name     string
		options  upstream.Options
		overPipe bool // a client on a pipe uses the process, too
		want     bool
	}{
		{"over HTTP", upstream.Options{ServerIdle: idle}, false, true},
		{"with a client on a pipe", upstream.Options{ServerIdle: idle}, true, false},
		{"a server that is kept", upstream.Options{ServerIdle: idle, Keep: true}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, l := newModernUpstream(c.options)
				defer u.Close()
				s, err := u.Open(t.Context(), proxy.OpenOptions{Principal: identity.FromID("ann"),
					Revision: mcp.Rev20260728, HasStream: func() bool { return false }},
					&upstreamtest.Client{})
				if err != nil {
					t.Fatal(err)
				}
				if c.overPipe {
					openModernSession(t, u, "p", "ann")
				}
				list := upstreamtest.ModernRequest(`1`, "tools/list", ``, ``)
				call := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, list)
				time.Sleep(2 * idle) // a call in flight is a use
				p := l.Last(t)
				p.Answer(p.Expect(t, "tools/list").ID, `{"resultType":"complete","tools":[]}`)
				call.ExpectAnswer(
					`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[]}}`)
				time.Sleep(2 * idle)
				if got := p.HasEnded(); got != c.want {
					t.Fatalf("the process has ended: %t, want %t", got, c.want)
				}
				upstreamtest.StartCall(t, s, &upstreamtest.Client{}, list)
				l.Last(t).Expect(t, "tools/list")
			})
		})
	}
}
