package witness_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/audit/witness"
	"gatekit/core/pipeline"
)

// gateway is an audit log whose checkpoints go to witnesses.
type gateway struct {
	*witness.Submitter
	t    testing.TB
	log  *audit.Log
	file string
	key  note.Verifier
	stop context.CancelFunc
	ran  sync.WaitGroup

	mu     sync.Mutex
	events []string
}

// start opens a log and asks the witnesses.
func start(t testing.TB, file string, fakes ...*fakeWitness) *gateway {
	t.Helper()
	g := &gateway{t: t, file: file}
	var err error
	g.log, err = audit.Open(audit.Options{File: file, OnCheckpoint: func(c []byte) {
		g.Queue(c)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if g.key, err = audit.ReadPublicKey(audit.PublicKeyFile(file)); err != nil {
		t.Fatal(err)
	}
	o := witness.Options{File: file, Key: g.key, RecordEvent: g.event}
	for _, f := range fakes {
		f.logKey = g.key
		o.Witnesses = append(o.Witnesses, f.witness())
	}
	if g.Submitter, err = witness.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.ran.Go(func() { g.Run(ctx, 5*time.Second) })
	return g
}

// close closes the log, and then the submitter.
func (g *gateway) close() {
	g.t.Helper()
	if err := g.log.Close(); err != nil {
		g.t.Error(err)
	}
	g.stop()
	g.ran.Wait()
}

func (g *gateway) event(action, reason string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, strings.TrimSpace(fmt.Sprint(action, " ", reason)))
}

func (g *gateway) takeEvents() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	events := g.events
	g.events = nil
	return events
}

// record writes n records, and waits until their checkpoint was sent.
func (g *gateway) record(n int) {
	g.t.Helper()
	for range n {
		if _, err := g.log.Record(g.t.Context(), pipeline.Outcome{Time: time.Now(),
			Action: "start"}); err != nil {
			g.t.Fatal(err)
		}
	}
	time.Sleep(12 * time.Second)
}

// verify verifies the log with the keys of witnesses, and returns the number of records that at
// least quorum of them have cosigned.
func (g *gateway) verify(quorum int, fakes ...*fakeWitness) (int64, error) {
	v := audit.Verification{File: g.file, Key: g.key, Quorum: quorum}
	for _, f := range fakes {
		v.Witnesses = append(v.Witnesses, f.witness().Key)
	}
	done, err := v.Run(g.t.Context())
	if err != nil {
		return 0, err
	}
	return done.Witnessed, nil
}

func (g *gateway) wantWitnessed(want int64, quorum int, fakes ...*fakeWitness) {
	g.t.Helper()
	if got, err := g.verify(quorum, fakes...); err != nil || got != want {
		g.t.Errorf("%d records are cosigned by %d of %d witnesses, error %v; want %d", got, quorum,
			len(fakes), err, want)
	}
}

func want(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestWitnessesCosignGrowingLog(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(t, "a.example"), newFake(t, "b.example")
		g := start(t, filepath.Join(dir, "gatekit.jsonl"), a, b)
		g.record(3)
		want(t, "requests to a", a.take(), "old 0 to 3: 200")
		want(t, "requests to b", b.take(), "old 0 to 3: 200")
		g.record(300) // more than one tile
		want(t, "requests to a", a.take(), "old 3 to 303: 200")
		g.wantWitnessed(303, 2, a, b)
		time.Sleep(time.Hour)
		if got := a.take(); len(got) > 0 {
			t.Errorf("a log that does not grow is sent: %q", got)
		}
		states := g.States()
		if len(states) != 2 || states[0].Name != "a.example" || states[0].Size != 303 ||
			states[0].Error != "" || time.Since(states[0].Time) > 2*time.Hour {
			t.Errorf("the states are %+v", states)
		}
		// Many checkpoints in a short time are sent once in ten seconds.
		for range 20 {
			for range 50 {
				if _, err := g.log.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
					Action: "start"}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(1500 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if got := a.take(); len(got) < 2 || len(got) > 5 {
			t.Errorf("20 checkpoints in 30 s were sent in %d requests: %q", len(got), got)
		}
		g.wantWitnessed(1303, 2, a, b)
		// The last checkpoint is sent at once when Gatekit stops.
		if _, err := g.log.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
			Action: "stop"}); err != nil {
			t.Fatal(err)
		}
		g.close()
		g.wantWitnessed(1304, 2, a, b)
		a.take()
		// The next process knows what was cosigned.
		g = start(t, g.file, a, b)
		g.record(1)
		want(t, "requests to a", a.take(), "old 1304 to 1305: 200")
		g.close()
		want(t, "events", g.takeEvents())
	})
}

