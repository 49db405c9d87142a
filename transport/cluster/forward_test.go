package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"gatekit/transport/httpconns"
)

// startOwner starts a replica with a handler, and returns it with another replica of its cluster.
func startOwner(t *testing.T, serve func(http.ResponseWriter, *http.Request)) (owner,
	other *Replica) {
	t.Helper()
	ca := newAuthority(t)
	owner, _ = newReplica(t, "owner", ca.tls(t), "k")
	other, _ = newReplica(t, "other", ca.tls(t), "k")
	go owner.Serve(t.Context(), handlerFunc(func(w http.ResponseWriter, r *http.Request,
		_ Forwarded) {
		serve(w, r)
	}))
	return owner, other
}

// forward lets from forward an empty request of a client to the replica to.
func forward(from, to *Replica) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	return w, from.Forward(w, httptest.NewRequest(http.MethodPost, "/mcp", nil), to.o.Advertise,
		nil, nil)
}

// front returns a server whose requests a replica forwards to the owner.
func front(t *testing.T, from, to *Replica) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = from.Forward(w, r, to.o.Advertise, body, nil)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestHeadersOfOneConnectionAreNotForwarded sends headers that must not reach the owner, or the
// client.
func TestHeadersOfOneConnectionAreNotForwarded(t *testing.T) {
	var got http.Header
	owner, other := startOwner(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "1")
		w.Header().Set("X-End", "1")
	})
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	for _, name := range []string{"X-Hop", "Keep-Alive", "Te", "Upgrade", "Proxy-Authorization",
		"X-Forwarded-For", "Forwarded", "Expect", "X-End"} {
		r.Header.Set(name, "1")
	}
	r.Header.Set("Connection", "close, x-hop")
	w := httptest.NewRecorder()
	if err := other.Forward(w, r, owner.o.Advertise, nil, nil); err != nil {
		t.Fatal(err)
	}
	delete(got, "Content-Length")
	if len(got) != 1 || got.Get("X-End") != "1" {
		t.Errorf("the owner got the headers %v, want X-End", got)
	}
	delete(w.Header(), "Date")
	delete(w.Header(), "Content-Length")
	if h := w.Header(); len(h) != 1 || h.Get("X-End") != "1" {
		t.Errorf("the client got the headers %v, want X-End", h)
	}
}

