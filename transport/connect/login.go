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
	ctx := r.Context()
	l, err := p.link(ctx, sealed)
	cookie := p.cookie(r)
	var s *sessionState
	if err == nil && l != nil {
		s, err = p.session(ctx, cookie)
	}
	switch {
	case err != nil:
		p.refuseUnavailable(w, r, err)
		return
	case l == nil:
		p.refuse(w, r, Refusal{Status: http.StatusNotFound,
			Reason: "the link is not valid, was used, or has expired"}, badLink)
		return
	}
	isKnown := s != nil && s.Principal != "" && s.Issuer == l.login.Principal.Issuer()
	switch {
	case isKnown && s.Principal != l.login.Principal.ID():
		p.refuseOther(w, r, cookie, s, l)
	case r.Method == http.MethodPost && !isKnown:
		p.refuse(w, r, l.refusal(http.StatusForbidden, "the form of a link was sent without the "+
			"session of its user"), openAgain)
	case r.Method == http.MethodPost:
		p.begin(w, r, cookie, s, l)
	case isKnown:
		l.write(w, s.CSRF)
	default:
		p.askWho(w, r, cookie, sealed, l)
	}
}

// refusal returns the refusal of a request for a link.
func (l *openLink) refusal(status int, reason string) Refusal {
	return Refusal{Status: status, Server: l.login.Server, Principal: l.login.Principal.ID(),
		Reason: reason}
}

// refuseOther refuses a user who is not the principal of the link. It ends the session of the
// browser, so that the user can log in at the issuer with another account.
func (p *Pages) refuseOther(w http.ResponseWriter, r *http.Request, cookie string, s *sessionState,
	l *openLink) {
	_, _ = p.endSession(r.Context(), cookie) // else the browser has lost the cookie all the same
	p.setCookie(w, "")
	p.refuse(w, r, l.refusal(http.StatusForbidden, fmt.Sprintf("the link to log in, for which "+
		"this principal was asked, was opened by %s", display.Quote(s.Principal, maxQuoted))),
		otherUser)
}

// askWho sends the browser to the issuer of the link's principal.
func (p *Pages) askWho(w http.ResponseWriter, r *http.Request, cookie, sealed string,
	l *openLink) {
	ctx, issuer := r.Context(), l.login.Principal.Issuer()
	_, isCounted, err := update(ctx, p.values, linkKey(l.id), func(s *linkState) bool {
		s.Opened++
		return s.Opened <= maxOpened
	})
	if err != nil {
		p.refuseUnavailable(w, r, err)
		return
	}
	if !isCounted {
		p.refuse(w, r, l.refusal(http.StatusTooManyRequests, "the link was opened too often"),
			openedTooOften)
		return
	}
	login, err := p.o.BeginLogin(ctx, issuer, p.base+loginPath)
	if err != nil {
		p.refuse(w, r, l.refusal(http.StatusServiceUnavailable, fmt.Sprintf("the login at the "+
			"issuer could not begin: %v", err)), tryLater)
		return
	}
	a := attempt{l.id, sealed, l.Expires, issuer, login.State, login.Rest}
	s, err := p.updateSession(ctx, cookie, func(s *sessionState) bool {
		// The oldest attempt is the one that the user has most likely given up.
		s.Attempts = append(s.Attempts[max(0, len(s.Attempts)+1-maxAttempts):], a)
		return true
	})
	if err == nil && s == nil {
		cookie, err = p.newSession(ctx, sessionState{Attempts: []attempt{a}})
	}
	if err != nil {
		p.refuse(w, r, l.refusal(http.StatusServiceUnavailable, err.Error()), tryLater)
		return
	}
	p.setCookie(w, cookie)
	redirect(w, login.URL)
}

// takeAnswered returns the login of the browser to which the query of a request is the answer. list
// returns the logins of a session, and matches reports whether a login waits for an answer with a
// state. The login is removed from the session, because an answer counts once. ok is false if there
// is no such login.
func takeAnswered[T any](p *Pages, r *http.Request, list func(*sessionState) *[]T,
	matches func(s *sessionState, login T, state string) bool) (login T, q url.Values, ok bool,
	err error) {
	q, isValid := query(r)
	state := q.Get("state")
	if !isValid || state == "" {
		return login, nil, false, nil
	}
	s, err := p.updateSession(r.Context(), p.cookie(r), func(s *sessionState) bool {
		logins := list(s)
		i := slices.IndexFunc(*logins, func(l T) bool { return matches(s, l, state) })
		if i < 0 {
			return false
		}
		login = (*logins)[i]
		*logins = slices.Delete(*logins, i, i+1)
		return true
	})
	return login, q, s != nil, err
}

