package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pins"
	"gatekit/core/pipeline"
)

// waitingStoreOf returns the file in the state folder with what waits for a lock file.
func waitingStoreOf(lock string) (*pins.WaitingStore, error) {
	state, err := stateFolder()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(realPath(lock)))
	return &pins.WaitingStore{Dir: filepath.Join(state, "pins"),
		Name: hex.EncodeToString(sum[:16]) + ".json", Lock: realPath(lock)}, nil
}

// pinDecision is the decision of a person about definitions that wait.
type pinDecision struct {
	Approve bool     `json:"approve"` // otherwise, reject
	Server  string   `json:"server"`
	Items   []string `json:"items,omitempty"` // as the person named them; empty for all
	// The digest of everything that the person saw: what is approved is exactly that.
	Digest string `json:"digest"`
	// by names the viewer of the console who decides; "" for gatekit pin approve and gatekit pin
	// reject. No command can set it.
	by string
}

// waitingPins holds the definitions that wait for one lock file, and where decisions about them are
// recorded.
type waitingPins struct {
	store    *pins.WaitingStore
	shared   *pins.Shared // what replicas approve together; nil if the lock file is written
	log, key string       // the audit log, and its key; "" for the default key
	// isLocked reports whether what is approved of a server may not be changed.
	isLocked func(server string) bool
}

// lock returns what is approved.
func (w *waitingPins) lock() (*pins.Lock, error) {
	lock, err := pins.Read(w.store.Lock)
	if err != nil {
		return nil, err
	}
	return w.shared.Effective(lock), nil
}

// update changes what is approved of a server.
func (w *waitingPins) update(server string, change func(*pins.Lock) error) error {
	if w.shared == nil {
		_, err := pins.Update(w.store.Lock, change)
		return err
	}
	lock, err := pins.Read(w.store.Lock)
	if err != nil {
		return err
	}
	return w.shared.Update(context.Background(), server, lock.Servers[server],
		func(approved *pins.Server) (*pins.Server, error) {
			one := &pins.Lock{Servers: map[string]*pins.Server{}}
			if approved != nil {
				one.Servers[server] = approved
			}
			err := change(one)
			return one.Servers[server], err
		}, nil)
}

// waitingOf returns what waits for the lock file of a configuration. shared is nil without
// [shared].
func waitingOf(cfg *config.Config, shared *pins.Shared) (*waitingPins, error) {
	store, err := waitingStoreOf(pinsOf(cfg).File)
	if err != nil {
		return nil, err
	}
	return &waitingPins{store: store, shared: shared, log: cfg.Audit.File, key: cfg.Audit.Key,
		isLocked: func(server string) bool { return isLocked(cfg, server) }}, nil
}

// errNothingWaits is the error if nothing waits for approval.
var errNothingWaits = errors.New("nothing waits for approval")

// pinSelection is the part of what waits that a decision is about.
type pinSelection struct {
	server  string
	now     *pins.Server // what the server declares, as far as it is known
	changes []pins.Change
	items   []*pins.Item // selected
	moved   bool         // the launch and the package are selected
	first   bool         // the lock does not have the server, so its launch is approved, too
	digest  string
}

// launchWord selects the launch and the package of a server.
const launchWord = "launch"

// selected returns what waits of a server. It returns an error if nothing waits, or if no item has
// one of the names.
func (w *waitingPins) selected(lock *pins.Lock, server string,
	names []string) (*pinSelection, error) {
	waiting, err := w.store.Read()
	if err != nil {
		return nil, err
	}
	return selectWaiting(waiting, lock, server, names)
}

