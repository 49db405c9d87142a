package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
	"gatekit/transport/connect"
	"gatekit/transport/credentials"

	"github.com/go-json-experiment/json"
)

// loginQuestions is a server at which users can log in while a call waits. Its sessions ask the
// user in the name of the server (elicitation/create with a URL).
//
// The local user gets the page of the authorization server, which sends the browser back to a
// loopback port of this machine. A principal of an issuer gets a link of Gatekit's own pages, on
// which it must first show who it is. Other principals are not asked, and neither are principals
// who share one login: whoever logs in would do so for all of them.
type loginQuestions struct {
	proxy.Upstream
	name        string
	credentials *credentials.Server
	patience    time.Duration          // how long a call waits for the login
	loggedIn    func(principal string) // called after a login
	pages       func() *connect.Pages  // returns nil if there are none
	log         *slog.Logger
	goroutines  *taskgroup.Group

	mu      sync.Mutex
	pending map[string]*pendingLogin // the last login of each principal; it may be over
}

// maxPendingLogins bounds the logins at one server that are kept in memory.
const maxPendingLogins = 1000

// pendingLogin is a login that a user has been asked for.
type pendingLogin struct {
	begun chan struct{} // closed when the page is known, or when the login is over
	// set before begun is closed; "" if the login could not begin
	url, issuer string
	scopes      []string
	done        chan struct{} // closed when the login is over
	// set before done is closed
	err   error
	ended time.Time
}

// Open implements proxy.Upstream.
func (q *loginQuestions) Open(ctx context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	opened, err := q.Upstream.Open(ctx, o, feed)
	isLegacy := o.Revision < mcp.Rev20260728
	// A server whose revisions are not known cannot be opened without a login. The initialize of a
	// legacy client, which is the next request, cannot ask for one.
	if isLoginNeeded(err) && !isLegacy && q.asks(o.Principal) {
		opened, err = &laterServer{open: func(ctx context.Context) (proxy.Server, error) {
			return q.Upstream.Open(ctx, o, feed)
		}}, nil
	}
	if err != nil || !q.asks(o.Principal) {
		return opened, err
	}
	return &loginAsker{Server: opened, questions: q, principal: o.Principal,
		isLegacy: isLegacy}, nil
}

// isLoginNeeded reports whether an error is that the user has to log in.
func isLoginNeeded(err error) bool {
	refused, ok := errors.AsType[*upstream.CredentialsError](err)
	return ok && refused.LoginNeeded
}

// laterServer is a server that could not be opened without a login. Each use tries to open it,
// until one succeeds.
type laterServer struct {
	open func(context.Context) (proxy.Server, error)

	mu       sync.Mutex
	server   proxy.Server // nil until it is open
	isClosed bool
}

// get returns the server. If two calls open it at the same time, one of them closes its own again.
func (s *laterServer) get(ctx context.Context) (proxy.Server, error) {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	if server != nil {
		return server, nil
	}
	opened, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	isFirst := s.server == nil && !s.isClosed
	if isFirst {
		s.server = opened
	}
	server = s.server
	s.mu.Unlock()
	switch {
	case isFirst:
		return opened, nil
	case server == nil:
		return nil, errors.Join(errors.New("the session is being closed"), opened.Close())
	}
	return server, opened.Close()
}

// Call implements proxy.Server.
func (s *laterServer) Call(ctx context.Context, m pipeline.Passed,
	h proxy.Handler) (*mcp.Message, error) {
	server, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	return server.Call(ctx, m, h)
}

// Notify implements proxy.Server.
func (s *laterServer) Notify(ctx context.Context, m pipeline.Passed) error {
	server, err := s.get(ctx)
	if err != nil {
		return err
	}
	return server.Notify(ctx, m)
}

// Close implements proxy.Server.
func (s *laterServer) Close() error {
	s.mu.Lock()
	s.isClosed = true
	server := s.server
	s.mu.Unlock()
	if server == nil {
		return nil
	}
	return server.Close()
}

// asks reports whether a principal can be asked to log in.
func (q *loginQuestions) asks(who *identity.Principal) bool {
	if who.ID() == "" {
		return true
	}
	pages := q.pages()
	return pages != nil && !q.credentials.IsShared() && pages.CanAsk(who)
}

// loginAsker is the server of one session of a user who can be asked.
type loginAsker struct {
	proxy.Server
	questions *loginQuestions
	principal *identity.Principal
	isLegacy  bool
	opensURLs atomic.Bool // the client has declared elicitation.url in its initialize
}

// Call implements proxy.Server. If the server wants a login, the user is asked, and the request is
// repeated after the login: the server has not run it.
func (s *loginAsker) Call(ctx context.Context, p pipeline.Passed,
	h proxy.Handler) (*mcp.Message, error) {
	m := p.Message()
	if m.Method == "initialize" {
		_, ok := m.Get("/capabilities/elicitation/url")
		s.opensURLs.Store(ok)
	}
	began := time.Now()
	answer, err := s.Server.Call(ctx, p, h)
	if !isLoginNeeded(err) || !s.canAsk(m) {
		return answer, err
	}
	if !s.logIn(ctx, h, began) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return answer, err
	}
	return s.Server.Call(ctx, p, h)
}

// canAsk reports whether the user can be asked during the request m. During other requests, such as
// those for lists, clients expect no question.
func (s *loginAsker) canAsk(m *mcp.Message) bool {
	switch m.Method {
	case "tools/call", "prompts/get", "resources/read":
	default:
		return false
	}
	_, ok := m.Get(mcp.PointerCapabilities + "/elicitation/url")
	return ok || s.isLegacy && s.opensURLs.Load()
}

