package transport_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/transport"
	"gatekit/transport/auth"
)

// owner is a transport.Cluster. All ids are those of another replica, which answers with a stream.
type owner struct {
	opened chan struct{} // if it is not nil, a stream sends a value and waits for its client
}

func (owner) NewID() string { return "" }

func (owner) Owner(string) (string, bool) { return "other:1", true }

func (o owner) Forward(w http.ResponseWriter, r *http.Request, _ string, _ []byte,
	_ *identity.Principal) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if err := rc.Flush(); err != nil {
		return err
	}
	if _, err := io.WriteString(w, "data: 1\n\n"); err != nil {
		return err
	}
	if o.opened != nil {
		o.opened <- struct{}{}
		<-r.Context().Done()
	}
	return rc.Flush()
}

// keptConnection is a connection on which an answer was sent before. The deadline of that one is
// over.
type keptConnection struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *keptConnection) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *keptConnection) Write(b []byte) (int, error) {
	if !c.deadline.After(time.Now()) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.ResponseRecorder.Write(b)
}

func (c *keptConnection) FlushError() error {
	_, err := c.Write(nil)
	return err
}

// TestForwardedStreamHasItsOwnDeadline opens a stream at another replica on a connection that was
// unused for longer than Limits.Write.
func TestForwardedStreamHasItsOwnDeadline(t *testing.T) {
	f := listen(t, func(o *transport.HTTPServerOptions) { o.SSE, o.Cluster = true, owner{} })
	w := &keptConnection{httptest.NewRecorder(), time.Now().Add(-time.Minute)}
	r := httptest.NewRequest(http.MethodPost, "/messages?sid=0", strings.NewReader("{}"))
	r.Host = f.addr
	r.Header.Set("Content-Type", "application/json")
	f.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.String() != "data: 1\n\n" || len(f.refused()) > 0 {
		t.Errorf("got status %d and %q, and the refusals %q; want a stream", w.Code, w.Body,
			f.refused())
	}
}

// TestRequestThatIsEndedHasNoAnswer ends the requests of a principal. An empty answer with status
// 200 would look as if the call had succeeded.
func TestRequestThatIsEndedHasNoAnswer(t *testing.T) {
	f := listen(t, func(o *transport.HTTPServerOptions) { o.Authenticator = userHeader{func() {}} })
	r, err := http.NewRequest(http.MethodPost, "http://"+f.addr+"/mcp",
		strings.NewReader("wait:"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Test-User", "ann")
	go func() {
		<-f.endpoint.opened
		f.HTTPServer.EndPrincipal("token:ann")
	}()
	answer, err := http.DefaultClient.Do(r)
	if err == nil {
		answer.Body.Close()
		t.Errorf("got %s, want a connection that breaks", answer.Status)
	} else if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// TestForwardedStreamsCount opens streams at another replica. They use connections as streams of
// this one do.
func TestForwardedStreamsCount(t *testing.T) {
	opened := make(chan struct{}, 2)
	f := listen(t, func(o *transport.HTTPServerOptions) {
		o.Cluster, o.Limits.Streams = owner{opened}, 1
	})
	get := func() *http.Response {
		t.Helper()
		answer, err := http.Get("http://" + f.addr + "/mcp")
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	first := get()
	<-opened
	if n := f.Stats().Streams; n != 1 {
		t.Errorf("%d streams are open, want one", n)
	}
	second := get()
	second.Body.Close()
	if second.StatusCode != http.StatusServiceUnavailable ||
		second.Header.Get("Retry-After") == "" || len(f.refused()) != 1 {
		t.Errorf("a second stream: got %s and the refusals %q, want status 503", second.Status,
			f.refused())
	}
	first.Body.Close()
	for f.Stats().Streams != 0 { // the server learns that the client has left
		runtime.Gosched()
	}
	third := get()
	third.Body.Close()
	if third.StatusCode != http.StatusOK {
		t.Errorf("after the first has ended: got %s, want a stream", third.Status)
	}
}

// TestMetadataHasItsOwnDeadline asks where to log in, on a connection that was unused for longer
// than Limits.Write.
func TestMetadataHasItsOwnDeadline(t *testing.T) {
	const resource = "https://mcp.example/mcp"
	a, err := auth.New(auth.Options{Resource: resource, Path: "/mcp", Issuers: []auth.Issuer{{
		Issuer: "https://idp.example", Audience: []string{resource},
		Algorithms: []string{"ES256"}}}})
	if err != nil {
		t.Fatal(err)
	}
	f := listen(t, func(o *transport.HTTPServerOptions) { o.Metadata = a.Metadata() })
	w := &keptConnection{httptest.NewRecorder(), time.Now().Add(-time.Minute)}
	r := httptest.NewRequest(http.MethodGet, a.Metadata().Paths()[0], nil)
	r.Host = f.addr
	f.ServeHTTP(w, r)
	if w.Body.Len() == 0 {
		t.Errorf("got status %d without the metadata", w.Code)
	}
}
