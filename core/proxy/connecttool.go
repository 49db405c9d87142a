package proxy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// connectTool is the name of Gatekit's own tool with which a user logs in to a server. Clients see
// it with the server's prefix.
const connectTool = "connect"

// toolOwner tells whose tool of a server has the name connectTool.
type toolOwner int

const (
	ownerUnknown toolOwner = iota // the session has no list of the server's tools
	ownerGatekit                  // the last list had only Gatekit's own tool
	ownerServer                   // the last list was the server's
)

// noteTools notes whose tools the last list of the server had.
func (srv *sessionServer) noteTools(owner toolOwner) {
	srv.mu.Lock()
	srv.connectToolOwner = owner
	srv.mu.Unlock()
}

// connectToolOf returns the server's Upstream if err means that the principal must log in first,
// and if the list of tools then has Gatekit's own tool. Otherwise it returns nil.
func (call *Call) connectToolOf(srv *sessionServer, err error) LoginUpstream {
	if u := srv.loginUpstream(err); u != nil && u.HasConnectTool() {
		return u
	}
	return nil
}

// needsLogin reports whether a part is missing because the principal must log in to the server with
// Gatekit's own tool.
func (call *Call) needsLogin(p serverPart) bool {
	srv := call.session.server(p.server)
	return srv != nil && call.connectToolOf(srv, p.err) != nil
}

// publishConnectTool publishes Gatekit's own tool in place of the tools of a server that could not
// be listed without a login. It returns refused, the server's error, for which the list is partial.
func (call *Call) publishConnectTool(ctx context.Context, srv *sessionServer,
	request *mcp.Message, a *askedServer, refused error) error {
	p := serverPart{server: srv.name}
	answer, err := call.listConnectTool(ctx, srv, request)
	if err == nil {
		err = p.add(answer)
	}
	if err != nil {
		return err
	}
	meth, _ := mcp.LookupMethod(request.Method)
	page, err := call.settings.pages.page(call, meth, answer, 1)
	if err != nil {
		return err
	}
	p.pages = []*clientPage{page}
	a.publish(p)
	return refused
}

// listConnectTool returns the list of tools of a server that cannot be listed without a login. The
// list has only Gatekit's own tool, and no tool if a stage hides it.
func (call *Call) listConnectTool(ctx context.Context, srv *sessionServer,
	request *mcp.Message) (pipeline.Passed, error) {
	srv.noteTools(ownerGatekit)
	tool := object(textField("name", connectTool),
		textField("description", fmt.Sprintf("Log in to the server %q. Until you are logged in, "+
			"its other tools are not available. This tool asks the user to open a web page, or "+
			"returns what the user has to do.", srv.name)),
		field("inputSchema", []byte(`{"type":"object","properties":{},`+
			`"additionalProperties":false}`)),
		field("annotations", []byte(`{"readOnlyHint":false,"destructiveHint":false,`+
			`"idempotentHint":true,"openWorldHint":true}`)))
	members := append([]member{listField("tools", [][]byte{tool})}, call.uncachedMembers()...)
	return call.passConnect(ctx, request, object(members...))
}

// uncachedMembers returns the members with which a list is not cached, for a client of a revision
// that has them.
func (call *Call) uncachedMembers() []member {
	if _, isModern := call.request.Get(mcp.PointerProtocolVersion); !isModern {
		return nil
	}
	return []member{textField("resultType", "complete"), field("ttlMs", []byte("0")),
		textField("cacheScope", "private")}
}

// passConnect inspects and records a result of Gatekit's own tool, or the list with this tool, as
// the answer to request.
func (call *Call) passConnect(ctx context.Context, request *mcp.Message,
	result []byte) (pipeline.Passed, error) {
	m := call.session.stamp(mcp.NewResponse(call.request.ID(), result), mcp.ToClient, call.request)
	m.Request, m.Method, m.Server, m.Name = request, request.Method, request.Server, request.Name
	m.Own = true
	return call.settings.Pipeline.PassOwnInspected(ctx, m)
}

