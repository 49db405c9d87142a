package transport_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatekit/core/conn"
	"gatekit/core/downstream"
	"gatekit/core/identity"
	"gatekit/transport"
	"gatekit/transport/auth"
)

// endpoint is a fake transport.Endpoint. It answers a POST with the body of the POST, unless the
// body, up to its first colon, names one of the other behaviours below. It answers a GET with a
// stream that ends with its context.
type endpoint struct {
	ended  chan error    // receives the error with which a stream, a waiting call or a pipe ended
	opened chan struct{} // receives a value for each stream or waiting call
}

func (*endpoint) EndPrincipal(string) {}

func (e *endpoint) Post(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply) {
	behaviour, _, _ := strings.Cut(string(r.Body), ":")
	switch behaviour {
	case "empty":
		w.Write(http.StatusAccepted, nil)
	case "no reply":
	case "large":
		e.ended <- w.Write(http.StatusOK, nil, bytes.Repeat([]byte("x"), 64<<20))
	case "session":
		w.Write(http.StatusOK, http.Header{"Mcp-Session-Id": {"abc"}}, []byte("{}"))
	case "wait":
		e.opened <- struct{}{}
		<-ctx.Done()
		e.ended <- context.Cause(ctx)
	case "twice":
		w.Write(http.StatusOK, nil, []byte("{}"))
		if w.Write(http.StatusOK, nil, []byte("{}")) == nil {
			panic("a second answer was accepted")
		}
	case "events":
		s, err := w.Stream(nil)
		if err != nil {
			return
		}
		for i := range 3 {
			s.Send(conn.Event{ID: fmt.Sprint(i), Data: []byte("{\n}")})
		}
		s.Close()
	default:
		w.Write(http.StatusOK, nil, r.Body)
	}
}

func (e *endpoint) Get(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply) {
	if r.Forward != nil && r.Forward("id", nil, "") {
		return
	}
	s, err := w.Stream(nil)
	if err != nil {
		e.ended <- err
		return
	}
	e.opened <- struct{}{}
	if r.Header.Get("X-Endless") != "" {
		for err == nil {
			err = s.Send(conn.Event{Data: bytes.Repeat([]byte("x"), 1<<20)})
		}
		e.ended <- err
		return
	}
	<-ctx.Done()
	e.ended <- context.Cause(ctx)
}

func (e *endpoint) Delete(_ context.Context, _ downstream.HTTPRequest, w downstream.Reply) {
	w.Write(http.StatusNoContent, nil)
}

// ServePipe writes back each message that it reads.
func (e *endpoint) ServePipe(ctx context.Context, p conn.Pipe, _ *identity.Principal) error {
	for {
		b, err := p.Read(ctx)
		if err != nil {
			e.ended <- err
			return nil
		}
		if err := p.Write(ctx, b); err != nil {
			return err
		}
	}
}

// runningServer is an HTTPServer that runs until the test is over.
type runningServer struct {
	*transport.HTTPServer
	*endpoint
	addr string
	stop func() // stops the server and waits for its end

	mu       sync.Mutex
	refusals []string
}

// waitUntilIdle waits until n connections are idle. After an answer, net/http marks the connection
// as idle only when the client may already have read the answer.
func (f *runningServer) waitUntilIdle(n int) {
	for f.IdleConnections() != n {
		runtime.Gosched()
	}
}

// listen starts an HTTPServer on a free port. change may edit its options.
func listen(t *testing.T, change func(*transport.HTTPServerOptions)) *runningServer {
	t.Helper()
	f := &runningServer{endpoint: &endpoint{ended: make(chan error, 100),
		opened: make(chan struct{}, 100)}}
	o := transport.HTTPServerOptions{
		Addr:     "127.0.0.1:0",
		Endpoint: f.endpoint,
		RecordRefusal: func(_ context.Context, _ *http.Request, refusal transport.Refusal) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.refusals = append(f.refusals, fmt.Sprint(refusal.Status, " ",
				cmp.Or(refusal.Detail, refusal.Reason)))
		},
		RefusalBody: func(transport.Refusal) []byte { return []byte(`{"refused":true}`) },
		Limits: transport.HTTPServerLimits{Message: 1 << 20, Shutdown: 100 * time.Millisecond,
			MinIdle: 1},
	}
	if change != nil {
		change(&o)
	}
	l, err := transport.ListenHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	f.HTTPServer, f.addr = l, l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *runningServer) refused() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.refusals)
}

