package audit_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpenContinuesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "audit", "gatekit.jsonl")
	for i := range 3 {
		l := open(t, audit.Options{File: path})
		if seq := record(t, l, event(fmt.Sprint(i))); seq != uint64(i+1) {
			t.Errorf("seq %d, want %d", seq, i+1)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, readFile(t, path))
	if got := fmt.Sprint(reasons(t, readFile(t, path))); got != "[0 1 2]" {
		t.Errorf("the file holds the reasons %s, want [0 1 2]", got)
	}
	for path, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", path, info.Mode().Perm(), want, err)
		}
	}
}

func TestOpenCutsOffTornLastLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: path})
	emptyLog := t.TempDir() // the files of the log while it has no records
	if err := os.CopyFS(emptyLog, os.DirFS(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	record(t, l, event("first"))
	record(t, l, event("second"))
	l.Close()
	whole := string(readFile(t, path))
	first := whole[:strings.Index(whole, "\n")+1]
	tests := []struct {
		name, file string
		whole      []string // reasons of the complete records in file
	}{
		{"half a line", whole[:len(whole)-20], []string{"first"}},
		{"a line without its line feed", whole[:len(whole)-1], []string{"first"}},
		{"zeros after a power cut", first + strings.Repeat("\x00", 4096), []string{"first"}},
		{"a very long line", first + `{"seq":2` + strings.Repeat("x", 200<<10), []string{"first"}},
		{"a line feed at the beginning of a block", first + `{"seq":2` + strings.Repeat("x",
			64<<10-1-len(`{"seq":2`)), []string{"first"}},
		{"the first line", first[:30], nil},
		{"the first line's first byte", first[:1], nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gatekit.jsonl")
			if err := os.CopyFS(filepath.Dir(path), os.DirFS(emptyLog)); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path+".key", 0o600); err != nil { // CopyFS changes the mode
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			l := open(t, audit.Options{File: path})
			record(t, l, event("after"))
			l.Close()
			log := readFile(t, path)
			verify(t, log)
			torn := len(tt.file) - (strings.LastIndex(tt.file, "\n") + 1)
			want := append(slices.Clone(tt.whole), fmt.Sprintf(
				"%d bytes of an incomplete last record were cut off", torn))
			if len(tt.whole) > 0 {
				want = append(want, "records 1 to 1 had no checkpoint when Gatekit started: "+
					"only the hash chain protects them")
			}
			want = append(want, "after")
			if got := reasons(t, log); !slices.Equal(got, want) {
				t.Errorf("the log has the reasons %q, want %q", got, want)
			}
			if !strings.Contains(string(log), `"action":"recovered"`) {
				t.Error(`no record has the action "recovered"`)
			}
			var recovered []audit.SeqRange // of the complete lines, and not of the torn line
			if len(tt.whole) > 0 {
				recovered = []audit.SeqRange{{From: 1, Through: 1}}
			}
			v := audit.Verification{File: path}
			if done, err := v.Run(t.Context()); err != nil || !slices.Equal(done.Recovered,
				recovered) {
				t.Errorf("verification: %+v, error %v; want that the records %v had no checkpoint",
					done, err, recovered)
			}
		})
	}
}

