package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/audit"
)

const waitingID = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

// addWaiting stores a request that waits for approval in the given state folder, and returns the
// file of the request.
func addWaiting(t *testing.T, state, log string) (file string) {
	t.Helper()
	dir := filepath.Join(state, "gatekit", "approvals")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, waitingID+".json")
	text := fmt.Sprintf(`{"server":"files","method":"tools/call","name":%q,"reason":"r",`+
		`"until":"2999-01-01T00:00:00Z","approved":false,"log":%q}`,
		strings.Repeat("w", maxControlLine), log)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func isApproved(t *testing.T, file string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Approved bool }
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return p.Approved
}

// TestRunningProcessRecordsApproval approves a request of a running Gatekit over its control
// socket.
func TestRunningProcessRecordsApproval(t *testing.T) {
	p := newProcess(t, onHTTP+files)
	// The address of a socket has at most 108 bytes. Longer paths must work all the same.
	state := filepath.Join(p.dir, strings.Repeat("long", 25))
	p.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
	p.start()
	p.url()
	waiting := addWaiting(t, state, filepath.Join(p.dir, "audit.jsonl"))
	approve := exec.Command("gatekit", "approve", waitingID)
	approve.Env = p.cmd.Env
	if out, err := approve.CombinedOutput(); err != nil {
		t.Fatalf("approve: %v: %s", err, out)
	}
	if !isApproved(t, waiting) {
		t.Error("the request is not approved")
	}
	sockets, err := filepath.Glob(filepath.Join(state, "gatekit", "control", "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("the control sockets are %q, %v, want one", sockets, err)
	}
	if info, err := os.Stat(sockets[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has the mode %v, %v, want 0600", info.Mode(), err)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.waitForExit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got, want := p.recordedActions("start", "approve", "stop"),
		"start approve stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if _, err := os.Stat(sockets[0]); err == nil {
		t.Error("the socket is left after the stop")
	}
}

// TestApprovalWithoutRecordChangesNothing approves a request while the log is in use by a process
// without a control socket.
func TestApprovalWithoutRecordChangesNothing(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.jsonl")
	l, err := audit.Open(audit.Options{File: log})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waiting := addWaiting(t, dir, log)
	approve := exec.Command("gatekit", "approve", waitingID)
	approve.Env = append(os.Environ(), "XDG_STATE_HOME="+dir)
	out, err := approve.CombinedOutput()
	if err == nil || approve.ProcessState.ExitCode() != exitFailed ||
		!strings.Contains(string(out), "the change cannot be recorded") {
		t.Errorf("approve ended with %v: %s; want exit code %d and no approval", err,
			out, exitFailed)
	}
	if isApproved(t, waiting) {
		t.Error("the request is approved without a record")
	}
}

// TestControlSocketBoundsRequests sends requests that are too long or invalid, and unknown
// commands.
func TestControlSocketBoundsRequests(t *testing.T) {
	p := newProcess(t, onHTTP+files)
	state, err := os.MkdirTemp("", "gk") // net.Dial needs a short path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	p.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
	p.start()
	p.url()
	sockets, err := filepath.Glob(filepath.Join(state, "gatekit", "control", "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("the control sockets are %q, %v, want one", sockets, err)
	}
	token, err := os.ReadFile(sockets[0] + tokenSuffix)
	if err != nil {
		t.Fatal(err)
	}
	withToken := fmt.Sprintf(`{"token":%q,`, token)
	for _, tt := range []struct{ request, logged, answer string }{
		{strings.Repeat("x", maxControlLine+1), "control request not read", ""},
		{"{}}\n", "its token is wrong", "the token is wrong"},
		{withToken + `"command":"forbid"}` + "\n", "", "does not know the command"},
		{withToken + `"command":"allow"}` + "\n", "", "belongs to another audit log"},
		{withToken + `"command":"approve","id":"../x"}` + "\n", "", "is not the id of a request"},
		{`{"command":"approve","more":1}` + "\n", "control request not read", ""},
	} {
		c, err := net.Dial("unix", sockets[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, tt.request)
		answer := make([]byte, 1000)
		n, _ := c.Read(answer)
		if !strings.Contains(string(answer[:n]), tt.answer) || tt.answer == "" && n > 0 {
			t.Errorf("%.40q was answered with %q, want %q", tt.request, answer[:n], tt.answer)
		}
		c.Close()
		if tt.logged != "" {
			p.waitForLog(tt.logged)
		}
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.waitForExit()
}

// TestStopDoesNotWaitForControlClients stops Gatekit in two cases: clients of the control socket
// have sent only a part of their requests, or somebody has removed the socket.
func TestStopDoesNotWaitForControlClients(t *testing.T) {
	for _, tt := range []struct {
		name    string
		disturb func(t *testing.T, socket string)
	}{
		{"half a request", func(t *testing.T, socket string) {
			for range maxControlConnections + 1 {
				c, err := net.Dial("unix", socket)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				if _, err := c.Write([]byte("{")); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"no socket", func(t *testing.T, socket string) {
			if err := os.Remove(socket); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProcess(t, onHTTP+files)
			state, err := os.MkdirTemp("", "gk") // net.Dial needs a short path
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(state)
			p.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
			p.start()
			p.url()
			sockets, err := filepath.Glob(filepath.Join(state, "gatekit", "control", "*.sock"))
			if err != nil || len(sockets) != 1 {
				t.Fatalf("the control sockets are %q, %v, want one", sockets, err)
			}
			// The answer to a whole request shows that the process accepts connections.
			approve := exec.Command("gatekit", "approve", waitingID)
			approve.Env = p.cmd.Env
			addWaiting(t, state, filepath.Join(p.dir, "audit.jsonl"))
			if out, err := approve.CombinedOutput(); err != nil {
				t.Fatalf("approve: %v: %s", err, out)
			}
			tt.disturb(t, sockets[0])
			start := time.Now()
			p.cmd.Process.Signal(syscall.SIGTERM)
			if code := p.waitForExit(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if took := time.Since(start); took > controlTimeout/2 {
				t.Errorf("the stop took %s, want no wait for clients of the control socket", took)
			}
		})
	}
}

// A confined server may be able to connect, but cannot read the token.
func TestControlSocketNeedsTheToken(t *testing.T) {
	s := controlServer{token: "right", log: slog.New(slog.DiscardHandler)}
	dir := t.TempDir()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			s.serve(c)
			c.Close()
		}
	}()
	for token, want := range map[string]string{"": "the token is wrong",
		"righ": "the token is wrong", "right ": "the token is wrong",
		"right": "does not know the command"} {
		c, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, `{"token":%q,"command":"other"}`+"\n", token)
		answer, _ := io.ReadAll(c)
		if !strings.Contains(string(answer), want) {
			t.Errorf("token %q: got the answer %q, want %q", token, answer, want)
		}
		c.Close()
	}
}
