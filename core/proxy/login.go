package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// loginUpstream returns the server's Upstream if err means that the principal must log in to the
// server first. Otherwise it returns nil.
func (srv *sessionServer) loginUpstream(err error) LoginUpstream {
	if u, ok := srv.upstream.(LoginUpstream); ok && err != nil && u.NeedsLogin(err) {
		return u
	}
	return nil
}

// notAskedAgainError is the error of a request that needs a login, after the user was asked to log
// in. The user is not asked a second time.
type notAskedAgainError struct{ error }

func (e notAskedAgainError) Unwrap() error { return e.error }

// callOrLogIn calls a server. If the user must log in first and can be asked, callOrLogIn asks the
// user, and repeats the call after the login. A call can need several logins, one after the other.
func (call *Call) callOrLogIn(ctx context.Context, srv *sessionServer,
	open func(context.Context) (Server, error), passed pipeline.Passed,
	h *serverHandler) (*mcp.Message, error) {
	once := func() (*mcp.Message, error) {
		server, err := open(ctx)
		if err != nil {
			return nil, err
		}
		call.noteAsked(srv)
		return server.Call(ctx, passed, h)
	}
	began := time.Now()
	var last Login
	for {
		answer, err := once()
		u := srv.loginUpstream(err)
		if u == nil || !isLoginAskedFor(passed.Message().Method) || !h.opensURLs() {
			return answer, err
		}
		outcome, login := call.askToLogIn(ctx, u, h, began, last)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case outcome == notLoggedIn:
			return answer, notAskedAgainError{err}
		case outcome != loggedIn:
			return answer, err
		}
		last = login
	}
}

// isLoginAskedFor reports whether the user is asked to log in during a request. During other
// requests, such as those for lists, clients expect no question.
func isLoginAskedFor(method string) bool {
	switch method {
	case "tools/call", "prompts/get", "resources/read":
		return true
	}
	return false
}

// opensURLs reports whether the client has declared that it opens web pages.
func (h *serverHandler) opensURLs() bool {
	declares, known := h.clientCapabilities()
	return known && declares("elicitation/url")
}

// loginOutcome is the outcome of asking a user to log in.
type loginOutcome int

const (
	cannotAsk   loginOutcome = iota // nobody was asked
	notLoggedIn                     // the user has declined, or has not logged in in time
	loggedIn
)

// askToLogIn asks the client's user to log in, in the name of the server, and waits for the login.
// If the user has logged in since the time began, nobody is asked. If that is the last login of the
// call, no other one can be asked for: askToLogIn returns cannotAsk with this login.
func (call *Call) askToLogIn(ctx context.Context, u LoginUpstream, h *serverHandler,
	began time.Time, last Login) (loginOutcome, Login) {
	login, err := call.beginLogin(ctx, u, h.server, began)
	if err != nil {
		return cannotAsk, nil
	}
	if login == last {
		return cannotAsk, last
	}
	select {
	case <-login.Done():
		if login.Err() == nil {
			return loggedIn, login
		}
		return cannotAsk, nil
	default:
	}
	id := rand.Text()
	answers := h.HandleRequests(ctx, []*mcp.Message{call.loginQuestion(login, id)})
	switch {
	case len(answers) != 1 || answers[0].Message() == nil ||
		answers[0].Message().Kind != mcp.Response:
		return cannotAsk, nil
	case !answers[0].Message().TextEquals("/action", "accept") || !waitForLogin(ctx, u, login, h):
		return notLoggedIn, nil
	}
	if call.session.hasElicitationIDs() {
		h.HandleNotification(ctx, loginComplete(id))
	}
	return loggedIn, login
}

// beginLogin begins a login of the session's principal, or logs why it cannot.
func (call *Call) beginLogin(ctx context.Context, u LoginUpstream, srv *sessionServer,
	since time.Time) (Login, error) {
	login, err := u.BeginLogin(ctx, call.request.Principal, since)
	if err != nil && !errors.Is(err, ErrCannotAsk) && ctx.Err() == nil {
		call.settings.Log.Warn("login not begun", "server", srv.name, "principal",
			call.request.Principal.ID(), "error", err)
	}
	return login, err
}

