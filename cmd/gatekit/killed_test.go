package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServerProcessesEndWithGatekit ends Gatekit in several ways. No process that the server
// started may be left.
func TestServerProcessesEndWithGatekit(t *testing.T) {
	for name, signals := range map[string][]syscall.Signal{
		"kill -9":          {syscall.SIGKILL},
		"SIGQUIT":          {syscall.SIGQUIT},
		"a second SIGTERM": {syscall.SIGTERM, syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			// The server ignores the end of its stdin and SIGTERM.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "gatekit", "wrap", "--era", "legacy", "sh", "-c",
				`trap "" TERM; sleep 300 & echo "grandchild $!" >&2; sleep 300`)
			cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+
				`{"protocolVersion":"2025-11-25","capabilities":{},`+
				`"clientInfo":{"name":"x","version":"1"}}}`+"\n")
			var grandchild int
			lines := bufio.NewScanner(stderr)
			for lines.Scan() {
				found := regexp.MustCompile(`line="grandchild (\d+)"`).FindStringSubmatch(
					lines.Text())
				if found != nil {
					grandchild, _ = strconv.Atoi(found[1])
					break
				}
			}
			for i, s := range signals {
				// If two equal signals are pending, the system delivers only one.
				for i > 0 && lines.Scan() && !strings.Contains(lines.Text(), "shutting down") {
				}
				cmd.Process.Signal(s)
			}
			go io.Copy(io.Discard, stderr)
			cmd.Wait()
			if grandchild == 0 {
				t.Fatal("the server did not start")
			}
			for deadline := time.Now().Add(20 * time.Second); isRunning(grandchild); {
				if time.Now().After(deadline) {
					syscall.Kill(grandchild, syscall.SIGKILL)
					t.Fatal("a process that the server started still runs after Gatekit ended")
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// isRunning reports whether a process exists and is no zombie.
func isRunning(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if os.IsNotExist(err) && syscall.Kill(pid, 0) != nil {
		return false
	}
	return !bytes.Contains(status, []byte(") Z "))
}
