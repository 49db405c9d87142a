package witness_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/audit"
	"gatekit/audit/witness"
)

// fakeWitness is a witness after C2SP tlog-witness. It remembers the last checkpoint of one log.
type fakeWitness struct {
	t    testing.TB
	name string
	key  ed25519.PrivateKey

	mu       sync.Mutex
	last     *audit.Checkpoint // nil for none
	requests []string          // "old SIZE to SIZE: STATUS"
	// answers in place of the witness, unless it returns false
	hostile func(w http.ResponseWriter, r *http.Request, c *audit.Checkpoint) bool
	logKey  note.Verifier
}

func newFake(t testing.TB, name string) *fakeWitness {
	seed := sha256.Sum256([]byte(name))
	return &fakeWitness{t: t, name: name, key: ed25519.NewKeyFromSeed(seed[:])}
}

// vkey returns the public key as a line.
func (f *fakeWitness) vkey() string {
	public := append([]byte{4}, f.key.Public().(ed25519.PublicKey)...)
	return fmt.Sprintf("%s+%08x+%s", f.name, f.keyID(), base64.StdEncoding.EncodeToString(public))
}

func (f *fakeWitness) keyID() uint32 {
	public := append([]byte(f.name+"\n\x04"), f.key.Public().(ed25519.PublicKey)...)
	sum := sha256.Sum256(public)
	return binary.BigEndian.Uint32(sum[:])
}

// witness returns the witness as the submitter asks it, without a network.
func (f *fakeWitness) witness() witness.Witness {
	key, err := audit.ParseWitnessKey(f.vkey())
	if err != nil {
		f.t.Fatal(err)
	}
	return witness.Witness{URL: "https://" + f.name + "/prefix/", Key: key,
		Client: &http.Client{Transport: f, Timeout: 10 * time.Second}}
}

// RoundTrip serves a request in a goroutine, and ends when the request's context ends.
func (f *fakeWitness) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.serve(w, r)
	}()
	select {
	case <-done:
		return w.Result(), nil
	case <-r.Context().Done():
		<-done
		return nil, r.Context().Err()
	}
}

func (f *fakeWitness) serve(w *httptest.ResponseRecorder, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method != http.MethodPost || r.URL.Path != "/prefix/add-checkpoint" {
		f.t.Errorf("got the request %s %s", r.Method, r.URL)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	head, signed, ok := strings.Cut(string(body), "\n\n")
	lines := strings.Split(head, "\n")
	c, err := audit.OpenCheckpoint([]byte(signed), f.logKey)
	if !ok || err != nil || len(lines) > 64 {
		f.t.Errorf("got the body %q, error %v", body, err)
		return
	}
	old, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "old "), 10, 64)
	if err != nil || lines[0] != fmt.Sprintf("old %d", old) || old > c.Size {
		f.t.Errorf("got the first line %q for %d records", lines[0], c.Size)
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			f.t.Errorf("got the line %q", line)
		}
		proof = append(proof, h)
	}
	if f.hostile == nil || !f.hostile(w, r, c) {
		f.add(w, old, proof, c)
	}
	f.requests = append(f.requests, fmt.Sprintf("old %d to %d: %d", old, c.Size, w.Code))
}

func (f *fakeWitness) add(w http.ResponseWriter, old int64, proof tlog.TreeProof,
	c *audit.Checkpoint) {
	var size int64
	if f.last != nil {
		size = f.last.Size
	}
	switch {
	case old != size:
		f.conflict(w, size)
		return
	case old == c.Size && f.last.Root != c.Root:
		f.conflict(w, size)
		return
	case old == 0 && len(proof) > 0, old > 0 && old < c.Size &&
		tlog.CheckTree(proof, c.Size, c.Root, old, f.last.Root) != nil:
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	f.last = c
	fmt.Fprint(w, f.cosign(c, f.key))
}

func (f *fakeWitness) conflict(w http.ResponseWriter, size int64) {
	w.Header().Set("Content-Type", "text/x.tlog.size")
	w.WriteHeader(http.StatusConflict)
	fmt.Fprintf(w, "%d\n", size)
}

// cosign returns the line with the cosignature of the witness, made with a key.
func (f *fakeWitness) cosign(c *audit.Checkpoint, key ed25519.PrivateKey) string {
	text, _, _ := strings.Cut(string(c.Note), "\n\n")
	seconds := uint64(time.Now().Unix())
	signature := ed25519.Sign(key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", seconds, text))
	b := binary.BigEndian.AppendUint32(nil, f.keyID())
	b = binary.BigEndian.AppendUint64(b, seconds)
	return fmt.Sprintf("— %s %s\n", f.name, base64.StdEncoding.EncodeToString(append(b,
		signature...)))
}

func (f *fakeWitness) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.requests
	f.requests = nil
	return all
}

// set sets how the witness answers from now on.
func (f *fakeWitness) set(hostile func(http.ResponseWriter, *http.Request,
	*audit.Checkpoint) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hostile = hostile
}

// status returns a hostile answer with a status, and a body.
func status(code int, contentType, body string) func(http.ResponseWriter, *http.Request,
	*audit.Checkpoint) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ *audit.Checkpoint) bool {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		io.Copy(w, bytes.NewReader([]byte(body)))
		return true
	}
}

// hang returns only when the client gives up.
func hang(_ http.ResponseWriter, r *http.Request, _ *audit.Checkpoint) bool {
	<-r.Context().Done()
	return true
}
