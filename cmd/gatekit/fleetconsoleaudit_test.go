package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/transport/console"
)

// A log is verified further as it grows, and a change of a record is found in its log only.
func TestFleetAuditVerifiesEachLog(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		states := func(a *consoleFleetAudit) []console.ReplicaState {
			t.Helper()
			time.Sleep(verifyInterval)
			all, err := a.States(t.Context())
			if err != nil || len(all) != 3 {
				t.Fatalf("States: %+v, error %v", all, err)
			}
			return all
		}
		a := &consoleFleetAudit{fleet: newTestFleet(dir)}
		for i, s := range states(a) {
			want := uint64(3)
			if i == 0 {
				want = 4
			}
			if s.Replica != fmt.Sprintf("gatekit-%d", i) || s.Verified != want || !s.Complete ||
				s.Committed != want || s.Covered != int64(want) || s.Files != 1 || s.Size == 0 ||
				s.Failure != "" || s.Unreadable != "" {
				t.Errorf("the state of the log %d is %+v", i, s)
			}
		}
		file := filepath.Join(dir, "gatekit-1", "gatekit.jsonl")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(`"action":"pass"`), []byte(`"action":"deny"`), 1)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, s := range states(&consoleFleetAudit{fleet: newTestFleet(dir)}) {
			if changed := strings.Contains(s.Failure, "record 2: the record was changed"); i == 1 &&
				!changed || i != 1 && s.Failure != "" {
				t.Errorf("of the log %d: %q", i, s.Failure)
			}
		}
	})
}

// One log does not keep the others from being verified, even if it takes all the time.
func TestFleetAuditVerifiesLogsInTurn(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	a := &consoleFleetAudit{fleet: newTestFleet(dir)}
	logs, err := a.fleet.list()
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	a.next = logs[1].id
	a.verify(over, logs) // there was no time at all
	if a.next != logs[1].id || logs[0].state.Verified != 0 {
		t.Errorf("the next log is %q, want %q", a.next, logs[1].id)
	}
	a.verify(t.Context(), logs)
	if a.next != logs[0].id {
		t.Errorf("the log after the last one is %q, want %q", a.next, logs[0].id)
	}
}
