package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"gatekit/core/shared"
)

const (
	// loginChangeKind is the kind of the shared values that tell of changed logins.
	loginChangeKind = "login-change"
	// loginChangeFor is how long others can learn of a changed login. The listing has room for
	// shared.MaxListed changes in this time.
	loginChangeFor = 30 * time.Second
)

// loginChange is the value that tells of a changed login.
type loginChange struct {
	Origin    string `json:"origin"` // the process that knows it already; "" for a command
	Server    string `json:"server"`
	Principal string `json:"principal"`
}

// sharedLogins tells the other replicas of changed logins, and learns of theirs. The logins
// themselves are in the token store, which each replica asks again after a second. But a process
// with a token in its env, and a client that waits for the tools of a server, must be told.
type sharedLogins struct {
	gateway   *gateway
	values    shared.Values
	origin    string // of this process
	following *background
}

// openSharedLogins follows the logins of the other replicas from now on.
func (g *gateway) openSharedLogins(ctx context.Context) error {
	store := g.sharedStore()
	if store == nil || !g.active.config.HasLogins() {
		return nil
	}
	s := &sharedLogins{gateway: g, values: store, origin: rand.Text()}
	s.following = startBackground(ctx, s.follow)
	g.sharedLogins.Store(s)
	return nil
}

func (g *gateway) closeSharedLogins() error {
	if s := g.sharedLogins.Load(); s != nil {
		s.following.stop()
	}
	return nil
}

// loginChanged uses a changed login of a principal at a server, here and in the other replicas.
func (g *gateway) loginChanged(server, principal string) {
	g.useLogin(server, principal)
	s := g.sharedLogins.Load()
	if s == nil {
		return
	}
	if err := announceLogin(context.Background(), s.values,
		loginChange{s.origin, server, principal}); err != nil {
		g.log.Warn("the other replicas notice a changed login only with the next request",
			"server", server, "principal", principal, "error", err)
	}
}

// announceLogin tells all replicas but the origin of a changed login.
func announceLogin(ctx context.Context, v shared.Values, c loginChange) error {
	k := shared.Key{Kind: loginChangeKind, Name: shared.Join(c.Server, c.Principal), Listed: true}
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return put(ctx, v, k, value, loginChangeFor)
}

// follow uses the changed logins of the other replicas until ctx ends.
func (s *sharedLogins) follow(ctx context.Context) {
	var last uint64 // the largest generation that was seen
	known := time.Now()
	isFirst := true
	for l, err := range shared.Watch(ctx, s.values, loginChangeKind) {
		if err != nil {
			if errors.Is(err, shared.ErrLost) {
				known = time.Time{}
			}
			continue
		}
		if time.Since(known) > loginChangeFor { // a change may have come and gone
			s.gateway.endTokenProcesses()
		}
		known = time.Now()
		for _, e := range l.Entries {
			if e.Generation <= last {
				continue
			}
			last = e.Generation
			if isFirst { // nothing was read before
				continue
			}
			var c loginChange
			if err := json.Unmarshal(e.Value, &c); err != nil {
				s.gateway.log.Error("changed login of another replica not understood", "error", err)
				continue
			}
			if c.Origin != s.origin {
				s.gateway.useLogin(c.Server, c.Principal)
			}
		}
		isFirst = false
	}
}

// endTokenProcesses ends all processes with tokens of users. The next call starts them again.
func (g *gateway) endTokenProcesses() {
	for _, s := range *g.servers.Load() {
		if s.tokens != nil {
			s.tokens.end(func(string) bool { return true })
		}
	}
}
