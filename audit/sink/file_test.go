package sink_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
	"gatekit/audit/format"
	"gatekit/audit/sink"
)

// newEncoder returns an encoder of the named format, for lines of at most maxBytes (0: any length).
func newEncoder(t testing.TB, name string, maxBytes int) format.Encoder {
	t.Helper()
	encoder, err := format.New(name, format.Options{MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	return encoder
}

// batch returns a batch of records with these reasons, read from a real log.
func batch(t testing.TB, reasons ...string) sink.Batch {
	t.Helper()
	log := newTestLog(t)
	log.record(reasons...)
	var b sink.Batch
	for r, err := range (&audit.Reader{File: log.file}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		b.Records = append(b.Records, r)
	}
	return b
}

func send(t testing.TB, r sink.Receiver, batches ...sink.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := r.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// reasons returns the reasons of the records in CSV files. It checks that each file begins with the
// header.
func reasons(t testing.TB, files ...string) (all []string) {
	t.Helper()
	for _, file := range files {
		rows, err := csv.NewReader(strings.NewReader(read(t, file))).ReadAll()
		if err != nil || len(rows) == 0 {
			t.Fatalf("%s has %d rows, error %v; want at least the header", file, len(rows), err)
		}
		if !slices.Equal(rows[0], format.Columns()) {
			t.Errorf("%s begins with %q, want the header", file, rows[0])
		}
		for _, row := range rows[1:] {
			all = append(all, row[9]) // the column of the reason
		}
	}
	return all
}

func TestEveryCSVFileHasOneHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "new", "records.csv")
		o := sink.FileOptions{Path: path, Encoder: newEncoder(t, "csv", 0), SegmentBytes: 400,
			KeepFiles: 2}
		f := sink.NewFile(o)
		var sent []string
		for i, r := range batch(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k",
			"l").Records {
			time.Sleep(time.Second)
			send(t, f, sink.Batch{Records: []audit.Record{r}})
			sent = append(sent, r.Reason)
			if i == 5 { // continue the file after a restart
				f.Close()
				f = sink.NewFile(o)
			}
		}
		f.Close()
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "records-*.csv"))
		if len(files) != 2 {
			t.Fatalf("the rotated files are %q, want 2", files)
		}
		got := reasons(t, append(files, path)...)
		if !strings.HasSuffix(strings.Join(sent, " "), strings.Join(got, " ")) || len(got) < 4 {
			t.Errorf("the kept files have the reasons %q, want the last of %q", got, sent)
		}
		for _, file := range append(files, path) {
			if i, _ := os.Stat(file); i.Size() > 800 || i.Mode().Perm() != 0o600 {
				t.Errorf("%s has %d bytes and mode %v, want at most 800 bytes and mode 0600", file,
					i.Size(), i.Mode())
			}
		}
	})
}

func TestMovedFileIsCreatedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.csv")
	f := sink.NewFile(sink.FileOptions{Path: path, Encoder: newEncoder(t, "csv", 0)})
	defer f.Close()
	b := batch(t, "a", "b")
	send(t, f, sink.Batch{Records: b.Records[:1]})
	if err := os.Rename(path, path+".1"); err != nil { // as logrotate does
		t.Fatal(err)
	}
	send(t, f, sink.Batch{Records: b.Records[1:]})
	want(t, "the moved file", reasons(t, path+".1"), []string{"a"})
	want(t, "the new file", reasons(t, path), []string{"b"})
}

func TestTornLineIsCutOff(t *testing.T) {
	for _, c := range []struct{ name, whole, torn string }{
		{"the first line", "", `{"seq":1,"ti`},
		{"a line after a whole line", "{\"seq\":0}\n", `{"seq":1,"ti`},
		{"a long line", "{\"seq\":0}\n", strings.Repeat("x", 200_000)},
		{"no torn line", "{\"seq\":0}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "records.jsonl")
			if err := os.WriteFile(path, []byte(c.whole+c.torn), 0o600); err != nil {
				t.Fatal(err)
			}
			f := sink.NewFile(sink.FileOptions{Path: path, Encoder: newEncoder(t, "jsonl", 0)})
			defer f.Close()
			b := batch(t, "a")
			send(t, f, b)
			if got, want := read(t, path), c.whole+string(b.Records[0].Line)+"\n"; got != want {
				t.Errorf("got %.300q, want %q", got, want)
			}
		})
	}
}

func TestFailedBatchIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	f := sink.NewFile(sink.FileOptions{Path: path, Encoder: newEncoder(t, "jsonl", 0)})
	defer f.Close()
	b := batch(t, "a", "b", strings.Repeat("x", 1000))
	send(t, f, sink.Batch{Records: b.Records[:1]})
	withFileLimit(t, 600, func() {
		if err := f.Send(t.Context(), sink.Batch{Records: b.Records[1:]}); !errors.Is(err,
			syscall.EFBIG) {
			t.Errorf("got %v, want EFBIG", err)
		}
	})
	send(t, f, sink.Batch{Records: b.Records[1:]})
	var all bytes.Buffer
	for _, r := range b.Records {
		all.Write(append(r.Line, '\n'))
	}
	if got := read(t, path); got != all.String() {
		t.Errorf("got %q, want %q", got, all.String())
	}
}

// withFileLimit runs f while the process can write only files of at most maxBytes.
func withFileLimit(t *testing.T, maxBytes uint64, f func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: maxBytes,
		Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old)
	f()
}

func TestFileRefusesPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f := sink.NewFile(sink.FileOptions{Path: path, Encoder: newEncoder(t, "jsonl", 0)})
	if err := f.Send(t.Context(), batch(t, "a")); err == nil || !strings.Contains(err.Error(),
		"not a regular file") {
		t.Errorf("error %v, want that the pipe is not a regular file", err)
	}
}

func TestWriterWritesOneHeader(t *testing.T) {
	var out bytes.Buffer
	w := sink.NewWriter(&out, newEncoder(t, "csv", 0))
	b := batch(t, "a", "b")
	send(t, w, b, b)
	if n := strings.Count(out.String(), "timestamp,"); n != 1 || strings.Count(out.String(),
		"\r\n") != 5 {
		t.Errorf("got %q, want one header and four records", out.String())
	}
}

func TestBlockedWriterDoesNotBlockStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newTestLog(t)
		log.record("a")
		blocked := make(blockedWriter)
		_, stop := start(t, log.options(sink.NewWriter(blocked, newEncoder(t, "jsonl", 0))))
		time.Sleep(time.Hour)
		if err := stop(); err == nil {
			t.Error("stop reported no unsent records, although the writer blocks")
		}
		close(blocked)
	})
}

// blockedWriter blocks in Write until the channel is closed.
type blockedWriter chan struct{}

func (b blockedWriter) Write([]byte) (int, error) { <-b; return 0, fs.ErrClosed }
