package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// TestShowEndsWhenItsOutputIsClosed closes the pipe after one line, as the command head does.
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

// TestAuditCommandsEscapeTerminalControls writes control characters of a terminal into the body of
// a record and into the name of a key, as an attacker could. No command may print them to a
// terminal.
func TestAuditCommandsEscapeTerminalControls(t *testing.T) {
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
		t.Errorf("verify-proof wrote %q into a pipe: %v, %v, want the unchanged record", piped,
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

// TestColors runs commands on a terminal and elsewhere. Only a terminal that shows colours gets
// them, and only if NO_COLOR is not set.
func TestColors(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("gatekit.toml", []byte(`[listen]
stdio = true
[server.good]
command = "gatekit"
args = ["demo-server", "files"]
[server.bad]
command = "gatekit"
args = ["demo-server", "no-such-server"]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string // on a terminal
	}{
		{[]string{"check"}, []string{"\x1b[32mok\x1b[0m    good ", "\x1b[31mFAIL\x1b[0m  bad "}},
		{[]string{"demo"}, []string{"← \x1b[31merror\x1b[0m -31000", "   \x1b[32mpass\x1b[0m ",
			"   \x1b[31mdeny\x1b[0m ", "   \x1b[33mhide\x1b[0m "}},
	} {
		t.Setenv("TERM", "xterm")
		t.Setenv("NO_COLOR", "")
		out := onTerminal(t, c.args...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("gatekit %s printed to a terminal\n%s\nwant %q in it", c.args[0], out,
					want)
			}
		}
		plain := map[string]string{}
		piped, _ := exec.Command("gatekit", c.args...).Output()
		plain["a pipe"] = string(piped)
		t.Setenv("NO_COLOR", "1")
		plain["a terminal with NO_COLOR"] = onTerminal(t, c.args...)
		t.Setenv("NO_COLOR", "")
		t.Setenv("TERM", "dumb")
		plain["a dumb terminal"] = onTerminal(t, c.args...)
		for name, out := range plain {
			if strings.Contains(out, "\x1b[3") || len(out) < 50 {
				t.Errorf("gatekit %s printed to %s\n%q\nwant text without colours", c.args[0], name,
					out)
			}
		}
	}
}

// TestShowPrintsHeaderOnTerminal shows a log on a terminal and through a pipe. Only the terminal
// gets the header row, and gets it once.
func TestShowPrintsHeaderOnTerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 {
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
			Action: "start"}); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("NO_COLOR", "1")
	header := regexp.MustCompile(`(?m)^TIME \(UTC\) +ACTION +CALLER +SERVER`)
	if out := onTerminal(t, "audit", "show", file); len(header.FindAllString(out, -1)) != 1 ||
		header.FindStringIndex(out)[0] != 0 {
		t.Errorf("show printed to a terminal\n%s\nwant one header row, which comes first", out)
	}
	piped, err := exec.Command("gatekit", "audit", "show", file).Output()
	if err != nil || header.Match(piped) || !strings.Contains(string(piped), "start") {
		t.Errorf("show printed to a pipe\n%s, %v\nwant the records without a header row", piped,
			err)
	}
}

// TestShowFollowsSeveralLogs writes records to two logs in turn, and then to a log that appears
// only after show has started.
func TestShowFollowsSeveralLogs(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *audit.Log {
		t.Helper()
		l, err := audit.Open(audit.Options{File: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	record := func(l *audit.Log, reason string) {
		t.Helper()
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Action: "start",
			Reason: reason}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := open("a.jsonl"), open("b.jsonl")
	record(a, "first")
	record(b, "second")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	show := exec.CommandContext(ctx, "gatekit", "audit", "show", "--follow", dir)
	out, err := show.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := show.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	wantNext := func(reason string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), reason) {
			t.Fatalf("the next line is %q, %v; want the record %q", lines.Text(), lines.Err(),
				reason)
		}
	}
	wantNext("first") // the records that exist, by time
	wantNext("second")
	record(b, "third") // new records, as they are written
	wantNext("third")
	record(a, "fourth")
	wantNext("fourth")
	record(open("c.jsonl"), "fifth")
	wantNext("fifth")
	show.Process.Signal(os.Interrupt)
	if err := show.Wait(); err != nil {
		t.Errorf("show --follow ended with %v after SIGINT, want success", err)
	}
}
