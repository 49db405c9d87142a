package console

import (
	"context"
	"net/url"
	"time"
)

// Waiting has the requests and the pins that wait for an approval.
type Waiting interface {
	// Waiting returns what waits.
	Waiting(ctx context.Context) (*WaitingList, error)
	// Count returns the number of requests, and of servers with pins, that wait. Each viewer calls
	// it every 15 seconds.
	Count(ctx context.Context) int
	// Approve approves a request once, and records that with the viewer. It returns a sentence
	// about the result.
	Approve(ctx context.Context, id string, by Viewer) (string, error)
}

// WaitingList is everything that waits.
type WaitingList struct {
	Requests     []WaitingRequest // those that expire first come first
	MoreRequests int              // further requests
	Elsewhere    int              // requests that wait for other Gatekit processes of the user
	Pins         []WaitingPins    // sorted by server
	// WithValues reports whether the log has bodies, so that Values are set.
	WithValues bool
}

// WaitingRequest is a request that waits for an approval, or was approved and not repeated yet.
type WaitingRequest struct {
	ID        string
	Server    string
	Method    string
	Name      string
	Principal string
	Reason    string
	Values    string // what the request sends to the server, without secrets; "" if unknown
	Expires   time.Time
	Approved  bool
}

// WaitingPins counts the definitions of one server that wait.
type WaitingPins struct {
	Server string
	Items  int
	Moved  bool // the command, the URL or the package is not as approved
}

// WaitingPage returns the page with everything that waits for an approval.
func WaitingPage(w Waiting) Page {
	type view struct {
		*WaitingList
		CanApprove bool
	}
	return Page{Name: "waiting", Title: "Waiting", Refresh: 3 * time.Second, Badge: w.Count,
		Data: func(ctx context.Context, r Request) (any, error) {
			list, err := w.Waiting(ctx)
			if err != nil {
				return nil, err
			}
			return view{list, r.CanApprove}, nil
		},
		Actions: map[string]func(context.Context, Request, url.Values) (string, error){
			"approve": func(ctx context.Context, r Request, form url.Values) (string, error) {
				return w.Approve(ctx, form.Get("id"), r.Viewer)
			},
		},
	}
}

// remaining returns the time until t in words.
func remaining(t time.Time) string {
	left := max(0, time.Until(t)).Round(time.Second)
	return left.String()
}
