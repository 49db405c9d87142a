package transport_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/transport"
)

// owner is a transport.Cluster. All ids are those of another replica, which answers with a stream.
type owner struct{}

func (owner) NewID() string { return "" }

func (owner) Owner(string) (string, bool) { return "other:1", true }

func (owner) Forward(w http.ResponseWriter, _ *http.Request, _ string, _ []byte,
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

func (c *keptConnection) FlushError() error {
	if !c.deadline.After(time.Now()) {
		return os.ErrDeadlineExceeded
	}
	c.Flush()
	return nil
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
