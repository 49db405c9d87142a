package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/conn"
	"gatekit/core/upstream"
	"gatekit/transport"
)

// newHTTPClient starts an HTTP server with the handler h and returns a client of it.
func newHTTPClient(t *testing.T, h http.HandlerFunc,
	change func(*transport.HTTPClientOptions)) *transport.HTTPClient {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	r := transport.HTTPClientOptions{Name: "github", URL: s.URL + "/mcp", MaxMessage: 1 << 20}
	if change != nil {
		change(&r)
	}
	b, err := transport.NewHTTPClient(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestHTTPClientRequests(t *testing.T) {
	type sent struct {
		method, body string
		header       http.Header
	}
	got := make(chan sent, 1)
	b := newHTTPClient(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- sent{r.Method, string(body), r.Header}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		w.Header().Set("Mcp-Session-Id", "s1")
		io.WriteString(w, `{"ok":true}`)
	}, func(r *transport.HTTPClientOptions) {
		r.Headers = map[string]string{"authorization": "Bearer hunter2", "X-Team": "blue"}
	})
	header := func() http.Header {
		return http.Header{"Mcp-Session-Id": {"s0"}, "X-Team": {"the protocol's"}}
	}
	for i, c := range []struct {
		call func() (*upstream.HTTPResponse, error)
		want sent
	}{
		{func() (*upstream.HTTPResponse, error) {
			return b.Post(t.Context(), header(), []byte(`{"id":1}`))
		}, sent{method: "POST", body: `{"id":1}`}},
		{func() (*upstream.HTTPResponse, error) {
			return b.Get(t.Context(), header())
		}, sent{method: "GET"}},
		{func() (*upstream.HTTPResponse, error) {
			return b.Delete(t.Context(), header())
		}, sent{method: "DELETE"}},
	} {
		a, err := c.call()
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != 200 || string(a.Body) != `{"ok":true}` ||
			a.Header.Get("Mcp-Session-Id") != "s1" || a.Events != nil {
			t.Errorf("request %d: got the response %+v, want the response that the server sent",
				i, a)
		}
		s := <-got
		if s.method != c.want.method || s.body != c.want.body {
			t.Errorf("request %d: the server got %+v, want %+v", i, s, c.want)
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer hunter2", "X-Team": "the protocol's", "Mcp-Session-Id": "s0",
			"Cookie": "", "Accept-Encoding": "",
			"Accept":       "application/json, text/event-stream",
			"Content-Type": map[bool]string{true: "application/json"}[c.want.body != ""],
		} {
			if have := s.header.Get(name); have != want {
				t.Errorf("request %d: the header %s is %q, want %q", i, name, have, want)
			}
		}
	}
}

func TestHTTPClientResponses(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		status  int
		body    string
		err     string
	}{
		{"plain text with its status", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w,
				"Missing session ID", 400)
		}, 400, "Missing session ID\n", ""},
		{"status 202", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }, 202,
			"", ""},
		{"status 204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204,
			"", ""},
		{"a body of unknown length", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"a":`)
			w.(http.Flusher).Flush()
			io.WriteString(w, `1}`)
		}, 200, `{"a":1}`, ""},
		{"a body at the limit", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w,
				big)
		}, 200, big, ""},
		{"a body over the limit", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w,
				big+"x")
		}, 0, "", "over the limit"},
		{"a Content-Length over the limit", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1<<20+1))
			io.WriteString(w, big+"x")
		}, 0, "", "over the limit"},
		{"an event stream with an error status is a body", func(w http.ResponseWriter,
			_ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(500)
			io.WriteString(w, "data: x\n\n")
		}, 500, "data: x\n\n", ""},
		{"a body that ends too early", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 0, "", "unexpected EOF"},
		{"a redirect is not followed", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/mcp" {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "https://evil.example/steal?token=1", http.StatusTemporaryRedirect)
		}, 0, "", "the server redirects to https://evil.example/steal (status 307), which is " +
			"not followed"},
		{"a redirect without a Location", func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(302)
		}, 0, "", "the server redirects to nowhere (status 302)"},
		{"a header block over the limit", func(w http.ResponseWriter,
			_ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 80<<10))
		}, 0, "", "exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newHTTPClient(t, c.handler, nil)
			a, err := b.Post(t.Context(), nil, []byte("{}"))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) ||
					!strings.Contains(err.Error(), `server "github": POST http://127.0.0.1:`) {
					t.Errorf("got %v, want an error of POST and server \"github\" with %q", err,
						c.err)
				}
				_, large := errors.AsType[*conn.TooLargeError](err)
				if large != strings.Contains(c.err, "over the limit") {
					t.Errorf("the error is a TooLargeError: %v, want %v", large, !large)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if a.Status != c.status || string(a.Body) != c.body || a.Events != nil {
				t.Errorf("got %d %.100q, want %d %.100q", a.Status, a.Body, c.status, c.body)
			}
		})
	}
}

