package service_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/policies"
	"gatekit/policies/service"
	"gatekit/test/bundles"

	"go.uber.org/goleak"
)

// OPA's plugins leave a goroutine each where a service took nothing to the end: that of the status
// plugin waits for nobody.
func TestMain(m *testing.M) {
	const opa = "github.com/open-policy-agent/opa/v1/plugins/"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(opa+"status.(*Plugin).Stop.func1"),
		goleak.IgnoreAnyFunction(opa+"logs.(*Plugin).flushDecisions.func1"))
}

// token is a secret that is nowhere but in requests.
const token = "hunter2-of-the-bundle-server"

// server is a bundle server. It serves what it was given last, with an ETag.
type server struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	answers map[string]http.HandlerFunc // by path
	asked   []string                    // path and status, as far as it gives it
}

func newServer(t *testing.T, start func(*httptest.Server)) *server {
	s := &server{t: t, answers: map[string]http.HandlerFunc{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token ||
			!strings.HasPrefix(r.Header.Get("User-Agent"), "gatekit/") {
			t.Errorf("it was asked with %v", r.Header)
		}
		s.mu.Lock()
		answer := s.answers[r.URL.Path]
		s.asked = append(s.asked, r.URL.Path+" "+r.Header.Get("If-None-Match"))
		s.mu.Unlock()
		if answer == nil {
			http.NotFound(w, r)
			return
		}
		answer(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

func plain(s *httptest.Server) { s.Start() }

func (s *server) serve(path string, answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer
}

// has serves a bundle under an ETag.
func (s *server) has(path, etag string, bundle []byte) {
	s.serve(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Write(bundle)
	})
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *server) remote() service.Endpoint {
	return service.Endpoint{URL: s.URL, Headers: map[string]string{"Authorization": "Bearer " +
		token}}
}

// testClient is a Client with its log and the bundles that it activated.
type testClient struct {
	t   *testing.T
	o   service.Options
	log bytes.Buffer

	mu      sync.Mutex
	refused []string
	force   [][]string // revisions, as they were put in force
	refuse  error      // what activate says
}

func newTestClient(t *testing.T, all ...service.BundleSource) *testClient {
	b := &testClient{t: t}
	b.o = service.Options{Bundles: all, Version: "test",
		Log: slog.New(slog.NewTextHandler(writer{b},
			&slog.HandlerOptions{Level: slog.LevelDebug})), BundleRejected: func(name string,
			err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, name+": "+err.Error())
		}}
	t.Cleanup(func() {
		if strings.Contains(b.said(), token) {
			t.Errorf("the token is in the log:\n%s", b.said())
		}
	})
	return b
}

type writer struct{ of *testClient }

func (w writer) Write(p []byte) (int, error) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	return w.of.log.Write(p)
}

func (b *testClient) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// open opens a client that is closed at the end, and starts it.
func (b *testClient) open() *service.Client {
	b.t.Helper()
	c, err := service.Open(b.t.Context(), b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	b.put(c.Bundles())
	c.Start(b.put)
	return c
}

func (b *testClient) put(all []*policies.Bundle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return b.refuse
	}
	var revisions []string
	for _, one := range all {
		revisions = append(revisions, one.Name+" "+one.Revision)
	}
	b.force = append(b.force, revisions)
	return nil
}

// inForce are the revisions that were put in force, one after the other.
func (b *testClient) inForce() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, r := range b.force {
		all = append(all, strings.Join(r, "+"))
	}
	return strings.Join(all, ", ")
}

func (b *testClient) refusals() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.refused, "\n")
}

// until waits for what another goroutine or process does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

const rule = "package gatekit.acme\n\ndeny contains \"no\" if input.name == \"x\"\n"

func pack(t *testing.T, revision string, by *bundles.Key) []byte {
	t.Helper()
	return bundles.Build(t, revision, map[string]string{"acme.rego": rule},
		&bundles.Signature{Key: by, ID: "acme"})
}

// acme is a bundle that is polled each second.
func acme(r service.Endpoint, k *bundles.Key) service.BundleSource {
	return service.BundleSource{
		Name: "acme", Endpoint: r, Resource: "bundles/acme", MinDelay: time.Second,
		MaxDelay: time.Second,
		Keys:     map[string]policies.Key{"acme": {Key: k.Public, Algorithm: bundles.Algorithm}},
	}
}

