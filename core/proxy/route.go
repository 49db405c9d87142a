package proxy

import (
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// route finds the one server that a request is for and the clean name of what it asks for.
func (x *Call) route(meth mcp.Method) (*link, string, error) {
	pointer, token, what := meth.NamePointer, mcp.URI, "resource"
	switch meth.Route {
	case mcp.RouteByName:
		token, what = mcp.ToolName, "tool"
		if meth.Name == "prompts/get" {
			token, what = mcp.PromptName, "prompt"
		}
	case mcp.RouteByTask:
		token, what = mcp.TaskID, "task"
	case mcp.RouteByReference:
		switch kind, _ := x.m.Text("/ref/type"); kind {
		case "ref/prompt":
			pointer, token, what = "/ref/name", mcp.PromptName, "prompt"
		case "ref/resource":
			pointer, token = "/ref/uri", mcp.URITemplate
		default:
			return nil, "", failure(mcp.CodeInvalidParams,
				"unknown reference: the type is ref/prompt or ref/resource")
		}
	}
	name, ok := x.m.Text(pointer)
	// to a lenient server, ["x"] is x: what is no text is not judged as it is used
	if _, there := x.m.Get(pointer); !ok && (there && pointer != "" || !x.c.names.bare) {
		return nil, "", failure(mcp.CodeInvalidParams, "%s needs a string at %s", x.m.Method,
			pointer)
	}
	if x.c.names.bare {
		l, err := x.only()
		if err == nil && token == mcp.TaskID && x.foreign(l.name, name) {
			err = failure(mcp.CodeInvalidParams, "Unknown task: %s", quoteName(name))
		}
		return l, name, err // what else is wrong with the name, the server says
	}
	server, clean, ok := x.c.names.split(token, name)
	if !ok && (token == mcp.URI || token == mcp.URITemplate) {
		server, ok = x.s.owners.owner(name)
	}
	if ok && (token != mcp.TaskID || !x.foreign(server, clean)) {
		if l := x.s.link(server); l != nil {
			return l, clean, nil
		}
	}
	f := failure(mcp.CodeInvalidParams, "Unknown %s: %s", what, quoteName(name))
	if what == "resource" && len(name) <= maxOwnedURI {
		f.data = object(textField("uri", name))
	}
	return nil, "", f
}

// only is the link to the one server, where names are left as they are.
func (x *Call) only() (*link, error) {
	name := x.c.Servers[0].Name
	if l := x.s.link(name); l != nil {
		return l, nil
	}
	return nil, &UnavailableError{Server: name, Reason: "it is configured no more"}
}

// strip takes our names off what goes to m.Server. A URI that bears another server's name is left
// as it is: it is none of ours there.
func (s *Session) strip(c *settings, m *mcp.Message) (*mcp.Message, error) {
	if c.names.bare {
		return m, nil
	}
	return mcp.RewriteNames(m, func(p mcp.NamePlace, v string) (string, error) {
		if server, clean, ok := c.names.split(p.NameKind, v); ok && server == m.Server {
			return clean, nil
		}
		return v, nil
	})
}

// expose puts our names on what comes from a server, and remembers the URIs that it says are its
// own.
func (s *Session) expose(c *settings, p pipeline.Passed) (pipeline.Passed, error) {
	return s.name(c, p, func(owned) {})
}

// name is expose; learned is told of what is remembered.
func (s *Session) name(c *settings, p pipeline.Passed,
	learned func(owned)) (pipeline.Passed, error) {
	if c.names.bare {
		return p, nil
	}
	m := p.Message()
	return p.RewriteNames(func(at mcp.NamePlace, v string) (string, error) {
		if o, ok := owns(m, at, v); ok {
			s.owners.learn(m.Server, o)
			learned(o)
		}
		// what is not remembered could not be found again
		shared := c.names.resources == "transparent" && (len(v) > maxOwnedURI || s.owners.shared(v))
		name := c.names.expose(at.NameKind, m.Server, v, shared)
		if at.NameKind == mcp.ToolName || at.NameKind == mcp.PromptName {
			s.proxy.long.check(c.Log, m.Server, name)
		}
		return name, nil
	})
}

// owns is what a place in a server's message says that the server owns. Errors speak of what is not
// there.
func owns(m *mcp.Message, at mcp.NamePlace, v string) (owned, bool) {
	return owned{v, at.NameKind == mcp.URITemplate}, m.Kind != mcp.Error &&
		(at.NameKind == mcp.URI || at.NameKind == mcp.URITemplate)
}
