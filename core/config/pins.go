package config

import (
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
	// Changed says what gatekit run does with a definition that is not as approved: hide (clients
	// do not see it and cannot use it until it is approved) or warn (it passes, and the audit log
	// says what would have happened). Definitions that are not in the lock file are hidden in both
	// cases. Default: hide.
	Changed string `toml:"changed"`
}

// ServerPins is [server.NAME.pins]. It replaces keys of [pins] for one server.
type ServerPins struct {
	// Changed is hide or warn. Default: changed of [pins].
	Changed string `toml:"changed"`
}

// ChangedOf returns what happens with changed definitions of a server: hide or warn.
func (p *Pins) ChangedOf(s Server) string {
	if s.Pins != nil && s.Pins.Changed != "" {
		return s.Pins.Changed
	}
	return p.Changed
}

// DefaultPins returns the [pins] of a configuration in a folder that has none.
func DefaultPins(dir string) Pins {
	var p Pins
	p.setDefaults()
	p.File = filepath.Join(dir, p.File)
	return p
}

func (l *loader) checkPins(p *Pins, n *node) {
	l.checkOneOf(&p.Changed, n, "pins", "changed", "hide", "warn")
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
	l.checkOneOf(&s.Pins.Changed, n.lookup("pins"), join(server, "pins"), "changed", "hide", "warn")
}
