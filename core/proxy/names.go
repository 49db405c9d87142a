package proxy

import (
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"gatekit/core/display"
	"gatekit/core/mcp"
)

// separator stands between a server's name and what it names. Server names cannot hold it, so the
// first one splits.
const separator = "__"

// prefixer puts server names on what clients see and takes them off what clients say (design.md 6).
type prefixer struct {
	disabled  bool   // names and URIs are left as they are: one server, prefix = "never"
	resources string // "scheme", "prefix" or "transparent"
	servers   map[string]bool
}

// addPrefix is how a client sees a server's own name. shared says that more than one server is known
// to own it.
func (p *prefixer) addPrefix(t mcp.NameKind, server, v string, shared bool) string {
	if p.disabled {
		return v
	}
	switch t {
	case mcp.ToolName, mcp.PromptName:
		return server + separator + v
	case mcp.LoggerName:
		return server + "/" + v
	case mcp.TaskID, mcp.ElicitationID:
		return server + "+" + v
	case mcp.URI, mcp.URITemplate:
		switch p.resources {
		case "prefix":
			return server + separator + v
		case "transparent":
			// What looks as if it bore a server's name would be taken for that server's.
			if _, _, named := p.splitPrefix(t, v); !named && !shared {
				return v
			}
		}
		if scheme, rest, ok := cutUIScheme(v); ok {
			return scheme + server + "+" + rest // MCP Apps need the scheme (SEP-1865)
		}
		return server + "+" + v
	}
	return v
}

// splitPrefix takes the server off a name that a client said. ok is false when it names none: a URI may
// then still have an owner.
func (p *prefixer) splitPrefix(t mcp.NameKind, v string) (server, clean string, ok bool) {
	switch t {
	case mcp.ToolName, mcp.PromptName:
		return p.cutServer(v, separator, false)
	case mcp.TaskID, mcp.ElicitationID:
		return p.cutServer(v, "+", false)
	case mcp.URI, mcp.URITemplate:
		if scheme, rest, ui := cutUIScheme(v); ui {
			if server, clean, ok = p.cutServer(rest, "+", false); ok {
				return server, scheme + clean, true
			}
		}
		// A scheme is not case-sensitive (RFC 3986 3.1), and some clients put it in lower case or
		// upper case.
		if server, clean, ok = p.cutServer(v, "+", true); ok {
			return server, clean, true
		}
		return p.cutServer(v, separator, false)
	}
	return "", v, false
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

// cutUIScheme splits the ui scheme off, keeping its spelling.
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

// longNameWarnings are the names that have been warned of. The zero longNames is empty and ready.
type longNameWarnings struct {
	mu     sync.Mutex
	warned map[string]struct{}
}

// check warns, once, of a name that many model APIs refuse. It is passed on as it is: another
// client may take it.
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
