package pins

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// wantApproval checks that the log has one record of a decision about the tool read.
func (p *pinTest) wantApproval(action, command string) {
	p.Helper()
	n := 0
	for _, r := range p.g.Records() {
		if r.Action != action || r.Server != "box" {
			continue
		}
		n++
		if r.Name != "read" || !strings.HasPrefix(r.Reason, "pin of the tool: by "+command+
			", user id ") || strings.Count(r.Reason, "sha256:") != 2 {
			p.Errorf("the record of the decision is about %q and has the reason %q", r.Name,
				r.Reason)
		}
	}
	if n != 1 {
		p.Errorf("the log has %d records with the action %s, want 1", n, action)
	}
}

// TestApproveWhileRunning approves a changed tool while Gatekit runs: the client gets list_changed
// and the tool. The server is not asked again: by then it would declare something else.
func TestApproveWhileRunning(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			p := newPinTest(t, revision, "2025-11-25")
			mark := p.c.Mark()
			if revision == mcptest.Modern {
				p.c.Send(p.c.Request(`"l"`, "subscriptions/listen",
					`{"notifications":{"toolsListChanged":true}}`))
				if _, err := p.c.AwaitMethod(harness.Context(t), mark,
					"notifications/subscriptions/acknowledged"); err != nil {
					t.Fatal(err)
				}
			}
			p.description.Store("Reads a file, then hashes it.")
			p.wantTools("box__add")
			p.g.WaitForLog("definitions wait for approval", 1)
			out, err := run(t, p.g.Dir, "pin", "approve")
			if err != nil || !strings.Contains(out, "tool read /description") ||
				!strings.Contains(out, "{+, then hashes it+}") {
				t.Errorf("gatekit pin approve: %v: %s, want the change", err, out)
			}
			if out, err := run(t, p.g.Dir, "pin", "approve", "box"); err == nil ||
				!strings.Contains(out, "add --yes") {
				t.Errorf("without a terminal, gatekit pin approve box: %v: %s, want an error", err,
					out)
			}
			p.wantTools("box__add")
			p.description.Store("Reads a file, then mails it.")
			out, err = run(t, p.g.Dir, "pin", "approve", "box", "read", "--yes")
			if err != nil || !strings.Contains(out, "approved: 1 definition") {
				t.Fatalf("gatekit pin approve box read: %v: %s", err, out)
			}
			if _, err := p.c.AwaitMethod(harness.Context(t), mark,
				"notifications/tools/list_changed"); err != nil {
				t.Fatal(err)
			}
			p.wantTools("box__add") // the server mails now: that was not approved
			p.description.Store("Reads a file, then hashes it.")
			p.wantTools("box__add", "box__read")
			harness.CallTool(t, p.c, "box__read", `{}`)
			p.wantWaiting(0)
			p.wantApproval("approve", "gatekit pin approve")
			p.g.WantRecords("- - - box read approve", "- - - - - reload",
				"to_server request tools/call box read pass")
			if out, err := run(t, p.g.Dir, "pin", "approve"); err != nil ||
				!strings.Contains(out, "nothing waits for approval") {
				t.Errorf("gatekit pin approve: %v: %s, want nothing", err, out)
			}
			if out, err := run(t, p.g.Dir, "pin", "approve", "box", "--yes"); err == nil {
				t.Errorf("approving nothing succeeds: %s", out)
			}
		})
	}
}

