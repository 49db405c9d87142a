//go:build unix

package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatekit/audit"
)

// The test binary is also a writer: a process that writes records to a log. After each record, it
// prints a line to stdout, where a proxy would forward the message. The line has the seq of the
// record, or 0 if the record could not be written. These environment variables configure the
// process.
const (
	writerFile       = "GATEKIT_TEST_AUDIT_FILE"
	writerDurability = "GATEKIT_TEST_AUDIT_DURABILITY"
	// maximal size of a file, which simulates a disk that becomes full after the log was opened
	writerSpace = "GATEKIT_TEST_AUDIT_SPACE"
	// maximal size of a file, which simulates a disk that is full before the log is opened
	writerFull   = "GATEKIT_TEST_AUDIT_FULL"
	writerKeep   = "GATEKIT_TEST_AUDIT_KEEP"   // number of segments to keep
	writerAnchor = "GATEKIT_TEST_AUDIT_ANCHOR" // path of the anchor file
	// number of failures after which each goroutine ends
	writerRefusals = "GATEKIT_TEST_AUDIT_REFUSALS"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(writerFile); file != "" {
		if err := write(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// write writes records until the process is killed, or until writerRefusals records have failed in
// each goroutine.
func write(file string) error {
	keep, _ := strconv.Atoi(os.Getenv(writerKeep))
	o := audit.Options{File: file, Durability: audit.Durability(os.Getenv(writerDurability)),
		SegmentBytes: 64 << 10, Keep: audit.Retention{Files: keep},
		AnchorFile: os.Getenv(writerAnchor)}
	if err := limit(os.Getenv(writerFull)); err != nil {
		return err
	}
	l, err := audit.Open(o)
	if err != nil {
		return err
	}
	if err := limit(os.Getenv(writerSpace)); err != nil {
		return err
	}
	refusals := 1 << 30
	if n := os.Getenv(writerRefusals); n != "" {
		if refusals, err = strconv.Atoi(n); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i, refused := 0, 0; refused < refusals; i++ {
				name := fmt.Sprintf("%d-%d-%d", os.Getpid(), g, i)
				seq, err := l.Record(context.Background(), event(name))
				if err != nil {
					seq = 0
					refused++
				}
				fmt.Printf("%d %s\n", seq, name) // in a single write
			}
		})
	}
	wg.Wait()
	return l.Close()
}

// limit bounds the size of the files that the process writes.
func limit(bytes string) error {
	if bytes == "" {
		return nil
	}
	n, err := strconv.ParseUint(bytes, 10, 64)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n})
}

// writer is a running writer process.
type writer struct {
	*exec.Cmd
	out    io.ReadCloser
	stderr bytes.Buffer
}

