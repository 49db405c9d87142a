package proxy

import (
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"gatekit/core/display"
	"gatekit/core/mcp"
)

// separator stands between a server's name and a tool's. Server names cannot contain a separator,
// so a name is split at the first one.
const separator = "__"

// prefixer adds the server's name to the names that clients see, and removes it from the names that
// clients send (docs/configuration.md, prefix and resources).
type prefixer struct {
	disabled  bool   // names and URIs stay as they are: one server, prefix = "never"
	resources string // "scheme", "prefix" or "transparent"
	servers   map[string]bool
}

// addPrefix returns the name under which clients see the server's name. shared means that more than
// one server owns this URI.
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

// splitPrefix splits a name that a client sent. ok is false when it has no server's prefix. A URI
// without a prefix may still have an owner in uriOwners.
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

// cutUIScheme splits the scheme "ui://" off a URI. scheme is spelt as in the URI.
func cutUIScheme(v string) (scheme, rest string, ok bool) {
	if len(v) >= 5 && strings.EqualFold(v[:5], "ui://") {
		return v[:5], v[5:], true
	}
	return "", v, false
}

const (
	maxModelName = 64   // characters of a tool's or prompt's name that model APIs take
	maxLongNames = 1000 // names that longNameWarnings remembers
)

// longNameWarnings remembers the long names that were logged. The zero longNameWarnings is empty
// and ready.
type longNameWarnings struct {
	mu     sync.Mutex
	warned map[string]struct{}
}

// check logs a warning, once for each name, if many model APIs refuse the name for its length. The
// name is forwarded all the same: another client may accept it.
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
