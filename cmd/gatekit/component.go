package main

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// component is one part of a running gateway. A gateway keeps its components in a list, and a
// component may use the components before it. So the components start in the order of the list, and
// stop in reverse order.
type component interface {
	// start is called once. If start fails, stop is not called.
	start(ctx context.Context) error
	// stop is called once, after start has succeeded and every later component has stopped.
	stop() error
}

// replaceable is a component that a reload keeps if the new configuration has the same settings for
// it.
type replaceable[C any] interface {
	component
	// sameAs reports whether other has the same settings as the receiver.
	sameAs(other C) bool
}

// funcComponent is a component that consists of two functions. Either may be nil.
type funcComponent struct {
	onStart func(ctx context.Context) error
	onStop  func() error
}

func (p *funcComponent) start(ctx context.Context) error {
	if p.onStart == nil {
		return nil
	}
	return p.onStart(ctx)
}

func (p *funcComponent) stop() error {
	if p.onStop == nil {
		return nil
	}
	return p.onStop()
}

// startAll starts the components in order. If a component fails to start, startAll stops the
// components before it in reverse order.
func startAll(ctx context.Context, list []component) error {
	for i, c := range list {
		if err := c.start(ctx); err != nil {
			return errors.Join(err, stopAll(list[:i]))
		}
	}
	return nil
}

// stopAll stops the components in reverse order. It stops neighbouring servers at the same time:
// they do not depend on each other, and each server may take seconds to end.
func stopAll(list []component) error {
	var errs []error
	for end := len(list); end > 0; {
		first := end - 1
		for first > 0 && isServer(list[first]) && isServer(list[first-1]) {
			first--
		}
		group := list[first:end]
		stopped := make([]error, len(group))
		var wg sync.WaitGroup
		for i, c := range group {
			wg.Go(func() { stopped[i] = c.stop() })
		}
		wg.Wait()
		errs = append(errs, stopped...)
		end = first
	}
	return errors.Join(errs...)
}

func isServer(c component) bool {
	_, ok := c.(*server)
	return ok
}

// kept returns the running component that has the same settings as wanted. If there is none, it
// returns wanted.
func kept[C replaceable[C]](running []component, wanted C) C {
	for _, r := range running {
		if r, ok := r.(C); ok && wanted.sameAs(r) {
			return r
		}
	}
	return wanted
}

// without returns the components of list that are not in other.
func without(list, other []component) []component {
	return slices.DeleteFunc(slices.Clone(list), func(c component) bool {
		return slices.Contains(other, c)
	})
}
