package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gatekit/audit/telemetry"
	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pins"
	"gatekit/core/pipeline"
)

// pinStage is the name of the stage that compares what servers send with the lock file.
const pinStage = "pins"

// pinTimeout limits one comparison. The first comparison of a long list parses all of its items.
const pinTimeout = 10 * time.Second

// pinSet is the component that holds back what the lock file of one configuration does not approve.
type pinSet struct {
	gateway  *gateway
	config   *config.Config
	previous *pinSet // of the active configuration; may be nil

	// Set by start.
	guard  *pins.Guard // nil if the configuration has no [pins]
	digest string      // of the lock file; "" if there is none
}

// start reads the lock file. If the file cannot be used, Gatekit does not start.
func (p *pinSet) start(ctx context.Context) error {
	c := p.config
	if c.Pins == nil {
		return nil
	}
	lock, err := pins.Read(c.Pins.File)
	if err != nil {
		return err
	}
	unread := p.gateway.loadSharedPins(ctx, c)
	approved := p.gateway.sharedPins.Effective(lock).Servers
	var kinds []pins.Kind
	for _, l := range pinnedLists {
		if slices.Contains(c.Pins.What, l.word) {
			kinds = append(kinds, l.kind)
		}
	}
	if slices.Contains(c.Pins.What, "instructions") {
		kinds = append(kinds, pins.Instructions)
	}
	var servers []pins.GuardedServer
	for _, s := range c.Servers {
		keys := c.Pins.Of(s)
		guarded := pins.GuardedServer{Name: s.Name,
			Start:   pinnedStart(s, p.gateway.masked.mask),
			Package: packageOf(s, c, approved[s.Name]), Unread: unread[s.Name],
			First: pins.First(keys.First), Changed: pins.Changed(keys.Changed),
			HidePackage: keys.Package == "hide", Folders: surroundings(s).Folders}
		if c.File == "" {
			asWrapped(&guarded, s, approved[s.Name])
		}
		servers = append(servers, guarded)
	}
	var before *pins.Guard
	if p.previous != nil {
		before = p.previous.guard
	}
	p.guard = pins.NewGuard(pins.GuardOptions{Lock: lock, Kinds: kinds, Servers: servers,
		Previous: before, Trusted: p.gateway.recordTrusted,
		NotWritten: p.gateway.recordNotWritten, Store: p.gateway.waitingStore(c),
		Shared: p.gateway.sharedPins, Report: p.reportWaiting})
	if !lock.IsNew() {
		p.digest = lock.Digest()
	}
	p.previous = nil // otherwise each reload would keep all sets before it
	return nil
}

func (p *pinSet) stop() error { return nil }

// stages returns the stage of the set, if there is one. It comes before the plugins, which may
// redescribe the items.
func (p *pinSet) stages() []pipeline.StageConfig {
	if p.guard == nil {
		return nil
	}
	return []pipeline.StageConfig{{Name: pinStage, Stage: p.guard, Timeout: pinTimeout,
		KeepHidden: true, ReturnsOnCancel: true,
		Wants: pipeline.Wants{Methods: p.guard.Methods()}}}
}

// logPins logs which lock file is active.
func (g *gateway) logPins(a *activeConfig) {
	switch p := a.pins; {
	case p.guard == nil:
	case p.digest == "" && !p.trusts():
		g.log.Warn("no lock file: everything that servers declare is held back",
			"file", p.config.Pins.File, "hint", "run gatekit pin")
	case p.digest == "":
		g.log.Info("no lock file: it is written with what servers declare first",
			"file", displayPath(p.config.Pins.File))
	default:
		g.log.Info("lock file active", "file", displayPath(p.config.Pins.File))
	}
	if a.pins.guard == nil {
		return
	}
	waiting := a.pins.guard.WaitingItems()
	for _, server := range slices.Sorted(maps.Keys(waiting)) {
		if len(waiting[server]) > 0 {
			a.pins.reportWaiting(server, waiting[server], nil)
		}
	}
	moved := a.pins.guard.Moved()
	for _, server := range slices.Sorted(maps.Keys(moved)) {
		hint, text := "run gatekit pin "+server, "server has another package than approved"
		if a.config.File == "" {
			hint = "changes are only reported until you run gatekit pin approve " +
				wrappedName(a.config.Pins.File)
		}
		if moved[server] == pins.Launch {
			text = "server is started in another way than approved"
		}
		g.log.Warn(text, "server", server, "hint", hint)
	}
}

// trusts reports whether new items of a server are trusted.
func (p *pinSet) trusts() bool {
	return slices.ContainsFunc(p.config.Servers, func(s config.Server) bool {
		return p.config.Pins.Of(s).First == "trust"
	})
}

