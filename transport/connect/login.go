package connect

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"gatekit/core/display"
)

// maxQuoted bounds the texts of others in reasons.
const maxQuoted = 300

// serveLink serves a link. The browser is first sent to the issuer, to show who the user is.
func (p *Pages) serveLink(w http.ResponseWriter, r *http.Request, sealed string) {
	l := p.link(sealed)
	if l == nil {
		p.refuse(w, r, Refusal{Status: http.StatusNotFound,
			Reason: "the link is not valid, was used, or has expired"}, badLink)
		return
	}
	p.mu.Lock()
	s := p.session(r)
	isKnown := s != nil && s.principal != "" && s.issuer == l.login.Principal.Issuer()
	opener, csrf := "", ""
	if isKnown {
		opener, csrf = s.principal, s.csrf
	}
	p.mu.Unlock()
	switch {
	case isKnown && opener != l.login.Principal.ID():
		p.refuseOther(w, r, s, l)
	case r.Method == http.MethodPost && !isKnown:
		p.refuse(w, r, l.refusal(http.StatusForbidden, "the form of a link was sent without the "+
			"session of its user"), openAgain)
	case r.Method == http.MethodPost:
		p.begin(w, r, s, l)
	case isKnown:
		l.write(w, csrf)
	default:
		p.askWho(w, r, l)
	}
}

// refusal returns the refusal of a request for a link.
func (l *Link) refusal(status int, reason string) Refusal {
	return Refusal{Status: status, Server: l.login.Server, Principal: l.login.Principal.ID(),
		Reason: reason}
}

// refuseOther refuses a user who is not the principal of the link. It ends the session of the
// browser, so that the user can log in at the issuer with another account.
func (p *Pages) refuseOther(w http.ResponseWriter, r *http.Request, s *session, l *Link) {
	p.mu.Lock()
	opener := s.principal
	p.end(s)
	p.mu.Unlock()
	p.setCookie(w, nil)
	p.refuse(w, r, l.refusal(http.StatusForbidden, fmt.Sprintf("the link to log in, for which "+
		"this principal was asked, was opened by %s", display.Quote(opener, maxQuoted))), otherUser)
}

// askWho sends the browser to the issuer of the link's principal.
func (p *Pages) askWho(w http.ResponseWriter, r *http.Request, l *Link) {
	p.mu.Lock()
	l.opened++
	isTooOften := l.opened > maxOpened
	p.mu.Unlock()
	if isTooOften {
		p.refuse(w, r, l.refusal(http.StatusTooManyRequests, "the link was opened too often"),
			openedTooOften)
		return
	}
	login, err := p.o.BeginLogin(r.Context(), l.login.Principal.Issuer(), p.base+loginPath)
	if err != nil {
		p.refuse(w, r, l.refusal(http.StatusServiceUnavailable, fmt.Sprintf("the login at the "+
			"issuer could not begin: %v", err)), tryLater)
		return
	}
	p.mu.Lock()
	s := p.session(r)
	if s == nil {
		s = p.newSession()
	}
	if s != nil {
		s.forgetEnded()
		// The oldest attempt is the one that the user has most likely given up.
		s.attempts = append(s.attempts[max(0, len(s.attempts)+1-maxAttempts):],
			&attempt{login, l})
	}
	p.mu.Unlock()
	if s == nil {
		p.refuse(w, r, l.refusal(http.StatusServiceUnavailable, "there are too many sessions of "+
			"browsers"), tryLater)
		return
	}
	p.setCookie(w, s)
	redirect(w, login.URL)
}

