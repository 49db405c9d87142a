package pipeline

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
)

// SharedValues is where the replicas of Gatekit keep redacted values together, so that each of them
// can restore the values of all. It must encrypt them. All methods may be called at the same time.
//
// An error means that the state is not available. Calls for other values of the same message are
// then left out. A value that is not shared is restored only where it was redacted: a server that
// gets its placeholder learns nothing.
type SharedValues interface {
	// Put stores a value until it expires, in place of an older one with this key. A value that
	// another server sent is not replaced.
	Put(ctx context.Context, k SharedKey, v SharedValue) error
	// Get returns a value. ok is false if there is none.
	Get(ctx context.Context, k SharedKey) (v SharedValue, ok bool, err error)
	// Remove removes a value. If there is none, Remove does nothing.
	Remove(ctx context.Context, k SharedKey) error
}

// SharedKey names a value that replicas share.
type SharedKey struct {
	Principal, Session string // of the message that had the value
	Placeholder        string
}

// SharedValue is a value that replicas share.
type SharedValue struct {
	Stage, Server string // the stage that redacted the value, and the server that sent it
	Value         string
	Expires       time.Time
}

const (
	sharedAtOnce  = 16          // calls of the shared state for one message at the same time
	sharedTimeout = time.Second // of all calls for one message, or one stage
	// values that were forgotten here and must be removed; others stay until they expire
	maxForgotten = 4096
)

// sharedKey returns the key of a value in the state that replicas share.
func (c clientKey) sharedKey(placeholder string) SharedKey {
	return SharedKey{c.principal, c.session, placeholder}
}

// share stores values of a client in the state that replicas share. It also removes the values that
// were forgotten here to make room, so that the replicas share no more than they keep themselves.
func (r *RedactedValues) share(ctx context.Context, client clientKey, kept []*keptValue) {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	r.mu.Lock()
	forgotten := r.forgotten
	r.forgotten = nil
	r.mu.Unlock()
	// The values come second, because one of them may have been forgotten before.
	if !together(ctx, len(forgotten), func(i int) bool {
		return r.Shared.Remove(ctx, forgotten[i]) == nil
	}) {
		return
	}
	together(ctx, len(kept), func(i int) bool {
		v := kept[i]
		plain, ok := r.open(client, v)
		return ok && r.Shared.Put(ctx, client.sharedKey(v.placeholder),
			SharedValue{v.stage, v.server, plain, v.expires}) == nil
	})
}

// findShared returns the values, by placeholder, that the tool call m may get and that only other
// replicas know. It stops when the values are more than a request may have.
func (r *RedactedValues) findShared(ctx context.Context, m *mcp.Message,
	restores map[string]*Restore) map[string]*keptValue {
	if r.Shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	unknown := r.unknownPlaceholders(m, restores)
	var mu sync.Mutex // guards found and size
	found := make(map[string]*keptValue)
	size := 0
	together(ctx, len(unknown), func(i int) bool {
		shared, ok, err := r.Shared.Get(ctx, clientOf(m).sharedKey(unknown[i]))
		if err != nil || !ok {
			return err == nil
		}
		v := r.learn(m, unknown[i], shared, restores)
		if v == nil {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		found[v.placeholder] = v
		size += len(v.sealed)
		return size <= maxRestoredBytes
	})
	return found
}

// unknownPlaceholders returns the placeholders in the arguments of m, each once, whose values this
// process does not know.
func (r *RedactedValues) unknownPlaceholders(m *mcp.Message, restores map[string]*Restore) (
	unknown []string) {
	seen := make(map[string]bool)
	eachArgument(m, func(_, text string) bool {
		EachPlaceholder(text, func(from, to int) bool {
			placeholder := text[from:to]
			if !seen[placeholder] {
				placeholder = strings.Clone(placeholder)
				seen[placeholder] = true
				if r.find(m, placeholder, restores) == nil {
					unknown = append(unknown, placeholder)
				}
			}
			return len(seen) < maxRestored
		})
		return len(seen) < maxRestored
	})
	return unknown
}

// learn returns a value of another replica, encrypted with the key of this process, or nil if m may
// not get it.
func (r *RedactedValues) learn(m *mcp.Message, placeholder string, shared SharedValue,
	restores map[string]*Restore) *keptValue {
	v := &keptValue{stage: shared.Stage, server: shared.Server, placeholder: placeholder,
		expires: shared.Expires}
	now := time.Now()
	if !mayGet(m, v, restores) || !now.Before(v.expires) || len(shared.Value) > maxKeptValue {
		return nil
	}
	// A replica may have another restore_for, or a clock that is ahead.
	if latest := now.Add(restores[v.stage].For); latest.Before(v.expires) {
		v.expires = latest
	}
	v.sealed = r.cipher().Seal(nil, nil, []byte(shared.Value),
		boundTo(clientOf(m), v.server, placeholder))
	return v
}

// together calls do for 0 to n-1, up to sharedAtOnce at the same time, until do returns false or
// ctx ends. It reports whether do was called for all and returned true.
func together(ctx context.Context, n int, do func(i int) bool) bool {
	var next atomic.Int64
	var stopped atomic.Bool
	var group sync.WaitGroup
	for range min(n, sharedAtOnce) {
		group.Go(func() {
			for !stopped.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if ctx.Err() != nil || !do(i) {
					stopped.Store(true)
				}
			}
		})
	}
	group.Wait()
	return !stopped.Load()
}