// dial opens a connection and sends a request. In the request, it replaces HOST by the server's
// address.
func (f *runningServer) dial(t *testing.T, request string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, strings.ReplaceAll(strings.ReplaceAll(request, "\n", "\r\n"), "HOST", f.addr))
	return c
}

// do sends a raw request and reads its answer.
func (f *runningServer) do(t *testing.T, request string) (*http.Response, string) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(f.dial(t, request)), nil)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("read the body: %v", err)
	}
	r.Body.Close()
	return r, string(b)
}

const good = "POST /mcp HTTP/1.1\nHost: HOST\nContent-Type: application/json\nAccept: " +
	"application/json, text/event-stream\nContent-Length: 2\n\n{}"

func TestHTTPServerChecksRequests(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.AllowedOrigins = []string{"https://app.example"}
		o.AllowedHosts = []string{"gate.example", "other.example:8443"}
	})
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	header := func(h string) string { return with("Host:", h+"\nHost:") }
	for _, c := range []struct {
		name, request string
		status        int
		// reason of the refusal; "" if the request is served, "-" if net/http refuses it
		reason string
	}{
		{"a good request", good, 200, ""},
		{"an evil Host", with("HOST", "evil.example"), 403, `Host "evil.example" is not allowed`},
		{"an evil Host with a port", with("HOST", "evil.example:80"), 403,
			`Host "evil.example:80" is not allowed`},
		{"a Host that begins with the server's address", with("HOST", "127.0.0.1.evil.example"),
			403, "is not allowed"},
		{"a Host that begins with localhost", with("HOST", "localhost.evil.example"), 403,
			"is not allowed"},
		{"an empty Host", with("HOST", ""), 403, "is not allowed"},
		{"a Host that is the address of another machine", with("HOST", "192.168.1.1"), 403,
			"is not allowed"},
		{"the Host localhost", with("HOST", "LocalHost:1234"), 200, ""},
		{"the Host localhost with a final dot", with("HOST", "localhost."), 200, ""},
		{"the IPv6 loopback address as Host", with("HOST", "[::1]:80"), 200, ""},
		{"another loopback address as Host", with("HOST", "127.9.9.9"), 200, ""},
		{"a configured Host", with("HOST", "gate.example:99"), 200, ""},
		{"a configured Host with its port", with("HOST", "other.example:8443"), 200, ""},
		{"a configured Host with another port", with("HOST", "other.example"), 403,
			"is not allowed"},
		{"two Hosts", header("Host: HOST"), 400, "-"},
		{"an Origin that is configured", header("Origin: https://app.example"), 200, ""},
		{"the server's own Origin", header("Origin: http://HOST"), 200, ""},
		{"an evil Origin", header("Origin: https://evil.example"), 403,
			`Origin "https://evil.example" is not allowed`},
		{"an Origin on another local port", header("Origin: http://localhost:3000"), 403,
			"is not allowed"},
		{"the null Origin", header("Origin: null"), 403, "is not allowed"},
		{"an Origin that begins like a configured one", header("Origin: https://app.example.evil"),
			403, "is not allowed"},
		{"two Origins", header("Origin: https://app.example\nOrigin: https://evil.example"), 400,
			"header Origin came twice"},
		{"the same Origin twice",
			header("Origin: https://app.example\nOrigin: https://app.example"), 200, ""},
		{"two Content-Types", header("Content-Type: text/plain"), 400,
			"header Content-Type came twice"},
		{"two Authorizations", header("Authorization: Bearer a\nAuthorization: Bearer b"), 400,
			"header Authorization came twice"},
		{"text/plain, which a browser sends without a preflight", with("application/json\n",
			"text/plain\n"), 415, "Content-Type is not application/json"},
		{"the Content-Type of a form", with("application/json\n",
			"application/x-www-form-urlencoded\n"), 415,
			"Content-Type is not application/json"},
		{"no Content-Type", with("Content-Type: application/json\n", ""), 415,
			"Content-Type is not application/json"},
		{"a Content-Type with a charset", with("application/json\n",
			"Application/JSON; charset=utf-8\n"), 200, ""},
		{"a compressed body", header("Content-Encoding: gzip"), 415, "Content-Encoding"},
		{"no Accept", with("Accept: application/json, text/event-stream\n", ""), 200, ""},
		{"Accept anything", with("application/json, text/event-stream", "*/*"), 200, ""},
		{"Accept only JSON", with("application/json, text/event-stream", "application/json"), 200,
			""},
		{"Accept only events, with a weight", with("application/json, text/event-stream",
			"text/html;q=1, text/event-stream;q=0.1"), 200, ""},
		{"Accept HTML", with("application/json, text/event-stream", "text/html"), 406,
			"Accept allows neither"},
		{"Accept refuses JSON", with("application/json, text/event-stream",
			"application/json;q=0, image/png"), 406, "Accept allows neither"},
		{"PUT", with("POST", "PUT"), 405, `method "PUT" is not allowed`},
		{"a method whose name is part of POST", with("POST", "OS"), 405, `method "OS" is not allowed`},
		{"another path", with("/mcp", "/admin"), 404, `nothing is served at "/admin"`},
		{"the SSE transport, which is disabled", with("POST /mcp", "GET /sse"), 404,
			"nothing is served at"},
		{"a body over the limit", with("Content-Length: 2", "Content-Length: 1048577"), 413,
			"over the limit"},
		{"a chunked body over the limit", with("Content-Length: 2\n\n{}",
			"Transfer-Encoding: chunked\n\n100001\n"+strings.Repeat("x", 1<<20+1)+"\n0\n\n"), 413,
			"over the limit"},
		{"a chunked body", with("Content-Length: 2\n\n{}",
			"Transfer-Encoding: chunked\n\n1\n{\n1\n}\n0\n\n"), 200, ""},
		{"a large header block", header("X-Large: " + strings.Repeat("x", 32<<10)), 431, "-"},
		{"a control character in a header", header("X-Odd: a\x01b"), 400, "-"},
		{"two Content-Lengths", with("Content-Length: 2", "Content-Length: 2\nContent-Length: 3"),
			400,
			"-"},
		{"HTTP/2 without TLS", "PRI * HTTP/2.0\n\nSM\n\n", 403, "Host \"\" is not allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(server.refused())
			r, body := server.do(t, c.request)
			if r.StatusCode != c.status {
				t.Errorf("got status %d, want %d; body %s", r.StatusCode, c.status, body)
			}
			refused := server.refused()[before:]
			switch {
			case c.reason == "" && len(refused) == 0 && body == "{}":
			case c.reason == "-" && len(refused) == 0:
			case c.reason != "" && len(refused) == 1 && body == `{"refused":true}` &&
				strings.HasPrefix(refused[0], fmt.Sprint(c.status)) && strings.Contains(refused[0],
				c.reason):
			default:
				t.Errorf("got the refusals %q and the body %q, want the reason %q", refused, body,
					c.reason)
			}
			if c.status == 405 && !strings.Contains(r.Header.Get("Allow"), "POST") {
				t.Errorf("the header Allow is %q, want POST in it", r.Header.Get("Allow"))
			}
		})
	}
}

