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

// namer puts server names on what clients see and takes them off what clients say (design.md 6).
type namer struct {
	bare      bool   // names and URIs are left as they are: one server, prefix = "never"
	resources string // "scheme", "prefix" or "transparent"
	servers   map[string]bool
}

// expose is how a client sees a server's own name. shared says that more than one server is known
// to own it.
func (n *namer) expose(t mcp.NameKind, server, v string, shared bool) string {
	if n.bare {
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
		switch n.resources {
		case "prefix":
			return server + separator + v
		case "transparent":
			// What looks as if it bore a server's name would be taken for that server's.
			if _, _, named := n.split(t, v); !named && !shared {
				return v
			}
		}
		if scheme, rest, ok := cutUI(v); ok {
			return scheme + server + "+" + rest // MCP Apps need the scheme (SEP-1865)
		}
		return server + "+" + v
	}
	return v
}

// split takes the server off a name that a client said. ok is false when it names none: a URI may
// then still have an owner.
func (n *namer) split(t mcp.NameKind, v string) (server, clean string, ok bool) {
	switch t {
	case mcp.ToolName, mcp.PromptName:
		return n.cut(v, separator, false)
	case mcp.TaskID, mcp.ElicitationID:
		return n.cut(v, "+", false)
	case mcp.URI, mcp.URITemplate:
		if scheme, rest, ui := cutUI(v); ui {
			if server, clean, ok = n.cut(rest, "+", false); ok {
				return server, scheme + clean, true
			}
		}
		// A scheme is not case-sensitive (RFC 3986 3.1), and some clients put it in lower case or
		// upper case.
		if server, clean, ok = n.cut(v, "+", true); ok {
			return server, clean, true
		}
		return n.cut(v, separator, false)
	}
	return "", v, false
}

func (n *namer) cut(v, sep string, fold bool) (server, clean string, ok bool) {
	server, clean, ok = strings.Cut(v, sep)
	if fold {
		server = strings.ToLower(server)
	}
	if !ok || !n.servers[server] {
		return "", v, false
	}
	return server, clean, true
}

// cutUI splits the ui scheme off, keeping its spelling.
func cutUI(v string) (scheme, rest string, ok bool) {
	if len(v) >= 5 && strings.EqualFold(v[:5], "ui://") {
		return v[:5], v[5:], true
	}
	return "", v, false
}

const (
	modelName = 64   // characters of a tool's or prompt's name that model APIs take
	maxLong   = 1000 // longer names that are remembered
)

// longNames are the names that have been warned of. The zero longNames is empty and ready.
type longNames struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

// check warns, once, of a name that many model APIs refuse. It is passed on as it is: another
// client may take it.
func (l *longNames) check(log *slog.Logger, server, name string) {
	if len(name) <= modelName || utf8.RuneCountInString(name) <= modelName {
		return
	}
	name = display.Clip(name, 256)
	l.mu.Lock()
	_, warned := l.seen[name]
	if room := len(l.seen) < maxLong; !warned && room {
		if l.seen == nil {
			l.seen = map[string]struct{}{}
		}
		l.seen[name] = struct{}{}
	} else {
		warned = true
	}
	l.mu.Unlock()
	if !warned {
		log.Warn("a name is too long for many models: give the server a shorter name, or hide it",
			"server", server, "name", name, "most", modelName)
	}
}
