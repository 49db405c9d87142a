package sink_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/audit/sink"
)

// fakeWebhook is an HTTP server with configurable responses. It keeps the lines of accepted
// requests.
type fakeWebhook struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	requests []request
	// answer responds to the request with the number n, counted from 1. It reports whether the
	// webhook accepts the lines of the request.
	answer func(n int, w http.ResponseWriter, r *http.Request) (kept bool)
	lines  []string
}

type request struct {
	at     time.Time
	header http.Header
	body   string
}

func newWebhookServer(t testing.TB, answer func(n int, w http.ResponseWriter,
	r *http.Request) bool) *fakeWebhook {
	t.Helper()
	h := &fakeWebhook{t: t, answer: answer}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.mu.Lock()
		h.requests = append(h.requests, request{time.Now(), r.Header.Clone(), string(body)})
		n := len(h.requests)
		h.mu.Unlock()
		if h.answer == nil || h.answer(n, w, r) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.lines = append(h.lines, strings.Split(strings.TrimSuffix(string(body), "\n"),
				"\n")...)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *fakeWebhook) seen() ([]request, []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests, h.lines
}

// waitForLines waits until this number of lines was accepted.
func (h *fakeWebhook) waitForLines(lines int) {
	h.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(
		10 * time.Millisecond) {
		if _, got := h.seen(); len(got) >= lines {
			return
		}
	}
	_, got := h.seen()
	h.t.Fatalf("the webhook accepted %d lines in two minutes, want %d", len(got), lines)
}

func webhookTo(t testing.TB, o sink.WebhookOptions) sink.Receiver {
	t.Helper()
	if o.Encoder == nil {
		o.Encoder = newEncoder(t, "jsonl", 1<<20)
	}
	r, err := sink.NewWebhook(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestWebhookSignsRequests(t *testing.T) {
	h := newWebhookServer(t, nil)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	r := webhookTo(t, sink.WebhookOptions{URL: h.URL, SigningKey: secret,
		Headers: map[string]string{"Authorization": "Bearer t0ken"}})
	b := batch(t, "a", "b")
	send(t, r, b, b, sink.Batch{Checkpoint: []byte("origin\n2\n")})
	got, _ := h.seen()
	for i, want := range []string{string(b.Records[0].Line) + "\n" + string(b.Records[1].Line) +
		"\n", got[0].body, `{"checkpoint":"origin\n2\n"}` + "\n"} {
		g := got[i]
		if g.body != want || g.header.Get("Content-Type") != "application/x-ndjson" ||
			g.header.Get("Authorization") != "Bearer t0ken" {
			t.Errorf("request %d is %v %q, want %q", i, g.header, g.body, want)
		}
		mac := hmac.New(sha256.New, key)
		io.WriteString(mac, g.header.Get("webhook-id")+"."+g.header.Get("webhook-timestamp")+"."+
			g.body)
		if got, want := g.header.Get("webhook-signature"), "v1,"+
			base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("request %d is signed %q, want %q", i, got, want)
		}
	}
	if a, b, c := got[0].header.Get("webhook-id"), got[1].header.Get(
		"webhook-id"), got[2].header.Get("webhook-id"); a != b || a == c {
		t.Errorf("the ids are %s, %s, %s; want the first two equal, and the third different", a, b,
			c)
	}
}

func TestFailingWebhookGetsEverythingLater(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(n int, w http.ResponseWriter, r *http.Request) bool
		delay  time.Duration // shortest delay before the second try
	}{
		{"it responds with 500", func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(map[bool]int{true: 500, false: 204}[n == 1])
			return n > 1
		}, 500 * time.Millisecond},
		{"it asks for a delay", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(429)
			}
			return n > 1
		}, 2 * time.Second},
		{"it asks for a delay until a time", func(n int, w http.ResponseWriter,
			r *http.Request) bool {
			if n == 1 {
				w.Header().Set("Retry-After",
					time.Now().Add(3*time.Second).UTC().Format(http.TimeFormat))
				w.WriteHeader(503)
			}
			return n > 1
		}, 1900 * time.Millisecond},
		{"it closes the connection", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				panic(http.ErrAbortHandler)
			}
			return true
		}, 500 * time.Millisecond},
		{"it accepts all and then closes the connection", func(n int, w http.ResponseWriter,
			r *http.Request) bool {
			if n == 1 {
				w.Header().Set("Content-Length", "10")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			return true
		}, 500 * time.Millisecond},
		{"it redirects", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect)
			}
			return n > 1
		}, 500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newWebhookServer(t, c.answer)
			j := newTestLog(t)
			j.record("a", "b", "c")
			_, stop := start(t, j.options(webhookTo(t, sink.WebhookOptions{URL: h.URL})))
			h.waitForLines(3)
			if err := stop(); err != nil {
				t.Error(err)
			}
			requests, lines := h.seen()
			var want []string
			for l := range strings.Lines(read(t, j.file)) {
				want = append(want, strings.TrimSuffix(l, "\n"))
			}
			if got := requests[1].at.Sub(requests[0].at); got < c.delay || len(requests) != 2 {
				t.Errorf("got %d requests, the second after %v; want 2, the second after at "+
					"least %v", len(requests), got, c.delay)
			}
			if strings.Join(lines, "\n") != strings.Join(want, "\n") {
				t.Errorf("got %q, want %q", lines, want)
			}
		})
	}
}