// TestOpenAfterRotationOfOnlyFile opens a log whose only file was renamed to a segment, as a crash
// during the first rotation leaves it.
func TestOpenAfterRotationOfOnlyFile(t *testing.T) {
	for _, torn := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file})
		record(t, l, event("first"))
		record(t, l, event("second"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		segment := filepath.Join(filepath.Dir(file), "gatekit-00000000000000000001.jsonl")
		if err := os.Rename(file, segment); err != nil {
			t.Fatal(err)
		}
		if torn {
			change(t, segment, func(b []byte) []byte { return append(b, `{"seq":3`...) })
			if l, err := audit.Open(audit.Options{File: file}); err == nil {
				l.Close()
				t.Error("Open accepted a segment with an incomplete last line")
			} else if !strings.Contains(err.Error(), "continue from "+segment) {
				t.Errorf("error %v, want that the log cannot continue from the segment", err)
			}
			continue
		}
		l = open(t, audit.Options{File: file})
		if seq := record(t, l, event("third")); seq != 3 {
			t.Errorf("seq %d, want 3", seq)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		verify(t, bytes.Join(allLines(t, file), nil))
	}
}

// TestFileIsRotatedWhenItWouldBecomeTooLarge fills a file exactly.
func TestFileIsRotatedWhenItWouldBecomeTooLarge(t *testing.T) {
	dir := t.TempDir()
	var size int64
	for i, name := range []string{"measured", "limited"} {
		file := filepath.Join(dir, name)
		l := open(t, audit.Options{File: file, SegmentBytes: size}) // 0 for the default
		record(t, l, event("first"))
		record(t, l, event("second"))
		if i == 0 {
			size = int64(len(readFile(t, file)))
		} else if segments, err := audit.Segments(file); err != nil || len(segments) != 1 {
			t.Errorf("the files are %q, error %v; want one file of %d bytes", segments, err, size)
		}
		record(t, l, event("third"))
		if segments, err := audit.Segments(file); err != nil || len(segments) != i+1 {
			t.Errorf("the files are %q, error %v; want %d", segments, err, i+1)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenRestoresPublicKeyAndOrigin replaces the files that Gatekit writes from its key and its
// checkpoint.
func TestOpenRestoresPublicKeyAndOrigin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	open(t, audit.Options{File: file}).Close()
	for _, path := range []string{audit.PublicKeyFile(file), file + ".tree/origin"} {
		want := readFile(t, path)
		writeLines(t, path, []byte("another"))
		open(t, audit.Options{File: file}).Close()
		if got := readFile(t, path); !bytes.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
}

// TestOpenLeavesUnchangedFilesAlone opens a log again. Other users may have a right or a link to
// the public key, and lose it if the file is replaced.
func TestOpenLeavesUnchangedFilesAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	open(t, audit.Options{File: file}).Close()
	for _, path := range []string{audit.PublicKeyFile(file), file + ".tree/origin"} {
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		open(t, audit.Options{File: file}).Close()
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was replaced, error %v; want the same file", path, err)
		}
	}
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	var good string
	{
		path := filepath.Join(t.TempDir(), "x")
		l := open(t, audit.Options{File: path})
		record(t, l, event(""))
		l.Close()
		good = string(readFile(t, path))
	}
	tests := []struct{ name, file string }{
		{"a text", "dear diary,\n"},
		{"a text without a line feed", "dear diary"},
		{"a log whose last whole line is not a record", good + "oops\n"},
		{"a log whose last whole line is not a record, and then half a record",
			good + "oops\n" + good[:20]},
		{"JSON that is not a record", `{"seq":1,"time":"x"}` + "\n"},
		{"a record with a duplicate member", strings.Replace(good,
			`,"action"`, `,"action":"pass","action"`, 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := audit.Open(audit.Options{File: path}); err == nil ||
				!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(),
				"not an audit log") {
				t.Errorf("error %v, want the path, and that the file is not an audit log", err)
			}
			if got := string(readFile(t, path)); got != tt.file {
				t.Errorf("Open changed the file to %q, want it unchanged", got)
			}
		})
	}
	t.Run("a folder", func(t *testing.T) {
		if _, err := audit.Open(audit.Options{File: t.TempDir()}); err == nil {
			t.Error("Open accepted a folder")
		}
	})
	t.Run("a device", func(t *testing.T) {
		if _, err := audit.Open(audit.Options{File: os.DevNull}); err == nil ||
			!strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("error %v, want that the device is not a regular file", err)
		}
	})
}

func TestOpenRefusesFileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: path})
	record(t, l, event(""))
	if _, err := audit.Open(audit.Options{File: path}); err == nil || !strings.Contains(err.Error(),
		"another Gatekit process has the log open\nhint: ") {
		t.Errorf("error %v, want that another process has the log open, and a hint", err)
	}
	record(t, l, event(""))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, audit.Options{File: path})
	if seq := record(t, again, event("")); seq != 3 {
		t.Errorf("seq %d, want 3", seq)
	}
	again.Close()
	verify(t, readFile(t, path))
}

// FuzzOpen opens any file as a log. Open must either refuse the file and leave it unchanged, or
// continue the file so that the log is valid.
func FuzzOpen(f *testing.F) {
	whole := bytes.Join(logLines(f, 3), nil)
	for _, file := range []string{"", "x", string(whole), string(whole[:len(whole)-1]),
		string(whole) + "\x00\x00", string(whole[:20]), strings.Replace(string(whole), "reason 2",
			"reason x", 1)} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		path := filepath.Join(t.TempDir(), "gatekit.jsonl")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := audit.Open(audit.Options{File: path})
		if err != nil {
			if got := readFile(t, path); !bytes.Equal(got, file) {
				t.Errorf("Open failed (%v), but changed the file from %q to %q", err, file, got)
			}
			return
		}
		record(t, l, event("after"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		v := audit.Verification{File: path}
		if _, err := v.Run(t.Context()); err != nil {
			t.Errorf("Open continued the file %q, but the log does not verify: %v", file, err)
		}
	})
}

