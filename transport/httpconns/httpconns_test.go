package httpconns_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gatekit/transport/httpconns"
)

// server is a server over TCP and TLS that counts its connections.
type server struct {
	*httptest.Server
	states chan http.ConnState // gets each StateNew and StateClosed
}

func startServer(t *testing.T, withTLS bool, h http.HandlerFunc) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(h), states: make(chan http.ConnState, 100)}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew || state == http.StateClosed {
			s.states <- state
		}
	}
	if withTLS {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// opened returns how many connections were opened.
func (s *server) opened() (n int) {
	for range len(s.states) {
		if <-s.states == http.StateNew {
			n++
		}
	}
	return n
}

// conns returns connections to the server.
func (s *server) conns(t *testing.T, keep time.Duration) *httpconns.Conns {
	t.Helper()
	c := httpconns.New(httpconns.Options{Keep: keep, Idle: 2, Header: 1 << 10,
		Dial: func(ctx context.Context) (net.Conn, error) {
			plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
			if err != nil || s.TLS == nil {
				return plain, err
			}
			roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
			c := tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: "example.com"})
			return c, c.HandshakeContext(ctx)
		}})
	t.Cleanup(c.Close)
	return c
}

func post(body ...[]byte) httpconns.Request {
	return httpconns.Request{Of: &http.Request{Method: http.MethodPost}, Target: "/a?b",
		Host: "example.com", Body: body}
}

// forEachTransport runs a test over TCP and over TLS.
func forEachTransport(t *testing.T, test func(t *testing.T, withTLS bool)) {
	for name, withTLS := range map[string]bool{"TCP": false, "TLS": true} {
		t.Run(name, func(t *testing.T) { test(t, withTLS) })
	}
}

func TestRequestsShareAConnection(t *testing.T) {
	forEachTransport(t, func(t *testing.T, withTLS bool) {
		s := startServer(t, withTLS, func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s %d %v ", r.Method, r.RequestURI, r.Host, len(b), err)
			w.Write(b)
		})
		c := s.conns(t, time.Minute)
		for _, size := range []int{0, 1, 1000, 16 << 10, 100 << 10, 1 << 20} {
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			answer, err := c.Do(t.Context(), post(body[:size/3], body[size/3:]))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(answer.Body)
			want := fmt.Sprintf("POST /a?b example.com %d <nil> %s", size, body)
			if err != nil || string(got) != want {
				t.Fatalf("a body of %d bytes: got %.60s (%d bytes, %v), want %.60s (%d bytes)",
					size, got, len(got), err, want, len(want))
			}
		}
		// The connection is closed after the largest request if its write is noticed to have ended
		// only after the answer.
		if n := s.opened(); n != 1 {
			t.Errorf("%d connections were opened, want 1", n)
		}
	})
}

func TestUnusedConnectionsExpire(t *testing.T) {
	forEachTransport(t, func(t *testing.T, withTLS bool) {
		s := startServer(t, withTLS, func(http.ResponseWriter, *http.Request) {})
		answer, err := s.conns(t, 10*time.Millisecond).Do(t.Context(), post())
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		for _, want := range []http.ConnState{http.StateNew, http.StateClosed} {
			if got := <-s.states; got != want {
				t.Errorf("the connection is %s, want %s", got, want)
			}
		}
	})
}

// A server may answer a large request before it has read it, and then read nothing more.
func TestEarlyAnswerToALargeRequest(t *testing.T) {
	forEachTransport(t, func(t *testing.T, withTLS bool) {
		answered := make(chan struct{})
		s := startServer(t, withTLS, func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength < 1<<20 {
				return
			}
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			w.(http.Flusher).Flush()
			<-answered // the body is not read
		})
		c := s.conns(t, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		answer, err := c.Do(ctx, post(make([]byte, 64<<20)))
		close(answered)
		if err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("got %v, %v, want status 413", answer, err)
		}
		answer.Body.Close()
		answer, err = c.Do(ctx, post()) // the connection with half a request is not used again
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("then got %v, %v, want status 200", answer, err)
		}
	})
}

// The rest of a request must not be taken for the beginning of the next one.
func TestConnectionWithHalfARequestIsNotUsedAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for number := 1; ; number++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			http.ReadRequest(bufio.NewReader(c)) // not the body
			fmt.Fprintf(c, "HTTP/1.1 %d OK\r\nContent-Length: 0\r\n\r\n", 200+number)
		}
	}()
	c := httpconns.New(httpconns.Options{Keep: time.Minute, Idle: 2, Header: 1 << 10,
		Dial: func(context.Context) (net.Conn, error) {
			return net.Dial("tcp", l.Addr().String())
		}})
	defer c.Close()
	for i, size := range []int{64 << 20, 1} {
		answer, err := c.Do(t.Context(), post(make([]byte, size)))
		if err != nil || answer.StatusCode != 201+i {
			t.Fatalf("request %d: got %v, %v, want the answer of connection %[1]d", i+1,
				answer, err)
		}
	}
}

func TestRequestsThatWouldBeOthersAreNotSent(t *testing.T) {
	s := startServer(t, false, func(http.ResponseWriter, *http.Request) {})
	c := s.conns(t, time.Minute)
	for name, change := range map[string]func(r *httpconns.Request){
		"method": func(r *httpconns.Request) { r.Of = &http.Request{Method: "GET /x HTTP/1.1"} },
		"target": func(r *httpconns.Request) { r.Target = "/ HTTP/1.1\r\nHost: evil\r\n\r\nGET /" },
		"host":   func(r *httpconns.Request) { r.Host = "a\nb" },
		"name": func(r *httpconns.Request) {
			r.Header = http.Header{"A\r\nX-Evil": {"hunter2"}}
		},
		"value": func(r *httpconns.Request) {
			r.Header = http.Header{"A": {"hunter2\r\nX-Evil: 1"}}
		},
	} {
		r := post()
		change(&r)
		_, err := c.Do(t.Context(), r)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want an error without the value", name, err)
		}
	}
	if n := len(s.states); n != 0 {
		t.Errorf("%d connections were opened, want none", n)
	}
}
