package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"gatekit/core/mcp"
)

func ok(status int) bool { return status >= 200 && status < 300 }

// streams says that an answer is an event stream to be read.
func streams(a *Answer) bool { return a.Events != nil && ok(a.Status) }

// unsent is the error for a request that HTTP gave no answer to.
func unsent(server string, err error) error {
	if errors.As(err, new(*TooLarge)) {
		return illegible(server, err)
	}
	return unavailable(server, "no answer from its URL", err)
}

// statusError is the error for an answer that holds no message. What else the body says is not
// repeated: it is a stranger's text, and of no use to a client.
func statusError(server string, a *Answer) error {
	switch {
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		return unavailable(server, fmt.Sprintf("it refused Gatekit's credentials (HTTP %d)",
			a.Status), nil)
	case a.Status >= 300 && a.Status < 400:
		return unavailable(server,
			fmt.Sprintf("its URL redirects elsewhere (HTTP %d), which is not followed; "+
				"configure the URL that it leads to", a.Status), nil)
	case ok(a.Status):
		return unavailable(server, fmt.Sprintf("it sent no answer (HTTP %d)", a.Status), nil)
	}
	return unavailable(server, fmt.Sprintf("it answered HTTP %d", a.Status), nil)
}

// bodyError answers the JSON-RPC error that an answer with an error status holds for a request:
// under its id, or under none.
func bodyError(limits mcp.Limits, a *Answer, id mcp.ID) (m *mcp.Message, addressed bool) {
	if len(a.Body) == 0 || mcp.IsBatch(a.Body) {
		return nil, false
	}
	m, err := limits.Parse(a.Body)
	if err != nil || m.Kind != mcp.Error || m.ID() != id && !nameless(m) {
		return nil, false
	}
	m.To = mcp.ToClient
	return m, m.ID() == id
}

// nameless says that an error is addressed to no request in particular.
func nameless(m *mcp.Message) bool { return m.Kind == mcp.Error && m.ID() == "" }

// What a server may ask for as the wait between attempts.
const (
	shortestRetry = 100 * time.Millisecond
	longestRetry  = 5 * time.Minute
)

// position is how far an event stream was read, and how to go on.
type position struct {
	last  string        // id of the last event that had one
	retry time.Duration // what the server asks for; 0 when it does not
	fails int           // attempts in a row to go on that brought no event; of a call's stream
}

func (p *position) note(e Event) {
	p.fails = 0
	if e.ID != "" {
		p.last = e.ID
	}
	if e.Retry > 0 {
		p.retry = max(shortestRetry, min(time.Duration(e.Retry)*time.Millisecond, longestRetry))
	}
}

// wait is how long to wait before the stream is asked for again after a number of failures.
func (p *position) wait(fails int) time.Duration {
	first := p.retry
	if first == 0 {
		first = time.Second
	}
	return max(first, min(first<<min(fails, 16), longestWait))
}

// sleep waits, and answers false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// each reads events until the stream ends or f answers false, and closes the stream. f gets each
// message, or the error that says why it is none.
func each(ctx context.Context, ev Events, limits mcp.Limits, at *position, f func(m *mcp.Message,
	err error) bool) error {
	defer context.AfterFunc(ctx, func() { ev.Close() })()
	defer ev.Close()
	invalid := 0
	for {
		if invalid > maxInvalid {
			return fmt.Errorf("more than %d messages cannot be read", maxInvalid)
		}
		e, err := ev.Next()
		if large := (*TooLarge)(nil); errors.As(err, &large) {
			invalid++
			if !f(nil, err) {
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		at.note(e)
		if len(e.Data) == 0 || e.Name != "" && e.Name != "message" {
			continue
		}
		for m, err := range messages(limits, e.Data) {
			if err != nil {
				invalid++
			}
			if !f(m, err) {
				return nil
			}
		}
	}
}

// spoiled says that what came on a call's own stream instead of a message is its answer, or may be:
// then there is no point in reading on.
func spoiled(c *call, err error) bool {
	return errors.As(err, new(*TooLarge)) || meantFor(err) == c.id
}
