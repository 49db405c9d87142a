package proxy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// route returns the one server that a request is for, and the server's own name of the tool,
// prompt, resource or task.
func (call *Call) route(ctx context.Context, meth mcp.Method) (*sessionServer, string, error) {
	pointer, nameKind, noun := meth.NamePointer, mcp.URI, "resource"
	switch meth.Route {
	case mcp.RouteByName:
		nameKind, noun = mcp.ToolName, "tool"
		if meth.Name == "prompts/get" {
			nameKind, noun = mcp.PromptName, "prompt"
		}
	case mcp.RouteByTask:
		nameKind, noun = mcp.TaskID, "task"
	case mcp.RouteByReference:
		switch kind, _ := call.request.Text("/ref/type"); kind {
		case "ref/prompt":
			pointer, nameKind, noun = "/ref/name", mcp.PromptName, "prompt"
		case "ref/resource":
			pointer, nameKind = "/ref/uri", mcp.URITemplate
		default:
			return nil, "", requestErrorf(mcp.CodeInvalidParams,
				"unknown reference: the type is ref/prompt or ref/resource")
		}
	}
	name, ok := call.request.Text(pointer)
	// Without prefixes, the server reports a missing name. A name that is not a string is refused
	// here: a lenient server reads ["x"] as x, while stages would see no name.
	if _, present := call.request.Get(pointer); !ok && (present && pointer != "" ||
		!call.settings.names.disabled) {
		return nil, "", requestErrorf(mcp.CodeInvalidParams, "%s needs a string at %s",
			call.request.Method, pointer)
	}
	if call.settings.names.disabled {
		srv, err := call.onlyServer()
		if err == nil && nameKind == mcp.TaskID && call.denyIfOthersTask(srv.name, name) {
			err = requestErrorf(mcp.CodeInvalidParams, "Unknown task: %s", quoteName(name))
		}
		return srv, name, err // the server itself reports other faults of the name
	}
	server, clean, ok := call.settings.names.splitPrefix(nameKind, name)
	if !ok && (nameKind == mcp.URI || nameKind == mcp.URITemplate) {
		server, ok = call.findOwner(ctx, name)
	}
	if ok && (nameKind != mcp.TaskID || !call.denyIfOthersTask(server, clean)) {
		if srv := call.session.server(server); srv != nil {
			return srv, clean, nil
		}
	}
	failure := requestErrorf(mcp.CodeInvalidParams, "Unknown %s: %s", noun, quoteName(name))
	if noun == "resource" {
		failure.code = mcp.UnknownResourceCode(call.session.options.Revision)
	}
	if noun == "resource" && len(name) <= maxURIBytes {
		failure.data = object(textField("uri", name))
	}
	return nil, "", failure
}

// findOwner returns the one server that owns a URI without a prefix. A client may know the URI from
// an earlier session, so the servers are asked for their lists when no list has named the URI. The
// URI itself is sent to its owner only.
func (call *Call) findOwner(ctx context.Context, uri string) (server string, ok bool) {
	if len(call.settings.Servers) == 1 {
		return call.settings.Servers[0].Name, true
	}
	owners := &call.session.uriOwners
	server, ok = owners.owner(uri)
	if ok || len(uri) > maxURIBytes || owners.isShared(uri) {
		return server, ok
	}
	select {
	case call.session.uriListing <- struct{}{}:
		defer func() { <-call.session.uriListing }()
	case <-ctx.Done():
		return "", false
	}
	if server, ok = owners.owner(uri); !ok {
		call.listURIs(ctx, uri)
		server, ok = owners.owner(uri)
	}
	return server, ok
}

const (
	// how long a call waits for the lists that may name its URI
	ownerWait = 5 * time.Second
	// how long the session does not ask again after it has asked for a list
	ownerListInterval = time.Minute
)