func TestHTTPServerAnswersPreflightRequests(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.AllowedOrigins = []string{"https://app.example"}
	})
	preflight := "OPTIONS /mcp HTTP/1.1\nHost: HOST\nOrigin: " +
		"ORIGIN\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: " +
		"content-type,mcp-session-id\n\n"

	r, _ := server.do(t, strings.Replace(preflight, "ORIGIN", "https://app.example", 1))
	if r.StatusCode != 204 ||
		r.Header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
		r.Header.Get("Access-Control-Allow-Headers") != "content-type,mcp-session-id" ||
		!strings.Contains(r.Header.Get("Access-Control-Allow-Methods"), "DELETE") {
		t.Errorf("got %d %v, want 204 and the headers that allow the request", r.StatusCode,
			r.Header)
	}
	if r.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Error("the answer has Access-Control-Allow-Credentials, want no such header")
	}

	r, _ = server.do(t, strings.Replace(preflight, "ORIGIN", "https://evil.example", 1))
	if r.StatusCode != 403 || r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("an evil Origin: got %d %v, want 403 and no allowed origin", r.StatusCode,
			r.Header)
	}

	r, _ = server.do(t, strings.Replace(strings.Replace(good, "{}", "session", 1),
		"Content-Length: 2", "Content-Length: 7\nOrigin: https://app.example", 1))
	if r.Header.Get("Access-Control-Expose-Headers") == "" ||
		r.Header.Get("Mcp-Session-Id") != "abc" || r.Header.Get("Vary") != "Origin" {
		t.Errorf("got the headers %v, want the session id exposed and Vary: Origin", r.Header)
	}
}