func startWriter(t *testing.T, file string, env ...string) *writer {
	t.Helper()
	w := &writer{Cmd: exec.Command(os.Args[0])}
	w.Env = append(os.Environ(), append(env, writerFile+"="+file)...)
	w.Stderr = &w.stderr
	var err error
	if w.out, err = w.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// waitForRecord waits until the process has printed a record, and reads it. A later call of
// w.sent does not return that record.
func (w *writer) waitForRecord(t *testing.T) {
	t.Helper()
	for b := []byte{0}; b[0] != '\n'; {
		if _, err := io.ReadFull(w.out, b); err != nil {
			t.Fatal(err)
		}
	}
}

// sent reads the output of the process until the process ends. It returns the names of the written
// records, by seq, and the number of records that could not be written.
func (w *writer) sent(t *testing.T) (sent map[uint64]string, refused int) {
	t.Helper()
	sent = map[uint64]string{}
	for lines := bufio.NewScanner(w.out); lines.Scan(); {
		var seq uint64
		var name string
		if _, err := fmt.Sscanf(lines.Text(), "%d %s", &seq, &name); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if seq == 0 {
			refused++
		} else if sent[seq] != "" {
			t.Fatalf("two records have the number %d", seq)
		} else {
			sent[seq] = name
		}
	}
	return sent, refused
}

// countUnrecorded returns how many of the sent records are not in the log. It does not count
// records before the first record that the log still holds.
func countUnrecorded(t *testing.T, file string, sent map[uint64]string) (n int) {
	t.Helper()
	first, recorded := uint64(0), map[uint64]string{}
	for _, line := range allLines(t, file) {
		r, err := audit.ParseRecord(bytes.TrimSpace(line))
		if err != nil {
			break // torn line
		}
		if first == 0 {
			first = r.Seq
		}
		recorded[r.Seq] = r.Reason
	}
	for seq, name := range sent {
		if seq >= first && recorded[seq] != name {
			n++
		}
	}
	return n
}

// TestKilledProcessHasRecordedWhatItSent kills writers at random moments: during a write, a
// rotation, a checkpoint, or the removal of segments. The log must hold every record that a writer
// has printed.
func TestKilledProcessHasRecordedWhatItSent(t *testing.T) {
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	for _, tt := range []struct{ name, durability, keep string }{
		{"durability write", "write", "0"},
		{"durability fsync", "fsync", "0"},
		{"durability write, segments are removed", "write", "4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "gatekit.jsonl")
			totalSent, began := 0, time.Now()
			var startTime time.Duration // of a process, measured in the first round
			for i := range rounds {
				w := startWriter(t, file, writerDurability+"="+tt.durability,
					writerKeep+"="+tt.keep)
				if i == 0 {
					w.waitForRecord(t)
					startTime = time.Since(began)
				}
				time.AfterFunc(20*time.Millisecond+rand.N(2*startTime+300*time.Millisecond),
					func() { w.Process.Kill() })
				sent, refused := w.sent(t)
				w.Wait()
				if refused > 0 || w.stderr.Len() > 0 {
					t.Fatalf("%d records were refused, want none; stderr: %s", refused, &w.stderr)
				}
				totalSent += len(sent)
				if len(sent) > 0 {
					if n := countUnrecorded(t, file, sent); n > 0 {
						t.Fatalf("%d of %d sent records are not in the log", n, len(sent))
					}
				}
			}
			if totalSent == 0 {
				t.Fatal("no record was sent")
			}
			l := open(t, audit.Options{File: file})
			record(t, l, event("after"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			v := audit.Verification{File: file}
			done, err := v.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d records were sent; the log has the records %d to %d", totalSent, done.First,
				done.Last)
			if done.First > 1 && tt.keep == "0" {
				t.Errorf("the log begins at record %d, want 1", done.First)
			}
		})
	}
}

// TestRecordFailsOnFullDisk bounds the size of files, which simulates a full disk.
func TestRecordFailsOnFullDisk(t *testing.T) {
	for _, durability := range []audit.Durability{audit.DurabilityWrite, audit.DurabilityFsync,
		audit.DurabilityAsync} {
		t.Run(string(durability), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "gatekit.jsonl")
			w := startWriter(t, file, writerDurability+"="+string(durability), writerSpace+"=5000",
				writerRefusals+"=20")
			sent, refused := w.sent(t)
			w.Wait()
			if refused == 0 || len(sent) == 0 {
				t.Fatalf("%d records were sent and %d refused, want some of both; stderr: %s",
					len(sent), refused, &w.stderr)
			}
			l := open(t, audit.Options{File: file}) // the disk has space again
			record(t, l, event("after"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			v := audit.Verification{File: file}
			if _, err := v.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := countMissed(t, file); n < refused ||
				n > refused && durability != audit.DurabilityAsync {
				t.Errorf("%d records are missing according to the gap records, want %d", n, refused)
			}
			// DurabilityAsync returns before the write
			if n := countUnrecorded(t, file, sent); n > 0 && durability != audit.DurabilityAsync {
				t.Errorf("%d of %d sent records are not in the log", n, len(sent))
			}
			if durability == audit.DurabilityAsync && !strings.Contains(w.stderr.String(),
				"bytes of records are lost") {
				t.Errorf("stderr is %q, want the number of lost bytes", &w.stderr)
			}
		})
	}
}

// TestPartOfCheckpointIsCutOffAnchorFile lets the disk become full within a checkpoint.
func TestPartOfCheckpointIsCutOffAnchorFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	anchor := file + ".anchor"
	before := bytes.Repeat([]byte("\n"), 4950) // a checkpoint has more than 50 bytes
	writeLines(t, anchor, before)
	w := startWriter(t, file, writerAnchor+"="+anchor, writerSpace+"=5000", writerRefusals+"=1")
	w.sent(t)
	if err := w.Wait(); err == nil || !strings.Contains(w.stderr.String(),
		"anchor the last checkpoint") {
		t.Errorf("the process ended with error %v and stderr %q, want that the last checkpoint "+
			"was not anchored", err, &w.stderr)
	}
	if b := readFile(t, anchor); !bytes.Equal(b, before) {
		t.Errorf("the anchor file has now also %q, want it unchanged", b[len(before):])
	}
}