// waitingStore returns the file in the state folder that keeps what waits for an approval, or nil.
func (g *gateway) waitingStore(c *config.Config) *pins.WaitingStore {
	store, err := waitingStoreOf(c.Pins.File)
	if err != nil {
		g.log.Warn("no state folder: gatekit pin approve has nothing to approve", "error", err)
		return nil
	}
	store.Log = realPath(c.Audit.File)
	if c.Audit.Key != "" {
		store.LogKey = realPath(c.Audit.Key)
	}
	return store
}

// reportWaiting logs which definitions of a server wait for an approval.
func (p *pinSet) reportWaiting(server string, items []string, err error) {
	log := p.gateway.log
	if err != nil {
		log.Warn("definitions not kept for gatekit pin approve", "server", server, "error", err)
	}
	if len(items) > 0 {
		log.Warn("definitions wait for approval", "server", server, "items", itemNames(items),
			"hint", "gatekit pin approve "+p.waitingName(server))
	}
}

// waitingName returns the name of a server in the commands that approve what it declares.
func (p *pinSet) waitingName(server string) string {
	if p.config.File == "" {
		return wrappedName(p.config.Pins.File)
	}
	return server
}

// reloadPins reads the lock file again, without a reload of the configuration.
func (g *gateway) reloadPins(ctx context.Context) error {
	g.mu.Lock()
	before := g.active.pins
	next := *g.active
	next.pins = &pinSet{gateway: g, config: next.config, previous: before}
	err := next.pins.start(ctx)
	if err == nil {
		err = g.activate(ctx, &next)
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	g.logPins(&next)
	g.replacePins(before, next.pins)
	return nil
}

// maxTrustedNames limits the names of items in the record of what was trusted at first use.
const maxTrustedNames = 20

// recordTrusted records that items are written into the lock file as they were first seen. It is
// called before they are written.
func (g *gateway) recordTrusted(server string, items []*pins.Item, lockDigest string) error {
	place := "lock file "
	if g.sharedPins != nil {
		place = "shared pins "
	}
	return g.recording.events.RecordEvent(context.Background(), &mcp.Message{Server: server},
		"pin", "trusted at first use: "+pinNames(items)+"; "+place+lockDigest, nil)
}

// pinNames returns the names of the first items for a record.
func pinNames(items []*pins.Item) string {
	var names []string
	for _, i := range items[:min(len(items), maxTrustedNames)] {
		names = append(names, strings.TrimSpace(string(i.Kind())+" "+
			display.EscapeLine(i.Name(), maxHiddenNameBytes)))
	}
	if more := len(items) - len(names); more > 0 {
		names = append(names, plural(more, "other"))
	}
	return strings.Join(names, ", ")
}

// recordNotWritten records that the items of the record before could not be written.
func (g *gateway) recordNotWritten(server string, err error) error {
	return g.recording.events.RecordEvent(context.Background(), &mcp.Message{Server: server},
		"reject", "pin: the trusted items were recorded, but not stored", err)
}

// replacePins is called when next is in force: next gets what before has seen since next was
// started. It notifies the clients of each server for which next approves something else than
// before, or which only one of them compares. Their next lists are compared with the lock file
// again.
func (g *gateway) replacePins(before, next *pinSet) {
	if before.guard == nil && next.guard == nil {
		return
	}
	if before.guard != nil && next.guard != nil {
		next.guard.KeepHeld(before.guard)
	}
	for _, s := range next.config.Servers {
		if before.guard == nil || next.guard == nil || !next.guard.Approves(before.guard, s.Name) {
			g.proxy.AnnounceListChanges(s.Name)
		}
	}
}

// pinStates returns the numbers of items that are held back, for telemetry.
func (g *gateway) pinStates() (states []telemetry.PinState) {
	if guard := g.pins.Load(); guard != nil {
		for name, n := range guard.Waiting() {
			states = append(states, telemetry.PinState{Server: name, HeldBack: n})
		}
	}
	return states
}

// describePins returns a text about the lock file for the records of starts and reloads.
func describePins(p *pinSet) string {
	if p.guard == nil {
		return ""
	}
	text := "no lock file"
	if p.digest != "" {
		text = "lock file " + p.digest
	}
	text += p.gateway.describeSharedPins(p.config)
	moved := p.guard.Moved()
	for _, server := range slices.Sorted(maps.Keys(moved)) {
		text += fmt.Sprintf(", server %s has another %s than approved", server, moved[server])
	}
	return text
}