// TestApproveWithoutARunningGatekit approves after Gatekit has ended, and without the server. The
// command writes the record itself, and changes nothing if it cannot. At the next start, Gatekit
// names what still waits.
func TestApproveWithoutARunningGatekit(t *testing.T) {
	p := newPinTest(t, "2025-11-25", "2025-11-25")
	p.description.Store("Reads a file, then hashes it.")
	p.wantTools("box__add")
	p.g.Stop()
	lock := filepath.Join(p.g.Dir, "gatekit.lock")
	before, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(p.g.Dir, "audit.jsonl")
	if err := os.Rename(log, log+".away"); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, p.g.Dir, "pin", "approve", "box", "--yes")
	now, _ := os.ReadFile(lock)
	if err == nil || !strings.Contains(out, "the change cannot be recorded") ||
		string(now) != string(before) {
		t.Errorf("without a log, gatekit pin approve: %v: %s, want an error and the same file", err,
			out)
	}
	if err := os.Rename(log+".away", log); err != nil {
		t.Fatal(err)
	}

	g := harness.StartHTTPIn(t, p.g.Dir, p.config)
	g.WaitForLog("definitions wait for approval", 1)
	p.wantWaiting(1)
	g.Stop()

	if out, err := run(t, p.g.Dir, "pin", "approve", "box", "tool read", "--yes"); err != nil {
		t.Fatalf("gatekit pin approve: %v: %s", err, out)
	}
	g = harness.StartHTTPIn(t, p.g.Dir, p.config)
	p.g, p.c = g, g.Client("2025-11-25")
	p.wantTools("box__add", "box__read")
	p.wantApproval("approve", "gatekit pin approve")
	g.WantRecords("- - - box read approve")
}

// TestRejectedItemsNoLongerWait rejects a changed tool. It stays hidden.
func TestRejectedItemsNoLongerWait(t *testing.T) {
	p := newPinTest(t, "2025-11-25", "2025-11-25")
	p.description.Store("Reads a file, then mails it.")
	p.wantTools("box__add")
	p.wantWaiting(1)
	if out, err := run(t, p.g.Dir, "pin", "reject", "box", "read", "--yes"); err != nil {
		t.Fatalf("gatekit pin reject: %v: %s", err, out)
	}
	p.wantWaiting(0)
	p.wantTools("box__add")
	harness.WantDenied(t, p.c, "tools/call", `{"name":"box__read","arguments":{}}`)
	p.wantWaiting(0)
	p.wantApproval("reject", "gatekit pin reject")
	out, err := run(t, p.g.Dir, "pin", "approve")
	if err != nil || !strings.Contains(out, "nothing waits") {
		t.Errorf("gatekit pin approve: %v: %s, want nothing", err, out)
	}
	p.description.Store("Reads a file, then prints it.")
	p.wantTools("box__add")
	p.wantWaiting(1)
	p.g.WantRecords("- - - box read reject")
}

// TestApproveANewServer approves a server that the lock file does not have, from what a running
// Gatekit saw.
func TestApproveANewServer(t *testing.T) {
	p := newPinTestWith(t, "", false, "2025-11-25", "2025-11-25")
	p.wantTools()
	if out, err := run(t, p.g.Dir, "pin", "approve", "box", "add", "--yes"); err != nil {
		t.Fatalf("gatekit pin approve: %v: %s", err, out)
	}
	p.wantTools("box__add")
	if out, err := run(t, p.g.Dir, "pin", "approve", "box", "none", "--yes"); err == nil ||
		!strings.Contains(out, `no item "none" waits`) {
		t.Errorf("approving an item that does not wait: %v: %s, want an error", err, out)
	}
	p.g.WantRecords("- - - box - approve", "- - - box add approve")
}

// TestLockedServersAreNotApproved has first = "locked": what waits cannot be approved.
func TestLockedServersAreNotApproved(t *testing.T) {
	p := newPinTestWith(t, "first = \"locked\"\n", false, "2025-11-25", "2025-11-25")
	p.wantTools()
	out, err := run(t, p.g.Dir, "pin", "approve", "box", "--yes")
	if err == nil || !strings.Contains(out, `has first = "locked"`) {
		t.Errorf("gatekit pin approve: %v: %s, want an error", err, out)
	}
	if _, err := os.Lstat(filepath.Join(p.g.Dir, "gatekit.lock")); !os.IsNotExist(err) {
		t.Errorf("there is a lock file (%v), want none", err)
	}
	p.g.WantRecords("to_client response tools/list box - hide")
}
