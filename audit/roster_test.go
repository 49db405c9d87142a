package audit_test

import (
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
)

// openReplica opens the log of a replica.
func openReplica(t testing.TB, file, name string, peers ...string) *audit.Log {
	t.Helper()
	l := open(t, audit.Options{File: file, Replica: name, Peers: peers})
	t.Cleanup(func() { l.Close() })
	return l
}

// rosters describes the records with the action "roster" of a log: the replicas that each names,
// and the number of records in the checkpoint of each.
func rosters(t testing.TB, file string) (all []string) {
	t.Helper()
	for r, err := range (&audit.Reader{File: file}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Action != "roster" {
			if r.Roster != nil {
				t.Errorf("record %d with the action %q has a roster", r.Seq, r.Action)
			}
			continue
		}
		var names []string
		for _, e := range r.Roster {
			name := e.Replica
			if e.Origin == "" {
				name += "?"
			}
			if lines := strings.Split(e.Checkpoint, "\n"); len(lines) > 1 {
				name += ":" + lines[1]
			}
			names = append(names, name)
		}
		all = append(all, fmt.Sprintf("%d %s", r.Seq, strings.Join(names, " ")))
	}
	return all
}

// entryOf returns the roster entry of a log.
func entryOf(t testing.TB, l *audit.Log) audit.RosterEntry {
	t.Helper()
	e, ok := l.RosterEntry()
	if !ok {
		t.Fatal("the log has no roster entry")
	}
	return e
}

func meet(t testing.TB, l *audit.Log, e audit.RosterEntry) {
	t.Helper()
	if err := l.Meet(e); err != nil {
		t.Fatal(err)
	}
}

func wantRosters(t testing.TB, file string, want ...string) {
	t.Helper()
	if got := rosters(t, file); !slices.Equal(got, want) {
		t.Errorf("the rosters are\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"),
			strings.Join(want, "\n\t"))
	}
}

func TestFirstRecordHasRoster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	if err := openReplica(t, file, "b", "a", "b", "c").Close(); err != nil {
		t.Fatal(err)
	}
	wantRosters(t, file, "1 b a? c?")
	if got := audit.ReplicaName(file); got != "b" {
		t.Errorf("the log belongs to the replica %q, want b", got)
	}
	openReplica(t, file, "b", "c") // a was removed from the configuration, and never met
	wantRosters(t, file, "1 b a? c?", "2 b c?")
	var first audit.Record
	for r, err := range (&audit.Reader{File: file}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		first = r
		break
	}
	key := strings.TrimSpace(string(readFile(t, audit.PublicKeyFile(file))))
	origin := strings.TrimSpace(string(readFile(t, filepath.Join(file+".tree", "origin"))))
	if own := first.Roster[0]; own.Key != key || own.Origin != origin || own.Checkpoint != "" ||
		own.Since.IsZero() || time.Since(own.Since) > time.Hour {
		t.Errorf("the log's own entry is %+v, want the key %s and the origin %s", own, key, origin)
	}
}

func TestLogWithoutReplicaHasNoRoster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: file})
	defer l.Close()
	if e, ok := l.RosterEntry(); ok {
		t.Errorf("the log has the roster entry %+v", e)
	}
	if err := l.Meet(audit.RosterEntry{}); err == nil {
		t.Error("the log has met a replica")
	}
	if name := audit.ReplicaName(file); name != "" {
		t.Errorf("the log belongs to the replica %q", name)
	}
}

func TestMeetRecordsNewAndGrownLogs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		aFile, bFile := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b", "b.jsonl")
		a, b := openReplica(t, aFile, "a"), openReplica(t, bFile, "b")
		for range 3 {
			record(t, b, event("work"))
		}
		time.Sleep(2 * time.Second) // a checkpoint of the four records of b
		meet(t, a, entryOf(t, b))
		meet(t, a, entryOf(t, b))
		wantRosters(t, aFile, "1 a", "2 b:4")

		record(t, b, event("more work"))
		time.Sleep(2 * time.Second)
		meet(t, a, entryOf(t, b)) // it has grown, but less than five minutes have passed
		wantRosters(t, aFile, "1 a", "2 b:4")
		time.Sleep(5*time.Minute - 4*time.Second)
		meet(t, a, entryOf(t, b)) // 2 s before five minutes have passed
		wantRosters(t, aFile, "1 a", "2 b:4")
		time.Sleep(2 * time.Second)
		meet(t, a, entryOf(t, b))
		wantRosters(t, aFile, "1 a", "2 b:4", "3 b:5")
		time.Sleep(10 * time.Minute)
		meet(t, a, entryOf(t, b)) // it has not grown
		wantRosters(t, aFile, "1 a", "2 b:4", "3 b:5")

		old := entryOf(t, b)
		record(t, b, event("the last work of this process"))
		b.Close()
		time.Sleep(time.Second)
		b = openReplica(t, bFile, "b") // a new process
		meet(t, a, entryOf(t, b))
		wantRosters(t, aFile, "1 a", "2 b:4", "3 b:5", "4 b:6")
		meet(t, a, old) // an older checkpoint is recorded, and does not replace the newer one
		old.Checkpoint, old.Since = "", time.Unix(1, 0)
		meet(t, a, old) // neither does an entry without a checkpoint
		a.Close()
		openReplica(t, aFile, "a") // the roster is kept across restarts
		wantRosters(t, aFile, "1 a", "2 b:4", "3 b:5", "4 b:6", "5 b:5", "6 b", "7 a b:6")
	})
}