// post returns a good request with another body.
func post(body string) string {
	return strings.Replace(good, "Content-Length: 2\n\n{}", fmt.Sprintf("Content-Length: %d\n\n%s",
		len(body), body), 1)
}

func TestHTTPServerReplies(t *testing.T) {
	server := listen(t, nil)
	large := strings.Repeat("y", 300<<10)
	for _, c := range []struct {
		name, request string
		status        int
		body          string
	}{
		{"a body", post("hello"), 200, "hello"},
		{"a large body", post(large), 200, large},
		{"an empty body", post("empty"), 202, ""},
		{"an error when the endpoint does not reply", post("no reply"), 500, ""},
		{"the first of two replies", post("twice"), 200, "{}"},
		{"a DELETE", "DELETE /mcp HTTP/1.1\nHost: HOST\n\n", 204, ""},
		{"events", post("events"), 200,
			"id: 0\ndata: {\ndata: }\n\nid: 1\ndata: {\ndata: }\n\nid: 2\ndata: {\ndata: }\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, body := server.do(t, c.request)
			if r.StatusCode != c.status || body != c.body {
				t.Errorf("got %d %.100q, want %d %.100q", r.StatusCode, body, c.status, c.body)
			}
			want := map[string]string{"": "", "events": "text/event-stream"}[c.name]
			if c.body != "" && want == "" {
				want = "application/json"
			}
			if got := r.Header.Get("Content-Type"); got != want {
				t.Errorf("Content-Type: got %q, want %q", got, want)
			}
		})
	}
}

func TestHTTPServerKeepsConnections(t *testing.T) {
	server := listen(t, nil)
	c := server.dial(t, post("one")+post("two")+post("empty")+post("three"))
	in := bufio.NewReader(c)
	for _, want := range []string{"one", "two", "", "three"} {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(r.Body); string(b) != want {
			t.Errorf("got %q, want %q", b, want)
		}
	}
}

func TestHTTPServerCancelsARequestWhoseClientIsGone(t *testing.T) {
	server := listen(t, nil)
	c := server.dial(t, post("wait"))
	<-server.opened
	c.Close()
	if err := <-server.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v, want context.Canceled", err)
	}
}

func TestHTTPServerDropsSlowRequests(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) {
		// Even on a busy machine, the good requests must arrive within these times.
		o.Limits.Header, o.Limits.Request = time.Second, 1500*time.Millisecond
	})
	t.Run("in parallel", func(t *testing.T) { slowRequests(t, server) })
	if got := server.refused(); len(got) != 2 {
		t.Errorf("refused %q, want the two slow bodies", got)
	}
}

func slowRequests(t *testing.T, server *runningServer) {
	t.Run("slow headers", func(t *testing.T) {
		t.Parallel()
		c := server.dial(t, "POST /mcp HTTP/1.1\nHost: HOST\nX-Slow: ")
		if b, err := io.ReadAll(c); err != nil || bytes.Contains(b, []byte(" 200 ")) {
			t.Errorf("got %q, %v, want the connection closed without a 200", b, err)
		}
	})
	t.Run("a slow body", func(t *testing.T) {
		t.Parallel()
		r, _ := server.do(t, strings.Replace(post("12345678"), "5678", "", 1))
		if r.StatusCode != 408 {
			t.Errorf("got status %d, want 408", r.StatusCode)
		}
	})
	t.Run("a body shorter than its Content-Length", func(t *testing.T) {
		t.Parallel()
		r, _ := server.do(t, strings.Replace(good, "Content-Length: 2", "Content-Length: 1000000",
			1))
		if r.StatusCode != 408 {
			t.Errorf("got status %d, want 408", r.StatusCode)
		}
	})
	t.Run("a slow answer is not dropped", func(t *testing.T) {
		t.Parallel()
		c := server.dial(t, post("wait")) // the call lasts longer than Limits.Request
		<-server.opened
		time.Sleep(1600 * time.Millisecond)
		select {
		case err := <-server.ended:
			t.Errorf("the call ended with %v, want it to go on", err)
		default:
		}
		c.Close()
		<-server.ended
	})
}

