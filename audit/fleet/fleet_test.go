package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/audit/fleet"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// replica is the log of a replica in a folder of its own.
type replica struct {
	*audit.Log
	t    testing.TB
	file string
}

func openReplica(t testing.TB, dir, name string, peers ...string) *replica {
	t.Helper()
	file := filepath.Join(dir, name, "gatekit.jsonl")
	l, err := audit.Open(audit.Options{File: file, Replica: name, Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &replica{l, t, file}
}

// record records n requests that the replica called via has forwarded, and waits for a checkpoint.
func (r *replica) record(n int, via string) {
	r.t.Helper()
	for range n {
		m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			r.t.Fatal(err)
		}
		m.Via, m.Direction = via, mcp.ToServer
		if _, err := r.Record(r.t.Context(), pipeline.Outcome{Time: time.Now(), Action: "pass",
			Before: m, After: m}); err != nil {
			r.t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
}

func (r *replica) meet(other *replica) {
	r.t.Helper()
	e, ok := other.RosterEntry()
	if !ok {
		r.t.Fatal("the log has no roster entry")
	}
	if err := r.Meet(e); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// copyDir copies a folder to a new folder.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func key(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name, "gatekit.jsonl.pub"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// writeFleet writes the logs of three replicas. a and b have met, a knows c from the configuration,
// and b has got requests from a. The folder older gets the log of b before its last records.
func writeFleet(t testing.TB, dir, older string) {
	a, b := openReplica(t, dir, "a", "a", "b", "c"), openReplica(t, dir, "b")
	c := openReplica(t, dir, "c")
	b.record(3, "")
	b.close()
	copyDir(t, filepath.Join(dir, "b"), older)
	time.Sleep(time.Second)
	b = openReplica(t, dir, "b")
	b.meet(a)
	a.meet(b)
	b.record(5, "a")
	time.Sleep(6 * time.Minute)
	a.meet(b)
	a.record(1, "")
	for _, r := range []*replica{a, b, c} {
		r.close()
	}
}

// verify returns one line for each result: status, name and the first line of the error.
func verify(t testing.TB, dir string, keys ...string) (lines []string) {
	t.Helper()
	logs, err := fleet.Logs(dir)
	if err != nil {
		t.Fatal(err)
	}
	results, err := fleet.Verify(t.Context(), logs, fleet.Options{Keys: keys, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		line := string(r.Status) + " " + r.Name
		if (r.Err == nil) != (r.Status == fleet.OK) {
			t.Errorf("%s has the error %v", line, r.Err)
		}
		if r.Err != nil {
			first, _, _ := strings.Cut(r.Err.Error(), "\n")
			line += ": " + strings.ReplaceAll(first, dir+string(filepath.Separator), "")
		} else if r.Done == nil || r.Origin == "" || r.Key == nil {
			t.Errorf("the result of %s lacks the verification, the origin or the key", r.Name)
		}
		lines = append(lines, line)
	}
	return lines
}

func run(ctx context.Context, log fleet.Log, key note.Verifier,
	others []*audit.Checkpoint) (*audit.VerificationResult, []string, error) {
	done, err := (&audit.Verification{File: log.File, Key: key, Checkpoints: others}).Run(ctx)
	return done, nil, err
}

func TestVerifyFindsWhatIsWrongWithAFleet(t *testing.T) {
	dir, older := t.TempDir(), filepath.Join(t.TempDir(), "older")
	synctest.Test(t, func(t *testing.T) { writeFleet(t, dir, older) })
	keys := []string{key(t, dir, "a"), key(t, dir, "b"), key(t, dir, "c")}
	_, stranger, err := note.GenerateKey(nil, "stranger")
	if err != nil {
		t.Fatal(err)
	}
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string)
		keys   []string
		want   []string // beginnings of the lines
	}{
		{"unchanged", func(*testing.T, string) {}, nil, []string{"ok a", "ok b", "ok c"}},
		{"with all keys", func(*testing.T, string) {}, keys, []string{"ok a", "ok b", "ok c"}},
		{"with a key that no log has", func(*testing.T, string) {}, append(slices.Clone(keys),
			stranger), []string{"ok a", "ok b", "ok c", "missing stranger+"}},
		{"with the key of another replica", func(*testing.T, string) {}, keys[:2],
			[]string{"ok a", "ok b", "damaged c: its key gatekit/"}},
		{"a log that was met is missing", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "b"))
		}, nil, []string{"ok a", "missing b: its log gatekit/", "ok c"}},
		{"a log that only the configuration names is missing", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "c"))
		}, nil, []string{"ok a", "ok b",
			"missing c: the configuration of a has this replica (record 1), but its log is not"}},
		{"a log of which only the key is known is missing", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "c"))
			remove(t, filepath.Join(dir, "a"))
		}, keys, []string{"missing a: its log gatekit/", "ok b", "missing gatekit/"}},
		{"a key of which the log is missing is reported once", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "b"))
		}, keys, []string{"ok a", "missing b: its log gatekit/", "ok c"}},
		{"an empty folder", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "c"))
			if err := os.Mkdir(filepath.Join(dir, "c"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, nil, []string{"ok a", "ok b", "missing c: the folder c has no audit log",
			"missing c: the configuration of a has this replica"}},
		{"a record was changed", func(t *testing.T, dir string) {
			file := filepath.Join(dir, "b", "gatekit.jsonl")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b = []byte(strings.Replace(string(b), `"pass"`, `"deny"`, 1))
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, nil, []string{"ok a", "damaged b: b/gatekit.jsonl:2: record 2: the record was changed",
			"ok c"}},
		{"the public key is missing", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "b", "gatekit.jsonl.pub"))
		}, nil, []string{"ok a", "damaged b: read the public key", "ok c"}},
		{"an older copy", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "b"))
			copyDir(t, older, filepath.Join(dir, "b"))
		}, nil, []string{"ok a", "behind b: it ends at record 4, but record 3 of a has a " +
			"checkpoint of 11 of its records", "ok c"}},
		{"written anew with another key", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "b"))
			openReplica(t, dir, "b").close()
		}, nil, []string{"ok a", "ok b", "missing b: its log gatekit/", "ok c"}},
		{"written anew with another key and the same origin", func(t *testing.T, dir string) {
			origin := strings.TrimSpace(read(t, filepath.Join(dir, "b", "gatekit.jsonl.tree",
				"origin")))
			remove(t, filepath.Join(dir, "b"))
			forge(t, dir, "b", origin)
		}, nil, []string{"ok a", "damaged b: it is signed with the key gatekit/", "ok c"}},
		{"forked by the owner of its key", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "b"))
			copyDir(t, older, filepath.Join(dir, "b"))
			if err := os.Chmod(filepath.Join(dir, "b", "gatekit.jsonl.key"), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				b := openReplica(t, dir, "b")
				b.record(20, "")
				b.close()
			})
		}, nil, []string{"ok a", "damaged b: it does not match what a says about it in record 3",
			"ok c"}},
		{"two histories of equal length, both of which were met", func(t *testing.T, dir string) {
			fork := filepath.Join(t.TempDir(), "fleet")
			copyDir(t, older, filepath.Join(fork, "b"))
			if err := os.Chmod(filepath.Join(fork, "b", "gatekit.jsonl.key"), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour)
				a, b := openReplica(t, dir, "a"), openReplica(t, fork, "b")
				b.record(6, "") // with the first roster of its process, 11 records
				a.meet(b)
				a.close()
				b.close()
			})
			remove(t, filepath.Join(dir, "b"))
			copyDir(t, filepath.Join(fork, "b"), filepath.Join(dir, "b"))
		}, nil, []string{"ok a", "damaged b: it does not match what a says about it", "ok c"}},
		{"two copies of one log", func(t *testing.T, dir string) {
			copyDir(t, filepath.Join(dir, "b"), filepath.Join(dir, "b2"))
		}, nil, []string{"ok a", "ok b (b)", "damaged b (b2): it is another copy of the log of b",
			"ok c"}},
		{"a request from a replica that nobody knows", func(t *testing.T, dir string) {
			synctest.Test(t, func(t *testing.T) {
				c := openReplica(t, dir, "c")
				c.record(1, "stranger")
				c.close()
			})
		}, nil, []string{"ok a", "ok b",
			`damaged c: record 3 was forwarded by replica "stranger", which no roster names`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := filepath.Join(t.TempDir(), "fleet")
			copyDir(t, dir, changed)
			for _, name := range []string{"a", "b", "c"} {
				key := filepath.Join(changed, name, "gatekit.jsonl.key")
				if err := os.Chmod(key, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tt.change(t, changed)
			got := verify(t, changed, tt.keys...)
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got\n\t%s\nwant lines that begin with\n\t%s",
					strings.Join(got, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
		})
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// forge writes a log that has the origin of another log, with a key of its own.
func forge(t testing.TB, dir, name, origin string) {
	t.Helper()
	private, public, err := note.GenerateKey(nil, "gatekit/forger")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n0\n%s\n", origin,
		"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")}, signer)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, name, "gatekit.jsonl")
	if err := errors.Join(os.MkdirAll(log+".tree", 0o700),
		os.WriteFile(log+".pub", []byte(public+"\n"), 0o600),
		os.WriteFile(log, nil, 0o600),
		os.WriteFile(filepath.Join(log+".tree", "checkpoint"), signed, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestLogsRefusesUnusableFolders(t *testing.T) {
	empty := t.TempDir()
	if _, err := fleet.Logs(empty); err == nil || !strings.Contains(err.Error(), "no folder") {
		t.Errorf("got the error %v for an empty folder", err)
	}
	if _, err := fleet.Logs(filepath.Join(empty, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got the error %v for a folder that does not exist", err)
	}
	two := filepath.Join(empty, "a")
	for _, name := range []string{"one.jsonl", "two.jsonl"} {
		l, err := audit.Open(audit.Options{File: filepath.Join(two, name)})
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	if _, err := fleet.Logs(empty); err == nil || !strings.Contains(err.Error(), "has 2 logs") {
		t.Errorf("got the error %v for a folder with two logs", err)
	}
}

func TestFindByNameOrFolder(t *testing.T) {
	dir := t.TempDir()
	openReplica(t, dir, "b").close()
	if err := os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "folder")); err != nil {
		t.Fatal(err)
	}
	logs, err := fleet.Logs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "folder"} {
		l, err := fleet.Find(logs, name)
		if err != nil || l.File != filepath.Join(dir, "folder", "gatekit.jsonl") {
			t.Errorf("%s is %+v, error %v", name, l, err)
		}
	}
	if _, err := fleet.Find(logs, "c"); err == nil ||
		!strings.Contains(err.Error(), "hint: the replicas are b") {
		t.Errorf("got the error %v", err)
	}
}