// A log that was copied, and then written in two places, has two histories.
func TestMeetRecordsForkedLog(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		aFile, bFile := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b", "b.jsonl")
		a, b := openReplica(t, aFile, "a"), openReplica(t, bFile, "b")
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		fork := filepath.Join(dir, "fork")
		if err := os.CopyFS(fork, os.DirFS(filepath.Dir(bFile))); err != nil {
			t.Fatal(err)
		}
		var entries []audit.RosterEntry
		for _, file := range []string{bFile, filepath.Join(fork, "b.jsonl")} {
			if err := os.Chmod(file+".key", 0o600); err != nil {
				t.Fatal(err)
			}
			l := openReplica(t, file, "b")
			record(t, l, event("history in "+file))
			time.Sleep(2 * time.Second)
			e := entryOf(t, l)
			e.Since = time.Unix(1, 0)
			entries = append(entries, e)
		}
		meet(t, a, entries[0])
		meet(t, a, entries[1])
		wantRosters(t, aFile, "1 a", "2 b:3", "3 b:3 b:3")
	})
}

func TestMeetRefusesInvalidEntries(t *testing.T) {
	dir := t.TempDir()
	aFile := filepath.Join(dir, "a.jsonl")
	a := openReplica(t, aFile, "a")
	b := openReplica(t, filepath.Join(dir, "b.jsonl"), "b")
	c := openReplica(t, filepath.Join(dir, "c.jsonl"), "c")
	good := entryOf(t, b)
	for name, tt := range map[string]struct {
		change func(*audit.RosterEntry)
		want   string
	}{
		"no name": {func(e *audit.RosterEntry) {
			e.Replica = ""
		}, "missing or too long"},
		"no origin": {func(e *audit.RosterEntry) {
			e.Origin = ""
		}, "missing or too long"},
		"a long name": {func(e *audit.RosterEntry) {
			e.Replica = strings.Repeat("b", 257)
		}, "too long"},
		"a long origin": {func(e *audit.RosterEntry) {
			e.Origin = strings.Repeat("b", 1025)
		}, "too long"},
		"a long key": {func(e *audit.RosterEntry) {
			e.Key += strings.Repeat("b", 1025)
		}, "too long"},
		"a long checkpoint": {func(e *audit.RosterEntry) {
			e.Checkpoint += strings.Repeat("b", 4097)
		}, "too long"},
		"no key": {func(e *audit.RosterEntry) {
			e.Key = ""
		}, "public key is invalid"},
		"the key of another": {func(e *audit.RosterEntry) {
			e.Key = entryOf(t, c).Key
		}, "checkpoint"},
		"another origin": {func(e *audit.RosterEntry) {
			e.Origin = "other"
		}, "not of other"},
		"the own name": {func(e *audit.RosterEntry) {
			e.Replica = "a"
		}, "its own log"},
		"the own origin": {func(e *audit.RosterEntry) {
			e.Origin, e.Key, e.Checkpoint = entryOf(t, a).Origin, entryOf(t, a).Key, ""
		}, "its own log"},
	} {
		e := good
		tt.change(&e)
		if err := a.Meet(e); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, tt.want)
		}
	}
	wantRosters(t, aFile, "1 a")
	longest := good
	longest.Replica, longest.Checkpoint = strings.Repeat("b", 256), ""
	meet(t, a, longest)
	meet(t, a, good)
	other := entryOf(t, c)
	other.Replica, other.Origin, other.Checkpoint = "b", good.Origin, ""
	if err := a.Meet(other); err == nil || !strings.Contains(err.Error(), "had the key") {
		t.Errorf("got the error %v for another key of a known log", err)
	}
}

func TestRosterIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.jsonl")
	var peers []string
	for i := range 254 {
		peers = append(peers, fmt.Sprintf("peer-%03d", i))
	}
	l := openReplica(t, file, "a", peers...)
	e := entryOf(t, openReplica(t, filepath.Join(t.TempDir(), "b.jsonl"), "b"))
	meet(t, l, e)
	e.Replica, e.Origin, e.Checkpoint = "c", "another log", ""
	if err := l.Meet(e); err == nil || !strings.Contains(err.Error(), "has 256 replicas already") {
		t.Errorf("got the error %v for the 257th replica", err)
	}
	e.Replica = "peer-253"
	meet(t, l, e) // the configuration has its name
	if got := len(rosters(t, file)); got != 3 {
		t.Errorf("there are %d rosters, want 3", got)
	}
}

func TestOpenRefusesDamagedRoster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.jsonl")
	openReplica(t, file, "a").Close()
	path := filepath.Join(file+".tree", "roster")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Open(audit.Options{File: file, Replica: "a"}); err == nil ||
		!strings.Contains(err.Error(), "hint: remove the file") {
		t.Errorf("got the error %v", err)
	}
	if name := audit.ReplicaName(file); name != "" {
		t.Errorf("the log belongs to the replica %q", name)
	}
}

func TestMeetTakesLongestEntry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.jsonl")
	a := openReplica(t, file, "a")
	private, public, err := note.GenerateKey(nil, strings.Repeat("k", 1024-len("+01020304+")-44))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	e := audit.RosterEntry{Replica: strings.Repeat("b", 256), Key: public,
		Origin: strings.Repeat("o", 1024), Since: time.Now()}
	sign := func(extension string) string {
		signed, err := note.Sign(&note.Note{Text: e.Origin + "\n0\n" +
			"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n" + extension + "\n"}, signer)
		if err != nil {
			t.Fatal(err)
		}
		return string(signed)
	}
	e.Checkpoint = sign(strings.Repeat("x", 4096-len(sign(""))))
	if len(e.Checkpoint) != 4096 || len(e.Key) != 1024 {
		t.Fatalf("the checkpoint has %d bytes, the key %d", len(e.Checkpoint), len(e.Key))
	}
	meet(t, a, e)
	wantRosters(t, file, "1 a", "2 "+e.Replica+":0")
}
