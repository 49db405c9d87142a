package taskgroup

import (
	"context"
	"errors"
	"testing"
)

func TestCloseEndsGoroutinesAndWaitsForThem(t *testing.T) {
	g := New()
	ended := false
	started := g.Go(func(ctx context.Context) {
		<-ctx.Done()
		ended = errors.Is(context.Cause(ctx), ErrClosed)
	})
	if !started {
		t.Fatal("Go did not start a goroutine in an open group")
	}
	g.Close()
	g.Close()
	if !ended {
		t.Error("Close returned before the goroutine had ended with ErrClosed")
	}
	if g.Go(func(context.Context) { t.Error("a closed group ran a function") }) {
		t.Error("Go reported that a closed group started a goroutine")
	}
}

func TestBoundContextEndsWhenEitherContextEnds(t *testing.T) {
	cause := errors.New("cause")
	t.Run("the caller's context ends", func(t *testing.T) {
		g := New()
		defer g.Close()
		ctx, cancel := context.WithCancelCause(t.Context())
		bound, release := g.Bind(ctx)
		defer release()
		cancel(cause)
		<-bound.Done()
		if got := context.Cause(bound); got != cause {
			t.Errorf("the bound context ended with %v, want %v", got, cause)
		}
	})
	t.Run("the group's context ends", func(t *testing.T) {
		g := New()
		bound, release := g.Bind(t.Context())
		defer release()
		g.Cancel()
		<-bound.Done()
		if got := context.Cause(bound); got != ErrClosed {
			t.Errorf("the bound context ended with %v, want %v", got, ErrClosed)
		}
		g.Close()
	})
}