// TestOpenWaitsForShortLock holds the lock of a log for 50 ms, as a verification may.
func TestOpenWaitsForShortLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		open(t, audit.Options{File: file}).Close()
		lock, err := os.Open(file + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(50*time.Millisecond, func() { lock.Close() })
		if err := open(t, audit.Options{File: file}).Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestVerificationDoesNotBlockOpen opens a log many times while other goroutines verify it. A
// verification takes the lock of the log for a moment, to see whether the log is being written.
func TestVerificationDoesNotBlockOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	open(t, audit.Options{File: file}).Close()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v := audit.Verification{File: file}
				v.Run(t.Context())
			}
		})
	}
	for i := range 50 {
		l, err := audit.Open(audit.Options{File: file})
		if err != nil {
			t.Errorf("Open number %d: %v", i+1, err)
			break
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestOpenRefusesFilesOfTheLogAsKeyOrAnchor(t *testing.T) {
	for _, suffix := range []string{"", ".lock", ".pub", ".key", ".tree/checkpoint",
		".sinks/a.json", "segment", "link"} {
		t.Run("anchor "+cmp.Or(suffix, "active file"), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "gatekit.jsonl")
			l := open(t, audit.Options{File: file})
			record(t, l, event(""))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			anchor := file + suffix
			switch suffix {
			case "segment":
				anchor = filepath.Join(filepath.Dir(file), "gatekit-00000000000000000001.jsonl")
			case "link":
				if err := os.Symlink(file, anchor); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := audit.Open(audit.Options{File: file, AnchorFile: anchor}); err == nil ||
				!strings.Contains(err.Error(), "the anchor") || !strings.Contains(err.Error(),
				"\nhint: ") {
				t.Errorf("error %v, want the anchor refused with a hint", err)
			}
			open(t, audit.Options{File: file}).Close() // the log is undamaged
		})
	}
	t.Run("the paths of the anchor and the key differ from those of the log's files", func(
		t *testing.T) {
		dir := t.TempDir()
		t.Chdir(dir)
		file := filepath.Join(dir, "gatekit.jsonl")
		open(t, audit.Options{File: file}).Close()
		if err := errors.Join(os.Link(file, file+".hard"), os.Symlink(file+".pub",
			file+".soft")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"gatekit.jsonl", "./gatekit.jsonl.lock", file + ".hard",
			file + ".soft", "gatekit-00000000000000000007.jsonl"} {
			for _, o := range []audit.Options{{File: file, AnchorFile: path},
				{File: file, Key: path}} {
				if l, err := audit.Open(o); err == nil || !strings.Contains(err.Error(),
					"is a file of the log itself") {
					t.Errorf("anchor %q, key %q: error %v, want that it is a file of the log",
						o.AnchorFile, o.Key, err)
					if err == nil {
						l.Close()
					}
				}
			}
		}
		for _, path := range []string{"1", "gatekit-1.jsonl", "anchor.00000000000000000001",
			"a-longer-name-than-that-of-a-segment.00000000000000000001"} {
			if err := open(t, audit.Options{File: file, AnchorFile: path}).Close(); err != nil {
				t.Errorf("anchor %q: %v", path, err)
			}
		}
	})
	t.Run("the anchor is a link to a foreign file", func(t *testing.T) {
		dir := t.TempDir()
		foreign, anchor := filepath.Join(dir, "foreign"), filepath.Join(dir, "anchor")
		if err := os.WriteFile(foreign, []byte("theirs\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(foreign, anchor); err != nil {
			t.Fatal(err)
		}
		_, err := audit.Open(audit.Options{File: filepath.Join(dir, "gatekit.jsonl"),
			AnchorFile: anchor})
		if err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Errorf("error %v, want the link refused", err)
		}
		if b, _ := os.ReadFile(foreign); string(b) != "theirs\n" {
			t.Errorf("the foreign file is now %q, want it unchanged", b)
		}
	})
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	if _, err := audit.Open(audit.Options{File: file, Key: file + "k",
		AnchorFile: file + "k"}); err == nil {
		t.Error("Open accepted the key file as the anchor")
	}
	if _, err := audit.Open(audit.Options{File: file, Key: file}); err == nil ||
		!strings.Contains(err.Error(), "the key") {
		t.Errorf("error %v, want that the log file cannot be the key", err)
	}
}