// listURIs asks all servers for the lists that may have the URI and that the session has not asked
// for lately. Their items are remembered with the server that owns them.
func (call *Call) listURIs(ctx context.Context, uri string) {
	ctx, cancel := context.WithTimeout(ctx, ownerWait)
	defer cancel()
	params := []byte("{}")
	if meta, ok := call.request.Get("/_meta"); ok {
		params = object(field("_meta", meta))
	}
	var lists sync.WaitGroup
	for _, method := range uriLists {
		if call.session.uriOwners.isListed(method) || method == "skills/list" &&
			!call.mayBeOfSkill(uri) {
			continue
		}
		meth, _ := mcp.LookupMethod(method)
		request := mcp.NewRequest(call.request.ID(), method, params)
		list := &Call{session: call.session, settings: call.settings, client: call.client,
			request: call.session.stamp(request, mcp.ToServer, call.request.Exchange)}
		lists.Go(func() { list.askAll(ctx, meth) })
	}
	lists.Wait()
}

// mayBeOfSkill reports whether a URI may belong to a skill: a server declares that it has skills,
// or the URI has their usual scheme.
func (call *Call) mayBeOfSkill(uri string) bool {
	if scheme, _, ok := strings.Cut(uri, ":"); ok && strings.EqualFold(scheme, "skill") {
		return true
	}
	servers := call.session.serversInOrder(call.settings)
	return slices.ContainsFunc(servers, (*sessionServer).hasSkills)
}

// onlyServer returns the one server, where names have no prefixes.
func (call *Call) onlyServer() (*sessionServer, error) {
	name := call.settings.Servers[0].Name
	if srv := call.session.server(name); srv != nil {
		return srv, nil
	}
	return nil, &UnavailableError{Server: name, Reason: "it is no longer configured"}
}

// removePrefixes removes Gatekit's prefixes from a message that goes to m.Server. A URI with
// another server's prefix is left as it is.
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

// addPrefixes adds Gatekit's prefixes to a message of a server. It remembers the server as the
// owner of the URIs in the message.
func (s *Session) addPrefixes(set *settings, p pipeline.Passed) (pipeline.Passed, error) {
	return s.addPrefixesAndReport(set, p, func(ownedURI) {})
}

// addPrefixesAndReport does the same as addPrefixes, and also calls report for each URI that is
// remembered.
func (s *Session) addPrefixesAndReport(set *settings, p pipeline.Passed,
	report func(ownedURI)) (pipeline.Passed, error) {
	if set.names.disabled {
		return p, nil
	}
	m := p.Message()
	return p.RewriteNames(func(at mcp.NamePlace, v string) (string, error) {
		for _, o := range ownedURIsAt(m, at, v) {
			s.uriOwners.add(m.Server, o)
			report(o)
		}
		// A URI gets its prefix in every mode when several servers own it, or when it is too long
		// to be remembered: it could not be routed without one.
		shared := set.names.resources == "transparent" && (len(v) > maxURIBytes ||
			s.uriOwners.isShared(v))
		name := set.names.addPrefix(at.NameKind, m.Server, v, shared)
		if at.NameKind == mcp.ToolName || at.NameKind == mcp.PromptName {
			s.proxy.longNames.check(set.Log, m.Server, name)
		}
		return name, nil
	})
}

// ownedURIsAt returns the URIs that the server owns because of the URI v at a place of its message:
// v, and for a skill also its directory and all in it. There are none if the place holds another
// kind of name, or m is an error, which reports that the URI does not exist.
func ownedURIsAt(m *mcp.Message, at mcp.NamePlace, v string) []ownedURI {
	if m.Kind == mcp.Error || at.NameKind != mcp.URI && at.NameKind != mcp.URITemplate {
		return nil
	}
	owned := []ownedURI{{v, at.NameKind == mcp.URITemplate}}
	if at.Pattern == "/skills/*/uri" || at.Pattern == "/skill/uri" {
		if root, ok := strings.CutSuffix(v, "/SKILL.md"); ok {
			owned = append(owned, ownedURI{root, false}, ownedURI{root + "/{+path}", true})
		}
	}
	return owned
}