// A witness that has seen other checkpoints of the same log tells its size.
func TestWitnessAtAnotherSize(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newFake(t, "a.example")
		file := filepath.Join(dir, "gatekit.jsonl")
		g := start(t, file, a)
		g.record(700)
		g.close()
		want(t, "requests", a.take(), "old 0 to 700: 200")
		for _, name := range []string{"cosigned", "witnesses"} {
			if err := os.Remove(filepath.Join(file+".tree", name)); err != nil {
				t.Fatal(err)
			}
		}
		g = start(t, file, a)
		if got := g.States(); got[0].Size != 0 {
			t.Errorf("the state is %+v", got)
		}
		g.record(55)
		want(t, "requests", a.take(), "old 0 to 755: 409", "old 700 to 755: 200")
		g.wantWitnessed(755, 1, a)
		// A witness that has lost its state begins anew.
		a.mu.Lock()
		a.last = nil
		a.mu.Unlock()
		g.record(1)
		want(t, "requests", a.take(), "old 755 to 756: 409", "old 0 to 756: 200")
		g.close()
		want(t, "events", g.takeEvents())
	})
}

func TestHostileWitness(t *testing.T) {
	stranger := newFake(t, "stranger.example")
	seed := [32]byte{1}
	otherKey := ed25519.NewKeyFromSeed(seed[:])
	for _, tt := range []struct {
		name    string
		hostile func(f *fakeWitness) func(http.ResponseWriter, *http.Request,
			*audit.Checkpoint) bool
		want    string // in the error
		refused bool
	}{
		{"another witness's cosignature", func(*fakeWitness) func(http.ResponseWriter,
			*http.Request, *audit.Checkpoint) bool {
			return func(w http.ResponseWriter, _ *http.Request, c *audit.Checkpoint) bool {
				fmt.Fprint(w, stranger.cosign(c, stranger.key))
				return true
			}
		}, "no cosignature with its key", false},
		{"a cosignature that another key has made", func(f *fakeWitness) func(http.ResponseWriter,
			*http.Request, *audit.Checkpoint) bool {
			return func(w http.ResponseWriter, _ *http.Request, c *audit.Checkpoint) bool {
				fmt.Fprint(w, f.cosign(c, otherKey))
				return true
			}
		}, "cosignature of the witness a.example+", false},
		{"the cosignature of another checkpoint", func(f *fakeWitness) func(http.ResponseWriter,
			*http.Request, *audit.Checkpoint) bool {
			return func(w http.ResponseWriter, _ *http.Request, c *audit.Checkpoint) bool {
				fmt.Fprint(w, f.cosign(&audit.Checkpoint{Note: []byte("x\n\n")}, f.key))
				return true
			}
		}, "is not valid", false},
		{"an empty answer", answerWith(status(200, "", "")), "no cosignature with its key", false},
		{"no signature lines", answerWith(status(200, "", "hello\n")), "cannot be used", false},
		{"a huge answer", answerWith(status(200, "", strings.Repeat("x", 70<<10))),
			"more than 65536 bytes", false},
		{"a slow answer", answerWith(hang), "Client.Timeout exceeded", false},
		{"an unknown log", answerWith(status(404, "", "")), "does not know the log gatekit/",
			false},
		{"another key of the log", answerWith(status(403, "", "")), "with another key (403)",
			false},
		{"an error", answerWith(status(500, "", "out of \x1b[31mdisk\n")),
			`it answered 500 Internal Server Error: out of \x1b[31mdisk`, false},
		{"an invalid proof, although there is none", answerWith(status(422, "", "")),
			"it answered 422", false},
		{"a conflict without a size", answerWith(status(409, "text/x.tlog.size", "x\n")),
			"without the size that it has cosigned: x", false},
		{"a conflict with another type", answerWith(status(409, "text/plain", "2\n")),
			"without the size", false},
		{"a conflict with a size that is not canonical", answerWith(status(409,
			"text/x.tlog.size", "02\n")), "without the size", false},
		{"a conflict with a negative size", answerWith(status(409, "text/x.tlog.size", "-2\n")),
			"without the size", false},
		{"a conflict with the size that was sent", answerWith(status(409, "text/x.tlog.size",
			"0\n")), "it has cosigned 0 records with another root", true},
		{"a witness that has seen more records", answerWith(status(409, "text/x.tlog.size",
			"1000\n")), "it has cosigned 1000 records, but the log has only 4", true},
		{"a size that changes", func(*fakeWitness) func(http.ResponseWriter, *http.Request,
			*audit.Checkpoint) bool {
			n := 1
			return func(w http.ResponseWriter, r *http.Request, c *audit.Checkpoint) bool {
				n = 3 - n // 2, 1, 2, …
				return status(409, "text/x.tlog.size", fmt.Sprintf("%d\n", n))(w, r, c)
			}
		}, "it has cosigned 1 records, and before it answered 2", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				a, honest := newFake(t, "a.example"), newFake(t, "honest.example")
				a.set(tt.hostile(a))
				g := start(t, filepath.Join(dir, "gatekit.jsonl"), a, honest)
				g.record(4)
				time.Sleep(3 * time.Second)
				state := g.States()[0]
				if !strings.Contains(state.Error, tt.want) || state.Refused != tt.refused ||
					state.Size != 0 || state.Failing.IsZero() {
					t.Errorf("the state is %+v, want the error %q", state, tt.want)
				}
				if n := len(a.take()); n > 4 { // it was asked twice
					t.Errorf("there were %d requests", n)
				}
				// The other witness and the log go on.
				g.wantWitnessed(4, 1, a, honest)
				if _, err := g.verify(2, a, honest); err == nil ||
					!strings.Contains(err.Error(), "no cosignature of a.example") {
					t.Errorf("got the error %v for two witnesses", err)
				}
				saved, err := witness.States(g.file)
				if err != nil || len(saved) != 2 || saved[0] != state {
					t.Errorf("the states %+v were saved, error %v; want %+v", saved, err, state)
				}
				time.Sleep(30 * time.Minute)
				want(t, "events", g.takeEvents(), map[bool]string{
					false: `witness lost witness "a.example"`,
					true:  `witness refused witness "a.example"`}[tt.refused])
				requests := len(a.take())
				if requests > 2*12 {
					t.Errorf("a failing witness got %d requests in 30 minutes", requests)
				}
				a.set(nil)
				time.Sleep(6 * time.Minute)
				g.wantWitnessed(4, 2, a, honest)
				want(t, "events", g.takeEvents(), `witness back witness "a.example"`)
				if state := g.States()[0]; state.Error != "" || state.Refused ||
					!state.Failing.IsZero() {
					t.Errorf("the state is %+v", state)
				}
				g.close()
			})
		})
	}
}

