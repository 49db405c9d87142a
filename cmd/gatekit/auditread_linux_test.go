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

// The reader closes the pipe after one line, as head does.
func TestShowEndsWhenItsReaderIsGone(t *testing.T) {
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
	var said strings.Builder
	show.Stderr = &said
	out, err := show.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := show.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line,
		"start") {
		t.Errorf("shown %q, %v", line, err)
	}
	out.Close()
	record()
	late := time.AfterFunc(20*time.Second, func() { show.Process.Kill() })
	defer late.Stop()
	show.Wait()
	if code := show.ProcessState.ExitCode(); code != exitFailed || said.Len() > 0 {
		t.Errorf("it ended with %s: %q", show.ProcessState, said.String())
	}
}

// onTerminal returns the output of a command whose stdout and stderr are a terminal.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer ours.Close()
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	its, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("gatekit", args...)
	c.Stdout, c.Stderr = its, its
	err = c.Start()
	its.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(ours) // EIO is the end of it
	c.Wait()
	return string(text)
}

// TestNoOutputOfALogActsOnATerminal has controls of a terminal in a record's body and in the
// name of a key, which is whose who can write there.
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
		t.Errorf("into a pipe, the record is %q: %v, %v", piped, err, rerr)
	}

	look := func(want string, args ...string) {
		t.Helper()
		got := onTerminal(t, append([]string{"audit"}, args...)...)
		left := strings.NewReplacer("\r\x1b[K", "", "\r\n", "").Replace(got) // our own
		if !strings.Contains(got, want) || strings.ContainsAny(left, "\x1b\u009b\u202e") {
			t.Errorf("%s: shown %q, want %q in it", args[0], got, want)
		}
	}
	look(`{"data":"\u009b31m\u202e"}`, "verify-proof", "--key", file+".pub", proof)
	look(`{"data":"\u009b31m\u202e"}`, "export", file)
	look("are complete and unmodified", "verify", file)
	look("gatekit", "key", file)
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(log), "pass", "deny", 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(file + ".tree/tile"); err != nil { // that would say more
		t.Fatal(err)
	}
	look("do not match the checkpoint signed by gatekit", "verify", file)
}
