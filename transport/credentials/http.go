package credentials

import (
	"context"
	"net/http"

	"gatekit/core/identity"
	"gatekit/core/upstream"
)

// HTTP is the connection to a server that wants tokens. Its requests as an [upstream.HTTP] have no
// token: As returns the connection for a principal.
type HTTP struct {
	upstream.HTTP
	credentials *Server
}

var _ upstream.Authenticated = HTTP{}

// Over returns a connection whose requests are sent over base with the tokens of s. base must not
// set the header Authorization.
func (s *Server) Over(base upstream.HTTP) HTTP { return HTTP{base, s} }

// As returns the connection of one principal.
func (h HTTP) As(p *identity.Principal) upstream.HTTP {
	return principalHTTP{h.HTTP, h.credentials, p}
}

// principalHTTP sends requests with the tokens of one principal. It implements upstream.HTTP.
type principalHTTP struct {
	base        upstream.HTTP
	credentials *Server
	principal   *identity.Principal
}

// Post implements upstream.HTTP.
func (h principalHTTP) Post(ctx context.Context, header http.Header,
	body ...[]byte) (*upstream.HTTPResponse, error) {
	return h.send(ctx, header, func(header http.Header) (*upstream.HTTPResponse, error) {
		return h.base.Post(ctx, header, body...)
	})
}

// Get implements upstream.HTTP.
func (h principalHTTP) Get(ctx context.Context, header http.Header) (*upstream.HTTPResponse,
	error) {
	return h.send(ctx, header, func(header http.Header) (*upstream.HTTPResponse, error) {
		return h.base.Get(ctx, header)
	})
}

// Delete implements upstream.HTTP.
func (h principalHTTP) Delete(ctx context.Context, header http.Header) (*upstream.HTTPResponse,
	error) {
	return h.send(ctx, header, func(header http.Header) (*upstream.HTTPResponse, error) {
		return h.base.Delete(ctx, header)
	})
}

// send sends a request with the principal's token. If the server answers 401 or 403, it has not run
// the request, so send repeats the request with another token: once after a 401, and once after a
// 403. It never returns such an answer.
func (h principalHTTP) send(ctx context.Context, header http.Header,
	once func(http.Header) (*upstream.HTTPResponse, error)) (*upstream.HTTPResponse, error) {
	token, err := h.credentials.token(ctx, h.principal)
	if err != nil {
		return nil, err
	}
	answered := map[int]bool{}
	for {
		// base may change the header that it gets.
		with := header.Clone()
		if with == nil {
			with = make(http.Header)
		}
		with.Del("Authorization")
		if token != "" {
			with.Set("Authorization", "Bearer "+token)
		}
		response, err := once(with)
		if err != nil || response.Status != http.StatusUnauthorized &&
			response.Status != http.StatusForbidden {
			return response, err
		}
		if response.Events != nil {
			response.Events.Close()
		}
		if answered[response.Status] {
			return nil, h.credentials.refusal(h.credentials.key(h.principal.ID()), response.Status)
		}
		answered[response.Status] = true
		if err := h.credentials.rejected(ctx, h.principal, token, response.Status,
			response.Header); err != nil {
			return nil, err
		}
		if token, err = h.credentials.token(ctx, h.principal); err != nil {
			return nil, err
		}
	}
}