// TestAnswersAreCopied forwards bodies of all sizes, in both directions.
func TestAnswersAreCopied(t *testing.T) {
	var connections atomic.Int64
	owner, other := startOwner(t, func(w http.ResponseWriter, r *http.Request) {
		connections.Store(int64(len(openConns(r))))
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.WriteHeader(http.StatusAccepted)
		w.Write(b)
	})
	s := front(t, other, owner)
	for _, size := range []int{0, 1, answerBuffer - 1, answerBuffer, 5*answerBuffer + 1} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		answer, err := http.Post(s.URL, "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusAccepted || string(got) != body {
			t.Errorf("%d bytes: got %s and %d bytes, %v", size, answer.Status, len(got), err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("the owner had %d connections, want one", n)
	}
}

// openConns returns the open connections of the replica that serves r.
func openConns(r *http.Request) map[*serverConn]struct{} {
	c := connOf(r.Context()).conns
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// TestStreamIsCopiedAsItArrives reads an event while the stream is open. Then the client leaves,
// and the request ends at the owner.
func TestStreamIsCopiedAsItArrives(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	owner, other := startOwner(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-begun
		io.WriteString(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	answer, err := http.Get(front(t, other, owner).URL)
	if err != nil {
		t.Fatal(err)
	}
	close(begun) // the client has the header
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); line != "data: 1\n" {
		t.Errorf("got %q, %v, want an event", line, err)
	}
	answer.Body.Close()
	<-ended
}

// TestAnswerThatBreaksOff must not look like a whole answer.
func TestAnswerThatBreaksOff(t *testing.T) {
	for name, header := range map[string]string{"of known length": "9", "of unknown length": ""} {
		t.Run(name, func(t *testing.T) {
			owner, other := startOwner(t, func(w http.ResponseWriter, r *http.Request) {
				if header != "" {
					w.Header().Set("Content-Length", header)
				}
				io.WriteString(w, "half")
				http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
			answer, err := http.Get(front(t, other, owner).URL)
			if err == nil {
				_, err = io.ReadAll(answer.Body)
				answer.Body.Close()
			}
			if err == nil {
				t.Error("the client got a whole answer")
			}
		})
	}
}

// TestRequestThatIsEndedHasNoAnswer ends a request that the owner has begun. The client must not
// get an empty answer with status 200.
func TestRequestThatIsEndedHasNoAnswer(t *testing.T) {
	begun := make(chan struct{})
	owner, other := startOwner(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		go func() {
			<-begun
			cancel()
		}()
		if err := other.Forward(w, r.WithContext(ctx), owner.o.Advertise, nil, nil); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	answer, err := http.Get(s.URL)
	if err == nil {
		answer.Body.Close()
		t.Errorf("got %s, want a connection that breaks", answer.Status)
	}
}

// TestBrokenConnectionIsLost breaks a connection that was used before, after the owner has begun a
// request. The request must not be run again.
func TestBrokenConnectionIsLost(t *testing.T) {
	var runs atomic.Int64
	owner, other := startOwner(t, func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	})
	if _, err := forward(other, owner); err != nil {
		t.Fatal(err)
	}
	if _, err := forward(other, owner); !errors.Is(err, ErrLost) {
		t.Errorf("got the error %v, want %v", err, ErrLost)
	}
	if n := runs.Load(); n != 2 {
		t.Errorf("%d requests were run, want 2", n)
	}
}

// request writes a request on a connection to the owner as another replica does, and returns the
// answer.
func request(t *testing.T, c *tls.Conn, in *bufio.Reader, from, to *Replica) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	sealed, err := from.seal(r, to.o.Advertise, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: 0\r\n\r\n",
		headerForwarded, sealed)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer
}

// TestRequestOnAClosingConnectionIsNotBegun sends a request while the owner closes the connection.
func TestRequestOnAClosingConnectionIsNotBegun(t *testing.T) {
	for name, leave := range map[string]func(owner *Replica, end context.CancelFunc){
		"when the owner leaves": func(owner *Replica, _ context.CancelFunc) { owner.Leave() },
		"when the owner ends":   func(_ *Replica, end context.CancelFunc) { end() },
	} {
		t.Run(name, func(t *testing.T) {
			ca := newAuthority(t)
			owner, _ := newReplica(t, "owner", ca.tls(t), "k")
			other, _ := newReplica(t, "other", ca.tls(t), "k")
			ctx, end := context.WithCancel(t.Context())
			var runs atomic.Int64
			served := make(chan error)
			go func() {
				served <- owner.Serve(ctx, handlerFunc(func(http.ResponseWriter, *http.Request,
					Forwarded) {
					runs.Add(1)
				}))
			}()
			plain, err := other.dial(t.Context(), owner.o.Advertise)
			if err != nil {
				t.Fatal(err)
			}
			c := plain.(*tls.Conn)
			defer c.Close()
			in := bufio.NewReader(c)
			if a := request(t, c, in, other, owner); a.Header.Get(headerNotBegun) != "" {
				t.Fatal("the first request was not begun")
			}
			for !hasIdle(owner) { // the answer arrives a moment before
				runtime.Gosched()
			}
			leave(owner, end)
			in.Peek(1) // until the owner has begun to close the connection
			a := request(t, c, in, other, owner)
			if a.Header.Get(headerNotBegun) == "" || !a.Close {
				t.Errorf("got the answer %v, want that the request was not begun", a)
			}
			in.Peek(1) // until the owner has closed the connection
			if n := runs.Load(); n != 1 {
				t.Errorf("%d requests were run, want 1", n)
			}
			end()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

// hasIdle reports whether a connection to the replica is used by no request.
func hasIdle(r *Replica) bool {
	r.conns.mu.Lock()
	defer r.conns.mu.Unlock()
	for c := range r.conns.open {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.idle {
			return true
		}
	}
	return false
}

// TestRequestThatWasNotBegunIsSentAgain has an owner that closes the first connections as it gets
// the requests. The same request, with the same envelope, is sent on another connection.
func TestRequestThatWasNotBegunIsSentAgain(t *testing.T) {
	for _, tt := range []struct {
		notBegun int64
		want     error
	}{{1, nil}, {maxSends - 1, nil}, {maxSends, ErrUnreachable}} {
		var requests atomic.Int64
		ca := newAuthority(t)
		other, _ := newReplica(t, "other", ca.tls(t), "k")
		envelopes := make(chan string, 2*maxSends)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			envelopes <- r.Header.Get(headerForwarded)
			if requests.Add(1) > tt.notBegun {
				return
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(c, notBegun)
			c.Close()
		}))
		s.TLS = ca.tls(t)
		s.StartTLS()
		w := httptest.NewRecorder()
		err := other.Forward(w, httptest.NewRequest(http.MethodPost, "/mcp", nil),
			s.Listener.Addr().String(), nil, nil)
		s.Close()
		if !errors.Is(err, tt.want) {
			t.Errorf("not begun %d times: got the error %v, want %v", tt.notBegun, err, tt.want)
		}
		close(envelopes)
		first := <-envelopes
		for e := range envelopes {
			if e != first {
				t.Error("the request was sent again with another envelope")
			}
		}
		if n := requests.Load(); n != min(tt.notBegun+1, maxSends) {
			t.Errorf("not begun %d times: the request was sent %d times", tt.notBegun, n)
		}
	}
}

// TestLeavingReplicaClosesItsConnections forwards requests to a replica that leaves.
func TestLeavingReplicaClosesItsConnections(t *testing.T) {
	used := map[*serverConn]bool{}
	owner, other := startOwner(t, func(_ http.ResponseWriter, r *http.Request) {
		used[connOf(r.Context())] = true
	})
	for i, want := range []int{1, 1, 2, 3} { // connections after each request
		if i == 2 {
			owner.Leave()
		}
		if _, err := forward(other, owner); err != nil {
			t.Fatal(err)
		}
		if len(used) != want {
			t.Errorf("request %d: %d connections were used, want %d", i, len(used), want)
		}
	}
}

func TestConnectionsToOwnersAreBounded(t *testing.T) {
	var o owners
	first := o.conns("a", nil)
	if o.conns("a", nil) != first {
		t.Error("the connections to a replica are not kept")
	}
	all := map[*httpconns.Conns]bool{}
	for i := range 3 * maxOwners {
		all[o.conns(fmt.Sprint(i), nil)] = true
		if len(o.known) > maxOwners {
			t.Fatalf("the connections to %d replicas are kept, want at most %d", len(o.known),
				maxOwners)
		}
	}
	if len(all) != 3*maxOwners {
		t.Errorf("%d replicas have connections of their own, want %d", len(all), 3*maxOwners)
	}
}