// selectWaiting is selected for what waits in the store.
func selectWaiting(waiting *pins.Waiting, lock *pins.Lock, server string,
	names []string) (s *pinSelection, err error) {
	nothing := fmt.Errorf("server %q: %w\nhint: gatekit pin approve lists what waits; gatekit pin "+
		"starts the servers and compares everything", server, errNothingWaits)
	kept, approved := waiting.Servers[server], lock.Servers[server]
	if kept == nil {
		return nil, nothing
	}
	s = &pinSelection{server: server}
	if s.now, err = kept.Live(approved); err != nil {
		return nil, fmt.Errorf("read what waits of server %q: %w", server, err)
	}
	s.changes = slices.DeleteFunc(changesOf(approved, s.now), func(c pins.Change) bool {
		return c.Class == pins.Gone || c.Class == pins.Decoration && c.Kind == ""
	})
	found := map[string]bool{}
	wants := func(words ...string) bool {
		for _, word := range words {
			if slices.Contains(names, word) {
				found[word] = true
				return true
			}
		}
		return len(names) == 0
	}
	s.changes = slices.DeleteFunc(s.changes, func(c pins.Change) bool {
		if c.Kind == "" {
			return !wants(launchWord)
		}
		return !wants(strings.TrimSpace(string(c.Kind)+" "+c.Name), c.Name)
	})
	for _, c := range s.changes {
		if c.Kind == "" {
			s.moved = true
			continue
		}
		i := s.now.Item(c.Kind, c.Name)
		if i != nil && !slices.Contains(s.items, i) {
			s.items = append(s.items, i)
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("server %q: no item %s waits for approval\nhint: gatekit pin "+
				"approve lists what waits", server, display.Quote(name, maxHiddenNameBytes))
		}
	}
	if len(s.changes) == 0 {
		return nil, nothing
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %v\n", server, s.moved)
	s.first = approved == nil
	if s.moved || s.first {
		fmt.Fprintf(h, "%q %q\n", s.now.Start, s.now.Package)
	}
	for _, i := range s.items {
		fmt.Fprintf(h, "%q %q %s %s\n", i.Kind(), i.Name(), digestIn(approved, i), i.Digest())
	}
	s.digest = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// digestIn returns the digest of the approved item with the name of i, or "none".
func digestIn(approved *pins.Server, i *pins.Item) string {
	if approved != nil {
		if old := approved.Item(i.Kind(), i.Name()); old != nil {
			return old.Digest()
		}
	}
	return "none"
}

// canApprove returns an error if what is approved of the server may not be changed.
func (w *waitingPins) canApprove(d *pinDecision) error {
	if !d.Approve || !w.isLocked(d.Server) {
		return nil
	}
	return fmt.Errorf("server %q has first = \"locked\", so %s is not written\nhint: run gatekit "+
		"pin with a configuration that has first = \"ask\", and commit the lock file", d.Server,
		displayPath(w.store.Lock))
}

// decide records a decision, and then changes the lock file, or what waits. If what waits is not
// what the person saw, nothing changes.
func (w *waitingPins) decide(d *pinDecision, events *pipeline.Pipeline) error {
	if err := w.canApprove(d); err != nil {
		return err
	}
	recorded := false
	change := func(lock *pins.Lock) error {
		s, err := w.selected(lock, d.Server, d.Items)
		if err != nil {
			return err
		}
		if s.digest != d.Digest {
			return errors.New("what waits has changed since it was shown, so nothing was " +
				"changed\nhint: run the command again")
		}
		if !d.Approve && s.moved {
			return fmt.Errorf("the launch of server %q cannot be rejected\nhint: correct its "+
				"command in the configuration, or name the items to reject", d.Server)
		}
		if !recorded { // another process may have changed the file, and change is called again
			if err := w.record(d, s, lock.Servers[d.Server], events); err != nil {
				return err
			}
			recorded = true
		}
		if d.Approve {
			s.approve(lock)
			return nil
		}
		return w.store.Update(func(waiting *pins.Waiting) {
			for _, i := range s.items {
				if seen := waiting.Servers[d.Server].Find(i.Kind(), i.Name()); seen != nil &&
					seen.Digest == i.Digest() {
					seen.Rejected = true
				}
			}
		})
	}
	var err error
	if d.Approve {
		err = w.update(d.Server, change)
	} else { // what is approved is only read
		var lock *pins.Lock
		if lock, err = w.lock(); err == nil {
			err = change(lock)
		}
	}
	if err == nil && d.Approve {
		err = w.forget(d.Server)
	}
	if err != nil && recorded {
		return errors.Join(err, events.RecordEvent(context.Background(), &mcp.Message{
			Server: d.Server}, "reject", "pin: the decision was recorded, but not stored", err))
	}
	return err
}

// record records a decision: one record for each item.
func (w *waitingPins) record(d *pinDecision, s *pinSelection, approved *pins.Server,
	events *pipeline.Pipeline) error {
	action, command := "approve", "gatekit pin approve"
	if !d.Approve {
		action, command = "reject", "gatekit pin reject"
	}
	by := "by " + cmp.Or(d.by, describeUser(command))
	event := func(name, reason string) error {
		if err := events.RecordEvent(context.Background(), &mcp.Message{Server: d.Server,
			Name: name}, action, reason, nil); err != nil {
			return fmt.Errorf("record the decision: %w", err)
		}
		return nil
	}
	if s.moved || s.first && d.Approve {
		before := "none"
		if approved != nil {
			before = strings.TrimSpace(approved.Start.String() + " " + approved.Package.String())
		}
		if err := event("", fmt.Sprintf("pin of the launch: %s, before %s, after %s", by,
			display.EscapeLine(before, maxApprovalReason), display.EscapeLine(strings.TrimSpace(
				s.now.Start.String()+" "+s.now.Package.String()), maxApprovalReason))); err != nil {
			return err
		}
	}
	for _, i := range s.items {
		if err := event(i.Name(), fmt.Sprintf("pin of the %s: %s, before %s, after %s", i.Kind(),
			by, digestIn(approved, i), i.Digest())); err != nil {
			return err
		}
	}
	return nil
}

// approve adds the selection to the lock.
func (s *pinSelection) approve(lock *pins.Lock) {
	approved := &pins.Server{Start: s.now.Start, Package: s.now.Package}
	if old := lock.Servers[s.server]; old != nil {
		approved = old.Clone()
		if s.moved {
			approved.Start, approved.Package = s.now.Start, s.now.Package
		}
	}
	for _, i := range s.items {
		approved.Replace(i)
	}
	lock.Servers[s.server] = approved
}

// forget removes what no longer waits.
func (w *waitingPins) forget(server string) error {
	lock, err := w.lock()
	if err != nil {
		return err
	}
	return w.store.Update(func(waiting *pins.Waiting) {
		kept, approved := waiting.Servers[server], lock.Servers[server]
		if kept == nil || approved == nil {
			return
		}
		kept.Moved = kept.Moved && (approved.Start.String() != kept.Start.String() ||
			approved.Package != kept.Package)
		kept.Items = slices.DeleteFunc(kept.Items, func(seen pins.Seen) bool {
			i := approved.Item(seen.Kind, seen.Name)
			return i != nil && i.Digest() == seen.Digest
		})
	})
}

// decidePins records and stores a decision in the running Gatekit, and uses it.
func (s *controlServer) decidePins(d *pinDecision) error { return s.gateway.decidePins(d) }

// decidePins records and stores a decision, and uses it.
func (g *gateway) decidePins(d *pinDecision) error {
	c := g.activeConfig()
	if d == nil || c.Pins == nil {
		return errors.New("the running Gatekit does not compare with a lock file: its " +
			"configuration has no [pins]")
	}
	w, err := waitingOf(c, g.sharedPins)
	if err != nil {
		return err
	}
	if err := w.decide(d, g.recording.events); err != nil {
		return err
	}
	if err := g.reloadPins(context.Background()); err != nil {
		return fmt.Errorf("the decision is stored, but the running Gatekit cannot use it: %w", err)
	}
	return nil
}

func (p *program) pinDecide(approve bool) *cobra.Command {
	var path string
	var yes bool
	c := &cobra.Command{
		Use:   "approve [SERVER [ITEM…]]",
		Short: "Approve what a running server declared, without starting it",
		Long: `A running Gatekit with [pins] keeps the definitions that it holds back, as it saw
them last. Approve shows what waits of a server, with its changes, and asks whether you approve it.
Then it writes these definitions into the lock file. It starts no server. A running Gatekit uses the
changed lock file at once, and notifies the clients.

Without SERVER, approve lists everything that waits, of the servers of the configuration and of
gatekit wrap, and changes nothing. The name of a server of gatekit wrap has a digest of its command,
such as server-filesystem-0123456789abcdef: each command has its own lock file. An ITEM is the name
of a tool, a prompt or a template, "instructions", or "launch" for the command, URL and package. If
items of two kinds have the same name, write the kind, too: "tool read".

Each approval is a record in the audit log, with your user id and the digests before and after. The
running Gatekit writes it. If none runs, approve writes it itself. Without a record, nothing
changes. If the server has declared something else since the changes were shown, nothing changes
either.

If the configuration has [shared], what is approved beside one replica holds at all of them. It is
stored in the shared state, and the lock file stays as it is. Each replica lists what it has seen.

Gatekit keeps at most 1000 definitions of a server, of at most 256 KiB each. Approve the others with
gatekit pin.`,
		Example: `  gatekit pin approve
  gatekit pin approve github create_issue
  gatekit pin approve github --yes`,
	}
	if !approve {
		c.Use = "reject SERVER [ITEM…]"
		c.Short = "Decline what a running server declared"
		c.Long = `Reject marks definitions that a running Gatekit holds back as declined. They stay
held back, and no longer wait: neither Gatekit's log nor gatekit_pins_held_back in /metrics has
them. When the server declares something else, that waits again.

The arguments are those of gatekit pin approve. Each decision is a record in the audit log.`
		c.Example = "  gatekit pin reject github create_issue"
		c.Args = cobra.MinimumNArgs(1)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := loadConfig(path)
		if err != nil && (path != "" || !errors.Is(err, errNoConfig)) {
			return reportMistakes(cmd, err, false)
		}
		shared, done, err := sharedPinsOf(cmd, path)
		if err != nil {
			return err
		}
		defer done()
		targets, err := waitingTargets(cfg, shared)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return listWaiting(cmd, targets)
		}
		i := slices.IndexFunc(targets, func(t waitingTarget) bool { return t.name == args[0] })
		if i < 0 {
			return fmt.Errorf("server %q: %w\nhint: gatekit pin approve lists what waits", args[0],
				errNothingWaits)
		}
		t := targets[i]
		return t.pins.ask(cmd, t.name, &pinDecision{Approve: approve, Server: t.server,
			Items: args[1:]}, yes)
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&yes, "yes", false, "decide without a question")
	return c
}

// waitingTarget is a server of which something may wait.
type waitingTarget struct {
	name   string // in commands
	server string // in the lock file
	pins   *waitingPins
}

// waitingTargets returns the servers of a configuration of which something was seen, and after them
// those of gatekit wrap. cfg may be nil, and shared is nil without [shared].
func waitingTargets(cfg *config.Config, shared *pins.Shared) (all []waitingTarget, err error) {
	add := func(w *waitingPins, name string) error {
		waiting, err := w.store.Read()
		if err != nil {
			return err
		}
		for _, server := range slices.Sorted(maps.Keys(waiting.Servers)) {
			if name == "" && !slices.ContainsFunc(cfg.Servers, func(s config.Server) bool {
				return s.Name == server
			}) {
				continue // it was removed from the configuration
			}
			all = append(all, waitingTarget{cmp.Or(name, server), server, w})
		}
		return nil
	}
	if cfg != nil {
		w, err := waitingOf(cfg, shared)
		if err == nil {
			err = add(w, "")
		}
		if err != nil {
			return nil, err
		}
	}
	wrapped, err := wrappedWaiting()
	for _, name := range slices.Sorted(maps.Keys(wrapped)) {
		err = errors.Join(err, add(wrapped[name], name))
	}
	return all, err
}

// listWaiting prints what waits.
func listWaiting(cmd *cobra.Command, targets []waitingTarget) error {
	out, found := cmd.OutOrStdout(), false
	for _, t := range targets {
		lock, err := t.pins.lock()
		if err != nil {
			return err
		}
		s, err := t.pins.selected(lock, t.server, nil)
		if errors.Is(err, errNothingWaits) {
			continue
		}
		if err != nil {
			return err
		}
		found = true
		reviewed, err := review(cmd.Context(), s.changes, s.now)
		if err != nil {
			return err
		}
		changePrinter{out, paletteFor(out)}.print(t.name, reviewed, false)
		printCrossings(out, lock, t.server, s.now)
	}
	if !found {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing waits for approval")
	}
	return nil
}

// ask shows the changes that a decision is about, asks for it, and makes it. The parameter name is
// the name of the server in commands.
func (w *waitingPins) ask(cmd *cobra.Command, name string, d *pinDecision, yes bool) error {
	lock, err := w.lock()
	if err != nil {
		return err
	}
	s, err := w.selected(lock, d.Server, d.Items)
	if err != nil {
		return err
	}
	if err := w.canApprove(d); err != nil {
		return err
	}
	reviewed, err := review(cmd.Context(), s.changes, s.now)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	changePrinter{out, paletteFor(out)}.print(name, reviewed, false)
	printCrossings(out, lock, d.Server, s.now)
	verb := map[bool]string{true: "Approve", false: "Reject"}[d.Approve]
	if !yes {
		if !isTerminal(os.Stdin) {
			return fmt.Errorf("nothing was changed: there is no terminal to ask\nhint: run the " +
				"command in a terminal, or add --yes")
		}
		fmt.Fprintf(out, "%s this of server %q? [y/N] ", verb, name)
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
			return errors.New("nothing was changed")
		}
	}
	d.Digest = s.digest
	_, err = callControl(w.log, controlRequest{Command: "decide-pins", Pins: d})
	if errors.Is(err, errNoProcess) {
		err = recordIn(w.log, w.key, func(events *pipeline.Pipeline) error {
			return w.decide(d, events)
		})
	}
	if err != nil {
		return err
	}
	count := len(s.items)
	if s.moved {
		count++
	}
	fmt.Fprintf(out, "%s: %s\n", map[bool]string{true: "approved", false: "rejected"}[d.Approve],
		plural(count, "definition"))
	return nil
}
