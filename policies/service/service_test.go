package service_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"flag"
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

// TestMain ignores the goroutines that two OPA plugins leak. Each of these plugins leaves a
// goroutine when the service never accepts its data. More tests run at the same time than there are
// processors: those that are parallel mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	const opa = "github.com/open-policy-agent/opa/v1/plugins/"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(opa+"status.(*Plugin).Stop.func1"),
		goleak.IgnoreAnyFunction(opa+"logs.(*Plugin).flushDecisions.func1"))
}

// token is a secret that only requests may contain.
const token = "hunter2-of-the-bundle-server"

// server is a policy service, with a handler for each path.
type server struct {
	*httptest.Server
	t *testing.T

	mu        sync.Mutex
	answers   map[string]http.HandlerFunc // by path
	requested []string                    // path and If-None-Match of each request
}

func newServer(t *testing.T, start func(*httptest.Server)) *server {
	s := &server{t: t, answers: map[string]http.HandlerFunc{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token ||
			!strings.HasPrefix(r.Header.Get("User-Agent"), "gatekit/") {
			t.Errorf("a request has the headers %v, want the token and the user agent gatekit/…",
				r.Header)
		}
		s.mu.Lock()
		answer := s.answers[r.URL.Path]
		s.requested = append(s.requested, r.URL.Path+" "+r.Header.Get("If-None-Match"))
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

// serveBundle serves a bundle with an ETag.
func (s *server) serveBundle(path, etag string, bundle []byte) {
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
	return slices.Clone(s.requested)
}

func (s *server) remote() service.Endpoint {
	return service.Endpoint{URL: s.URL, Headers: map[string]string{"Authorization": "Bearer " +
		token}}
}

// testClient opens a Client. It keeps the log of this Client, and the bundles that the Client
// activated and rejected.
type testClient struct {
	t   *testing.T
	o   service.Options
	log bytes.Buffer

	mu          sync.Mutex
	rejected    []string   // name and error of each rejected bundle
	activations [][]string // names and revisions of the bundles, one element for each activation
	activateErr error      // the error that activate returns
}

func newTestClient(t *testing.T, all ...service.BundleSource) *testClient {
	b := &testClient{t: t}
	b.o = service.Options{Bundles: all, Version: "test",
		Log: slog.New(slog.NewTextHandler(writer{b},
			&slog.HandlerOptions{Level: slog.LevelDebug})), BundleRejected: func(name string,
			err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.rejected = append(b.rejected, name+": "+err.Error())
		}}
	t.Cleanup(func() {
		if strings.Contains(b.logText(), token) {
			t.Errorf("the token is in the log:\n%s", b.logText())
		}
	})
	return b
}

// writer writes to the log of a testClient.
type writer struct{ client *testClient }

func (w writer) Write(p []byte) (int, error) {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	return w.client.log.Write(p)
}

func (b *testClient) logText() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// open opens and starts a client. The client is closed at the end of the test.
func (b *testClient) open() *service.Client {
	b.t.Helper()
	c, err := service.Open(b.t.Context(), b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	b.activate(c.Bundles())
	c.Start(b.activate)
	return c
}

func (b *testClient) activate(all []*policies.Bundle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.activateErr != nil {
		return b.activateErr
	}
	var revisions []string
	for _, one := range all {
		revisions = append(revisions, one.Name+" "+one.Revision)
	}
	b.activations = append(b.activations, revisions)
	return nil
}

// activated returns the names and revisions of the bundles of each activation, in order.
func (b *testClient) activated() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, r := range b.activations {
		all = append(all, strings.Join(r, "+"))
	}
	return strings.Join(all, ", ")
}

func (b *testClient) rejections() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.rejected, "\n")
}

// until waits until done returns true. After two minutes it fails the test; what then says what it
// waited for.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited two minutes for %s", what)
		}
	}
}

const rule = "package gatekit.acme\n\ndeny contains \"no\" if input.name == \"x\"\n"

func pack(t *testing.T, revision string, by *bundles.Key) []byte {
	t.Helper()
	return bundles.Build(t, revision, map[string]string{"acme.rego": rule},
		&bundles.Signature{Key: by, ID: "acme"})
}

