package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gatekit/core/config"
	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/upstream"
	"gatekit/transport"
	"gatekit/transport/credentials"
)

// tokenProcesses starts the processes of a server whose env has tokens of users (${token:SERVER}).
// Each process gets the tokens of one principal.
type tokenProcesses struct {
	command func() (transport.Command, error) // called for each process
	config  config.Server
	// credentials returns the credentials for a server, or nil if there is no such server.
	credentials func(server string) *credentials.Server
	// spawn starts a process.
	spawn func(context.Context, transport.Command) (conn.PipeCloser, error)

	mu     sync.Mutex
	leases map[*processLease]struct{}
}

// processLease is the lease of one process.
type processLease struct {
	principal  string
	due, ended chan struct{}
	once       [2]sync.Once // closes the channels
	timers     []*time.Timer
}

// end ends the lease at once.
func (l *processLease) end() {
	l.once[0].Do(func() { close(l.due) })
	l.once[1].Do(func() { close(l.ended) })
}

// wrapSpawn changes how processes are started, before the first one.
func (t *tokenProcesses) wrapSpawn(wrap func(dialFunc) dialFunc) {
	spawn := t.spawn
	t.spawn = func(ctx context.Context, c transport.Command) (conn.PipeCloser, error) {
		return wrap(func(ctx context.Context) (conn.PipeCloser, error) {
			return spawn(ctx, c)
		})(ctx)
	}
}

// pipeFor starts a process for a principal. The lease ends when a token of the process expires, or
// when the principal's login changes.
func (t *tokenProcesses) pipeFor(ctx context.Context, who *identity.Principal) (conn.PipeCloser,
	upstream.Lease, error) {
	lease := &processLease{principal: who.ID(), due: make(chan struct{}),
		ended: make(chan struct{})}
	t.mu.Lock() // before the tokens are read, so that a later change of a login ends the lease
	if t.leases == nil {
		t.leases = map[*processLease]struct{}{}
	}
	t.leases[lease] = struct{}{}
	t.mu.Unlock()
	pipe, err := t.start(ctx, who, lease)
	if err != nil {
		t.release(lease)
		return nil, upstream.Lease{}, err
	}
	return &leasedPipe{pipe, func() { t.release(lease) }}, upstream.Lease{Due: lease.due,
		Ended: lease.ended}, nil
}

// start starts a process with the principal's tokens, and begins the lease.
func (t *tokenProcesses) start(ctx context.Context, who *identity.Principal,
	lease *processLease) (conn.PipeCloser, error) {
	tokens := map[string]string{}
	var goodTill, expiry time.Time
	for _, name := range t.config.EnvTokens() {
		server := t.credentials(name)
		if server == nil {
			return nil, fmt.Errorf("there is no server %q, whose token it needs", name)
		}
		token, err := server.Token(ctx, who)
		if refused, ok := errors.AsType[*upstream.CredentialsError](err); ok {
			return nil, &upstream.CredentialsError{LoginNeeded: refused.LoginNeeded,
				Scopes: refused.Scopes, Err: refused.Err, Reason: fmt.Sprintf("it needs your "+
					"token of the server %q: %s", name, refused.Reason)}
		}
		if err != nil {
			return nil, err
		}
		tokens[name] = token.Access
		goodTill, expiry = earlier(goodTill, token.GoodTill), earlier(expiry, token.Expiry)
	}
	command, err := t.command()
	if err != nil {
		return nil, err
	}
	command.Secrets = slices.Collect(maps.Values(tokens))
	command.Env = make(map[string]string, len(t.config.Env))
	for key, value := range t.config.Env {
		command.Env[key] = config.WithTokens(value, tokens)
	}
	pipe, err := t.spawn(ctx, command)
	if err == nil && !goodTill.IsZero() {
		lease.timers = []*time.Timer{
			time.AfterFunc(time.Until(goodTill), func() {
				lease.once[0].Do(func() { close(lease.due) })
			}),
			time.AfterFunc(time.Until(expiry), lease.end)}
	}
	return pipe, err
}

// earlier returns the earlier one of two times. The zero time never comes.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// release forgets the lease of a process that has ended.
func (t *tokenProcesses) release(lease *processLease) {
	for _, timer := range lease.timers {
		timer.Stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.leases, lease)
}

// end ends the processes of the principals for which affects returns true.
func (t *tokenProcesses) end(affects func(principal string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for lease := range t.leases {
		if affects(lease.principal) {
			lease.end()
		}
	}
}

// leasedPipe is the pipe of a process with a lease.
type leasedPipe struct {
	conn.PipeCloser
	release func()
}

// Close implements conn.PipeCloser.
func (p *leasedPipe) Close() error {
	defer p.release()
	return p.PipeCloser.Close()
}