// answerWith returns a function that returns f for every witness.
func answerWith(f func(http.ResponseWriter, *http.Request, *audit.Checkpoint) bool) func(
	*fakeWitness) func(http.ResponseWriter, *http.Request, *audit.Checkpoint) bool {
	return func(*fakeWitness) func(http.ResponseWriter, *http.Request, *audit.Checkpoint) bool {
		return f
	}
}

// copyLog copies a log with its key and tree.
func copyLog(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chmod(path, 0o600)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A log that was restored from an older copy, and written further with its own key, is refused:
// when it is shorter than what the witness knows, when it is equally long, and when it is longer.
func TestForkIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		records int // after the copy
		want    string
	}{
		"shorter":      {1, "it has cosigned 10 records, but the log has only 6"},
		"equally long": {5, "it has cosigned 10 records with another root"},
		"longer":       {20, "it has cosigned 10 records that are not the first 10 records"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, copied := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "copy")
			synctest.Test(t, func(t *testing.T) {
				a := newFake(t, "a.example")
				g := start(t, filepath.Join(dir, "gatekit.jsonl"), a)
				g.record(5)
				g.close()
				copyLog(t, dir, copied)
				g = start(t, g.file, a)
				g.record(5)
				g.close()
				g.wantWitnessed(10, 1, a)

				time.Sleep(time.Second)
				fork := start(t, filepath.Join(copied, "gatekit.jsonl"), a)
				fork.record(tt.records)
				if state := fork.States()[0]; !state.Refused ||
					!strings.Contains(state.Error, tt.want) {
					t.Errorf("the state is %+v, want %q", state, tt.want)
				}
				want(t, "events", fork.takeEvents(), `witness refused witness "a.example"`)
				fork.close()
				// The fork verifies by itself, and with the cosignature from before the copy.
				fork.wantWitnessed(0, 0)
				fork.wantWitnessed(5, 1, a)
				// With the cosignatures of the other history, it does not.
				copyLog(t, dir, dir+"2")
				cosigned, err := os.ReadFile(g.file + ".tree/cosigned")
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(fork.file+".tree/cosigned", cosigned, 0o600); err != nil {
					t.Fatal(err)
				}
				if got, err := fork.verify(1, a); err == nil {
					t.Errorf("a forked log is cosigned up to record %d", got)
				}
				// The state survives a restart of the fork, and is recorded again.
				if err := os.WriteFile(fork.file+".tree/cosigned", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				fork = start(t, fork.file, a)
				fork.record(1)
				want(t, "events", fork.takeEvents(), `witness refused witness "a.example"`)
				fork.close()
			})
		})
	}
}

