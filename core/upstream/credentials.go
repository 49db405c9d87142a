package upstream

import (
	"gatekit/core/identity"
	"gatekit/core/mcp"
)

// Authenticated is an HTTP whose requests need the credentials of a principal. An HTTP may
// implement it. Then a message is sent with the HTTP that As returns for the principal of the
// client's request, who has the token of that request. What belongs to no request is sent with the
// HTTP for the principal that opened the session, or for that of the session's latest message.
type Authenticated interface {
	HTTP
	As(p *identity.Principal) HTTP
}

// CredentialsError is the error of an Authenticated HTTP when the server wants credentials that
// Gatekit does not have, or refuses those that it has. It replaces the 401 or 403 of the server,
// which is not passed on.
type CredentialsError struct {
	Reason      string   // for the client: names no token and no text of the server
	LoginNeeded bool     // the principal can log in, and the request can then be repeated
	Scopes      []string // that the login needs; nil if the server has named none
	Err         error    // for the operator; may be nil
}

func (e *CredentialsError) Error() string {
	if e.Err != nil {
		return e.Reason + ": " + e.Err.Error()
	}
	return e.Reason
}
func (e *CredentialsError) Unwrap() error { return e.Err }

// httpOf returns the HTTP for a message of a session: with the credentials of the request that the
// message belongs to, if it is one of the session's principal.
func (o *Options) httpOf(m *mcp.Message, session *identity.Principal) HTTP {
	if m.Principal != nil && m.Principal.ID() == session.ID() {
		return o.httpFor(m.Principal)
	}
	return o.httpFor(session)
}

// httpFor returns the HTTP whose requests have the credentials of a principal, if they need any.
func (o *Options) httpFor(p *identity.Principal) HTTP {
	if a, ok := o.Dial.HTTP.(Authenticated); ok {
		return a.As(p)
	}
	return o.Dial.HTTP
}