// acme returns a bundle source that is polled every second.
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
	s.serveBundle("/bundles/acme", `"1"`, pack(t, "one", key))
	s.serveBundle("/other", `"o"`, pack(t, "o", key))
	b := newTestClient(t, acme(s.remote(), key))
	other := acme(s.remote(), key)
	other.Name, other.Resource = "other", "/other"
	b.o.Bundles = append(b.o.Bundles, other)
	c := b.open()
	until(t, "a request with the ETag", func() bool {
		return slices.Contains(s.requests(), `/bundles/acme "1"`)
	})
	if got := b.activated(); got != "acme one+other o" {
		t.Errorf("activated: %s, want one activation, because the bundles have not changed", got)
	}
	s.serveBundle("/bundles/acme", `"2"`, pack(t, "two", key))
	until(t, "the second bundle", func() bool {
		return strings.HasSuffix(b.activated(), ", acme two+other o")
	})
	if got := c.Bundles(); len(got) != 2 || got[0].Revision != "two" {
		t.Errorf("the bundles are %+v, want two, the first with revision two", got)
	}
	if b.rejections() != "" {
		t.Errorf("rejected: %s, want none", b.rejections())
	}
}

func TestRejectedBundleChangesNothingAndIsReportedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits until bundles are fetched again")
	}
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	good := pack(t, "two", key)
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		rejection string // part of the reported rejection; "" when the response is not a bundle
		logged    string // part of the log
	}{
		"garbage": {write([]byte("garbage")), "not a bundle (.tar.gz)",
			"bundle rejected; keeping the previous one"},
		"an empty response": {write(nil), "not a bundle (.tar.gz)",
			"bundle rejected; keeping the previous one"},
		"signed with another key": {write(pack(t, "two", other)), "failed to verify JWT signature",
			"bundle rejected; keeping the previous one"},
		"not signed": {write(bundles.Build(t,
			"two", map[string]string{"acme.rego": rule}, nil)), "the bundle is not signed",
			"bundle rejected; keeping the previous one"},
		"tampered with": {write(tampered(t, good)), "digest mismatch",
			"bundle rejected; keeping the previous one"},
		"invalid Rego": {write(bundles.Build(t,
			"two", map[string]string{"acme.rego": "package"}, &bundles.Signature{Key: key,
				ID: "acme"})), "acme.rego:1", "bundle rejected; keeping the previous one"},
		"an endless bundle": {endless, "the bundle is larger than 16777216 bytes",
			"bundle rejected; keeping the previous one"},
		"an endless error response": {func(w http.ResponseWriter,
			r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			endless(w, r)
		}, "", "the service responded with status 502 Bad Gateway"},
		"a truncated response": {truncated(good), "", "unexpected EOF"},
		"a redirect to another address": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/bundles/acme", http.StatusFound)
		}, "", "but its credentials are only for"},
		"endless redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r,
				"/bundles/acme", http.StatusFound)
		}, "", "the service redirects more than 5 times"},
		"an aborted response": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, "", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each case waits for seconds
			s := newServer(t, plain)
			s.serveBundle("/bundles/acme", `"1"`, pack(t, "one", key))
			b := newTestClient(t, acme(s.remote(), key))
			b.open()
			s.serve("/bundles/acme", c.answer)
			until(t, "the log line", func() bool { return strings.Contains(b.logText(), c.logged) })
			before := len(s.requests())
			until(t, "more requests", func() bool { return len(s.requests()) > before+2 })
			// b.rejected has the name before each error, and most errors begin with the name, too.
			if got := b.rejections(); c.rejection == "" && got != "" || !strings.Contains(got,
				c.rejection) || strings.Count(got, "acme: acme: ") > 1 {
				t.Errorf("the reported rejections are %q, want %q in them", got, c.rejection)
			}
			if n := strings.Count(b.logText(), "level=ERROR") + strings.Count(b.logText(),
				"level=WARN"); n != 1 {
				t.Errorf("%d errors and warnings in the log, want 1:\n%s", n, b.logText())
			}
			s.serveBundle("/bundles/acme", `"3"`, pack(t, "three", key))
			until(t, "the next valid bundle", func() bool {
				return b.activated() == "acme one, acme three"
			})
			until(t, "the log line about the recovery", func() bool {
				return strings.Contains(b.logText(), "bundle download recovered")
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

func truncated(b []byte) http.HandlerFunc {
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
	s.serveBundle("/bundles/acme", `"1"`, pack(t, "one", key))
	one := acme(s.remote(), key)
	one.CacheFile = filepath.Join(t.TempDir(), "acme.tar.gz")
	b := newTestClient(t, one)
	c := b.open()
	cachedRevision := func() string {
		raw, err := os.ReadFile(one.CacheFile)
		if err != nil {
			return err.Error()
		}
		got, err := policies.ReadBundle("cached", raw, one.Keys)
		if err != nil {
			return err.Error()
		}
		return got.Revision
	}
	if cachedRevision() != "one" {
		t.Errorf("the cached revision is %s, want one", cachedRevision())
	}
	b.mu.Lock()
	b.activateErr = errors.New("it does not compile")
	b.mu.Unlock()
	s.serveBundle("/bundles/acme", `"2"`, pack(t, "two", key))
	until(t, "the rejection", func() bool { return b.rejections() == "acme: it does not compile" })
	if cachedRevision() != "one" || c.Bundles()[0].Revision != "one" {
		t.Errorf("the cached revision is %s, the active one %s; want one for both",
			cachedRevision(), c.Bundles()[0].Revision)
	}
	b.mu.Lock()
	b.activateErr = nil
	b.mu.Unlock()
	until(t, "the second bundle", func() bool {
		return b.activated() == "acme one, acme two" && cachedRevision() == "two"
	})
	if i, err := os.Stat(one.CacheFile); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the cache file has mode %v, error %v; want 0600", i.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(one.CacheFile)); err != nil || len(files) != 1 {
		t.Errorf("the folder of the cache contains %v, error %v; want only the cache file", files,
			err)
	}
}

func TestStartWithoutService(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits until bundles are fetched again")
	}
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	down := httptest.NewServer(nil)
	down.Close()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	for name, c := range map[string]struct {
		url    string
		cached []byte
		want   string // part of the error; "" if Open must succeed
	}{
		"not cached":                    {down.URL, nil, "connection refused"},
		"not cached, the service hangs": {hangs.URL, nil, "no answer"},
		"cached":                        {down.URL, pack(t, "cached", key), ""},
		"cached, the service hangs":     {hangs.URL, pack(t, "cached", key), ""},
		"the cache was tampered with": {down.URL, tampered(t, pack(t, "cached", key)),
			"connection refused"},
		"the cache is signed with another key": {down.URL, pack(t, "cached", other),
			"connection refused"},
		"the cache is truncated": {down.URL, pack(t, "cached", key)[:100],
			"connection refused"},
		"the cache is not signed": {down.URL,
			bundles.Build(t, "cached", map[string]string{"acme.rego": rule}, nil),
			"connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := acme(service.Endpoint{URL: c.url,
				Headers: map[string]string{"Authorization": "Bearer " + token}}, key)
			one.Resource += "?sig=" + token
			one.CacheFile = filepath.Join(t.TempDir(), "acme.tar.gz")
			if c.cached != nil {
				if err := os.WriteFile(one.CacheFile, c.cached, 0o600); err != nil {
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
				if err != nil || client.Bundles()[0].Revision != "cached" {
					t.Errorf("Open: error %v, want the cached bundle", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), `bundle "acme"`) || strings.Contains(err.Error(),
				token) {
				t.Errorf("Open: error %v, want the bundle's name and %q, and no token", err, c.want)
			}
			if c.cached != nil && !strings.Contains(b.rejections(), one.CacheFile) {
				t.Errorf("the rejections do not name the cache file: %s", b.rejections())
			}
		})
	}
}

