package proxy

import (
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"gatekit/core/display"
	"gatekit/core/mcp"
)

// separator stands between a server's name and the name of a tool or prompt. A server's name cannot
// contain a separator, so the first separator in a name ends the server's name.
const separator = "__"

// prefixer adds the server's name to the names that clients see, and removes it from the names that
// clients send. docs/configuration.md describes its settings, "prefix" and "resources".
type prefixer struct {
	disabled  bool   // names and URIs stay as they are: one server, prefix = "never"
	resources string // "scheme", "prefix" or "transparent"
	servers   map[string]bool
}

// addPrefix returns the name that clients see for a server's own name. If name is a URI, shared
// means that more than one server owns it.
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
			// Without a prefix of its own, a URI that looks prefixed would be routed to the wrong
			// server.
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

// splitPrefix removes the prefix from a name in a client's message. It returns the server that the
// prefix names, and the name without the prefix as clean. ok is false when the name does not have
// the prefix of a server. A URI without a prefix may still have an owner in uriOwners.
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

// cutServer splits a server's name and the separator sep off v. fold means that the case of letters
// in the server's name does not matter.
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
	maxModelName = 64   // characters of the longest name that many model APIs accept
	maxLongNames = 1000 // names that longNameWarnings remembers
)

// longNameWarnings remembers the long names that were logged. The zero longNameWarnings is empty
// and ready.
type longNameWarnings struct {
	mu     sync.Mutex
	warned map[string]struct{}
}

// check logs a warning, once for each name, if the name is too long for many model APIs. The name
// is forwarded nevertheless: another client may accept it.
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
		log.Warn("name too long for many models: shorten the server's name, or hide the name",
			"server", server, "name", name, "most", maxModelName)
	}
}
