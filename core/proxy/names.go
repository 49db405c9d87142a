package proxy

import (
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"gatekit/core/display"
	"gatekit/core/mcp"
)

// separator stands between a server's name and a tool's. Server names cannot contain it, so the
// first one splits.
const separator = "__"

// prefixer adds server names to the names that clients see, and takes them off those that clients
// send (docs/configuration.md, prefix and resources).
type prefixer struct {
	disabled  bool   // names and URIs stay as they are: one server, prefix = "never"
	resources string // "scheme", "prefix" or "transparent"
	servers   map[string]bool
}

// addPrefix returns the name that clients see for a server's own. shared tells that more than one
// server owns it.
func (p *prefixer) addPrefix(kind mcp.NameKind, server, name string, shared bool) string {
	if p.disabled {
		return name
	}
	switch kind {
	case mcp.ToolName, mcp.PromptName:
		return server + separator + name
	case mcp.LoggerName:
		return server + "/" + name
	case mcp.TaskID, mcp.ElicitationID:
		return server + "+" + name
	case mcp.URI, mcp.URITemplate:
		switch p.resources {
		case "prefix":
			return server + separator + name
		case "transparent":
			// A URI that looks prefixed would be routed to the server of that name.
			if _, _, named := p.splitPrefix(kind, name); !named && !shared {
				return name
			}
		}
		if scheme, rest, ok := cutUIScheme(name); ok {
			return scheme + server + "+" + rest // MCP Apps need the scheme (SEP-1865)
		}
		return server + "+" + name
	}
	return name
}

// splitPrefix splits a name that a client sent. ok is false when it has no server's prefix: a URI
// may then still have an owner.
func (p *prefixer) splitPrefix(kind mcp.NameKind, name string) (server, clean string, ok bool) {
	switch kind {
	case mcp.ToolName, mcp.PromptName:
		return p.cutServer(name, separator, false)
	case mcp.TaskID, mcp.ElicitationID:
		return p.cutServer(name, "+", false)
	case mcp.URI, mcp.URITemplate:
		if scheme, rest, ui := cutUIScheme(name); ui {
			if server, clean, ok = p.cutServer(rest, "+", false); ok {
				return server, scheme + clean, true
			}
		}
		// A scheme is not case-sensitive (RFC 3986 3.1), and some clients put it in lower case or
		// upper case.
		if server, clean, ok = p.cutServer(name, "+", true); ok {
			return server, clean, true
		}
		return p.cutServer(name, separator, false)
	}
	return "", name, false
}

func (p *prefixer) cutServer(v, sep string, fold bool) (server, clean string, ok bool) {
	server, clean, ok = strings.Cut(v, sep)
	if fold {
		server = strings.ToLower(server)
	}
	if !ok || !p.servers[server] {
		return "", v, false
	}
	return server, clean, true
}

// cutUIScheme splits the ui scheme off, in its spelling.
func cutUIScheme(v string) (scheme, rest string, ok bool) {
	if len(v) >= 5 && strings.EqualFold(v[:5], "ui://") {
		return v[:5], v[5:], true
	}
	return "", v, false
}

const (
	maxModelName = 64   // characters of a tool's or prompt's name that model APIs take
	maxLongNames = 1000 // longer names that are remembered
)

// longNameWarnings are the names that were warned of. The zero longNameWarnings is empty and ready.
type longNameWarnings struct {
	mu     sync.Mutex
	warned map[string]struct{}
}

// check warns, once, of a name that many model APIs refuse. The name is forwarded all the same:
// another client may take it.
func (w *longNameWarnings) check(log *slog.Logger, server, name string) {
	if len(name) <= maxModelName || utf8.RuneCountInString(name) <= maxModelName {
		return
	}
	name = display.Clip(name, 256)
	w.mu.Lock()
	_, warned := w.warned[name]
	if room := len(w.warned) < maxLongNames; !warned && room {
		if w.warned == nil {
			w.warned = map[string]struct{}{}
		}
		w.warned[name] = struct{}{}
	} else {
		warned = true
	}
	w.mu.Unlock()
	if !warned {
		log.Warn("a name is too long for many models: give the server a shorter name, or hide it",
			"server", server, "name", name, "most", maxModelName)
	}
}