func TestWebhookWithSmallLimitGetsSmallBatches(t *testing.T) {
	h := newWebhookServer(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if r.ContentLength > 20_000 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return false
		}
		return true
	})
	j := newTestLog(t)
	j.recordMany(300)
	_, stop := start(t, j.options(webhookTo(t, sink.WebhookOptions{URL: h.URL})))
	h.waitForLines(300)
	if err := stop(); err != nil {
		t.Error(err)
	}
	_, lines := h.seen()
	if got := strings.Join(lines, "\n") + "\n"; got != read(t, j.file) {
		t.Errorf("the webhook got %d lines, which are not the lines of the log", len(lines))
	}
}

func TestHangingWebhookTimesOut(t *testing.T) {
	release := make(chan struct{})
	h := newWebhookServer(t, func(int, http.ResponseWriter,
		*http.Request) bool {
		<-release
		return false
	})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := webhookTo(t, sink.WebhookOptions{URL: h.URL}).Send(ctx, batch(t, "a")); err == nil {
		t.Error("Send returned no error, although the webhook does not respond")
	}
}

func TestWebhookErrorsHaveNoSecrets(t *testing.T) {
	h := newWebhookServer(t, func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(401)
		fmt.Fprint(w, "\x1b[31mno\u202e S3CRET, "+r.Header.Get("Authorization")+"\n"+
			strings.Repeat("x", 1<<20))
		return false
	})
	for _, url := range []string{h.URL + "/services/S3CRET", "http://127.0.0.1:1/services/S3CRET"} {
		err := webhookTo(t, sink.WebhookOptions{URL: url, SigningKey: "S3CRET",
			Headers: map[string]string{"Authorization": "Bearer S3CRET"}}).Send(t.Context(),
			batch(t, "a"))
		if err == nil || strings.Contains(err.Error(), "S3CRET") || strings.ContainsAny(err.Error(),
			"\x1b\n\u202e") || len(err.Error()) > 500 {
			t.Errorf("error %v, want it short, printable and without the secret", err)
		}
	}
}

func TestWebhookTrustsOnlyConfiguredCA(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	client := &tls.Config{RootCAs: x509.NewCertPool()}
	client.RootCAs.AddCert(s.Certificate())
	b := batch(t, "a")
	if err := webhookTo(t, sink.WebhookOptions{URL: s.URL}).Send(t.Context(), b); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("with the system's authorities: error %v, want one about the certificate", err)
	}
	if err := webhookTo(t, sink.WebhookOptions{URL: s.URL, TLS: client}).Send(t.Context(),
		b); err != nil {
		t.Errorf("with the configured authority: error %v, want none", err)
	}
}

func TestRejectedRecordIsSentToWebhookInShortForm(t *testing.T) {
	for _, status := range []int{413, 400, 422} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			h := newWebhookServer(t, nil)
			h.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				if body := h.requests[n-1].body; strings.Contains(body, `"reason":"poison`) &&
					!strings.Contains(body, `"short":`) {
					w.WriteHeader(status)
					return false
				}
				return true
			}
			j := newTestLog(t)
			j.record("a", "b", "c", "d", "e", "poison", "g", "h")
			_, stop := start(t, j.options(webhookTo(t, sink.WebhookOptions{URL: h.URL})))
			h.waitForLines(8)
			if err := stop(); err != nil {
				t.Error(err)
			}
			_, lines := h.seen()
			log := strings.Split(read(t, j.file), "\n")
			for i, line := range lines {
				if short := strings.Contains(line, `"short":`); short != (i == 5) ||
					!short && line != log[i] {
					t.Errorf("line %d is %s, want only line 6 short, and the others as in the log",
						i+1, line)
				}
			}
		})
	}
}