func TestHTTPServerDropsClientsThatDoNotRead(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.Limits.Write = 100 * time.Millisecond
	})
	get := "GET /mcp HTTP/1.1\nHost: HOST\nAccept: text/event-stream\nX-Endless: 1\n\n"
	server.dial(t, get)
	if err := <-server.ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stream ended with %v, want the deadline", err)
	}
	server.dial(t, post("large"))
	if err := <-server.ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer ended with %v, want the deadline", err)
	}
}

func TestHTTPServerBoundsStreams(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) { o.Limits.Streams = 2 })
	get := "GET /mcp HTTP/1.1\nHost: HOST\nAccept: text/event-stream\n\n"
	first := server.dial(t, get)
	server.dial(t, get)
	<-server.opened
	<-server.opened
	if r, _ := server.do(t, get); r.StatusCode != 503 {
		t.Errorf("the third stream: got status %d, want 503", r.StatusCode)
	}
	<-server.ended // the stream that was refused
	first.Close()
	<-server.ended
	server.dial(t, get)
	<-server.opened
}

// TestConnectionOverTheLimit opens as many connections as the limit, and then one more. If all
// others are in use, the new connection is refused at once. If one of them is idle, the new
// connection takes its place.
func TestConnectionOverTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		idle string // request on the first connection
		want int    // status for the third connection
	}{
		"idle after an answer":       {idle: post("x"), want: 200},
		"idle since it was accepted": {idle: "", want: 200},
		"in use":                     {idle: post("wait"), want: 503},
	} {
		t.Run(name, func(t *testing.T) {
			server := listen(t, func(o *transport.HTTPServerOptions) { o.Limits.Connections = 2 })
			first := server.dial(t, c.idle)
			server.dial(t, post("wait"))
			<-server.opened
			switch c.idle {
			case post("x"):
				r, err := http.ReadResponse(bufio.NewReader(first), nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Body.Close()
				server.waitUntilIdle(1)
			case post("wait"):
				<-server.opened
			}
			third := server.dial(t, post("third"))
			r, err := http.ReadResponse(bufio.NewReader(third), nil)
			if err != nil {
				t.Fatalf("the third connection: %v", err)
			}
			r.Body.Close()
			if r.StatusCode != c.want {
				t.Errorf("the third connection: got status %d, want %d", r.StatusCode, c.want)
			}
			wantRefused := int64(0)
			if c.want == 503 {
				wantRefused = 1
			} else if _, err := first.Read(make([]byte, 1)); err == nil {
				t.Error("the idle connection got data, want it closed")
			}
			if got := server.Stats(); got.Connections != 2 ||
				got.ConnectionsRefused != wantRefused {
				t.Errorf("got %d connections and %d refused, want 2 and %d", got.Connections,
					got.ConnectionsRefused, wantRefused)
			}
		})
	}
}

// TestNoDescriptorLeft opens a connection while the process has few file descriptors left, or none.
// The connection is refused at once. If there is an idle connection, it is closed. When descriptors
// are free again, connections are served.
func TestNoDescriptorLeft(t *testing.T) {
	for _, test := range []struct {
		name  string
		other bool // there is an idle connection
		free  int  // descriptors, with that for the client's end of a connection
	}{
		{"none is free, and a connection is idle", true, 1},
		{"none is free, and no connection is idle", false, 1},
		{"7 are free, and a connection is idle", true, 8}, // 8 of 128 are kept for the audit log
		{"7 are free, and no connection is idle", false, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := listen(t, nil)
			idle := server.dial(t, post("x"))
			r, err := http.ReadResponse(bufio.NewReader(idle), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			server.waitUntilIdle(1)
			if !test.other {
				idle.Close()
				server.waitUntilIdle(0)
			}
			restore := leaveDescriptors(t, test.free)
			defer restore()
			c := server.dial(t, post("x"))
			r, err = http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("no answer without a free descriptor: %v", err)
			}
			r.Body.Close()
			if r.StatusCode != 503 {
				t.Errorf("with few free descriptors: got status %d, want 503", r.StatusCode)
			}
			if test.other {
				if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("the idle connection got the error %v, want EOF", err)
				}
			}
			c.Close()
			restore()
			if r, _ := server.do(t, post("x")); r.StatusCode != 200 {
				t.Errorf("with free descriptors: got status %d, want 200", r.StatusCode)
			}
		})
	}
}

