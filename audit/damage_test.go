package audit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// damages are changes of the content of the active file. The file keeps its identity (its inode).
var damages = []struct {
	name   string
	change func(b []byte) []byte
	// the running log notices the change at the next record, or when its timer checks the file
	whileOpen bool
}{
	{"emptied, as by logrotate's copytruncate", func([]byte) []byte { return nil }, true},
	{"cut in the middle", func(b []byte) []byte { return b[:len(b)/2] }, true},
	{"without its last line", func(b []byte) []byte {
		return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1]
	}, true},
	{"with a copy of the last line", func(b []byte) []byte {
		return append(b, b[bytes.LastIndexByte(b[:len(b)-1], '\n')+1:]...)
	}, true},
	{"with a text at the end", func(b []byte) []byte { return append(b, "x\n"...) }, true},
	{"with a changed byte in the last line", func(b []byte) []byte {
		b[len(b)-20] ^= 1
		return b
	}, true},
	{"with a changed byte in the first line", func(b []byte) []byte {
		b[bytes.Index(b, []byte("event 0"))] ^= 1
		return b
	}, false},
	{"without its first line", func(b []byte) []byte {
		return b[bytes.IndexByte(b, '\n')+1:]
	}, true},
}

// change changes a file in place.
func change(t *testing.T, file string, f func([]byte) []byte) {
	t.Helper()
	b := f(readFile(t, file))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpenLogNoticesChangedFile(t *testing.T) {
	for _, durability := range []audit.Durability{audit.DurabilityWrite, audit.DurabilityFsync} {
		for _, tt := range damages {
			if !tt.whileOpen {
				continue
			}
			t.Run(string(durability)+" "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					file := filepath.Join(t.TempDir(), "gatekit.jsonl")
					l := open(t, audit.Options{File: file, Durability: durability})
					for _, reason := range []string{"event 0", "event 1", "event 2"} {
						record(t, l, event(reason))
					}
					time.Sleep(2 * time.Second)
					change(t, file, tt.change)
					damaged := readFile(t, file)
					if _, err := l.Record(t.Context(), event("after")); err == nil ||
						!strings.Contains(err.Error(), "was changed by somebody else") {
						t.Errorf("Record returned %v, want that the file was changed", err)
					}
					if err := l.Health(); err == nil {
						t.Error("Health returned nil")
					}
					if err := l.Close(); err == nil {
						t.Error("Close returned nil")
					}
					if now := readFile(t, file); !bytes.Equal(now, damaged) {
						t.Errorf("the file was changed further, from %q to %q", damaged, now)
					}
				})
			})
		}
	}
}

// TestLineAfterChangeIsTakenBack changes the file a moment after the last check. So the log notices
// the change only after it has written the next line. That line must not stay in the file.
func TestLineAfterChangeIsTakenBack(t *testing.T) {
	for _, tt := range damages {
		if !tt.whileOpen || strings.HasPrefix(tt.name, "with a changed byte") {
			continue // the check after a write compares the length only
		}
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "gatekit.jsonl")
				l := open(t, audit.Options{File: file})
				for _, reason := range []string{"event 0", "event 1", "event 2"} {
					record(t, l, event(reason))
				}
				change(t, file, tt.change)
				damaged := readFile(t, file)
				if _, err := l.Record(t.Context(), event("after")); err == nil ||
					!strings.Contains(err.Error(), "was changed by somebody else") {
					t.Errorf("Record returned %v, want that the file was changed", err)
				}
				if now := readFile(t, file); !bytes.Equal(now, damaged) {
					t.Errorf("the file was changed further, from %q to %q", damaged, now)
				}
				l.Close()
			})
		})
	}
}

// TestIdleLogNoticesChangedFile changes the file a moment after the last record. The next check by
// the timer notices the change without a further record.
func TestIdleLogNoticesChangedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file})
		record(t, l, event(""))
		change(t, file, func([]byte) []byte { return nil })
		time.Sleep(2 * time.Second)
		if err := l.Health(); err == nil || !strings.Contains(err.Error(), "was changed") {
			t.Errorf("Health returned %v, want that the file was changed", err)
		}
		l.Close()
	})
}

func TestOpenRefusesChangedFile(t *testing.T) {
	for _, closed := range []bool{true, false} {
		for _, tt := range damages {
			for _, segments := range []bool{false, true} {
				name := map[bool]string{true: "closed ", false: "crashed "}[closed] +
					map[bool]string{true: "with segments ", false: ""}[segments] + tt.name
				t.Run(name, func(t *testing.T) { testChangedFile(t, closed, segments, tt.change) })
			}
		}
	}
}

func testChangedFile(t *testing.T, closed, segments bool, f func([]byte) []byte) {
	source := filepath.Join(t.TempDir(), "gatekit.jsonl")
	options := audit.Options{SegmentBytes: 1 << 20}
	if segments {
		options.SegmentBytes = 1500
	}
	options.File = source
	synctest.Test(t, func(t *testing.T) {
		l := open(t, options)
		for _, reason := range []string{"before", "before", "before", "before", "before"} {
			if segments {
				record(t, l, event(reason))
			}
		}
		// add records until one of them begins a file, so that the events below go to the same file
		for segments && len(readFile(t, source)) > 500 {
			record(t, l, event("before"))
		}
		for _, reason := range []string{"event 0", "event 1", "event 2"} {
			record(t, l, event(reason))
		}
		time.Sleep(2 * time.Second) // a checkpoint
		options.File = filepath.Join(copyFolder(t, filepath.Dir(source)), "gatekit.jsonl")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if closed {
			options.File = source
		}
		change(t, options.File, f)
		damaged := readFile(t, options.File)
		l, err := audit.Open(options)
		if err == nil {
			l.Close()
			t.Fatalf("Open accepted the changed file:\n%s", damaged)
		}
		if !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("error %q, want a hint", err)
		}
		if now := readFile(t, options.File); !bytes.Equal(now, damaged) {
			t.Errorf("Open changed the file from %q to %q", damaged, now)
		}
	})
}
