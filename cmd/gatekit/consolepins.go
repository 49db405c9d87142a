package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/pins"
	"gatekit/transport/console"
)

// Bounds of the page with the pins.
const (
	maxConsolePins   = 50       // items of a server that wait
	maxConsoleWords  = 64 << 10 // bytes of the texts of one item
	maxKeptPinReview = 32       // servers whose review is kept
)

// consolePins implements console.Pins.
type consolePins struct {
	gateway *gateway

	mu sync.Mutex // held during a review: one at a time
	// The reviewed changes by the digest of what waits of a server. The search in all new words may
	// take seconds, and the result does not change.
	reviews map[string][]reviewedChange
}

// Pins implements console.Pins.
func (p *consolePins) Pins(ctx context.Context, server string) (*console.PinList, error) {
	c := p.gateway.activeConfig()
	if c.Pins == nil {
		return &console.PinList{}, nil
	}
	w, err := waitingOf(c, p.gateway.sharedPins)
	if err != nil {
		return nil, err
	}
	lock, err := w.lock()
	if err != nil {
		return nil, err
	}
	waiting, err := w.store.Read()
	if err != nil {
		return nil, err
	}
	list := &console.PinList{Enabled: true, LockFile: displayPath(c.Pins.File),
		HasLock: !lock.IsNew()}
	for _, s := range c.Servers {
		if server != "" && s.Name != server {
			continue
		}
		state, err := p.server(ctx, c, lock, waiting, s.Name)
		if err != nil {
			return nil, err
		}
		list.Servers = append(list.Servers, *state)
	}
	return list, nil
}

// server returns the state of one server.
func (p *consolePins) server(ctx context.Context, c *config.Config, lock *pins.Lock,
	waiting *pins.Waiting, name string) (*console.PinServer, error) {
	state := &console.PinServer{Name: name, Locked: isLocked(c, name)}
	if approved := lock.Servers[name]; approved != nil {
		state.Pinned = len(approved.Items())
	}
	all, err := selectWaiting(waiting, lock, name, nil)
	if errors.Is(err, errNothingWaits) {
		return state, nil
	}
	if err != nil {
		return nil, err
	}
	reviewed, err := p.review(ctx, all)
	if err != nil {
		return nil, err
	}
	state.Digest = all.digest
	state.Warnings = crossings(lock, name, all.now)
	if len(state.Warnings) > maxConsolePins {
		more := len(state.Warnings) - maxConsolePins
		state.Warnings = append(state.Warnings[:maxConsolePins], plural(more, "more warning"))
	}
	at := map[string]int{}       // places in state.Items; -1 for an item that is left out
	var left [maxConsolePins]int // bytes that each item may still show
	for _, change := range reviewed {
		key := launchWord
		if change.Kind != "" {
			key = strings.TrimSpace(string(change.Kind) + " " + change.Name)
		}
		i, known := at[key]
		if !known {
			if len(state.Items) == maxConsolePins {
				state.MoreItems++
				at[key] = -1
				continue
			}
			one, err := selectWaiting(waiting, lock, name, []string{key})
			if err != nil {
				return nil, err
			}
			i = len(state.Items)
			left[i] = maxConsoleWords
			at[key] = i
			state.Items = append(state.Items, console.PinItem{Key: key,
				Kind: string(change.Kind), Name: change.Name, Digest: one.digest})
		}
		if i >= 0 {
			item := &state.Items[i]
			item.Changes = append(item.Changes, pinChangeOf(change))
			if left[i] -= len(change.Before) + len(change.After); left[i] < 0 {
				item.Cut, item.Digest, state.Digest = true, "", ""
				item.Changes[len(item.Changes)-1].Words = nil
			}
		}
	}
	if state.MoreItems > 0 {
		state.Digest = ""
	}
	return state, nil
}

// review returns the changes with what the plugin injection finds in their new words.
func (p *consolePins) review(ctx context.Context, s *pinSelection) ([]reviewedChange, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.reviews[s.digest]; ok {
		return known, nil
	}
	reviewed, err := review(ctx, s.changes, s.now)
	if err != nil {
		return nil, err
	}
	if p.reviews == nil || len(p.reviews) >= maxKeptPinReview {
		p.reviews = map[string][]reviewedChange{}
	}
	p.reviews[s.digest] = reviewed
	return reviewed, nil
}

// pinChangeOf returns a change as the console shows it.
func pinChangeOf(c reviewedChange) console.PinChange {
	change := console.PinChange{Class: string(c.Class), Pointer: c.Pointer,
		HeldBack: c.Class.IsHeldBack(), Findings: c.findings}
	for _, e := range diffWords(splitWords(c.Before), splitWords(c.After)) {
		change.Words = append(change.Words, console.WordChange{Removed: e.removed, Added: e.added,
			Equal: e.equal})
	}
	return change
}

// Decide implements console.Pins.
func (p *consolePins) Decide(_ context.Context, d console.PinDecision) (string, error) {
	decision := &pinDecision{Approve: d.Approve, Server: d.Server, Digest: d.Digest,
		by: describeViewer(d.By)}
	what := fmt.Sprintf("everything that waited of server %q", d.Server)
	if d.Item != "" {
		decision.Items = []string{d.Item}
		what = fmt.Sprintf("%s of server %q", display.EscapeLine(d.Item, maxHiddenNameBytes),
			d.Server)
	}
	if err := p.gateway.decidePins(decision); err != nil {
		return "", err
	}
	if d.Approve {
		return "Approved: " + what, nil
	}
	return "Rejected: " + what, nil
}
