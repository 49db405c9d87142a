package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// Pins is [pins]: the definitions that servers may declare. See docs/pins.md.
type Pins struct {
	// File is the absolute path of the lock file, which gatekit pin writes.
	File string `toml:"file"`
	// What holds the definitions that are pinned: tools, prompts, templates, resources,
	// instructions. Default: all but resources.
	What []string `toml:"what"`
	// First says what gatekit run does with a definition that is not in the lock file: ask (clients
	// do not see it and cannot use it until it is approved), trust (it is written into the lock
	// file as it is first seen, and passes) or locked (as with ask, and no command writes the lock
	// file). Default: ask.
	First string `toml:"first"`
	// Changed says what gatekit run does with a definition that is not as approved: hide (clients
	// do not see it and cannot use it until it is approved), keep (clients get the approved texts;
	// what differs in more than texts is hidden) or warn (it passes, and the audit log says what
	// would have happened). Default: hide.
	Changed string `toml:"changed"`
	// Package says what gatekit run does when a server has another package than approved: warn (it
	// logs and records this) or hide (everything that the server declares is hidden). Default:
	// warn.
	Package string `toml:"package"`
	// Install says which packages gatekit pin installs into the state folder: npm (those of servers
	// that npx or npm exec starts, which are started from there) or none (the commands are started
	// as they are). Default: npm.
	Install string `toml:"install"`
}

// ServerPins is [server.NAME.pins]. It replaces keys of [pins] for one server.
type ServerPins struct {
	// First is ask, trust or locked. Default: first of [pins].
	First string `toml:"first"`
	// Changed is hide, keep or warn. Default: changed of [pins].
	Changed string `toml:"changed"`
	// Package is warn or hide. Default: package of [pins].
	Package string `toml:"package"`
	// Install is npm or none. Default: install of [pins].
	Install string `toml:"install"`
}

// Of returns the keys of a server: those of its own table, or else those of [pins].
func (p *Pins) Of(s Server) ServerPins {
	var own ServerPins
	if s.Pins != nil {
		own = *s.Pins
	}
	return ServerPins{First: cmp.Or(own.First, p.First), Changed: cmp.Or(own.Changed, p.Changed),
		Package: cmp.Or(own.Package, p.Package), Install: cmp.Or(own.Install, p.Install)}
}

// DefaultPins returns the [pins] of a configuration in a folder that has none.
func DefaultPins(dir string) Pins {
	var p Pins
	p.setDefaults()
	p.File = filepath.Join(dir, p.File)
	return p
}

func (l *loader) checkPins(p *Pins, n *node) {
	l.checkOneOf(&p.First, n, "pins", "first", "ask", "trust", "locked")
	l.checkOneOf(&p.Changed, n, "pins", "changed", "hide", "keep", "warn")
	l.checkOneOf(&p.Package, n, "pins", "package", "warn", "hide")
	l.checkOneOf(&p.Install, n, "pins", "install", "npm", "none")
	words := []string{"tools", "prompts", "templates", "resources", "instructions"}
	for i, w := range p.What {
		if at := n.lookup("what").item(i); !slices.Contains(words, w) && !l.hasErrorAt(at) {
			l.errorf(at, "pins.what[%d] must be one of %s, not %q", i,
				strings.Join(quoteAll(words), ", "), at.raw)
		}
	}
	if p.File == "" {
		if !l.hasErrorAt(n.lookup("file")) {
			l.errorf(n.lookup("file"), "pins.file is empty")
		}
		return
	}
	p.File = l.absPath(p.File)
}

func (l *loader) checkServerPins(s *Server, n *node, server string) {
	n, at := n.lookup("pins"), join(server, "pins")
	l.checkOneOf(&s.Pins.First, n, at, "first", "ask", "trust", "locked")
	l.checkOneOf(&s.Pins.Changed, n, at, "changed", "hide", "keep", "warn")
	l.checkOneOf(&s.Pins.Package, n, at, "package", "warn", "hide")
	l.checkOneOf(&s.Pins.Install, n, at, "install", "npm", "none")
}
