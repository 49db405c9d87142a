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

// route returns the one server that a request is for. It also returns the name of the tool, prompt,
// resource or task without Gatekit's prefix.
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
	// If names have no prefixes, a request without a name is left to the server, which reports the
	// fault. A name that is not a string is always refused: a lenient server reads ["x"] as x,
	// while stages would see no name.
	if _, present := call.request.Get(pointer); !ok && (present && pointer != "" ||
		!call.settings.names.disabled) {
		return nil, "", requestErrorf(mcp.CodeInvalidParams, "%s needs a string at %s",
			call.request.Method, pointer)
	}
	if call.settings.names.disabled {
		srv, err := call.onlyServer()
		if err == nil && nameKind == mcp.TaskID {
			var foreign bool
			if foreign, err = call.denyIfForeignTask(ctx, srv.name, name); foreign {
				err = requestErrorf(mcp.CodeInvalidParams, "Unknown task: %s", quoteName(name))
			}
		}
		return srv, name, err // the server itself reports other faults of the name
	}
	server, clean, ok := call.settings.names.splitPrefix(nameKind, name)
	if !ok && (nameKind == mcp.URI || nameKind == mcp.URITemplate) {
		server, ok = call.findOwner(ctx, name)
	}
	if ok && nameKind == mcp.TaskID {
		foreign, err := call.denyIfForeignTask(ctx, server, clean)
		if err != nil {
			return nil, "", err
		}
		ok = !foreign
	}
	if ok {
		if srv := call.session.server(server); srv != nil {
			return srv, clean, nil
		}
	}
	failure := requestErrorf(mcp.CodeInvalidParams, "Unknown %s: %s", noun, quoteName(name))
	if owners := call.session.uriOwners.owners(name); noun == "resource" && len(owners) > 1 {
		var named []string
		for _, owner := range owners {
			named = append(named,
				quoteName(call.settings.names.addPrefix(nameKind, owner, name, true)))
		}
		failure.message += ", which the servers " + strings.Join(owners, ", ") +
			" have in common: use " + strings.Join(named, " or ")
	}
	if noun == "resource" {
		failure.code = mcp.UnknownResourceCode(call.session.options.Revision)
	}
	if noun == "resource" && len(name) <= maxURIBytes {
		failure.data = object(textField("uri", name))
	}
	return nil, "", failure
}

// findOwner returns the one server that owns a URI without a prefix. If no list of this session has
// named the URI, findOwner asks the servers for their lists: the client may know the URI from an
// earlier session. The URI itself is sent only to its owner.
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
	// the least time between two requests of a session for the same list
	ownerListInterval = time.Minute
)

// listURIs asks all servers for the lists that may contain the URI. It leaves out lists that the
// session requested less than ownerListInterval ago. It also leaves out skills/list if the URI
// cannot belong to a skill. uriOwners remembers which server listed which URI.
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
			request: call.session.stamp(request, mcp.ToServer, call.request)}
		lists.Go(func() { list.askAll(ctx, meth) })
	}
	lists.Wait()
}

// mayBeOfSkill reports whether a URI may belong to a skill: the URI has the scheme "skill", or a
// server declares that it has skills.
func (call *Call) mayBeOfSkill(uri string) bool {
	if scheme, _, ok := strings.Cut(uri, ":"); ok && strings.EqualFold(scheme, "skill") {
		return true
	}
	servers := call.session.serversInOrder(call.settings)
	return slices.ContainsFunc(servers, (*sessionServer).hasSkills)
}

// onlyServer returns the only server of a configuration in which names have no prefixes.
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
		// In the mode transparent, a URI gets a prefix only if several servers own the URI, or if
		// it is too long to be remembered. Gatekit could not route such a URI without a prefix. The
		// same holds for templates.
		shared := false
		switch isURI := at.NameKind == mcp.URI; {
		case set.names.resources != "transparent":
		case isURI, at.NameKind == mcp.URITemplate && !set.hasSeveralServers():
			shared = len(v) > maxURIBytes || s.uriOwners.isShared(v)
		case at.NameKind == mcp.URITemplate:
			shared = s.uriOwners.isTemplateShared(m.Server, v)
		}
		name := set.names.addPrefix(at.NameKind, m.Server, v, shared)
		if at.NameKind == mcp.ToolName || at.NameKind == mcp.PromptName {
			s.proxy.longNames.check(set.Log, m.Server, name)
		}
		return name, nil
	})
}

// ownedURIsAt returns the URIs that a server owns because its message m has v at a place. These are
// v itself and, if v is the URI of a skill, the skill's directory with all files in the directory.
// ownedURIsAt returns nil if the place holds no URI. It also returns nil if m is an error, because
// an error may report that the URI does not exist.
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
