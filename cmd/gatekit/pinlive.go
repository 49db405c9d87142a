package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pins"
)

// pinnedLists are the lists that can be pinned: the word in [pins] what, the kind of the items, the
// method, and the member of capabilities that declares the list.
var pinnedLists = []struct {
	word, method, capability string
	kind                     pins.Kind
}{
	{"tools", "tools/list", "tools", pins.Tool},
	{"prompts", "prompts/list", "prompts", pins.Prompt},
	{"templates", "resources/templates/list", "resources", pins.Template},
	{"resources", "resources/list", "resources", pins.Resource},
}

// maxStarted limits how many servers are started at the same time.
const maxStarted = 4

// liveServer holds the definitions of a server that was started, or the error of its start.
type liveServer struct {
	name     string
	live     *pins.Server
	learned  *pins.Server // live with holes
	unstable []*pins.Item
	err      error
}

// pinStarts says how servers are started to be pinned or compared.
type pinStarts struct {
	config *config.Config
	lock   *pins.Lock
	as     *identity.Principal // for whom the servers are asked; nil is Gatekit itself
	// pin is set to pin the servers: their npm packages are installed, and each server is started a
	// second time to find the texts that vary. Otherwise, only packages are installed that the lock
	// has and this machine has not.
	pin    bool
	update bool // the newest release is installed of a package without an exact version
}