// leaveDescriptors limits the process to 128 file descriptors and opens files until only free of
// them are left. restore undoes both.
func leaveDescriptors(t *testing.T, free int) (restore func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	var taken []*os.File
	restore = sync.OnceFunc(func() {
		for _, f := range taken {
			f.Close()
		}
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 128,
		Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		taken = append(taken, f)
	}
	if len(taken) < free {
		restore()
		t.Fatalf("the test has more than %d files open", 128-free)
	}
	for range free { // the highest numbers
		taken[len(taken)-1].Close()
		taken = taken[:len(taken)-1]
	}
	return restore
}

func TestHTTPServerBoundsBodiesInFlight(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) { o.Limits.Bodies = 100 << 10 })
	c := server.dial(t, post("wait:"+strings.Repeat("x", 90<<10)))
	defer c.Close()
	<-server.opened
	if r, _ := server.do(t, post(strings.Repeat("y", 20<<10))); r.StatusCode != 503 {
		t.Errorf("a body over the limit: got status %d, want 503", r.StatusCode)
	}
	if r, _ := server.do(t, post("small")); r.StatusCode != 200 {
		t.Errorf("a small body: got status %d, want 200", r.StatusCode)
	}
	c.Close()
	<-server.ended
	for range 1000 {
		if r, _ := server.do(t, post(strings.Repeat("y", 20<<10))); r.StatusCode == 200 {
			return
		}
	}
	t.Error("a body is still refused although the first call has ended, want status 200")
}

// A body counts towards the limit only as far as it has arrived. Otherwise 16 requests with
// Content-Length: 16777216 and no body could block all other clients for a minute.
func TestHTTPServerCountsOnlyReceivedBytes(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) { o.Limits.Bodies = 1 << 20 })
	for range 3 {
		server.dial(t, strings.Replace(good, "Content-Length: 2\n\n{}",
			"Transfer-Encoding: chunked\n\n1\n{\n", 1))
		server.dial(t, strings.Replace(good, "Content-Length: 2", "Content-Length: 1000000", 1))
	}
	server.do(t, post("the connections above have been accepted before this one"))
	// 100 KiB: the server may count this body until after its answer, beside the next body
	if r, _ := server.do(t, post(strings.Repeat("y", 100<<10))); r.StatusCode != 200 {
		t.Errorf("got status %d, want 200; refused %q", r.StatusCode, server.refused())
	}
	t.Run("the received bytes of all bodies count", func(t *testing.T) {
		server.dial(t, post("wait:"+strings.Repeat("x", 900<<10)))
		<-server.opened
		chunk := fmt.Sprintf("%x\n%s\n", 200<<10, strings.Repeat("y", 200<<10))
		if r, _ := server.do(t, strings.Replace(good, "Content-Length: 2\n\n{}",
			"Transfer-Encoding: chunked\n\n"+chunk+"0\n\n", 1)); r.StatusCode != 503 {
			t.Errorf("got status %d, want 503", r.StatusCode)
		}
	})
}

func TestHTTPServerShutsDown(t *testing.T) {
	server := listen(t, nil)
	idle := server.dial(t, post("one"))
	http.ReadResponse(bufio.NewReader(idle), nil)
	server.dial(t, post("wait"))
	server.dial(t, "GET /mcp HTTP/1.1\nHost: HOST\n\n")
	<-server.opened
	<-server.opened
	server.stop()
	for range 2 {
		if err := <-server.ended; err == nil {
			t.Error("a call or stream ended without an error, want an error")
		}
	}
	if _, err := net.Dial("tcp", server.addr); err == nil {
		t.Error("the server still accepts connections after it was stopped")
	}
}

func TestListenHTTPRefusesAddressesThatOtherMachinesReach(t *testing.T) {
	o := transport.HTTPServerOptions{Endpoint: &endpoint{}, RecordRefusal: func(context.Context,
		*http.Request, transport.Refusal) {
	}}
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		o.Addr = addr
		f, err := transport.ListenHTTP(o)
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "[listen.auth]") {
			t.Errorf("%s: got %v, want an error that names [listen.auth]", addr, err)
		}
	}
	o.Addr, o.Authenticator = "0.0.0.0:0", nobody{}
	f, err := transport.ListenHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, addr := range []string{"127.0.0.1", "nonsense", "127.0.0.1:99999"} {
		o.Addr = addr
		if f, err := transport.ListenHTTP(o); err == nil {
			f.Close()
			t.Errorf("%s: ListenHTTP succeeded, want an error", addr)
		}
	}
}