func TestChangedBundleIsActivated(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	s.has("/bundles/acme", `"1"`, pack(t, "one", key))
	s.has("/other", `"o"`, pack(t, "o", key))
	b := newTestClient(t, acme(s.remote(), key))
	other := acme(s.remote(), key)
	other.Name, other.Resource = "other", "/other"
	b.o.Bundles = append(b.o.Bundles, other)
	c := b.open()
	until(t, "a request with the ETag", func() bool {
		return slices.Contains(s.requests(), `/bundles/acme "1"`)
	})
	if got := b.inForce(); got != "acme one+other o" {
		t.Errorf("in force are %s: what has not changed was put there again?", got)
	}
	s.has("/bundles/acme", `"2"`, pack(t, "two", key))
	until(t, "the second", func() bool {
		return strings.HasSuffix(b.inForce(), ", acme two+other o")
	})
	if got := c.Bundles(); len(got) != 2 || got[0].Revision != "two" {
		t.Errorf("got %+v", got)
	}
	if b.refusals() != "" {
		t.Errorf("refused: %s", b.refusals())
	}
}

func TestRejectedBundleChangesNothingAndIsReportedOnce(t *testing.T) {
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	good := pack(t, "two", key)
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		refusal string // "" is none: not a bundle that came
		said    string
	}{
		"garbage": {write([]byte("garbage")), "not a bundle (.tar.gz)",
			"bundle rejected; keeping the previous one"},
		"nothing": {write(nil), "not a bundle (.tar.gz)",
			"bundle rejected; keeping the previous one"},
		"signed by another": {write(pack(t, "two", other)), "failed to verify JWT signature",
			"bundle rejected; keeping the previous one"},
		"not signed": {write(bundles.Build(t,
			"two", map[string]string{"acme.rego": rule}, nil)), "the bundle is not signed",
			"bundle rejected; keeping the previous one"},
		"tampered with": {write(tampered(t, good)), "digest mismatch",
			"bundle rejected; keeping the previous one"},
		"no Rego": {write(bundles.Build(t,
			"two", map[string]string{"acme.rego": "package"}, &bundles.Signature{Key: key,
				ID: "acme"})), "acme.rego:1", "bundle rejected; keeping the previous one"},
		"endless": {endless, "the bundle is larger than 16777216 bytes",
			"bundle rejected; keeping the previous one"},
		"an error without end": {func(w http.ResponseWriter,
			r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			endless(w, r)
		}, "", "the service answered with status 502 Bad Gateway"},
		"an answer that is torn": {torn(good), "", "unexpected EOF"},
		"a redirect elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/bundles/acme", http.StatusFound)
		}, "", "but its credentials are only for"},
		"redirects without end": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r,
				"/bundles/acme", http.StatusFound)
		}, "", "the service redirects more than 5 times"},
		"a panic": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for seconds
			s := newServer(t, plain)
			s.has("/bundles/acme", `"1"`, pack(t, "one", key))
			b := newTestClient(t, acme(s.remote(), key))
			b.open()
			s.serve("/bundles/acme", c.answer)
			until(t, "a report", func() bool { return strings.Contains(b.said(), c.said) })
			before := len(s.requests())
			until(t, "more requests", func() bool { return len(s.requests()) > before+2 })
			if got := b.refusals(); c.refusal == "" && got != "" || !strings.Contains(got,
				c.refusal) || strings.Count(got, "acme: acme: ") > 1 {
				t.Errorf("told as refused:\n%s", got)
			}
			if n := strings.Count(b.said(), "level=ERROR") + strings.Count(b.said(),
				"level=WARN"); n != 1 {
				t.Errorf("said %d times:\n%s", n, b.said())
			}
			s.has("/bundles/acme", `"3"`, pack(t, "three", key))
			until(t, "the next good one", func() bool {
				return b.inForce() == "acme one, acme three"
			})
			until(t, "the good news", func() bool {
				return strings.Contains(b.said(), "bundle download recovered")
			})
		})
	}
}

func write(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(b) }
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
}

func torn(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.Write(b[:len(b)/2])
	}
}

func tampered(t *testing.T, b []byte) []byte {
	return bundles.Rewrite(t, b, func(name, text string) (string, string) {
		return name, strings.Replace(text, `"x"`, `"y"`, 1)
	})
}