// hasElicitationIDs reports whether questions to open a page have an id in the client's revision,
// and the client is notified when the user is done. That ended with 2026-07-28.
func (s *Session) hasElicitationIDs() bool { return s.options.Revision < mcp.Rev20260728 }

// loginQuestion returns the server's question to open the page of a login.
func (call *Call) loginQuestion(login Login, id string) *mcp.Message {
	page, text := login.Page()
	params := []member{textField("mode", "url"), textField("url", page),
		textField("message", text)}
	if call.session.hasElicitationIDs() {
		params = append(params, textField("elicitationId", id))
	}
	return mcp.NewRequest(mcp.ID(mcp.Quote(id)), "elicitation/create", object(params...))
}

// loginComplete returns the notification that a login, which a client was asked for, is complete.
func loginComplete(id string) *mcp.Message {
	return mcp.NewNotification("notifications/elicitation/complete",
		object(textField("elicitationId", id)))
}

// waitForLogin waits until a login is over, and reports whether the user has logged in.
func waitForLogin(ctx context.Context, u LoginUpstream, login Login, h *serverHandler) bool {
	ctx, cancel := context.WithTimeout(ctx, u.Patience())
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-login.Done():
			return login.Err() == nil
		case <-tick.C:
			h.ReportActivity()
		case <-ctx.Done():
			return false
		}
	}
}

// urlElicitation is a login that a client was told of with an error.
type urlElicitation struct {
	login Login
	id    string // its elicitationId
}

// loginRequired returns the error -32042, with the page to log in, for a request that failed with
// err because the user must log in. It returns nil if the client's revision does not have this
// error, if the client does not open web pages, if the user was asked already, or if a stage denies
// the question. After the login, the client is notified.
func (call *Call) loginRequired(ctx context.Context, err error) *requestError {
	unavailable, ok := errors.AsType[*UnavailableError](err)
	if !ok || call.session.options.Revision != mcp.Rev20251125 ||
		call.request.Method == "initialize" || errors.As(err, new(notAskedAgainError)) {
		return nil
	}
	srv := call.session.server(unavailable.Server)
	if srv == nil {
		return nil
	}
	h := &serverHandler{session: call.session, server: srv, client: call.session.feed,
		request: call.request}
	u := srv.loginUpstream(err)
	if u == nil || !h.opensURLs() {
		return nil
	}
	// The session's context: the wait for the login must not end with this call.
	login, beginErr := call.beginLogin(ctx, u, srv, time.Now())
	if beginErr != nil {
		return nil
	}
	id := srv.awaitElicitation(login)
	set := call.settings
	question, denied := h.inspectRequest(ctx, set, h.stamp(call.loginQuestion(login, id)))
	if denied == nil {
		question, denied = h.requestForClient(set, question)
	}
	if denied != nil {
		return nil
	}
	required := requestErrorf(mcp.CodeURLElicitationRequired, "%s",
		set.unavailableText(unavailable))
	required.data = object(listField("elicitations", [][]byte{question.Message().Body()}))
	return required
}

// awaitElicitation returns the elicitationId of a login. When the user has logged in, the client is
// notified with this id. One login of a server is awaited at a time.
func (srv *sessionServer) awaitElicitation(login Login) (id string) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.elicitation != nil && srv.elicitation.login == login {
		return srv.elicitation.id
	}
	awaited := &urlElicitation{login, rand.Text()}
	srv.elicitation = awaited
	srv.session.runInBackground(func(ctx context.Context) {
		select {
		case <-login.Done():
		case <-ctx.Done():
			return
		}
		srv.mu.Lock()
		if srv.elicitation == awaited {
			srv.elicitation = nil
		}
		srv.mu.Unlock()
		if login.Err() == nil {
			(&serverHandler{session: srv.session, server: srv,
				client: srv.session.feed}).HandleNotification(ctx, loginComplete(awaited.id))
		}
	})
	return awaited.id
}