// startServers starts each server and gets what it declares. It calls done for each server, in the
// order of servers.
func (p *program) startServers(ctx context.Context, o pinStarts, servers []config.Server,
	done func(*liveServer) error) error {
	results := make([]chan *liveServer, len(servers))
	slots := make(chan struct{}, maxStarted)
	ctx, cancel := context.WithCancel(ctx)
	var started sync.WaitGroup
	defer started.Wait()
	defer cancel()
	for i, s := range servers {
		results[i] = make(chan *liveServer, 1)
		started.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] <- p.startServer(ctx, o, s)
		})
	}
	for i := range servers {
		if err := done(<-results[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) startServer(ctx context.Context, o pinStarts, s config.Server) *liveServer {
	l := &liveServer{name: s.Name}
	started, source, err := p.installed(ctx, o, s)
	if err != nil {
		l.err = err
		return l
	}
	if l.live, l.err = p.declared(ctx, o.config, started, o.as); l.err != nil {
		if source.Integrity != "" {
			l.err = fmt.Errorf("%w\nhint: its package is installed without running its scripts. "+
				"If it needs them, set install = \"none\" in [server.%s.pins]", l.err, s.Name)
		}
		return l
	}
	l.live.Start, l.live.Package = pinnedStart(s, p.masked.mask), source
	if !o.pin {
		return l
	}
	again, err := p.declared(ctx, o.config, started, o.as)
	if err != nil {
		l.err = fmt.Errorf("the second start: %w", err)
		return l
	}
	l.learned, l.unstable = l.live.Learn(again, surroundings(s))
	return l
}

// surroundings returns the texts of this machine that a server may repeat in its definitions.
func surroundings(s config.Server) pins.Surroundings {
	here := pins.Surroundings{Now: time.Now()}
	if s.Command == "" {
		return here
	}
	for _, dir := range []string{s.Cwd, cmp.Or(string(s.Env["HOME"]), os.Getenv("HOME")),
		cmp.Or(string(s.Env["TMPDIR"]), os.TempDir())} {
		if !filepath.IsAbs(dir) {
			continue
		}
		here.Folders = append(here.Folders, filepath.Clean(dir))
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			here.Folders = append(here.Folders, real)
		}
	}
	return here
}

// declared starts a server, gets what it declares, and stops it.
func (p *program) declared(ctx context.Context, cfg *config.Config, s config.Server,
	as *identity.Principal) (live *pins.Server, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout,
		fmt.Errorf("no answer within %s", checkTimeout))
	defer cancel()
	opened, err := p.openServer(ctx, s, cfg, as)
	if err != nil {
		return nil, errors.New(fullReason(err))
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	live = &pins.Server{}
	for _, at := range []string{"/serverInfo", mcp.PointerServerInfo} {
		if raw, ok := opened.answer.Get(at); ok {
			live.ServerInfo = pins.Canonical(raw)
			break
		}
	}
	if raw, ok := opened.answer.Get("/capabilities"); ok {
		live.Capabilities = pins.Canonical(raw)
	}
	what := pinsOf(cfg).What
	add := func(kind pins.Kind, raw []byte) error {
		i, err := pins.NewItem(kind, raw)
		if err != nil {
			return fmt.Errorf("%w: %s", err, display.EscapeLine(string(raw), maxHiddenNameBytes))
		}
		live.Add(i)
		return nil
	}
	if raw, ok := opened.answer.Get("/instructions"); ok && slices.Contains(what, "instructions") {
		if err := add(pins.Instructions, raw); err != nil {
			return nil, err
		}
	}
	if err := opened.finishHandshake(ctx); err != nil {
		return nil, err
	}
	for _, l := range pinnedLists {
		_, declared := opened.answer.Get("/capabilities/" + l.capability)
		if !declared || !slices.Contains(what, l.word) {
			continue
		}
		if l.kind == pins.Resource {
			live.Resources = map[string]*pins.Item{}
		}
		if err := opened.eachItem(ctx, l.method, cfg.Limits.ListItems, func(raw []byte) error {
			return add(l.kind, raw)
		}); err != nil {
			return nil, fmt.Errorf("%s: %s", l.method, fullReason(err))
		}
	}
	return live, nil
}

// pinnedStart returns how a server is started, without secrets, which mask removes.
func pinnedStart(s config.Server, mask func(string) string) pins.Start {
	start := pins.Start{Command: mask(s.Command), URL: mask(s.URL)}
	for _, arg := range s.Args {
		start.Args = append(start.Args, mask(arg))
	}
	for name := range s.Env {
		start.Env = append(start.Env, name)
	}
	slices.Sort(start.Env)
	return start
}

// eachItem calls yield for each item on all pages of a list. It returns an error if the list has
// more pages or items than Gatekit gets for a client.
func (o *openedServer) eachItem(ctx context.Context, method string, limit int,
	yield func(raw []byte) error) error {
	known, _ := mcp.LookupMethod(method)
	cursor, count := "", 0
	for range maxCheckedPages {
		m, err := o.Call(ctx, o.client.p.PassOwn(ctx, listRequest(o.revision, method, cursor)),
			o.client)
		switch {
		case err != nil:
			return err
		case m.Kind != mcp.Response && m.ErrorCode() == mcp.CodeMethodNotFound:
			return nil // declared, but not implemented
		case m.Kind != mcp.Response:
			text, _ := m.Text("/message")
			return fmt.Errorf("the server answered with error %d, %s", m.ErrorCode(),
				display.Quote(text, maxHiddenNameBytes))
		}
		m.Items(known.ItemsPointer, func(_ int, raw []byte) bool {
			if count++; count > limit {
				err = fmt.Errorf("the list has more than %d items", limit)
			} else {
				err = yield(raw)
			}
			return err == nil
		})
		if err != nil {
			return err
		}
		next, _ := m.Text("/nextCursor")
		if next == "" {
			return nil
		}
		if next == cursor {
			return errors.New("the server repeats a page")
		}
		cursor = next
	}
	return fmt.Errorf("the list has more than %d pages", maxCheckedPages)
}

// pinsOf returns the [pins] of a configuration, or the defaults.
func pinsOf(cfg *config.Config) config.Pins {
	if cfg.Pins != nil {
		return *cfg.Pins
	}
	return config.DefaultPins(filepath.Dir(cfg.File))
}

// namedServers returns the configured servers with the given names, or all servers.
func namedServers(cfg *config.Config, names []string) ([]config.Server, error) {
	if len(names) == 0 {
		return cfg.Servers, nil
	}
	var found []config.Server
	for _, name := range names {
		i := slices.IndexFunc(cfg.Servers, func(s config.Server) bool { return s.Name == name })
		if i < 0 {
			var known []string
			for _, s := range cfg.Servers {
				known = append(known, s.Name)
			}
			return nil, fmt.Errorf("no server %q in %s; known: %s", name, cfg.File,
				strings.Join(known, ", "))
		}
		found = append(found, cfg.Servers[i])
	}
	return found, nil
}