func TestServiceCertificateIsVerified(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits until bundles are fetched again")
	}
	key := bundles.NewKey(t)
	s := newServer(t, func(s *httptest.Server) { s.StartTLS() })
	s.serveBundle("/bundles/acme", `"1"`, pack(t, "one", key))
	r := s.remote()
	r.CA = pemOf(s.Certificate().Raw)
	b := newTestClient(t, acme(r, key))
	b.open()
	if b.activated() != "acme one" {
		t.Errorf("activated: %s, want acme one", b.activated())
	}
	b = newTestClient(t, acme(s.remote(), key)) // the system does not trust the server
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := service.Open(ctx, b.o); err == nil || !strings.Contains(err.Error(),
		"certificate") {
		t.Errorf("error %v, want one about the certificate", err)
	}
	r.CA = []byte("no PEM")
	if _, err := service.Open(t.Context(), newTestClient(t, acme(r, key)).o); err == nil ||
		!strings.Contains(err.Error(), "no certificate in PEM format") {
		t.Errorf("error %v, want that ca has no certificate in PEM format", err)
	}
}

// TestCloseWaitsForActivation checks that Close waits for a running activation.
func TestCloseWaitsForActivation(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	s.serveBundle("/bundles/acme", `"1"`, pack(t, "one", key))
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
	s.serveBundle("/bundles/acme", `"2"`, pack(t, "two", key))
	<-entered
	c.Close()
	if running.Load() {
		t.Error("an activation runs after Close")
	}
	c.Close()
}

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