// isEqual compares two secrets.
func isEqual(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// finishUserLogin takes the answer of the issuer. From now on, the session has a principal.
func (p *Pages) finishUserLogin(w http.ResponseWriter, r *http.Request) {
	a, q, ok, err := takeAnswered(p, r, func(s *sessionState) *[]attempt { return &s.Attempts },
		func(_ *sessionState, a attempt, state string) bool { return isEqual(a.State, state) })
	var l *openLink
	if ok && err == nil {
		l, err = p.linkByID(r.Context(), a.Link)
	}
	if err != nil {
		p.refuseUnavailable(w, r, err)
		return
	}
	if l == nil {
		p.refuse(w, r, Refusal{Status: http.StatusBadRequest, Reason: "the answer of an issuer " +
			"belongs to no login of this browser"}, openAgain)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishTimeout)
	defer cancel()
	who, err := p.o.FinishUser(ctx, a.Issuer, a.Rest, q)
	if err != nil {
		p.refuse(w, r, l.refusal(http.StatusForbidden, fmt.Sprintf("the user did not show "+
			"who they are: %v", err)), openAgain)
		return
	}
	// The cookie changes, so that nobody knows the session who has known it before.
	old, err := p.endSession(ctx, p.cookie(r))
	cookie := ""
	if err == nil {
		next := sessionState{Issuer: who.Issuer(), Principal: who.ID()}
		if old != nil {
			next.Attempts, next.Begun = old.Attempts, old.Begun
		}
		cookie, err = p.newSession(ctx, next)
	}
	if err != nil {
		p.refuse(w, r, l.refusal(http.StatusServiceUnavailable, err.Error()), tryLater)
		return
	}
	p.setCookie(w, cookie)
	redirect(w, p.base+a.Sealed) // which compares the user with its principal
}

// begin takes the form of a link's page: it sends the browser to the authorization server.
func (p *Pages) begin(w http.ResponseWriter, r *http.Request, cookie string, s *sessionState,
	l *openLink) {
	ctx := r.Context()
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	site := r.Header.Get("Sec-Fetch-Site") // of browsers that send it
	s.forgetExpired()
	switch {
	case err != nil || site != "" && site != "same-origin" ||
		!isEqual(r.PostForm.Get("csrf"), s.CSRF):
		p.refuse(w, r, l.refusal(http.StatusForbidden, "the form was not sent by the page of the "+
			"link"), openAgain)
		return
	case len(s.Begun) >= maxBegun:
		p.refuse(w, r, l.refusal(http.StatusTooManyRequests, "too many logins have begun in this "+
			"browser"), tryLater)
		return
	}
	_, isOurs, err := update(ctx, p.values, linkKey(l.id), func(s *linkState) bool {
		isOpen := p.isOpen(s, l.login.Principal)
		s.Used = true
		return isOpen
	})
	if err == nil && !isOurs {
		p.refuse(w, r, l.refusal(http.StatusNotFound, "the link was used, or has expired"), badLink)
		return
	}
	if err == nil {
		s, err = p.updateSession(ctx, cookie, func(s *sessionState) bool {
			s.Begun = append(s.Begun, begun{l.id, l.Expires, l.login.Principal.ID(), l.State})
			return len(s.Begun) <= maxBegun
		})
	}
	switch {
	case err != nil:
		p.refuseUnavailable(w, r, err)
	case s == nil:
		p.refuse(w, r, l.refusal(http.StatusForbidden, "the session of the browser has ended"),
			openAgain)
	default:
		redirect(w, l.login.URL)
	}
}

// finishLogin takes the answer of an authorization server, in the browser in which the login began.
func (p *Pages) finishLogin(w http.ResponseWriter, r *http.Request) {
	b, q, ok, err := takeAnswered(p, r, func(s *sessionState) *[]begun { return &s.Begun },
		func(s *sessionState, b begun, state string) bool {
			return s.Principal != "" && b.Principal == s.Principal && isEqual(b.State, state)
		})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishTimeout)
	defer cancel()
	var login Login
	if ok && err == nil {
		login, ok, err = p.begun(ctx, b.Link)
	}
	if err != nil {
		p.refuseUnavailable(w, r, err)
		return
	}
	if !ok {
		p.refuse(w, r, Refusal{Status: http.StatusBadRequest, Reason: "the answer of an " +
			"authorization server belongs to no login of this browser"}, notBegun)
		return
	}
	err = p.o.Finish(ctx, login, q)
	p.end(ctx, b.Link, err)
	if err != nil {
		loginFailed.write(w, http.StatusOK)
		return
	}
	loggedIn.write(w, http.StatusOK)
}

// begun returns the login of a link that has begun. ok is false if it can no longer succeed.
func (p *Pages) begun(ctx context.Context, id string) (login Login, ok bool, err error) {
	s, _, err := load[linkState](ctx, p.values, linkKey(id))
	if err != nil || s == nil {
		return login, false, err
	}
	login, err = s.login()
	return login, err == nil && p.isAlive(s, login.Principal), err
}

// redirect sends the browser to another page, which it gets with GET.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