// countMissed returns the sum of the numbers of missing records in all "gap" records.
func countMissed(t *testing.T, file string) (missed int) {
	t.Helper()
	for _, line := range allLines(t, file) {
		r, err := audit.ParseRecord(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(strings.TrimPrefix(r.Reason, "at least "),
			"%d records could not be written since", &n); err == nil && r.Action == "gap" {
			missed += n
		}
	}
	return missed
}

// TestGapIsRecordedAfterKillOnFullDisk kills a process while the disk is full.
func TestGapIsRecordedAfterKillOnFullDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	w := startWriter(t, file, writerSpace+"=5000")
	for lines := bufio.NewScanner(w.out); ; {
		if !lines.Scan() {
			t.Fatalf("the process ended before a record failed: %s", &w.stderr)
		}
		if strings.HasPrefix(lines.Text(), "0 ") {
			break
		}
	}
	if err := w.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.Wait()
	open(t, audit.Options{File: file}).Close()
	before := countMissed(t, file)
	if before == 0 {
		t.Error("the log has no gap record for the records that could not be written")
	}
	open(t, audit.Options{File: file}).Close()
	if n := countMissed(t, file); n != before {
		t.Errorf("after another start, the gap records count %d missing records, want %d", n,
			before)
	}
	v := audit.Verification{File: file}
	if _, err := v.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFailedOpenSignsNoCheckpoint opens a log that was not closed, on a disk with space for a
// checkpoint but not for the "recovered" record.
func TestFailedOpenSignsNoCheckpoint(t *testing.T) {
	for _, durability := range []audit.Durability{audit.DurabilityWrite, audit.DurabilityFsync,
		audit.DurabilityAsync} {
		t.Run(string(durability), func(t *testing.T) {
			file := crashedLog(t, 10)
			w := startWriter(t, file, writerDurability+"="+string(durability),
				writerFull+"="+strconv.Itoa(len(readFile(t, file))), writerRefusals+"=20")
			if sent, _ := w.sent(t); len(sent) > 0 {
				t.Errorf("the process sent %d records, want none", len(sent))
			}
			if err := w.Wait(); err == nil || !strings.Contains(w.stderr.String(),
				"file too large") {
				t.Errorf("the process ended with error %v and stderr %q, want that a file is too "+
					"large", err, &w.stderr)
			}
			if err := open(t, audit.Options{File: file}).Close(); err != nil {
				t.Fatal(err)
			}
			v := audit.Verification{File: file}
			if done, err := v.Run(t.Context()); err != nil || len(done.Recovered) != 1 ||
				done.Recovered[0] != (audit.SeqRange{From: 1, Through: 10}) {
				t.Errorf("verification: %+v, error %v; want that records 1 to 10 had no checkpoint",
					done, err)
			}
		})
	}
}

// TestHangingAnchorFileDelaysNoRecord uses a pipe without a reader as the anchor file. Opening the
// pipe hangs, like opening a file on a network file system may.
func TestHangingAnchorFileDelaysNoRecord(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	anchor := file + ".anchor"
	if err := syscall.Mkfifo(anchor, 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, audit.Options{File: file, AnchorFile: anchor})
	record(t, l, event(""))
	closed := make(chan error)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(),
			"anchor the last checkpoint of the audit log: no write completed within 5s") {
			t.Errorf("close: error %v, want that no write completed within 5s", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close did not return within a minute")
	}
	if c := fullCheckpoint(t, file); c.Size != 1 || !c.Closed {
		t.Errorf("the checkpoint is %+v, want a closed checkpoint of 1 record", c)
	}
	reader, err := os.OpenFile(anchor, os.O_RDONLY, 0) // the abandoned write continues
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if b, err := io.ReadAll(reader); err != nil || !strings.Contains(string(b), "\n1\n") {
		t.Errorf("the anchor file got %q, error %v; want a checkpoint of 1 record", b, err)
	}
}

func TestOpenRefusesSecondProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	first := startWriter(t, file)
	first.waitForRecord(t)
	second := startWriter(t, file)
	if sent, _ := second.sent(t); len(sent) > 0 {
		t.Errorf("the second process sent %d records, want none", len(sent))
	}
	if err := second.Wait(); err == nil || !strings.Contains(second.stderr.String(),
		"another Gatekit process has the log open\nhint: ") {
		t.Errorf("the second process ended with error %v and stderr %q, want that another process "+
			"has the log open, and a hint", err, &second.stderr)
	}
	first.Process.Kill()
	first.sent(t)
	first.Wait()
	l := open(t, audit.Options{File: file}) // the lock ended with the process
	record(t, l, event("after"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	v := audit.Verification{File: file}
	if _, err := v.Run(t.Context()); err != nil {
		t.Error(err)
	}
}