func TestFailedActivationIsNotCachedAndIsRetried(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	s.has("/bundles/acme", `"1"`, pack(t, "one", key))
	one := acme(s.remote(), key)
	one.CacheFile = filepath.Join(t.TempDir(), "acme.tar.gz")
	b := newTestClient(t, one)
	c := b.open()
	kept := func() string {
		raw, err := os.ReadFile(one.CacheFile)
		if err != nil {
			return err.Error()
		}
		got, err := policies.ReadBundle("kept", raw, one.Keys)
		if err != nil {
			return err.Error()
		}
		return got.Revision
	}
	if kept() != "one" {
		t.Errorf("kept is %s", kept())
	}
	b.mu.Lock()
	b.refuse = errors.New("it does not compile")
	b.mu.Unlock()
	s.has("/bundles/acme", `"2"`, pack(t, "two", key))
	until(t, "the refusal", func() bool { return b.refusals() == "acme: it does not compile" })
	if kept() != "one" || c.Bundles()[0].Revision != "one" {
		t.Errorf("kept is %s, in force %s", kept(), c.Bundles()[0].Revision)
	}
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	until(t, "the second", func() bool {
		return b.inForce() == "acme one, acme two" && kept() == "two"
	})
	if i, err := os.Stat(one.CacheFile); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("kept as %v, %v", i.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(one.CacheFile)); err != nil || len(left) != 1 {
		t.Errorf("beside it lie %v, %v", left, err)
	}
}

func TestStartWithoutService(t *testing.T) {
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	down := httptest.NewServer(nil)
	down.Close()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	for name, c := range map[string]struct {
		url  string
		kept []byte
		want string // of the error; "" is none
	}{
		"nothing kept":               {down.URL, nil, "connection refused"},
		"nothing kept, and it hangs": {hangs.URL, nil, "no answer"},
		"kept":                       {down.URL, pack(t, "kept", key), ""},
		"kept, and it hangs":         {hangs.URL, pack(t, "kept", key), ""},
		"what was kept was tampered with": {down.URL, tampered(t, pack(t, "kept", key)),
			"connection refused"},
		"what was kept is another's": {down.URL, pack(t, "kept", other),
			"connection refused"},
		"what was kept was cut short": {down.URL, pack(t, "kept", key)[:100],
			"connection refused"},
		"what was kept is signed by nobody": {down.URL,
			bundles.Build(t, "kept", map[string]string{"acme.rego": rule}, nil),
			"connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := acme(service.Endpoint{URL: c.url,
				Headers: map[string]string{"Authorization": "Bearer " + token}}, key)
			one.Resource += "?sig=" + token
			one.CacheFile = filepath.Join(t.TempDir(), "acme.tar.gz")
			if c.kept != nil {
				if err := os.WriteFile(one.CacheFile, c.kept, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b := newTestClient(t, one)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			client, err := service.Open(ctx, b.o)
			if err == nil {
				client.Close()
			}
			if c.want == "" {
				if err != nil || client.Bundles()[0].Revision != "kept" {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), `bundle "acme"`) || strings.Contains(err.Error(),
				token) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if c.kept != nil && !strings.Contains(b.refusals(), one.CacheFile) {
				t.Errorf("what was kept is not told to be refused: %s", b.refusals())
			}
		})
	}
}

func TestServiceCertificateIsVerified(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, func(s *httptest.Server) { s.StartTLS() })
	s.has("/bundles/acme", `"1"`, pack(t, "one", key))
	r := s.remote()
	r.CA = pemOf(s.Certificate().Raw)
	b := newTestClient(t, acme(r, key))
	b.open()
	if b.inForce() != "acme one" {
		t.Errorf("in force: %s", b.inForce())
	}
	b = newTestClient(t, acme(s.remote(), key)) // the system does not know it
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := service.Open(ctx, b.o); err == nil || !strings.Contains(err.Error(),
		"certificate") {
		t.Errorf("got %v", err)
	}
	r.CA = []byte("no PEM")
	if _, err := service.Open(t.Context(), newTestClient(t, acme(r, key)).o); err == nil ||
		!strings.Contains(err.Error(), "no certificate in PEM format") {
		t.Errorf("got %v", err)
	}
}

// Close returns when nothing runs any more, whatever runs.
func TestCloseWaits(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	s.has("/bundles/acme", `"1"`, pack(t, "one", key))
	b := newTestClient(t, acme(s.remote(), key))
	c, err := service.Open(t.Context(), b.o)
	if err != nil {
		t.Fatal(err)
	}
	var running atomic.Bool
	entered := make(chan struct{})
	c.Start(func([]*policies.Bundle) error {
		running.Store(true)
		close(entered)
		time.Sleep(50 * time.Millisecond)
		running.Store(false)
		return nil
	})
	s.has("/bundles/acme", `"2"`, pack(t, "two", key))
	<-entered
	c.Close()
	if running.Load() {
		t.Error("something is put in force after Close")
	}
	c.Close()
}

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
