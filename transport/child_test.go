package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatekit/core/conn"
	"gatekit/transport"
)

// spawn starts the test binary as the given server of main_test.go. If change is not nil, it may
// edit the command. A test binary that is built with -cover adds a line to stderr at its end if it
// has no GOCOVERDIR.
func spawn(t *testing.T, server string, change func(*transport.Command)) *transport.Child {
	t.Helper()
	c := transport.Command{
		Name:  "files",
		Path:  "/proc/self/exe",
		Env:   map[string]string{mode: server, "GOCOVERDIR": t.TempDir()},
		Grace: 300 * time.Millisecond,
	}
	if change != nil {
		change(&c)
	}
	child, err := transport.Spawn(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Close() })
	return child
}

func read(t *testing.T, p interface {
	Read(context.Context) ([]byte, error)
}) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := p.Read(ctx)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return string(b)
}

func write(t *testing.T, p interface {
	Write(context.Context, ...[]byte) error
}, message string) {
	t.Helper()
	if err := p.Write(t.Context(), []byte(message)); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// isGone reports whether a process has ended. It waits up to 20 s, since process 1 may take time to
// reap a process without a parent.
func isGone(pid int) bool {
	for range 2000 {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(status, []byte(") Z ")) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func TestChildEchoesMessages(t *testing.T) {
	child := spawn(t, "echo", nil)
	for _, size := range []int{1, 1 << 10, 64 << 10, 200 << 10, 1 << 20} {
		message := fmt.Sprintf(`{"size":%d,"x":"%s"}`, size, strings.Repeat("x", size))
		done := make(chan error, 1)
		go func() { done <- child.Write(t.Context(), []byte(message)) }()
		if got := read(t, child); got != message {
			t.Errorf("a message of %d bytes came back as %d bytes, want the same bytes",
				len(message), len(got))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := child.Close(); err != nil {
		t.Error(err)
	}
	if _, err := child.Read(t.Context()); err != io.EOF {
		t.Errorf("Read after Close: got %v, want io.EOF", err)
	}
	if err := child.Write(t.Context(), []byte(`{}`)); err != io.EOF {
		t.Errorf("Write after Close: got %v, want io.EOF", err)
	}
}

func TestChildGetsOnlyItsEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	passed := []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR"}
	want := []string{"TOKEN=a=b"}
	folder := t.TempDir()
	for _, name := range passed[1:] {
		t.Setenv(name, folder+"/its "+name)
		want = append(want, name+"="+folder+"/its "+name)
	}
	child := spawn(t, "env", func(c *transport.Command) { c.Env["TOKEN"] = "a=b" })
	var got struct{ Env []string }
	if err := json.Unmarshal([]byte(read(t, child)), &got); err != nil {
		t.Fatal(err)
	}
	// If Dir is set, os/exec sets PWD.
	allowed := append(passed, "TOKEN", mode, "GOCOVERDIR", "PWD")
	for _, e := range got.Env {
		if name, _, _ := strings.Cut(e, "="); !slices.Contains(allowed, name) {
			t.Errorf("the child got %s, want only the variables %q", e, allowed)
		}
	}
	for _, want := range want {
		if !slices.Contains(got.Env, want) {
			t.Errorf("the child got %q, want %s in it", got.Env, want)
		}
	}
}

func TestInvalidLinesOnStdoutAreSkippedAndLogged(t *testing.T) {
	var log safeBuffer
	child := spawn(t, "noisy", func(c *transport.Command) {
		c.Log = slog.New(slog.NewJSONHandler(&log, nil))
	})
	write(t, child, `{"id":1}`)
	if got := read(t, child); got != `{"id":1}` {
		t.Errorf("got %s, want the echo", got)
	}
	for _, want := range []string{"Starting server v1.2.3", "[info] ready", "{'level': 'info'}",
		`\\x1b[31mred`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is\n%s\nwant %q in it", log.String(), want)
		}
	}
}

func TestChildThatWritesTooManyInvalidLinesIsKilled(t *testing.T) {
	child := spawn(t, "garbage", nil)
	_, err := child.Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), `server "files" was killed`) ||
		!strings.Contains(err.Error(), "hint: ") {
		t.Errorf("got the error %v, want an error that the server was killed, with a hint", err)
	}
	if _, next := child.Read(t.Context()); next != err {
		t.Errorf("the next Read: got %v, want the same error", next)
	}
}

func TestStderrNeverBlocksTheChild(t *testing.T) {
	var log safeBuffer
	child := spawn(t, "chatty", func(c *transport.Command) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	write(t, child, `{"id":1}`)
	if got := read(t, child); got != `{"id":1}` {
		t.Errorf("got %s, want the echo", got)
	}
	child.Close()
	if n := strings.Count(log.String(), "\n"); n > 1000 {
		t.Errorf("%d lines of stderr were logged, want at most 1000", n)
	}
	if !strings.Contains(log.String(), "skipped") {
		t.Error("the log does not say that lines were skipped")
	}
}

func TestExitErrorHasTheReasonAndTheEndOfStderr(t *testing.T) {
	for _, c := range []struct{ name, server, reason, stderr string }{
		{"a child that dies in the middle of a line", "torn", "exited with status 3",
			"  out of\tcheese"},
		{"a child that is killed", "suicide", "was ended by signal: killed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := spawn(t, c.server, nil)
			var err error
			for err == nil {
				// Read returns the incomplete line before the error
				_, err = child.Read(t.Context())
			}
			exited, ok := errors.AsType[*transport.ExitError](err)
			if !ok || !errors.Is(err, io.EOF) {
				t.Fatalf("got %v, want an *ExitError that is io.EOF", err)
			}
			if exited.Reason != c.reason || exited.Stderr != c.stderr {
				t.Errorf("got %+v, want the reason %q and stderr %q", exited, c.reason, c.stderr)
			}
			// The process has ended, so that this Write fails at once, with the same error.
			err = child.Write(t.Context(), []byte(`{}`))
			if ended, ok := errors.AsType[*transport.ExitError](err); !ok || *ended != *exited {
				t.Errorf("Write: got %v, want the error of Read: %v", err, exited)
			}
		})
	}
}

// The log has a limit of lines per second. Lines of stderr over this limit are written to a file.
// At most two parts of the file are kept.
func TestStderrLinesOverTheLimitOfTheLogAreWrittenToAFile(t *testing.T) {
	var log safeBuffer
	folder := filepath.Join(t.TempDir(), "state", "stderr")
	child := spawn(t, "flood", func(c *transport.Command) {
		c.Log, c.Overflow = slog.New(slog.NewTextHandler(&log, nil)), folder
	})
	write(t, child, `{"id":1}`)
	read(t, child)
	child.Close()
	files, err := filepath.Glob(filepath.Join(folder, "files-*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got the files %q, error %v; want one file", files, err)
	}
	seen := map[string]int{}
	for _, part := range []string{files[0], files[0] + ".old"} {
		info, err := os.Stat(part)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 || info.Size() > 17<<20 {
			t.Errorf("%s has the mode %s and %d bytes, want 0600 and at most 17 MiB", part,
				info.Mode(), info.Size())
		}
		b, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(b)
	}
	if !strings.Contains(log.String(), "file="+files[0]) {
		t.Errorf("the log does not name %s", files[0])
	}
	for _, m := range regexp.MustCompile(`line (\d+) e`).FindAllStringSubmatch(log.String(), -1) {
		seen[m[1]]++
	}
	for i := range 21 << 10 { // the lines that flood writes
		if n := seen[strconv.Itoa(i)]; n != 1 {
			t.Fatalf("line %d is %d times in the log and the files together, want once", i, n)
		}
	}
}

// The number of files is bounded, also in a folder whose name is a pattern. The oldest files are
// removed.
func TestOldStderrFilesAreRemoved(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "st[a]te")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		file := filepath.Join(folder, fmt.Sprintf("old-%02d.log", i))
		changed := time.Now().Add(time.Duration(i-100) * time.Hour)
		if err := errors.Join(os.WriteFile(file, nil, 0o600),
			os.Chtimes(file, changed, changed)); err != nil {
			t.Fatal(err)
		}
	}
	child := spawn(t, "flood", func(c *transport.Command) { c.Overflow = folder })
	write(t, child, `{"id":1}`)
	read(t, child)
	child.Close()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	// The flood has a new file and its renamed part. The 49 newest of the other files are left.
	if len(names) > 51 || slices.Contains(names, "old-10.log") ||
		!slices.Contains(names, "old-11.log") {
		t.Errorf("%d files are left: %q; want 51, old-11.log to old-59.log among them", len(names),
			names)
	}
}

