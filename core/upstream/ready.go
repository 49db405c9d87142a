package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gatekit/core/mcp"
)

// maxAsked is how many connections Ready asks at once.
const maxAsked = 8

// enter notes a connection for as long as it is of use.
func (u *Upstream) enter(w *wire) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wires == nil {
		u.wires = make(map[*wire]struct{})
	}
	u.wires[w] = struct{}{}
	w.left = func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.wires, w)
		if !errors.Is(w.fault, errClosed) {
			u.fault = w.fault
		}
	}
	u.fault = nil
}

// State says, without asking anybody, what is known of the server: "idle" when nothing is
// connected, "up" when something is, "down" when the last connection was lost, or could not be
// made, and a session waits for another. A URL that is asked with each request is idle.
func (u *Upstream) State() string {
	state, _, _ := u.known()
	return state
}

// known is State, with the connections there are, and why it is down.
func (u *Upstream) known() (state string, wires []*wire, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for w := range u.wires {
		if len(wires) < maxAsked {
			wires = append(wires, w)
		}
	}
	switch {
	case len(wires) > 0:
		return "up", wires, nil
	case u.fault != nil && len(u.open) > 0:
		return "down", nil, u.fault
	}
	return "idle", nil, nil
}

// Ready really asks the server: its processes with a ping, a URL with server/discover, and nobody
// with more than that. It starts no process: one that no client has asked for is "idle", which is
// no fault. At a URL any answer will do that an older server could give to server/discover, HTTP
// 404 too. state is that of State; the error says why a client would not be served now.
func (u *Upstream) Ready(ctx context.Context) (state string, err error) {
	if u.o.Dial.HTTP != nil {
		if f := u.probeHTTP(ctx); f.err != nil {
			return "down", u.late(ctx, "server/discover", f.err)
		}
		return "up", nil
	}
	state, wires, err := u.known()
	if state != "up" {
		return state, err
	}
	errs := make([]error, len(wires))
	var wg sync.WaitGroup
	for i, w := range wires {
		wg.Go(func() {
			o := outgoing{mcp.NewRequest("0", "ping", nil)}
			if w.modern.Load() {
				o = discover("0", u.o.Version)
			}
			_, err := w.call(ctx, o, nil, nil) // an error message is an answer, too
			errs[i] = u.late(ctx, o.m.Method, err)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			return "up", nil
		}
	}
	return "down", errs[0]
}

// late is err, in words where it is that of ctx.
func (u *Upstream) late(ctx context.Context, method string, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	reason := fmt.Sprintf("it did not answer %s in time", method)
	if by, ok := ctx.Deadline(); ok && time.Now().Before(by) {
		reason = "it was not asked to the end"
	}
	return unavailable(u.o.Name, reason, nil)
}
