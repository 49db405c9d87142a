package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/audit"
)

const waitingID = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

// addWaiting stores a request that waits for approval in the given state folder.
func addWaiting(t *testing.T, state, log string) (file string) {
	t.Helper()
	dir := filepath.Join(state, "gatekit", "approvals")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, waitingID+".json")
	text := fmt.Sprintf(`{"server":"files","method":"tools/call","name":"write","reason":"r",`+
		`"until":"2999-01-01T00:00:00Z","approved":false,"log":%q}`, log)
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
	state := filepath.Join(p.dir, strings.Repeat("long", 25)) // longer than a socket's path may be
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
		!strings.Contains(string(out), "the approval cannot be recorded") {
		t.Errorf("approve ended with %v: %s; want exit code %d, because it cannot be recorded", err,
			out, exitFailed)
	}
	if isApproved(t, waiting) {
		t.Error("the request is approved without a record")
	}
}

// TestControlSocketBoundsRequests sends a request without an end, and unknown commands.
func TestControlSocketBoundsRequests(t *testing.T) {
	p := newProcess(t, onHTTP+files)
	state, err := os.MkdirTemp("", "gk") // a short path
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
	for _, tt := range []struct{ request, logged, answer string }{
		{strings.Repeat("x", maxControlLine+1), "control request not read", ""},
		{"{}}\n", "", "does not know the command"},
		{`{"command":"allow"}` + "\n", "", "does not know the command"},
		{`{"command":"approve","id":"../x"}` + "\n", "", "is not the id of a request"},
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
