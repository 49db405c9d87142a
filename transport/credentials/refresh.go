package credentials

import (
	"context"
	"errors"
	"io/fs"
	"net/url"

	"gatekit/core/backoff"
	"gatekit/core/shared"
	"gatekit/transport/tokenstore"

	"golang.org/x/oauth2"
)

// refresh replaces the tokens of a record. The caller holds the record's lock, which unlock ends.
// If no answer came, refresh tries once more with the same token: the authorization server may not
// have seen it.
func (s *Server) refresh(ctx context.Context, r *tokenstore.Record,
	unlock func()) (*tokenstore.Record, error) {
	e, err := s.discoveredAs(ctx, r.AuthorizationServer)
	if err != nil {
		return nil, err
	}
	client := s.clientOf(r)
	giveUp, err := s.o.Store.BeginRefresh(r)
	if err != nil {
		return nil, err
	}
	params := url.Values{"refresh_token": {r.Secrets.Refresh}}
	var t *oauth2.Token
	for range 2 {
		t, err = s.requestToken(ctx, e, client, grantRefresh, nil, params)
		if _, refused := errors.AsType[*tokenError](err); err == nil || refused {
			break
		}
	}
	refused, ok := errors.AsType[*tokenError](err)
	if ok && refused.endsLogin(s.isRegistered(client.ID)) {
		s.event(r.Principal, ActionRejected, "refresh at "+r.AuthorizationServer, err)
		removeErr := s.o.Store.Replace(r, nil)
		if errors.Is(removeErr, shared.ErrChanged) {
			return s.refreshedByOther(r)
		}
		if err := errors.Join(removeErr, s.forgetUnknown(client, e.as.Issuer,
			err)); err != nil {
			return nil, err
		}
		return nil, s.loginNeeded("the login has ended", r.Principal, nil, refused)
	}
	if err != nil {
		giveUp()
		s.forgetEndpoints()
		return nil, err
	}
	kept, err := s.identityToken(t, r.Principal, "")
	if err != nil {
		return nil, s.keepWithoutIDToken(r, t, err)
	}
	next := s.newRecord(r.Principal, e, client, r.Scopes, kept)
	next.Wanted = r.Wanted
	if next.Secrets.Refresh == "" {
		next.Secrets.Refresh = r.Secrets.Refresh
	}
	if err := s.saveRefreshed(ctx, r, next, unlock); err != nil {
		if errors.Is(err, shared.ErrChanged) {
			return s.refreshedByOther(r)
		}
		return nil, err
	}
	return next, nil
}

// refreshedByOther returns the tokens that another replica has stored in place of r. It is for a
// replica that has lost its lock, or that came after one that has.
func (s *Server) refreshedByOther(r *tokenstore.Record) (*tokenstore.Record, error) {
	next, err := s.o.Store.Load(r.ID)
	if err == nil && !s.isUsable(next, nil, r.Secrets.Access) {
		err = errors.New("another replica has changed the login")
	}
	return next, err
}

// saveRefreshed stores next in place of was, whose refresh token is used up. While the shared state
// is away, it goes on in the background, because nobody else has the new refresh token, and calls
// unlock after that: the caller's unlock may have had no effect.
func (s *Server) saveRefreshed(ctx context.Context, was, next *tokenstore.Record,
	unlock func()) error {
	err := s.o.Store.Replace(was, next)
	if !errors.Is(err, shared.ErrUnavailable) {
		return s.settle(ctx, next, err)
	}
	s.goroutines.Go(func(ctx context.Context) {
		defer unlock()
		for isOpen := true; isOpen; {
			isOpen = backoff.Sleep(ctx, saveRetry)
			err := s.o.Store.Replace(was, next)
			if !errors.Is(err, shared.ErrUnavailable) || !isOpen {
				if err := s.settle(context.WithoutCancel(ctx), next, err); err != nil {
					s.event(next.Principal, ActionRejected, "the new tokens were not stored", err)
				}
				return
			}
		}
	})
	return err
}

// settle records that new tokens were stored. If they were not, because the login has been removed
// meanwhile, it revokes them.
func (s *Server) settle(ctx context.Context, next *tokenstore.Record, err error) error {
	switch {
	case err == nil:
		s.event(next.Principal, ActionRefreshed, describe(next), nil)
	case errors.Is(err, fs.ErrNotExist):
		ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
		defer cancel()
		return errors.Join(err, s.revoke(ctx, next))
	}
	return err
}