// logIn asks the user to log in and waits for the login. It reports whether the user has logged in.
// If the user has logged in since the time began, logIn does not ask.
func (s *loginAsker) logIn(ctx context.Context, h proxy.Handler, began time.Time) bool {
	q := s.questions
	login, err := q.begin(ctx, s.principal, began)
	if err != nil {
		q.log.Warn("login not begun", "server", q.name, "principal", s.principal.ID(),
			"error", err)
		return false
	}
	if login.isOver() {
		return true
	}
	text := fmt.Sprintf("Log in to the server %q at %s", q.name, login.issuer)
	if len(login.scopes) > 0 {
		text += ", which is asked for the scopes " + strings.Join(login.scopes, " ")
	}
	id := rand.Text()
	question := map[string]string{"mode": "url", "url": login.url,
		"message": display.EscapeLine(text+".", maxLoginText)}
	if s.isLegacy {
		question["elicitationId"] = id
	}
	params, err := json.Marshal(question)
	if err != nil {
		return false
	}
	answers := h.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest(mcp.ID(mcp.Quote(id)),
		"elicitation/create", params)})
	if len(answers) != 1 || answers[0].Message() == nil ||
		!answers[0].Message().TextEquals("/action", "accept") {
		return false
	}
	if !q.wait(ctx, login, h) {
		return false
	}
	if s.isLegacy {
		h.HandleNotification(ctx, mcp.NewNotification("notifications/elicitation/complete",
			[]byte(`{"elicitationId":`+string(mcp.Quote(id))+`}`)))
	}
	return true
}

// wait waits until a login is over, and reports whether the user has logged in.
func (q *loginQuestions) wait(ctx context.Context, login *pendingLogin, h proxy.Handler) bool {
	ctx, cancel := context.WithTimeout(ctx, q.patience)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-login.done:
			return login.err == nil
		case <-tick.C:
			h.ReportActivity()
		case <-ctx.Done():
			return false
		}
	}
}

// isOver reports whether the login is over.
func (l *pendingLogin) isOver() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// begin begins a login of a principal, or returns the login that is under way, or one that has
// succeeded since a time.
func (q *loginQuestions) begin(ctx context.Context, who *identity.Principal,
	since time.Time) (*pendingLogin, error) {
	login, err := q.current(who, since)
	if err != nil {
		return nil, err
	}
	select {
	case <-login.begun:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if login.url == "" {
		<-login.done
		return nil, login.err
	}
	return login, nil
}

// current returns a login of a principal that may not have begun yet.
func (q *loginQuestions) current(who *identity.Principal, since time.Time) (*pendingLogin, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.pending[who.ID()]; l != nil && (!l.isOver() || l.err == nil && l.ended.After(since)) {
		return l, nil
	}
	if len(q.pending) >= maxPendingLogins {
		maps.DeleteFunc(q.pending, func(_ string, l *pendingLogin) bool { return l.isOver() })
		if len(q.pending) >= maxPendingLogins {
			return nil, fmt.Errorf("%d users are asked to log in already", len(q.pending))
		}
	}
	login := &pendingLogin{begun: make(chan struct{}), done: make(chan struct{})}
	if !q.goroutines.Go(func(ctx context.Context) { q.run(ctx, who, login) }) {
		return nil, taskgroup.ErrClosed
	}
	q.pending[who.ID()] = login
	return login, nil
}

// run begins a login and waits until it is over.
func (q *loginQuestions) run(ctx context.Context, who *identity.Principal, login *pendingLogin) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	wait, err := q.ask(ctx, who, login)
	if err == nil {
		close(login.begun)
		err = wait()
		if err != nil && (ctx.Err() == nil ||
			errors.Is(context.Cause(ctx), context.DeadlineExceeded)) {
			q.log.Warn("login failed", "server", q.name, "principal", who.ID(), "error", err)
		}
	} else {
		defer close(login.begun)
	}
	login.err, login.ended = err, time.Now()
	close(login.done)
}

// ask sets the page that a principal must open, and returns the function that waits for the login.
// It must be called if there is no error.
func (q *loginQuestions) ask(ctx context.Context, who *identity.Principal,
	login *pendingLogin) (wait func() error, err error) {
	callback := &loginCallback{}
	begin := q.credentials.BeginPageLogin
	if who.ID() == "" {
		begin = func(ctx context.Context, principal string) (*credentials.Login, error) {
			return q.credentials.BeginLogin(ctx, principal, callback.listen)
		}
	}
	n, err := begin(ctx, who.ID())
	if err != nil {
		callback.close()
		return nil, err
	}
	finish := func(ctx context.Context, query url.Values) error {
		_, err := n.Finish(ctx, query)
		if err == nil {
			q.loggedIn(who.ID())
		}
		return err
	}
	login.issuer, login.scopes = n.Issuer, n.Scopes
	if who.ID() == "" {
		login.url = n.URL
		return func() error {
			defer callback.close()
			return callback.wait(ctx, n.Matches, func(query url.Values) error {
				return finish(ctx, query)
			})
		}, nil
	}
	link, err := q.pages().Ask(connect.Login{Principal: who, Server: q.name,
		AuthorizationServer: n.Issuer, Scopes: n.Scopes, URL: n.URL, Matches: n.Matches,
		Finish: finish})
	if err != nil {
		return nil, err
	}
	login.url = link.URL
	return func() error { return link.Wait(ctx) }, nil
}