// takeAnswered returns the login of the browser to which the query of a request is the answer. list
// returns the logins of a session, and matches reports whether the query is the answer to one of
// them. The login is removed from the session, because an answer counts once.
func takeAnswered[T any](p *Pages, r *http.Request, list func(*session) *[]T,
	matches func(*session, T, url.Values) bool) (login T, s *session, q url.Values, ok bool) {
	q, isValid := query(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = p.session(r); !isValid || s == nil {
		return login, nil, nil, false
	}
	s.forgetEnded()
	logins := list(s)
	i := slices.IndexFunc(*logins, func(l T) bool { return matches(s, l, q) })
	if i < 0 {
		return login, nil, nil, false
	}
	login = (*logins)[i]
	*logins = slices.Delete(*logins, i, i+1)
	return login, s, q, true
}

// finishUserLogin takes the answer of the issuer. From now on, the session has a principal.
func (p *Pages) finishUserLogin(w http.ResponseWriter, r *http.Request) {
	a, s, q, ok := takeAnswered(p, r, func(s *session) *[]*attempt { return &s.attempts },
		func(_ *session, a *attempt, q url.Values) bool { return a.login.Matches(q) })
	if !ok {
		p.refuse(w, r, Refusal{Status: http.StatusBadRequest, Reason: "the answer of an issuer " +
			"belongs to no login of this browser"}, openAgain)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishTimeout)
	defer cancel()
	who, err := a.login.Finish(ctx, q)
	if err != nil {
		p.refuse(w, r, a.link.refusal(http.StatusForbidden, fmt.Sprintf("the user did not show "+
			"who they are: %v", err)), openAgain)
		return
	}
	p.mu.Lock()
	// The cookie changes, so that nobody knows the session who has known it before.
	p.end(s)
	next := p.newSession()
	if next != nil {
		next.issuer, next.principal = who.Issuer(), who.ID()
		next.attempts, next.begun = s.attempts, s.begun
	}
	p.mu.Unlock()
	if next == nil {
		p.refuse(w, r, a.link.refusal(http.StatusServiceUnavailable, "there are too many sessions "+
			"of browsers"), tryLater)
		return
	}
	p.setCookie(w, next)
	redirect(w, a.link.URL) // which compares the user with its principal
}

// begin takes the form of a link's page: it sends the browser to the authorization server.
func (p *Pages) begin(w http.ResponseWriter, r *http.Request, s *session, l *Link) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	site := r.Header.Get("Sec-Fetch-Site") // of browsers that send it
	p.mu.Lock()
	isOurs := err == nil && (site == "" || site == "same-origin") &&
		subtle.ConstantTimeCompare([]byte(r.PostForm.Get("csrf")), []byte(s.csrf)) == 1
	isOpen := l.isOpen()
	s.forgetEnded()
	hasRoom := len(s.begun) < maxBegun
	if isOurs && isOpen && hasRoom {
		l.isUsed = true
		s.begun = append(s.begun, l)
	}
	p.mu.Unlock()
	switch {
	case !isOurs:
		p.refuse(w, r, l.refusal(http.StatusForbidden, "the form was not sent by the page of the "+
			"link"), openAgain)
	case !isOpen:
		p.refuse(w, r, l.refusal(http.StatusNotFound, "the link was used, or has expired"), badLink)
	case !hasRoom:
		p.refuse(w, r, l.refusal(http.StatusTooManyRequests, "too many logins have begun in this "+
			"browser"), tryLater)
	default:
		redirect(w, l.login.URL)
	}
}

// finishLogin takes the answer of an authorization server, in the browser in which the login began.
func (p *Pages) finishLogin(w http.ResponseWriter, r *http.Request) {
	l, _, q, ok := takeAnswered(p, r, func(s *session) *[]*Link { return &s.begun },
		func(s *session, l *Link, q url.Values) bool {
			return s.principal != "" && l.login.Principal.ID() == s.principal && l.login.Matches(q)
		})
	if !ok {
		p.refuse(w, r, Refusal{Status: http.StatusBadRequest, Reason: "the answer of an " +
			"authorization server belongs to no login of this browser"}, notBegun)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishTimeout)
	defer cancel()
	err := l.login.Finish(ctx, q)
	p.mu.Lock()
	if !l.isEnded {
		l.isEnded, l.err = true, err
		close(l.done)
	}
	p.mu.Unlock()
	if err != nil {
		loginFailed.write(w, http.StatusOK)
		return
	}
	loggedIn.write(w, http.StatusOK)
}

// redirect sends the browser to another page, which it gets with GET.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
