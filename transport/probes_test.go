package transport_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"gatekit/transport"
)

// TestProbesAnswerAnybodyWithoutDetail asks like a balancer: without credentials, and with a Host
// that clients may not use.
func TestProbesAnswerAnybodyWithoutDetail(t *testing.T) {
	var failing atomic.Bool
	s := listen(t, func(o *transport.HTTPServerOptions) {
		o.Authenticator = nobody{}
		o.Ready = func() error {
			if failing.Load() {
				return errors.New("the disk of /var/log/gatekit is full")
			}
			return nil
		}
	})
	ask := func(name, method, path string, status int, body string) {
		t.Helper()
		r, got := s.do(t, method+" "+path+" HTTP/1.1\nHost: 10.0.0.7:7777\nConnection: close\n\n")
		if r.StatusCode != status || body != "" && got != body {
			t.Errorf("%s: %s %s: got %s %q, want %d %q", name, method, path, r.Status, got, status,
				body)
		}
		if r.Header.Get("Cache-Control") != "no-store" && status != http.StatusMethodNotAllowed &&
			status != http.StatusForbidden {
			t.Errorf("%s: %s %s: the answer may be cached: %v", name, method, path, r.Header)
		}
	}
	ask("at first", "GET", "/livez", 200, "ok\n")
	ask("at first", "GET", "/readyz", 200, "ok\n")
	ask("other paths", "GET", "/readyz/audit", 403, "")
	ask("only reading", "POST", "/livez", 405, "")
	failing.Store(true)
	ask("a failure", "GET", "/livez", 200, "ok\n")
	ask("a failure", "GET", "/readyz", 503, "not ready\n")
	failing.Store(false)
	ask("after it", "GET", "/readyz", 200, "ok\n")
	s.BeginDrain()
	ask("draining", "GET", "/livez", 200, "ok\n")
	ask("draining", "GET", "/readyz", 503, "not ready\n")
	if got := s.refused(); len(got) != 2 { // of /readyz/audit and of POST
		t.Errorf("the refusals are %q, want two: a probe fills no log", got)
	}
}

// TestEndpointStandsOverAProbe has the endpoint at the path of a probe.
func TestEndpointStandsOverAProbe(t *testing.T) {
	s := listen(t, func(o *transport.HTTPServerOptions) { o.Path = "/livez" })
	r, body := s.do(t, "POST /livez HTTP/1.1\nHost: HOST\nContent-Type: application/json\n"+
		"Accept: application/json\nContent-Length: 2\nConnection: close\n\n{}")
	if r.StatusCode != http.StatusOK || body != "{}" {
		t.Errorf("got %s %q, want the endpoint's answer", r.Status, body)
	}
}

// TestDrainingServerClosesConnectionsAfterTheirAnswer drains a server. The requests of clients that
// have a connection are served, and the clients learn that they need another one.
func TestDrainingServerClosesConnectionsAfterTheirAnswer(t *testing.T) {
	s := listen(t, nil)
	post := "POST /mcp HTTP/1.1\nHost: HOST\nContent-Type: application/json\n" +
		"Accept: application/json\nContent-Length: 2\n\n{}"
	r, _ := s.do(t, post)
	if r.Close {
		t.Error("the connection is closed before the server drains")
	}
	s.BeginDrain()
	r, body := s.do(t, post)
	if r.StatusCode != http.StatusOK || strings.TrimSpace(body) != "{}" || !r.Close {
		t.Errorf("got %s %q, closed: %t; want the answer, and the connection closed", r.Status,
			body, r.Close)
	}
}
