package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"sync"
	"time"

	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
	"gatekit/transport/connect"
	"gatekit/transport/credentials"
)

// loginQuestions is a server at which users can log in while a call waits. It implements
// proxy.LoginUpstream.
//
// The local user gets the page of the authorization server, which sends the browser back to a
// loopback port of this machine. A principal of an issuer gets a link of Gatekit's own pages, on
// which it must first show who it is. Other principals are not asked, and neither are principals
// who share one login: whoever logs in would do so for all of them.
type loginQuestions struct {
	proxy.Upstream
	// servers are the names of the servers at which users log in: the server itself, or those whose
	// tokens it gets
	servers        []string
	credentials    func(server string) *credentials.Server
	patience       time.Duration                  // how long a call waits for the login
	hasConnectTool bool                           // [server.NAME.auth] connect_tool
	loggedIn       func(server, principal string) // called after a login
	pages          func() *connect.Pages          // returns nil if there are none
	log            *slog.Logger
	goroutines     *taskgroup.Group

	mu      sync.Mutex
	pending map[loginKey]*pendingLogin // the last login of each principal; it may be over
}

var _ proxy.LoginUpstream = (*loginQuestions)(nil)

// maxPendingLogins bounds the logins at one server that are kept in memory.
const maxPendingLogins = 1000

// loginKey identifies the logins of a principal at a server.
type loginKey struct{ server, principal string }

// pendingLogin is a login that a user has been asked for. It implements proxy.Login.
type pendingLogin struct {
	server string
	begun  chan struct{} // closed when the page is known, or when the login is over
	// set before begun is closed; "" if the login could not begin
	url, issuer string
	scopes      []string
	done        chan struct{} // closed when the login is over
	// set before done is closed
	err   error
	ended time.Time
}

// NeedsLogin implements proxy.LoginUpstream.
func (q *loginQuestions) NeedsLogin(err error) bool {
	refused, ok := errors.AsType[*upstream.CredentialsError](err)
	return ok && refused.LoginNeeded
}

// HasConnectTool implements proxy.LoginUpstream.
func (q *loginQuestions) HasConnectTool() bool { return q.hasConnectTool }

// Patience implements proxy.LoginUpstream.
func (q *loginQuestions) Patience() time.Duration { return q.patience }

// missing returns the first server at which a principal must log in.
func (q *loginQuestions) missing(ctx context.Context, who *identity.Principal) string {
	if len(q.servers) > 1 {
		for _, server := range q.servers {
			tokens := q.credentials(server)
			if tokens == nil {
				continue
			}
			if _, err := tokens.Token(ctx, who); q.NeedsLogin(err) {
				return server
			}
		}
	}
	return q.servers[0]
}

// asks reports whether a principal can be asked to log in to a server.
func (q *loginQuestions) asks(server string, who *identity.Principal) bool {
	if who.ID() == "" {
		return true
	}
	pages := q.pages()
	tokens := q.credentials(server)
	return pages != nil && tokens != nil && !tokens.IsShared() && pages.CanAsk(who)
}

// Page implements proxy.Login.
func (l *pendingLogin) Page() (page, text string) {
	text = fmt.Sprintf("Log in to the server %q at %s", l.server, l.issuer)
	if len(l.scopes) > 0 {
		text += ", which is asked for the scopes " + strings.Join(l.scopes, " ")
	}
	return l.url, display.EscapeLine(text+".", maxLoginText)
}

// Done implements proxy.Login.
func (l *pendingLogin) Done() <-chan struct{} { return l.done }

// Err implements proxy.Login.
func (l *pendingLogin) Err() error { return l.err }

// isOver reports whether the login is over.
func (l *pendingLogin) isOver() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// BeginLogin implements proxy.LoginUpstream.
func (q *loginQuestions) BeginLogin(ctx context.Context, who *identity.Principal,
	since time.Time) (proxy.Login, error) {
	server := q.missing(ctx, who)
	if !q.asks(server, who) {
		return nil, proxy.ErrCannotAsk
	}
	login, err := q.current(server, who, since)
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
func (q *loginQuestions) current(server string, who *identity.Principal,
	since time.Time) (*pendingLogin, error) {
	key := loginKey{server, who.ID()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.pending[key]; l != nil && (!l.isOver() || l.err == nil && l.ended.After(since)) {
		return l, nil
	}
	if len(q.pending) >= maxPendingLogins {
		maps.DeleteFunc(q.pending, func(_ loginKey, l *pendingLogin) bool { return l.isOver() })
		if len(q.pending) >= maxPendingLogins {
			return nil, fmt.Errorf("%d users are asked to log in already", len(q.pending))
		}
	}
	login := &pendingLogin{server: server, begun: make(chan struct{}), done: make(chan struct{})}
	if !q.goroutines.Go(func(ctx context.Context) { q.run(ctx, who, login) }) {
		return nil, taskgroup.ErrClosed
	}
	q.pending[key] = login
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
			q.log.Warn("login failed", "server", login.server, "principal", who.ID(), "error", err)
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
	tokens := q.credentials(login.server)
	if tokens == nil {
		return nil, fmt.Errorf("the server %q is no longer configured", login.server)
	}
	begin := tokens.BeginPageLogin
	if who.ID() == "" {
		begin = func(ctx context.Context, principal string) (*credentials.Login, error) {
			return tokens.BeginLogin(ctx, principal, callback.listen)
		}
	}
	n, err := begin(ctx, who.ID())
	if err != nil {
		callback.close()
		return nil, err
	}
	login.issuer, login.scopes = n.Issuer, n.Scopes
	if who.ID() == "" {
		login.url = n.URL
		return func() error {
			defer callback.close()
			return callback.wait(ctx, n.Matches, func(query url.Values) error {
				_, err := n.Finish(ctx, query)
				if err == nil {
					q.loggedIn(login.server, who.ID())
				}
				return err
			})
		}, nil
	}
	rest, err := n.Save()
	if err != nil {
		return nil, err
	}
	link, err := q.pages().Ask(ctx, connect.Login{Principal: who, Server: login.server,
		AuthorizationServer: n.Issuer, Scopes: n.Scopes, URL: n.URL, State: n.State(), Rest: rest})
	if err != nil {
		return nil, err
	}
	login.url = link.URL
	return func() error { return link.Wait(ctx) }, nil
}