func TestCosignaturesAreKeptForEachWitness(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newFake(t, "a.example"), newFake(t, "b.example"), newFake(t, "c.example")
		g := start(t, filepath.Join(dir, "gatekit.jsonl"), a, b, c)
		g.record(3)
		b.set(status(500, "", ""))
		g.record(2)
		c.set(status(500, "", ""))
		g.record(2)
		g.wantWitnessed(7, 1, a, b, c)
		g.wantWitnessed(5, 2, a, b, c)
		g.wantWitnessed(3, 3, a, b, c)
		g.wantWitnessed(3, 0, b)
		stranger := newFake(t, "stranger.example")
		if _, err := g.verify(0, a, stranger); err == nil ||
			!strings.Contains(err.Error(), "no cosignature of stranger.example") {
			t.Errorf("got the error %v", err)
		}
		// A proof has the largest cosigned checkpoint, or else the log's own.
		proof, err := audit.Prove(g.file, 6, g.key)
		if err != nil {
			t.Fatal(err)
		}
		cosigned, err := audit.OpenCosigned(proof.Checkpoint, g.key,
			[]*audit.WitnessKey{a.witness().Key})
		if err != nil || cosigned.Size != 7 || len(cosigned.Cosignatures) != 1 {
			t.Errorf("the proof has %+v, error %v", cosigned, err)
		}
		if _, err := proof.Verify(g.key); err != nil {
			t.Error(err)
		}
		g.close()
		// A checkpoint without cosignatures is not kept.
		if b, err := os.ReadFile(g.file + ".tree/cosigned"); err != nil ||
			strings.Count(string(b), "\n\n— ") != 3 {
			t.Errorf("the file has %s, error %v", b, err)
		}
		// The next process knows what each of them has cosigned, and which of them fail.
		want := g.States()
		g = start(t, g.file, a, b, c)
		if got := g.States(); !slices.Equal(got, want) || got[0].Error != "" ||
			got[1].Size != 3 || got[2].Size != 5 || got[1].Error == "" {
			t.Errorf("after a restart, the states are %+v, want %+v", got, want)
		}
		g.close()
	})
}

func TestNewRefusesOneKeyTwice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	key, err := audit.ReadPublicKey(audit.PublicKeyFile(file))
	if err != nil {
		t.Fatal(err)
	}
	a, renamed := newFake(t, "a.example"), newFake(t, "a.example")
	renamed.name = "b.example"
	_, err = witness.New(witness.Options{File: file, Key: key,
		Witnesses: []witness.Witness{a.witness(), renamed.witness()}})
	if err == nil || !strings.Contains(err.Error(), "two witnesses have the key of b.example") {
		t.Errorf("got the error %v", err)
	}
	if err := os.WriteFile(file+".tree/cosigned", []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = witness.New(witness.Options{File: file, Key: key,
		Witnesses: []witness.Witness{a.witness()}})
	if err == nil || !strings.Contains(err.Error(), "hint: restore the file") {
		t.Errorf("got the error %v for damaged cosignatures", err)
	}
}
