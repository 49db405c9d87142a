package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
	"gatekit/transport/credentials"

	"github.com/go-json-experiment/json"
)

// loginQuestions is a server at which the local user can log in while a call waits. Its sessions
// ask the user in the name of the server (elicitation/create with a URL). The authorization server
// sends the browser back to a loopback port of this machine, so only the local user is asked.
type loginQuestions struct {
	proxy.Upstream
	name        string
	credentials *credentials.Server
	patience    time.Duration // how long a call waits for the login
	loggedIn    func()        // called after a login
	log         *slog.Logger
	goroutines  *taskgroup.Group

	// beginning holds a value while a call begins a login, and guards pending. It is no
	// sync.Mutex, because a login begins over the network, and a call that waits for that can be
	// cancelled.
	beginning chan struct{}
	pending   *pendingLogin // the last login; it may be over
}

// pendingLogin is a login that a user has been asked for.
type pendingLogin struct {
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
	if err != nil || o.Principal.ID() != "" {
		return opened, err
	}
	return &loginAsker{Server: opened, questions: q, isLegacy: o.Revision < mcp.Rev20260728}, nil
}

// loginAsker is the server of one session of the local user.
type loginAsker struct {
	proxy.Server
	questions *loginQuestions
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
	refused, ok := errors.AsType[*upstream.CredentialsError](err)
	if !ok || !refused.LoginNeeded || !s.canAsk(m) {
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
	login, err := q.begin(ctx, began)
	if err != nil {
		q.log.Warn("login not begun", "server", q.name, "error", err)
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

// begin begins a login, or returns the login that is under way, or one that has succeeded since a
// time.
func (q *loginQuestions) begin(ctx context.Context, since time.Time) (*pendingLogin, error) {
	select {
	case q.beginning <- struct{}{}:
		defer func() { <-q.beginning }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l := q.pending; l != nil && (!l.isOver() || l.err == nil && l.ended.After(since)) {
		return l, nil
	}
	callback := &loginCallback{}
	n, err := q.credentials.BeginLogin(ctx, "", callback.listen)
	if err != nil {
		callback.close()
		return nil, err
	}
	login := &pendingLogin{url: n.URL, issuer: n.Issuer, scopes: n.Scopes,
		done: make(chan struct{})}
	started := q.goroutines.Go(func(ctx context.Context) {
		defer close(login.done)
		defer callback.close()
		ctx, cancel := context.WithTimeout(ctx, loginTimeout)
		defer cancel()
		login.err = callback.wait(ctx, n.Matches, func(query url.Values) error {
			_, err := n.Finish(ctx, query)
			return err
		})
		login.ended = time.Now()
		switch {
		case login.err == nil:
			q.loggedIn()
		case ctx.Err() == nil || errors.Is(context.Cause(ctx), context.DeadlineExceeded):
			q.log.Warn("login failed", "server", q.name, "error", login.err)
		}
	})
	if !started {
		callback.close()
		return nil, taskgroup.ErrClosed
	}
	q.pending = login
	return login, nil
}