func TestSSEServer(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) { o.SSE = true })
	b, err := transport.NewHTTPClient(transport.HTTPClientOptions{Name: "old",
		URL: "http://" + server.addr + "/sse"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, err := b.OpenSSE(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{`{"id":1}`, `{"x":"` + strings.Repeat("x", 200<<10) + `"}`} {
		write(t, p, m)
		if got := read(t, p); got != m {
			t.Errorf("got %.100q, want %.100q", got, m)
		}
	}
	p.Close()
	if err := <-server.ended; !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		t.Errorf("the pipe ended with %v, want io.EOF or context.Canceled", err)
	}
	if _, err := p.Read(t.Context()); err != io.EOF {
		t.Errorf("Read after Close: got %v, want io.EOF", err)
	}
	if r, _ := server.do(t, strings.Replace(good,
		"/mcp", "/messages?sid=00000000000000000000000000000000", 1)); r.StatusCode != 404 {
		t.Errorf("an unknown session: got status %d, want 404", r.StatusCode)
	}
	if r, _ := server.do(t, strings.Replace(good, "/mcp", "/messages", 1)); r.StatusCode != 404 {
		t.Errorf("no session: got status %d, want 404", r.StatusCode)
	}
	if r, _ := server.do(t, strings.Replace(good, "POST /mcp", "GET /messages",
		1)); r.StatusCode != 405 {
		t.Errorf("GET of /messages: got status %d, want 405", r.StatusCode)
	}
}

// A posted message counts towards Limits.Bodies until the endpoint has read it or its pipe has
// ended.
func TestSSEServerBoundsUnreadBodies(t *testing.T) {
	e := &blockedEndpoint{end: make(chan struct{})}
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.SSE, o.Endpoint = true, e
		o.Limits.Message, o.Limits.Bodies = 1<<20, 2<<20
	})
	for range 2 {
		stream, err := http.Get("http://" + server.addr + "/sse")
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
		var at string
		lines := bufio.NewScanner(stream.Body)
		for at == "" && lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				at = data
			}
		}
		accepted := 0
		for range 4 {
			p, err := http.Post("http://"+server.addr+at, "application/json",
				bytes.NewReader(bytes.Repeat([]byte(" "), 1<<20)))
			if err != nil {
				t.Fatal(err)
			}
			p.Body.Close()
			if p.StatusCode == http.StatusAccepted {
				accepted++
			}
		}
		if accepted != 2 {
			t.Errorf("%d bodies of 1 MiB were accepted, want 2", accepted)
		}
		e.end <- struct{}{}
		for lines.Scan() { // read until the pipe has ended
		}
	}
}

// blockedEndpoint is an endpoint that never reads from its pipes. A value in end ends one pipe.
type blockedEndpoint struct {
	endpoint
	end chan struct{}
}

func (e *blockedEndpoint) ServePipe(context.Context, conn.Pipe, *identity.Principal) error {
	<-e.end
	return nil
}

// nobody is an Authenticator that refuses every request.
type nobody struct{}

func (nobody) Authenticate(*http.Request) (*identity.Principal, *auth.Refusal) {
	return nil, &auth.Refusal{Status: http.StatusUnauthorized, Reason: "no", Detail: "detail",
		Header: http.Header{"Www-Authenticate": {"Bearer"}}}
}

func (nobody) Challenge(*identity.Principal, []string) http.Header { return nil }

func (nobody) Revoked(*identity.Principal) *auth.Refusal { return nil }