// The values of a child's environment are replaced in the log of its stderr and in its ExitError.
func TestValuesOfTheEnvironmentAreMaskedInStderr(t *testing.T) {
	const token = "hunter2-hunter2"
	var log safeBuffer
	child := spawn(t, "blabber", func(c *transport.Command) {
		c.Env["TOKEN"], c.Env["PIN"] = token, "1234"
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	_, err := child.Read(t.Context())
	exited, ok := errors.AsType[*transport.ExitError](err)
	if !ok || !strings.Contains(exited.Stderr, "the pin 1234") {
		t.Fatalf("got %v, want an *ExitError with stderr", err)
	}
	for where, text := range map[string]string{"log": log.String(), "error": err.Error()} {
		if strings.Contains(text, token[:8]) {
			t.Errorf("the %s holds a part of the token: %s", where, text)
		}
	}
	if !strings.Contains(log.String(), "the token [redacted] and the pin 1234") {
		t.Errorf("the log is\n%s\nwant the line without the token", log.String())
	}
	child = spawn(t, "torn", func(c *transport.Command) {
		c.Redact = func(s string) string { return strings.ReplaceAll(s, "cheese", "C") }
	})
	for err = nil; err == nil; {
		_, err = child.Read(t.Context())
	}
	if want := "  out of\tC"; !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want the text that Redact returned in it: %q", err, want)
	}
}

// A value at the end of a cut line is replaced as a whole, also if other values overlap with it.
func TestValuesInCutLinesAreMasked(t *testing.T) {
	for what, c := range map[string]struct {
		values map[string]string
		end    string // of the line, before it is cut
		want   string // end of the logged line, perhaps cut
	}{
		"one value": {map[string]string{"A": "hunter2-hunter2"}, "is hunter2-h", "is [redacted]"},
		"a longer value begins with a part of the end": {
			map[string]string{"A": "host-and-a-long-rest", "B": "secret-host-b"},
			"is secret-host", "is [redacted]"},
		"a shorter value is a part of the end": {
			map[string]string{"USER": "dbadmin", "URL": "postgres://dbadmin:hunter2@host"},
			"is postgres://dbadmin:hun", "is [redacted]"},
		"a whole value overlaps with the end": {
			map[string]string{"A": "first-second", "B": "second-third"},
			"is first-second-thi", "is [redacted]"},
		"whole values that overlap": {
			map[string]string{"A": "first-second", "B": "second-third"},
			"is first-second-third.", "is [redacted]."},
		"whole values side by side": {
			map[string]string{"A": "hunter2", "B": "hunter3"},
			"is hunter2hunter3hunter2.", "is [redacted][redacted][redacted]."},
		"less than four bytes": {map[string]string{"A": "hunter2"}, "is hun", "is hun"},
	} {
		var log safeBuffer
		child := spawn(t, "cutter", func(command *transport.Command) {
			maps.Copy(command.Env, c.values)
			command.Args = []string{c.end}
			command.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		for err := error(nil); err == nil; {
			_, err = child.Read(t.Context())
		}
		child.Close()
		_, got, _ := strings.Cut(log.String(), "....")
		got = strings.TrimSuffix(strings.TrimLeft(got, "."), "…\"\n")
		if !strings.HasPrefix(c.want, got) || len(got) < len("is hun") {
			t.Errorf("%s: the logged line ends with %q, want %q", what, got, c.want)
		}
	}
}

func TestWriteToADeadChildReturnsExitError(t *testing.T) {
	child := spawn(t, "torn", nil)
	var err error
	for err == nil {
		err = child.Write(t.Context(), []byte(`{}`))
	}
	if _, ok := errors.AsType[*transport.ExitError](err); !ok {
		t.Errorf("got %v, want an *ExitError", err)
	}
}

func TestCloseKillsAChildThatIgnoresSignals(t *testing.T) {
	child := spawn(t, "deaf", nil)
	read(t, child)
	start := time.Now()
	child.Close()
	if took := time.Since(start); took < 600*time.Millisecond {
		t.Errorf("the child was killed after %s, want at least two grace periods of 300ms", took)
	}
	if _, err := child.Read(t.Context()); err != io.EOF {
		t.Errorf("Read: got %v, want io.EOF", err)
	}
}

func TestCloseKillsGrandchildren(t *testing.T) {
	child := spawn(t, "grandparent", nil)
	var got struct{ Pid int }
	for got.Pid == 0 {
		if err := json.Unmarshal([]byte(read(t, child)), &got); err != nil {
			t.Fatal(err)
		}
	}
	child.Close()
	if !isGone(got.Pid) {
		syscall.Kill(got.Pid, syscall.SIGKILL)
		t.Error("the grandchild still runs after Close")
	}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	parent := exec.Command("/proc/self/exe")
	parent.Env = []string{mode + "=gatekit"}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var got struct{ Pid int }
	if err := json.NewDecoder(out).Decode(&got); err != nil {
		t.Fatal(err)
	}
	parent.Process.Kill()
	parent.Wait()
	if !isGone(got.Pid) {
		syscall.Kill(got.Pid, syscall.SIGKILL)
		t.Error("the child still runs after its parent was killed")
	}
}

// When Gatekit is killed or crashes, the processes that a child has started end too.
func TestGrandchildrenDieWithTheirGrandparent(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGABRT} {
		t.Run(s.String(), func(t *testing.T) {
			grandparent := exec.Command("/proc/self/exe")
			grandparent.Env = []string{mode + "=grandgatekit"}
			out, err := grandparent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := grandparent.Start(); err != nil {
				t.Fatal(err)
			}
			var got struct{ Pid int }
			if err := json.NewDecoder(out).Decode(&got); err != nil {
				t.Fatal(err)
			}
			grandparent.Process.Signal(s)
			grandparent.Wait()
			if !isGone(got.Pid) {
				syscall.Kill(got.Pid, syscall.SIGKILL)
				t.Error("the grandchild still runs after Gatekit was killed")
			}
		})
	}
}

func TestReadDoesNotWaitForAProcessThatLeftTheGroup(t *testing.T) {
	child := spawn(t, "escaper", nil)
	if got := read(t, child); got != `{"last":"message"}` {
		t.Errorf("got %s, want the last message", got)
	}
	start := time.Now()
	if _, err := child.Read(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want io.EOF", err)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("Read returned io.EOF after %s, want at most 15s", took)
	}
}

func TestReadContinuesAfterItsContextEnded(t *testing.T) {
	child := spawn(t, "echo", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := child.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the deadline", err)
	}
	write(t, child, `{"id":2}`)
	if got := read(t, child); got != `{"id":2}` {
		t.Errorf("got %s, want the echo", got)
	}
}

func TestWriteToAChildThatDoesNotReadEndsWithItsContext(t *testing.T) {
	child := spawn(t, "deaf", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	big := []byte(`"` + strings.Repeat("x", 4<<20) + `"`)
	if err := child.Write(ctx, big); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

func TestAMessageOverTheLimitIsSkipped(t *testing.T) {
	child := spawn(t, "echo", func(c *transport.Command) { c.MaxMessage = 100 << 10 })
	go func() {
		child.Write(t.Context(), []byte(`{"x":"`+strings.Repeat("x", 300<<10)+`"}`))
		child.Write(t.Context(), []byte(`{"id":3}`))
	}()
	_, err := child.Read(t.Context())
	large, ok := errors.AsType[*conn.TooLargeError](err)
	if !ok || large.Size != 300<<10+8 {
		t.Fatalf("got %v, want a TooLargeError with the size %d", err, 300<<10+8)
	}
	if got := read(t, child); got != `{"id":3}` {
		t.Errorf("got %s, want the next message", got)
	}
}

func TestSpawnErrors(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700)
	plain := filepath.Join(dir, "plain")
	os.WriteFile(plain, nil, 0o600)
	for _, c := range []struct {
		name    string
		command transport.Command
		want    string
	}{
		{"no command", transport.Command{}, "no command is given"},
		{"a program that is not in PATH", transport.Command{Path: "no-such-program"},
			`command "no-such-program" is not in PATH`},
		{"a file that does not exist", transport.Command{Path: "./no-such-program", Dir: dir},
			"no such file or directory"},
		{"a file that is not executable", transport.Command{Path: plain}, "permission denied"},
		{"a folder", transport.Command{Path: dir}, "is a folder"},
		{"a script without its interpreter", transport.Command{Path: script},
			"hint: is " + script + " a program for this machine"},
		{"a working folder that does not exist", transport.Command{Path: "/bin/sh",
			Dir: filepath.Join(dir, "none")},
			"is not a folder"},
		{"a PATH in Env without the program", transport.Command{Path: "sh",
			Env: map[string]string{"PATH": dir}},
			"PATH is " + dir},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.command.Name = "files"
			child, err := transport.Spawn(t.Context(), c.command)
			if err == nil {
				child.Close()
				t.Fatal("Spawn succeeded, want an error")
			}
			if !strings.HasPrefix(err.Error(), `start server "files": `) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// safeBuffer is a bytes.Buffer that several goroutines may use.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
