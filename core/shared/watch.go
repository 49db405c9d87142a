package shared

import (
	"context"
	"errors"
	"iter"
	"time"
)

// WatchInterval is how often Watch asks for changes.
const WatchInterval = 250 * time.Millisecond

// Watch returns the listings of a kind until ctx ends: one at once, and then one each
// WatchInterval. Only listings whose Changed is set have entries. While the store does not answer,
// Watch returns the errors instead. After ErrLost, the next listing has Changed set.
func Watch(ctx context.Context, v Values, kind string) iter.Seq2[Listing, error] {
	return func(yield func(Listing, error) bool) {
		var seen uint64
		for ctx.Err() == nil {
			l, err := v.List(ctx, kind, seen)
			if ctx.Err() != nil {
				return
			}
			switch {
			case err == nil:
				seen = l.Version
			case errors.Is(err, ErrLost):
				seen = 0
			}
			if !yield(l, err) {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(WatchInterval):
			}
		}
	}
}