// Every path and method is authenticated before anything of the body is read. The detail is for the
// record only.
func TestRequestsAreAuthenticated(t *testing.T) {
	f := listen(t, func(o *transport.HTTPServerOptions) {
		o.SSE, o.Authenticator = true, nobody{}
		o.RefusalBody = func(r transport.Refusal) []byte { return []byte(r.Reason) }
	})
	for _, tt := range []struct{ method, path string }{
		{http.MethodPost, "/mcp"}, {http.MethodGet, "/mcp"}, {http.MethodDelete, "/mcp"},
		{http.MethodGet, "/sse"}, {http.MethodPost, "/messages?sid=0"},
	} {
		unread := &unreadBody{}
		r, err := http.NewRequest(tt.method, "http://"+f.addr+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.method == http.MethodPost {
			r.Body, r.ContentLength = unread, 1<<10
			r.Header.Set("Expect", "100-continue")
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 401 || answer.Header.Get("WWW-Authenticate") != "Bearer" ||
			string(b) != "no" {
			t.Errorf("%s %s: got status %d, %v and %q, want 401 with a challenge", tt.method,
				tt.path, answer.StatusCode, answer.Header, b)
		}
		if unread.read.Load() {
			t.Errorf("%s %s: the body was read", tt.method, tt.path)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.refusals) != 5 || f.refusals[0] != "401 detail" {
		t.Errorf("got the refusals %q, want 5 with the detail", f.refusals)
	}
}

// unreadBody is a body that is sent only if the server asks for it.
type unreadBody struct{ read atomic.Bool }

func (b *unreadBody) Read([]byte) (int, error) { b.read.Store(true); return 0, io.EOF }
func (b *unreadBody) Close() error             { return nil }

// onlyPage has one page.
type onlyPage struct{ path string }

func (p onlyPage) Serves(path string) bool { return path == p.path }

func (p onlyPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, r.Method, " page")
}

// TestHTTPServerServesPagesToAnyone has pages, an endpoint that needs authentication, and other
// paths, which are not public.
func TestHTTPServerServesPagesToAnyone(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.Authenticator = nobody{}
		o.Pages = []transport.Pages{onlyPage{"/connect/page"}, onlyPage{"/console/"}}
	})
	for _, c := range []struct {
		request string
		status  int
		body    string
	}{
		{"GET /connect/page?x HTTP/1.1\nHost: HOST\n\n", 200, "GET page"},
		{"POST /connect/page HTTP/1.1\nHost: HOST\nOrigin: null\nContent-Length: 0\n\n", 200,
			"POST page"},
		{"GET /console/ HTTP/1.1\nHost: HOST\n\n", 200, "GET page"},
		{"GET /connect/page HTTP/1.1\nHost: evil.example\n\n", 403, `{"refused":true}`},
		{"GET /connect/ HTTP/1.1\nHost: HOST\n\n", 404, `{"refused":true}`},
		{"GET /connect/page/ HTTP/1.1\nHost: HOST\n\n", 404, `{"refused":true}`},
		{good, 401, `{"refused":true}`},
	} {
		r, body := server.do(t, c.request)
		if r.StatusCode != c.status || body != c.body {
			t.Errorf("%q: got status %d and %s, want %d and %s", c.request, r.StatusCode, body,
				c.status, c.body)
		}
	}
	if got := server.refused(); len(got) != 4 {
		t.Errorf("got the refusals %q, want 4", got)
	}
}

func TestHTTPServerServesDocumentsToAnyone(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.Authenticator = nobody{}
		o.Documents = []transport.Document{{Paths: []string{"/a.json", "/b/a.json"},
			Body: []byte(`{"a":1}`)}}
	})
	for _, c := range []struct {
		request string
		status  int
		body    string
	}{
		{"GET /a.json HTTP/1.1\nHost: HOST\n\n", 200, `{"a":1}`},
		{"GET /b/a.json?x HTTP/1.1\nHost: HOST\nOrigin: https://a.example\n\n", 200, `{"a":1}`},
		{"POST /a.json HTTP/1.1\nHost: HOST\nContent-Length: 0\n\n", 405, `{"refused":true}`},
		{"OPTIONS /a.json HTTP/1.1\nHost: HOST\n\n", 405, `{"refused":true}`},
		{"GET /a.json HTTP/1.1\nHost: evil.example\n\n", 403, `{"refused":true}`},
		{"GET /b HTTP/1.1\nHost: HOST\n\n", 404, `{"refused":true}`},
		{good, 401, `{"refused":true}`},
	} {
		r, body := server.do(t, c.request)
		if r.StatusCode != c.status || body != c.body {
			t.Errorf("%q: got status %d and %s, want %d and %s", c.request, r.StatusCode, body,
				c.status, c.body)
		}
		if c.status == 200 && (r.Header.Get("Cache-Control") != "public, max-age=600" ||
			r.Header.Get("Content-Type") != "application/json") {
			t.Errorf("%q: got the headers %v", c.request, r.Header)
		}
	}
	if got := server.refused(); len(got) != 5 {
		t.Errorf("got the refusals %q, want 5", got)
	}
}
