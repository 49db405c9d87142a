package proxy

import (
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// route finds the one server that a request is for and the clean name of what it asks for.
func (x *exchange) route(meth mcp.Method) (*link, string, error) {
	pointer, token, what := meth.NameAt, mcp.URI, "resource"
	switch meth.Route {
	case mcp.ByName:
		token, what = mcp.ToolName, "tool"
		if meth.Name == "prompts/get" {
			token, what = mcp.PromptName, "prompt"
		}
	case mcp.ByTask:
		token, what = mcp.TaskID, "task"
	case mcp.ByRef:
		switch kind, _ := x.m.Text("/ref/type"); kind {
		case "ref/prompt":
			pointer, token, what = "/ref/name", mcp.PromptName, "prompt"
		case "ref/resource":
			pointer, token = "/ref/uri", mcp.URITemplate
		default:
			if !x.c.names.bare {
				return nil, "", failure(mcp.CodeInvalidParams, "unknown reference: the type is ref/prompt or ref/resource")
			}
		}
	}
	name, ok := x.m.Text(pointer)
	if x.c.names.bare {
		return x.s.ordered(x.c)[0], name, nil // what is wrong with it, the server says
	}
	if !ok {
		return nil, "", failure(mcp.CodeInvalidParams, "%s needs a string at %s", x.m.Method, pointer)
	}
	server, clean, ok := x.c.names.split(token, name)
	if !ok && (token == mcp.URI || token == mcp.URITemplate) {
		server, ok = x.s.owners.owner(name)
	}
	if ok {
		for _, l := range x.s.ordered(x.c) {
			if l.conf.Name == server {
				return l, clean, nil
			}
		}
	}
	f := failure(mcp.CodeInvalidParams, "Unknown %s: %s", what, name)
	if what == "resource" {
		f.data = object(member{"uri", mcp.Quote(name)})
	}
	return nil, "", f
}

// strip takes our names off what goes to m.Server. A URI that bears another server's name is left as it is: it is none of ours there.
func (s *Session) strip(c *settings, m *mcp.Message) (*mcp.Message, error) {
	return mcp.Rewrite(m, func(p mcp.Place, v string) (string, error) {
		if server, clean, ok := c.names.split(p.Token, v); ok && server == m.Server {
			return clean, nil
		}
		return v, nil
	})
}

// expose puts our names on what comes from a server, and remembers the URIs that it says are its own.
func (s *Session) expose(c *settings, p pipeline.Passed) (pipeline.Passed, error) {
	if c.names.bare {
		return p, nil
	}
	server := p.Message().Server
	return p.Rewrite(func(at mcp.Place, v string) (string, error) {
		shared := false
		if at.Token == mcp.URI || at.Token == mcp.URITemplate {
			s.owners.learn(server, v, at.Token == mcp.URITemplate)
			shared = c.names.resources == "transparent" && s.owners.shared(v)
		}
		return c.names.expose(at.Token, server, v, shared), nil
	})
}