func TestHTTPClientReadsEvents(t *testing.T) {
	gone := make(chan struct{})
	b := newHTTPClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
		io.WriteString(w, "id: 1\ndata:\n\nretry: 5\ndata: {\"a\":\ndata: 1}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	}, nil)
	a, err := b.Post(t.Context(), nil, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := a.Events.Next(); err != nil || e.ID != "1" || len(e.Data) != 0 {
		t.Errorf("the first event is %+v, %v, want the id 1 and no data", e, err)
	}
	if e, err := a.Events.Next(); err != nil || e.Retry != 5 || string(e.Data) != "{\"a\":\n1}" {
		t.Errorf("the second event is %+v, %v, want the retry time 5 and two lines", e, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { a.Events.Close() })
	if _, err := a.Events.Next(); err == nil || err == io.EOF {
		t.Errorf("Next during Close returned %v, want an error that is not io.EOF", err)
	}
	<-gone
}

func TestHTTPClientEndsWithItsContext(t *testing.T) {
	b := newHTTPClient(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, nil)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	if _, err := b.Post(ctx, nil, []byte("{}")); err != cause {
		t.Errorf("got %v, want %v", err, cause)
	}
}

// A server may close a connection while a request is on its way. The client cannot know whether the
// server has run the request, so it must not send the request again.
func TestHTTPClientNeverSendsAMessageTwice(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var received atomic.Int32
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for first := true; ; first = false {
				r, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				io.Copy(io.Discard, r.Body)
				received.Add(1)
				if !first {
					break // the server has the request, and closes the connection
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}
			c.Close()
		}
	})
	b, err := transport.NewHTTPClient(transport.HTTPClientOptions{Name: "github",
		URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Post(t.Context(), nil, []byte(`{"id":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Post(t.Context(), nil, []byte(`{"id":2}`)); err == nil {
		t.Error("the second request was answered, want an error")
	}
	b.Close()
	l.Close()
	all.Wait()
	if n := received.Load(); n != 2 {
		t.Errorf("%d messages arrived, want 2", n)
	}
}

func TestNewHTTPClientErrors(t *testing.T) {
	for _, c := range []struct {
		name, url, header, value, want string
	}{
		{"a scheme other than http and https", "ftp://x", "", "", `must begin with http:// or https://, not "ftp"`},
		{"no host", "http:///mcp", "", "", "has no host"},
		{"a password", "https://user:hunter2@x/mcp", "", "", "holds a user name or password"},
		{"an invalid URL", "http://[::1", "", "", "is invalid"},
		{"a header that the client sets itself", "http://x", "content-length", "5",
			"header Content-Length cannot be configured"},
		{"an invalid header name", "http://x", "X Y", "5", "is not valid"},
		{"a line break in a header value", "http://x", "X-Y", "hunter2\r\nX-Z: 1", "is not valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := transport.HTTPClientOptions{Name: "github", URL: c.url}
			if c.header != "" {
				r.Headers = map[string]string{c.header: c.value}
			}
			_, err := transport.NewHTTPClient(r)
			if err == nil || !strings.HasPrefix(err.Error(), `server "github": `) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf(`got %v, want an error of server "github" with %q`, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
}

func TestSSEClientRefusesUnsafeEndpoints(t *testing.T) {
	stream := func(events string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events)
		}
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"an endpoint on another host", stream("event: endpoint\ndata: https://evil.example/x\n\n"),
			"the server names https://evil.example/x, which is another origin"},
		{"an endpoint on another host, without a scheme",
			stream("event: endpoint\ndata: //evil.example/x\n\n"), "another origin"},
		{"an endpoint on another port", stream("event: endpoint\ndata: http://127.0.0.1:1/x\n\n"),
			"another origin"},
		{"an endpoint that is a file", stream("event: endpoint\ndata: file:///etc/passwd\n\n"),
			"another origin"},
		{"no endpoint", stream("data: hello\n\n"), "wait for the endpoint event: EOF"},
		{"no stream", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) },
			"status 405 and no event stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := newHTTPClient(t, c.handler, nil).OpenSSE(t.Context())
			if err == nil {
				p.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	t.Run("an endpoint that never comes", func(t *testing.T) {
		b := newHTTPClient(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := b.OpenSSE(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
	t.Run("a refused message", func(t *testing.T) {
		b := newHTTPClient(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				http.Error(w, "go\x1baway", http.StatusForbidden)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: endpoint\ndata: ?sid=1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		p, err := b.OpenSSE(ctx)
		cancel() // the pipe outlives the context of OpenSSE
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Write(t.Context(), []byte("{}")); err == nil || !strings.Contains(err.Error(),
			`status 403: go\x1baway`) {
			t.Errorf("got %v, want the status 403 and the body", err)
		}
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := p.Read(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}
