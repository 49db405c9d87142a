package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"gatekit/transport"
)

// scriptedServer is an HTTP server whose responses are scripted byte by byte. It answers the first
// request with first, and later requests with the number of the connection on which they came.
type scriptedServer struct {
	first   string
	unasked chan string   // sent on connection 1 after the first response
	written chan struct{} // receives a value after a text of unasked was sent
	bodies  chan string   // of the requests
	ended   chan int      // numbers of the connections that the client has closed
}

// startScripted starts a server and returns it with a client of it.
func startScripted(t *testing.T, first string) (*scriptedServer, *transport.HTTPClient) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &scriptedServer{first: first, unasked: make(chan string), written: make(chan struct{}),
		bodies: make(chan string, 10), ended: make(chan int, 10)}
	t.Cleanup(func() { close(s.unasked) })
	go func() {
		for number := 1; ; number++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c, number)
		}
	}()
	b, err := transport.NewHTTPClient(transport.HTTPClientOptions{Name: "github",
		URL: "http://" + l.Addr().String() + "/mcp?a=b", MaxMessage: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return s, b
}

func (s *scriptedServer) serve(c net.Conn, number int) {
	defer func() { s.ended <- number }()
	defer c.Close()
	in := bufio.NewReader(c)
	for count := 1; ; count++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.bodies <- r.RequestURI + " " + string(body)
		if number > 1 || count > 1 {
			text := fmt.Sprintf("connection %d", number)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			continue
		}
		io.WriteString(c, s.first)
		go func() {
			for text := range s.unasked {
				if text == "" {
					c.Close()
				}
				io.WriteString(c, text)
				s.written <- struct{}{}
			}
		}()
	}
}

func mustPost(t *testing.T, b *transport.HTTPClient) (body string) {
	t.Helper()
	a, err := b.Post(t.Context(), nil, []byte(`{"id":`), []byte("1}"))
	if err != nil {
		t.Fatal(err)
	}
	return string(a.Body)
}

func TestHTTPClientKeepsItsConnection(t *testing.T) {
	const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: x\n\n\r\n"
	for _, c := range []struct {
		name, first string
		unasked     string // sent after the first response was read; "close" closes the connection
		want        string // answer to the second message
	}{
		{"after a body", fine, "", "connection 1"},
		{"after a chunked body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"2\r\n{}\r\n0\r\n\r\n", "", "connection 1"},
		{"after an empty body", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", "",
			"connection 1"},
		{"after no body", "HTTP/1.1 204 No Content\r\n\r\n", "", "connection 1"},
		{"after an early hint", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + fine, "",
			"connection 1"},
		{"after an event stream", events + "0\r\n\r\n", "", "connection 1"},
		{"not after an event stream that was closed before its end", events, "", "connection 2"},
		{"not if the server closes it", "HTTP/1.1 200 OK\r\nConnection: close\r\n" +
			"Content-Length: 2\r\n\r\n{}", "", "connection 2"},
		{"not with HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "",
			"connection 2"},
		{"not after another protocol", "HTTP/1.1 101 Switching Protocols\r\n" +
			"Upgrade: x\r\nConnection: upgrade\r\n\r\n", "", "connection 2"},
		{"not after a redirect", "HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\n" +
			"Content-Length: 2\r\n\r\n{}", "", "connection 2"},
		{"not after a body over the limit", "HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" +
			strings.Repeat("x", 101), "", "connection 2"},
		{"not after a second response", fine + fine, "", "connection 2"},
		{"not after a late second response", fine, fine, "connection 2"},
		{"not after the server has closed it", fine, "close", "connection 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, b := startScripted(t, c.first)
			a, err := b.Post(t.Context(), nil, []byte("{}"))
			if err == nil && a.Events != nil {
				if e, err := a.Events.Next(); err != nil || string(e.Data) != "x" {
					t.Fatalf("got the event %q, %v, want x", e.Data, err)
				}
				if c.want == "connection 1" {
					if _, err := a.Events.Next(); err != io.EOF {
						t.Fatalf("got %v, want the end of the stream", err)
					}
				}
				a.Events.Close()
			}
			if c.unasked != "" {
				s.unasked <- strings.TrimSuffix(c.unasked, "close")
				<-s.written
				for b.HasUsableConnection() { // until the text has arrived
					runtime.Gosched()
				}
			}
			if got := mustPost(t, b); got != c.want {
				t.Errorf("the second answer is %q, want %q", got, c.want)
			}
			for _, want := range []string{"/mcp?a=b {}", `/mcp?a=b {"id":1}`} {
				if got := <-s.bodies; got != want {
					t.Errorf("the server got %q, want %q", got, want)
				}
			}
		})
	}
}

func TestHTTPClientClosesUnusedConnections(t *testing.T) {
	t.Run("which are idle", func(t *testing.T) {
		s, b := startScripted(t, "HTTP/1.1 204 No Content\r\n\r\n")
		mustPost(t, b)
		b.Close()
		if number := <-s.ended; number != 1 {
			t.Errorf("connection %d was closed, want 1", number)
		}
	})
	t.Run("which were in use when the client was closed", func(t *testing.T) {
		s, b := startScripted(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+
			"Content-Length: 9\r\n\r\ndata: x\n\n")
		a, err := b.Post(t.Context(), nil, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		a.Events.Next()
		if _, err := a.Events.Next(); err != io.EOF {
			t.Errorf("got %v, want the end of the stream", err)
		}
		<-s.ended
	})
}

func TestHTTPClientClosesTheConnectionOfACancelledCall(t *testing.T) {
	for _, c := range []struct{ name, first string }{
		{"before the response", ""},
		{"in the body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"},
		{"in an event stream", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" +
			"Content-Length: 9\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, b := startScripted(t, c.first)
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-s.bodies
				cancel(cause)
			}()
			a, err := b.Post(ctx, nil, []byte("{}"))
			if err == nil {
				_, err = a.Events.Next()
				a.Events.Close()
			} else if err != cause {
				t.Errorf("got %v, want %v", err, cause)
			}
			if err == nil || err == io.EOF {
				t.Errorf("got %v, want an error", err)
			}
			<-s.ended
		})
	}
}

func TestHTTPClientRefusesHeadersWithLineBreaks(t *testing.T) {
	s, b := startScripted(t, "HTTP/1.1 204 No Content\r\n\r\n")
	for _, h := range []http.Header{
		{"Mcp-Name": {"hunter2\r\nX-Evil: 1"}}, {"Mcp-Name\r\nX-Evil": {"hunter2"}},
	} {
		_, err := b.Post(t.Context(), h, []byte("{}"))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want an error without the value", err)
		}
	}
	if len(s.bodies) > 0 {
		t.Errorf("the server got %q, want nothing", <-s.bodies)
	}
}

// A server may refuse a large message before it has read the message.
func TestHTTPClientReadsWhileItWritesALargeMessage(t *testing.T) {
	answered := make(chan struct{})
	b := newHTTPClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		w.(http.Flusher).Flush()
		<-answered // the body is not read
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := b.Post(ctx, nil, make([]byte, 32<<20))
	close(answered)
	if err != nil || a.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("got %+v, %v, want status 413", a, err)
	}
}
