package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/pins"
	"gatekit/core/pipeline"
)

// recordedActions is a recorder that keeps the actions and reasons.
type recordedActions []string

func (r *recordedActions) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	*r = append(*r, o.Action+" "+o.Before.Name)
	return uint64(len(*r)), nil
}

// TestOnlyWhatWasShownIsApproved changes what waits after a person has seen it: nothing is approved
// and nothing is recorded.
func TestOnlyWhatWasShownIsApproved(t *testing.T) {
	dir := t.TempDir()
	w := &waitingPins{store: &pins.WaitingStore{Dir: filepath.Join(dir, "pins"), Name: "a.json",
		Lock: filepath.Join(dir, "gatekit.lock")}, isLocked: func(string) bool { return false }}
	see := func(definition string) {
		t.Helper()
		i, err := pins.NewItem(pins.Tool, []byte(definition))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.store.Update(func(all *pins.Waiting) {
			all.Servers["s"] = &pins.WaitingServer{Start: pins.Start{Command: "x"},
				Items: []pins.Seen{{Kind: pins.Tool, Name: i.Name(), Digest: i.Digest(),
					Definition: i.Definition()}}}
		}); err != nil {
			t.Fatal(err)
		}
	}
	see(`{"name":"read","title":"Read"}`)
	lock, err := pins.Read(w.store.Lock)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := w.selected(lock, "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	var records recordedActions
	events := pipeline.New(&records, pipeline.Options{})
	decision := &pinDecision{Approve: true, Server: "s", Digest: shown.digest}

	see(`{"name":"read","title":"Mail"}`)
	err = w.decide(decision, events)
	if err == nil || !strings.Contains(err.Error(), "has changed since it was shown") ||
		len(records) > 0 {
		t.Errorf("got %v and the records %q, want an error and none", err, records)
	}
	if lock, err = pins.Read(w.store.Lock); err != nil || !lock.IsNew() {
		t.Errorf("the lock file was written (%v)", err)
	}

	see(`{"name":"read","title":"Read"}`)
	if err := w.decide(decision, events); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(records, ","); got != "approve ,approve read" {
		t.Errorf("the records are %q, want one of the launch and one of the tool", got)
	}
	if lock, err = pins.Read(w.store.Lock); err != nil || lock.Servers["s"].Tools["read"] == nil {
		t.Errorf("the lock file does not have the tool (%v)", err)
	}
	if all, err := w.store.Read(); err != nil || len(all.Servers) > 0 {
		t.Errorf("%d servers still wait (%v)", len(all.Servers), err)
	}
}
