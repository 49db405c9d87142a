package upstream_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// leasing starts processes, each for one principal and with a lease.
type leasing struct {
	upstreamtest.Launcher
	users      []string
	due, ended []chan struct{}
	fail       error
}

func (l *leasing) start(ctx context.Context, who *identity.Principal) (conn.PipeCloser,
	upstream.Lease, error) {
	if l.fail != nil {
		return nil, upstream.Lease{}, l.fail
	}
	p, err := l.Start(ctx)
	l.users = append(l.users, who.ID())
	l.due, l.ended = append(l.due, make(chan struct{})), append(l.ended, make(chan struct{}))
	return p, upstream.Lease{Due: l.due[len(l.due)-1], Ended: l.ended[len(l.ended)-1]}, err
}

// leasedSession is a session with a server whose processes have leases.
type leasedSession struct {
	t      *testing.T
	server proxy.Server
	era    string
}

func openLeased(t *testing.T, u *upstream.Upstream, l *leasing, era string,
	principal string) *leasedSession {
	t.Helper()
	revision := map[string]string{"legacy": mcp.Rev20251125, "modern": mcp.Rev20260728}[era]
	server, err := u.Open(t.Context(), proxy.OpenOptions{Session: principal, Revision: revision,
		Principal: identity.FromID(principal), HasStream: func() bool { return true }},
		&upstreamtest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	s := &leasedSession{t, server, era}
	if era == "legacy" {
		c := upstreamtest.StartCall(t, server, &upstreamtest.Client{}, initializeRequest)
		p := l.Last(t)
		p.Answer(p.Expect(t, "initialize").ID, initializeResult)
		c.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
		server.Notify(t.Context(), upstreamtest.Pass(t, initializedNotification))
		p.Expect(t, "notifications/initialized")
	}
	return s
}

// begin begins a call.
func (s *leasedSession) begin() *upstreamtest.Call {
	s.t.Helper()
	request := `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}`
	if s.era == "modern" {
		request = upstreamtest.ModernRequest(`7`, "tools/list", ``, ``)
	}
	return upstreamtest.StartCall(s.t, s.server, &upstreamtest.Client{}, request)
}

// prepare lets a new process of a legacy session answer what Gatekit sends first.
func (s *leasedSession) prepare(p *upstreamtest.PipeServer) {
	if s.era == "legacy" {
		p.Answer(p.Expect(s.t, "initialize").ID, initializeResult)
		p.Expect(s.t, "notifications/initialized")
	}
}

const leasedAnswer = `{"jsonrpc":"2.0","id":7,"result":{}}`

// A process whose lease is due ends as soon as no call is under way, and the next call starts
// another one. When the lease has ended, it ends at once.
func TestProcessEndsWithItsLease(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &leasing{}
				// Not even a server that is kept keeps such a process.
				u := upstream.New(upstream.Options{Name: "files", Era: era, Restart: true,
					Keep: true, Dial: upstream.Dial{Pipe: l.Start, PipeFor: l.start}})
				defer u.Close()
				s := openLeased(t, u, l, era, "ann")
				call := s.begin()
				first := l.Last(t)
				m := first.Expect(t, "tools/list")
				close(l.due[0])
				time.Sleep(time.Minute)
				if first.HasEnded() {
					t.Fatal("the process ended during a call, before its lease")
				}
				first.Answer(m.ID, `{}`)
				call.ExpectAnswer(leasedAnswer)
				time.Sleep(time.Second)
				if !first.HasEnded() {
					t.Fatal("the process still runs although its lease is due")
				}

				call = s.begin()
				second := l.Last(t)
				s.prepare(second)
				second.Answer(second.Expect(t, "tools/list").ID, `{}`)
				call.ExpectAnswer(leasedAnswer)
				call = s.begin()
				second.Expect(t, "tools/list")
				close(l.due[1])
				time.Sleep(time.Minute)
				close(l.ended[1])
				synctest.Wait()
				if !second.HasEnded() {
					t.Error("the process still runs although its lease has ended")
				}
				call.ExpectError("the connection is being closed")

				// A process that may not be used gets no call, even before it has ended.
				call = s.begin()
				third := l.Last(t)
				s.prepare(third)
				third.Answer(third.Expect(t, "tools/list").ID, `{}`)
				call.ExpectAnswer(leasedAnswer)
				close(l.due[2])
				close(l.ended[2])
				call = s.begin()
				fourth := l.Last(t)
				if fourth == third {
					t.Fatal("no other process was started")
				}
				s.prepare(fourth)
				fourth.Answer(fourth.Expect(t, "tools/list").ID, `{}`)
				call.ExpectAnswer(leasedAnswer)

				// Without a login, calls fail at once, however often. After the login, the next
				// call works at once.
				l.fail = &upstream.CredentialsError{Reason: "no login", LoginNeeded: true}
				close(l.due[3])
				close(l.ended[3])
				before := time.Now()
				for range 10 {
					s.begin().ExpectError("no login")
				}
				l.fail = nil
				call = s.begin()
				last := l.Last(t)
				if last == fourth {
					t.Fatal("no other process was started")
				}
				s.prepare(last)
				last.Answer(last.Expect(t, "tools/list").ID, `{}`)
				call.ExpectAnswer(leasedAnswer)
				if waited := time.Since(before); waited != 0 {
					t.Errorf("the calls have waited %v", waited)
				}
			})
		})
	}
}

// The process with which the revisions of the server were found out is only used by the principal
// whose token it has. A login that is missing delays no later start.
func TestProbedProcessBelongsToItsPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leasing{fail: &upstream.CredentialsError{Reason: "no login", LoginNeeded: true}}
		u := upstream.New(upstream.Options{Name: "files", Restart: true,
			Dial: upstream.Dial{Pipe: l.Start, PipeFor: l.start}})
		defer u.Close()
		open := func(principal string) error {
			_, err := u.Open(t.Context(), proxy.OpenOptions{Session: principal,
				Revision: mcp.Rev20251125, Principal: identity.FromID(principal)},
				&upstreamtest.Client{})
			return err
		}
		for range 3 {
			if err := open("ann"); err == nil || !strings.Contains(err.Error(), "no login") {
				t.Fatalf("got the error %v, want that a login is missing", err)
			}
		}
		if got := u.State(); got != "idle" {
			t.Errorf("the server is %q, want idle: it has not failed", got)
		}
		l.fail = nil
		before := time.Now()
		go func() {
			p := l.Last(t)
			p.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`,
				p.Expect(t, "server/discover").ID)
		}()
		if err := open("ann"); err != nil || time.Since(before) > time.Second {
			t.Fatalf("got the error %v after %v", err, time.Since(before))
		}
		bob, err := u.Open(t.Context(), proxy.OpenOptions{Session: "bob",
			Revision: mcp.Rev20251125, Principal: identity.FromID("bob")}, &upstreamtest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		upstreamtest.StartCall(t, bob, &upstreamtest.Client{}, initializeRequest)
		if l.Count() != 2 || l.users[0] != "ann" || l.users[1] != "bob" {
			t.Errorf("the processes belong to %q, want ann and bob", l.users)
		}
	})
}
