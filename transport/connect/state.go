package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gatekit/core/identity"
	"gatekit/core/shared"

	"github.com/go-json-experiment/json"
)

// maxUpdates is how often a change of a value is tried while others change it, too.
const maxUpdates = 100

// resultLifetime is how long the result of a login is kept after the end of its link.
const resultLifetime = time.Minute

// linkState is a link, as all replicas know it.
type linkState struct {
	Expires             time.Time `json:"expires"`
	Principal           principal `json:"principal"`
	Server              string    `json:"server"`
	AuthorizationServer string    `json:"authorization_server"`
	Scopes              []string  `json:"scopes"`
	URL                 string    `json:"url"`
	State               string    `json:"state"`
	Rest                []byte    `json:"rest"`

	Opened int    `json:"opened"` // logins at the issuer that the link has begun
	Used   bool   `json:"used"`   // the login at the server has begun
	Ended  bool   `json:"ended"`  // the login is over
	Err    string `json:"err"`    // why it failed; "" if it did not
}

// principal has the attributes that a link keeps of a principal.
type principal struct {
	Method  identity.Method `json:"method"`
	Issuer  string          `json:"issuer"`
	Subject string          `json:"subject"`
	Client  string          `json:"client"`
	Issued  time.Time       `json:"issued,omitzero"`
}

func newLinkState(n Login, expires time.Time) linkState {
	p := n.Principal
	return linkState{Expires: expires, Principal: principal{p.Method(), p.Issuer(), p.Subject(),
		p.Client(), p.Issued()}, Server: n.Server, AuthorizationServer: n.AuthorizationServer,
		Scopes: n.Scopes, URL: n.URL, State: n.State, Rest: n.Rest}
}

// login returns the login of the link.
func (s *linkState) login() (Login, error) {
	who, err := identity.New(identity.Attributes{Method: s.Principal.Method,
		Issuer: s.Principal.Issuer, Subject: s.Principal.Subject, Client: s.Principal.Client,
		Issued: s.Principal.Issued})
	return Login{Principal: who, Server: s.Server, AuthorizationServer: s.AuthorizationServer,
		Scopes: s.Scopes, URL: s.URL, State: s.State, Rest: s.Rest}, err
}

// until returns how long the link is kept.
func (s *linkState) until() time.Time { return s.Expires.Add(resultLifetime) }

// result returns why the login of an ended link failed, or nil.
func (s *linkState) result() error {
	if s.Err != "" {
		return errors.New(s.Err)
	}
	return nil
}

// sessionState is the state of one browser, as all replicas know it.
type sessionState struct {
	Expires   time.Time `json:"expires"`
	Issuer    string    `json:"issuer"`    // at which the user has logged in; "" if nowhere yet
	Principal string    `json:"principal"` // ID of the user; "" if nobody has logged in yet
	CSRF      string    `json:"csrf"`      // is in the forms of the pages
	Attempts  []attempt `json:"attempts"`  // logins at issuers that have begun in the browser
	Begun     []begun   `json:"begun"`     // logins at servers that have begun in the browser
}

// until returns how long the session is kept.
func (s *sessionState) until() time.Time { return s.Expires }

// attempt is a login at an issuer that has begun, to open a link.
type attempt struct {
	Link    string    `json:"link"`   // its id
	Sealed  string    `json:"sealed"` // the last part of its URL
	Expires time.Time `json:"expires"`
	Issuer  string    `json:"issuer"`
	State   string    `json:"state"`
	Rest    []byte    `json:"rest"`
}

// begun is a login at a server that has begun.
type begun struct {
	Link      string    `json:"link"` // its id
	Expires   time.Time `json:"expires"`
	Principal string    `json:"principal"` // ID of the principal of the link
	State     string    `json:"state"`
}

// kept is a value that is kept until a time.
type kept[T any] interface {
	*T
	until() time.Time
}

func linkKey(id string) shared.Key { return shared.Key{Kind: "connect-link", Name: id} }

func sessionKey(cookie string) shared.Key {
	return shared.Key{Kind: "connect-session", Name: cookie}
}

// again calls do again if the state was lost: the call has then changed nothing.
func again(do func() error) (err error) {
	for range 3 {
		if err = do(); !errors.Is(err, shared.ErrLost) {
			break
		}
	}
	return err
}

// load returns a value, or nil if there is none.
func load[T any](ctx context.Context, v shared.Values, k shared.Key) (*T, uint64, error) {
	var b []byte
	var generation uint64
	err := again(func() (err error) {
		b, generation, err = v.Get(ctx, k)
		return err
	})
	if err != nil || generation == 0 {
		return nil, 0, err
	}
	s := new(T)
	return s, generation, json.Unmarshal(b, s)
}

// store writes a value in place of the one with a generation; 0 means that there is none.
func store[T any, P kept[T]](ctx context.Context, v shared.Values, k shared.Key, was uint64,
	s P) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return again(func() error {
		_, err := v.Swap(ctx, k, was, b, max(time.Until(s.until()), time.Millisecond))
		return err
	})
}

// update changes a value. Of several calls at the same time, each sees the change of the one
// before. If there is no value, or if change returns false, update changes nothing, and ok is
// false.
func update[T any, P kept[T]](ctx context.Context, v shared.Values, k shared.Key,
	change func(P) bool) (s P, ok bool, err error) {
	for range maxUpdates {
		s, was, err := load[T](ctx, v, k)
		if err != nil || s == nil || !change(s) {
			return s, false, err
		}
		err = store[T, P](ctx, v, k, was, s)
		if !errors.Is(err, shared.ErrChanged) {
			return s, err == nil, err
		}
	}
	return nil, false, fmt.Errorf("%w: others change the same %s", shared.ErrUnavailable, k.Kind)
}

// take removes a value and returns it. It returns nil if there is none.
func take[T any](ctx context.Context, v shared.Values, k shared.Key) (*T, error) {
	var b []byte
	var ok bool
	err := again(func() (err error) {
		b, ok, err = v.Take(ctx, k)
		return err
	})
	if err != nil || !ok {
		return nil, err
	}
	s := new(T)
	return s, json.Unmarshal(b, s)
}
