package proxy

import (
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// route finds the one server that a request is for and the clean name of what it asks for.
func (call *Call) route(meth mcp.Method) (*sessionServer, string, error) {
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
		switch kind, _ := call.request.Text("/ref/type"); kind {
		case "ref/prompt":
			pointer, token, what = "/ref/name", mcp.PromptName, "prompt"
		case "ref/resource":
			pointer, token = "/ref/uri", mcp.URITemplate
		default:
			return nil, "", requestErrorf(mcp.CodeInvalidParams,
				"unknown reference: the type is ref/prompt or ref/resource")
		}
	}
	name, ok := call.request.Text(pointer)
	// to a lenient server, ["x"] is x: what is no text is not judged as it is used
	if _, there := call.request.Get(pointer); !ok && (there && pointer != "" || !call.settings.names.disabled) {
		return nil, "", requestErrorf(mcp.CodeInvalidParams, "%s needs a string at %s", call.request.Method,
			pointer)
	}
	if call.settings.names.disabled {
		srv, err := call.onlyServer()
		if err == nil && token == mcp.TaskID && call.isOthersTask(srv.name, name) {
			err = requestErrorf(mcp.CodeInvalidParams, "Unknown task: %s", quoteName(name))
		}
		return srv, name, err // what else is wrong with the name, the server says
	}
	server, clean, ok := call.settings.names.splitPrefix(token, name)
	if !ok && (token == mcp.URI || token == mcp.URITemplate) {
		server, ok = call.session.uriOwners.owner(name)
	}
	if ok && (token != mcp.TaskID || !call.isOthersTask(server, clean)) {
		if srv := call.session.server(server); srv != nil {
			return srv, clean, nil
		}
	}
	f := requestErrorf(mcp.CodeInvalidParams, "Unknown %s: %s", what, quoteName(name))
	if what == "resource" && len(name) <= maxURIBytes {
		f.data = object(textField("uri", name))
	}
	return nil, "", f
}

// onlyServer is the link to the one server, where names are left as they are.
func (call *Call) onlyServer() (*sessionServer, error) {
	name := call.settings.Servers[0].Name
	if srv := call.session.server(name); srv != nil {
		return srv, nil
	}
	return nil, &UnavailableError{Server: name, Reason: "it is configured no more"}
}

// removePrefixes takes our names off what goes to m.Server. A URI that bears another server's name is left
// as it is: it is none of ours there.
func (s *Session) removePrefixes(set *settings, m *mcp.Message) (*mcp.Message, error) {
	if set.names.disabled {
		return m, nil
	}
	return mcp.RewriteNames(m, func(p mcp.NamePlace, v string) (string, error) {
		if server, clean, ok := set.names.splitPrefix(p.NameKind, v); ok && server == m.Server {
			return clean, nil
		}
		return v, nil
	})
}

// addPrefixes puts our names on what comes from a server, and remembers the URIs that it says are its
// own.
func (s *Session) addPrefixes(set *settings, p pipeline.Passed) (pipeline.Passed, error) {
	return s.addPrefixesAndReport(set, p, func(ownedURI) {})
}

// addPrefixesAndReport is expose; learned is told of what is remembered.
func (s *Session) addPrefixesAndReport(set *settings, p pipeline.Passed,
	learned func(ownedURI)) (pipeline.Passed, error) {
	if set.names.disabled {
		return p, nil
	}
	m := p.Message()
	return p.RewriteNames(func(at mcp.NamePlace, v string) (string, error) {
		if o, ok := ownedURIAt(m, at, v); ok {
			s.uriOwners.add(m.Server, o)
			learned(o)
		}
		// what is not remembered could not be found again
		shared := set.names.resources == "transparent" && (len(v) > maxURIBytes || s.uriOwners.isShared(v))
		name := set.names.addPrefix(at.NameKind, m.Server, v, shared)
		if at.NameKind == mcp.ToolName || at.NameKind == mcp.PromptName {
			s.proxy.longNames.check(set.Log, m.Server, name)
		}
		return name, nil
	})
}

// ownedURIAt is what a place in a server's message says that the server owns. Errors speak of what is not
// there.
func ownedURIAt(m *mcp.Message, at mcp.NamePlace, v string) (ownedURI, bool) {
	return ownedURI{v, at.NameKind == mcp.URITemplate}, m.Kind != mcp.Error &&
		(at.NameKind == mcp.URI || at.NameKind == mcp.URITemplate)
}
