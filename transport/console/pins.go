package console

import (
	"context"
	"net/url"
	"time"
)

// Pins has the lock file, and what servers declare that it does not approve.
type Pins interface {
	// Pins returns the state of all servers or, if server is not "", of one server.
	Pins(ctx context.Context, server string) (*PinList, error)
	// Decide approves or rejects definitions, and records that. It returns a sentence about the
	// result.
	Decide(ctx context.Context, d PinDecision) (string, error)
}

// PinDecision is the decision of a viewer about definitions that wait.
type PinDecision struct {
	Approve bool // otherwise, reject
	Server  string
	Item    string // PinItem.Key; "" for everything that waits of the server
	Digest  string // of what the viewer saw: PinItem.Digest or PinServer.Digest
	By      Viewer
}

// PinList is the state of the pins.
type PinList struct {
	Enabled  bool   // the configuration has [pins]
	LockFile string // its path
	HasLock  bool   // the file exists
	Servers  []PinServer
}

// PinServer is the state of the pins of one server.
type PinServer struct {
	Name      string
	Pinned    int    // items in the lock file
	Locked    bool   // first = "locked": the console does not change the lock file
	Digest    string // of everything that waits; "" if a part of it is not in Items, or is cut
	Items     []PinItem
	MoreItems int      // further items that wait
	Warnings  []string // names that are, or look like, those of other servers
}

// PinItem is a definition that waits, or the launch of a server.
type PinItem struct {
	Key     string // "tool read", or "launch"
	Kind    string // "tool", or "" for the launch
	Name    string
	Digest  string // "" if Cut: nobody approves here what cannot be read here
	Cut     bool   // its texts are too long for the page
	Changes []PinChange
}

// PinChange is one change of a definition.
type PinChange struct {
	Class    string // "text", "promise", "new", …
	Pointer  string // to the place in the definition; "" for all of it
	HeldBack bool
	Words    []WordChange // the difference between the approved and the new text
	Findings []string     // what looks like an injection in the new words
}

// WordChange is a removed and an added text, and the equal text after them.
type WordChange struct{ Removed, Added, Equal string }

// PinsPage returns the page with the changes that wait, and the lock file.
func PinsPage(p Pins) Page {
	type view struct {
		*PinList
		CanApprove bool
		Server     string
	}
	decide := func(approve bool) func(context.Context, Request, url.Values) (string, error) {
		return func(ctx context.Context, r Request, form url.Values) (string, error) {
			return p.Decide(ctx, PinDecision{Approve: approve, Server: form.Get("server"),
				Item: form.Get("item"), Digest: form.Get("digest"), By: r.Viewer})
		}
	}
	return Page{Name: "pins", Title: "Pins", Refresh: 10 * time.Second,
		Data: func(ctx context.Context, r Request) (any, error) {
			server := r.Query.Get("server")
			list, err := p.Pins(ctx, server)
			if err != nil {
				return nil, err
			}
			return view{list, r.CanApprove, server}, nil
		},
		Actions: map[string]func(context.Context, Request, url.Values) (string, error){
			"approve": decide(true), "reject": decide(false)},
	}
}