// runsConnectTool reports whether a call of a server's tool connectTool is one of Gatekit's own
// tool. That is so if the last list of tools that the session got had Gatekit's tool: then no
// server gets the call. If the session has no list, runsConnectTool asks the server for it.
func (call *Call) runsConnectTool(ctx context.Context, srv *sessionServer) bool {
	if u, ok := srv.upstream.(LoginUpstream); !ok || !u.HasConnectTool() ||
		call.settings.names.disabled { // without prefixes, all answers are the server's own
		return false
	}
	owner := func() toolOwner {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return srv.connectToolOwner
	}
	if owner() == ownerUnknown {
		call.listTools(ctx, srv)
	}
	return owner() == ownerGatekit
}

// listTools asks one server for its tools, and returns the error of the first page.
func (call *Call) listTools(ctx context.Context, srv *sessionServer) error {
	params := []byte("{}")
	if meta, ok := call.request.Get("/_meta"); ok {
		params = object(field("_meta", meta))
	}
	meth, _ := mcp.LookupMethod("tools/list")
	list := &Call{session: call.session, settings: call.settings, client: call.client,
		request: call.session.stamp(mcp.NewRequest(call.request.ID(), meth.Name, params),
			mcp.ToServer, call.request)}
	return list.fetchPages(ctx, srv, meth, &askedServer{server: srv, method: meth.Name})
}

// connect serves a call of Gatekit's own tool of a server.
func (call *Call) connect(ctx context.Context, srv *sessionServer) (pipeline.Passed, error) {
	request := *call.request
	request.Server, request.Name, request.Own = srv.name, connectTool, true
	m, err := call.session.removePrefixes(call.settings, &request)
	if err != nil {
		return pipeline.Passed{}, err
	}
	call.routed = m
	idle, total := call.settings.timeouts(srv.name)
	d := call.startDeadline(srv, idle, total, call.cancel)
	defer d.stop()
	passed, err := call.passWithApproval(ctx, srv, m, d)
	if err != nil {
		return pipeline.Passed{}, err
	}
	call.session.recordClient(ctx, call.settings, passed.Message())
	text, isError, err := call.runConnect(ctx, srv, &serverHandler{session: call.session,
		server: srv, client: call.client, request: call.request, sent: passed.Message(),
		deadline: d})
	if err != nil {
		return pipeline.Passed{}, err
	}
	result := []member{listField("content", [][]byte{object(textField("type", "text"),
		textField("text", text))})}
	if isError {
		result = append(result, field("isError", []byte("true")))
	}
	if _, isModern := call.request.Get(mcp.PointerProtocolVersion); isModern {
		result = append(result, textField("resultType", "complete"))
	}
	return call.passConnect(ctx, passed.Message(), object(result...))
}

// runConnect asks the user to log in to a server, and returns the text of the tool's result.
func (call *Call) runConnect(ctx context.Context, srv *sessionServer,
	h *serverHandler) (text string, isError bool, err error) {
	began := time.Now()
	refused := call.listTools(ctx, srv)
	u := call.connectToolOf(srv, refused)
	done := fmt.Sprintf("You are logged in to the server %q. Its tools are now in the list of "+
		"tools.", srv.name)
	switch {
	case refused == nil:
		return done, false, nil
	case u == nil:
		return "", false, refused
	case !h.opensURLs():
		login, err := call.beginLogin(ctx, u, srv, began)
		if err != nil {
			return refused.Error(), true, nil
		}
		page, text := login.Page()
		return fmt.Sprintf("%s\n\nThe user must open this page in a browser: %s\n\nThen list the "+
			"tools again.", text, page), false, nil
	}
	outcome, login := call.askToLogIn(ctx, u, h, began, nil)
	for last := login; outcome == loggedIn; last = login { // the server may need another one
		if outcome, login = call.askToLogIn(ctx, u, h, began, last); login == last {
			return done, false, nil
		}
	}
	if outcome == notLoggedIn {
		return "The user has not logged in: " + refused.Error(), true, nil
	}
	if ctx.Err() != nil {
		return "", false, context.Cause(ctx)
	}
	if required := call.loginRequired(ctx, refused); required != nil {
		return "", false, required
	}
	return refused.Error(), true, nil
}

// declareForLogin declares features to the client that the servers may have after a login. Without
// them, the client would not ask for lists, and would not find the tool to log in.
func (call *Call) declareForLogin(parts []serverPart) {
	if slices.ContainsFunc(parts, call.needsLogin) {
		call.isPartialInitialize, call.isForLogin = true, true
		call.session.noteDeclaredAhead()
	}
}
