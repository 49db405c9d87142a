package scripts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/test/harness"
)

// TestNamedPipeDoesNotStopTheStart puts a named pipe in the place of each file that Gatekit opens
// at its start. Gatekit must either refuse the file or start without it. It must not wait for the
// other end of the pipe.
func TestNamedPipeDoesNotStopTheStart(t *testing.T) {
	harness.Long(t, "starts Gatekit for each file")
	const log = "[audit]\nfile = \"audit.jsonl\"\n"
	sink := func(lines string) string { return log + "[[audit.sink]]\nname = \"s\"\n" + lines }
	bundle := "[policy.service.s]\nurl = \"http://127.0.0.1:9/\"\n[policy.bundle.b]\n" +
		"service = \"s\"\n"
	for _, c := range []struct{ name, config, pipe, want string }{
		{"the audit log", log, "audit.jsonl", "not a regular file"},
		{"the lock of the audit log", log, "audit.jsonl.lock", ""},
		{"the audit key", log + "key = \"pipe\"\n", "pipe", "not a regular file"},
		{"the audit key beside the log", log, "audit.jsonl.key", "not a regular file"},
		{"the public key", log, "audit.jsonl.pub", ""},
		{"the anchor", log + "anchor = \"pipe\"\n", "pipe", ""},
		{"the checkpoint", log, "audit.jsonl.tree/checkpoint", "not a regular file"},
		{"the origin of the log", log, "audit.jsonl.tree/origin", ""},
		{"the gap file", log, "audit.jsonl.tree/gap", "not a regular file"},
		{"the ages of the segments", log + "keep_for = \"2160h\"\n", "audit.jsonl.tree/ages",
			""},
		{"a file sink", sink("kind = \"file\"\npath = \"pipe\"\n"), "pipe", "not a regular file"},
		{"a sink's certificates", sink("kind = \"webhook\"\nurl = \"https://127.0.0.1:9\"\n" +
			"ca = \"pipe\"\n"), "pipe", "not a regular file"},
		{"a sink's client certificate", sink("kind = \"webhook\"\nurl = \"https://127.0.0.1:9\"\n" +
			"cert = \"pipe\"\ncert_key = \"pipe\"\n"), "pipe", "not a regular file"},
		{"the certificates of telemetry", log + "[telemetry]\nurl = \"https://127.0.0.1:9\"\n" +
			"protocol = \"http\"\nca = \"pipe\"\n", "pipe", "not a regular file"},
		{"a policy", log + "[policy]\nfiles = [\"pipe.rego\"]\n", "pipe.rego",
			"not a regular file"},
		{"a policy in a folder", log + "[policy]\nfiles = [\"sub\"]\n", "sub/p.rego",
			"not a regular file"},
		{"a policy bundle", log + "[policy]\nfiles = [\"pipe.tar.gz\"]\n", "pipe.tar.gz",
			"not a regular file"},
		{"data of policies", log + "[policy]\ndata = [\"pipe.json\"]\n", "pipe.json",
			"not a regular file"},
		{"the latest bundle", log + bundle + "persist = \"pipe\"\n", "pipe", "not a regular file"},
		{"a token in a file", log + "[server.b]\nurl = \"http://127.0.0.1:9\"\n" +
			"headers = { Authorization = \"${file:pipe}\" }\n", "pipe", "not a regular file"},
		{"a pinned plugin", log + "[[plugin]]\nname = \"p\"\ncommand = [\"./pipe\"]\nsha256 = \"" +
			strings.Repeat("0", 64) + "\"\n", "pipe", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := harness.Prepare(t, harness.ScriptedServer("box")+c.config)
			pipe := filepath.Join(g.Dir, c.pipe)
			if err := os.MkdirAll(filepath.Dir(pipe), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			// The client has closed its connection already, so Gatekit ends after its start.
			g.Cmd.Stdin = strings.NewReader("")
			if err := g.Cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- g.Cmd.Wait() }()
			select {
			case err := <-ended:
				got := fmt.Sprint(err) + ": " + g.Stderr.String()
				if c.want != "" && !strings.Contains(got, c.want) {
					t.Errorf("gatekit ended with %s, want a message with %q", got, c.want)
				}
			case <-time.After(30 * time.Second):
				g.Cmd.Process.Kill()
				<-ended
				t.Errorf("gatekit did not start or end within 30 s: %s", g.Stderr)
			}
		})
	}
}
