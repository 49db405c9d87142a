package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"gatekit/core/display"
	"gatekit/core/pins"
	"gatekit/plugins/builtin/injection"
)

// crossings returns a warning for each tool and prompt of a server that has the name of another
// server's, or a name that looks like it, and for each item whose texts name an item of another
// server. Only items that the lock does not have as they are count: an approval accepts them.
func crossings(lock *pins.Lock, server string, live *pins.Server) (warnings []string) {
	approved := lock.Servers[server]
	servers := maps.Clone(lock.Servers)
	servers[server] = live
	quote := func(name string) string { return display.Quote(name, maxHiddenNameBytes) }
	for _, i := range live.Items() {
		if approved != nil {
			old := approved.Item(i.Kind(), i.Name())
			if old != nil && len(old.Compare(i)) == 0 {
				continue
			}
		}
		for _, other := range slices.Sorted(maps.Keys(servers)) {
			if other == server || i.Kind() != pins.Tool && i.Kind() != pins.Prompt {
				continue
			}
			for _, theirs := range servers[other].Items() {
				switch {
				case theirs.Kind() != i.Kind():
				case theirs.Name() == i.Name():
					warnings = append(warnings, fmt.Sprintf("server %q has a %s %s, too", other,
						i.Kind(), quote(i.Name())))
				case injection.LookAlike(i.Name(), theirs.Name()):
					warnings = append(warnings, fmt.Sprintf("the %s %s looks like %s of server %q",
						i.Kind(), quote(i.Name()), quote(theirs.Name()), other))
				}
			}
		}
		if name, other := pins.Shadow(servers, server, i); name != "" {
			warnings = append(warnings, fmt.Sprintf("a text of the %s %s names %s of server %q",
				i.Kind(), quote(i.Name()), quote(name), other))
		}
	}
	return warnings
}

// printCrossings prints the warnings of crossings.
func printCrossings(out io.Writer, lock *pins.Lock, server string, live *pins.Server) {
	for _, warning := range crossings(lock, server, live) {
		fmt.Fprintf(out, "  warning: %s\n", warning)
	}
}
