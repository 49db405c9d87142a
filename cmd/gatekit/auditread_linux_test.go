package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// TestShowEndsWhenItsOutputIsClosed closes the pipe after one line, as head does.
func TestShowEndsWhenItsOutputIsClosed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	record := func() {
		t.Helper()
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
			Action: "start"}); err != nil {
			t.Fatal(err)
		}
	}
	record()
	show := exec.Command("gatekit", "audit", "show", "--follow", file)
	var stderr strings.Builder
	show.Stderr = &stderr
	out, err := show.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := show.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line,
		"start") {
		t.Errorf("the first line is %q, %v, want the event \"start\"", line, err)
	}
	out.Close()
	record()
	late := time.AfterFunc(20*time.Second, func() { show.Process.Kill() })
	defer late.Stop()
	show.Wait()
	if code := show.ProcessState.ExitCode(); code != exitFailed || stderr.Len() > 0 {
		t.Errorf("show ended with %s and printed %q, want the exit code %d and no error",
			show.ProcessState, stderr.String(), exitFailed)
	}
}

// onTerminal returns the output of a command whose stdout and stderr are a terminal.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("gatekit", args...)
	c.Stdout, c.Stderr = process, process
	err = c.Start()
	process.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(terminal) // the read ends with EIO
	c.Wait()
	return string(text)
}

// TestNoOutputOfALogActsOnATerminal puts control characters of a terminal into the body of a record
// and into the name of a key, as an attacker could.
func TestNoOutputOfALogActsOnATerminal(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gatekit.jsonl")
	private, _, err := note.GenerateKey(rand.Reader, "gatekit\u009b31m\u202e")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".key", []byte(private+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(audit.Options{File: file, Bodies: audit.BodiesRedacted})
	if err != nil {
		t.Fatal(err)
	}
	m := mcp.NewNotification("notifications/message", []byte("{\"data\":\"\u009b31m\u202e\"}"))
	if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Before: m, After: m,
		Action: "pass"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	proof := filepath.Join(dir, "proof")
	text, err := exec.Command("gatekit", "audit", "prove", "1", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.WriteFile(proof, text, 0o600); err != nil {
		t.Fatal(err)
	}
	piped, err := exec.Command("gatekit", "audit", "verify-proof", "--key", file+".pub",
		proof).Output()
	if whole, rerr := os.ReadFile(file); err != nil || rerr != nil ||
		string(piped) != string(whole) {
		t.Errorf("into a pipe, verify-proof printed %q: %v, %v, want the unchanged record", piped,
			err, rerr)
	}

	wantShown := func(want string, args ...string) {
		t.Helper()
		got := onTerminal(t, append([]string{"audit"}, args...)...)
		// Gatekit itself prints these controls.
		rest := strings.NewReplacer("\r\x1b[K", "", "\r\n", "").Replace(got)
		if !strings.Contains(got, want) || strings.ContainsAny(rest, "\x1b\u009b\u202e") {
			t.Errorf("%s printed %q, want %q in it and no other control characters", args[0], got,
				want)
		}
	}
	wantShown(`{"data":"\u009b31m\u202e"}`, "verify-proof", "--key", file+".pub", proof)
	wantShown(`{"data":"\u009b31m\u202e"}`, "export", file)
	wantShown("are complete and unmodified", "verify", file)
	wantShown("gatekit", "key", file)
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(log), "pass", "deny", 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(file + ".tree/tile"); err != nil { // for a shorter error
		t.Fatal(err)
	}
	wantShown("do not match the checkpoint signed by gatekit", "verify", file)
}
