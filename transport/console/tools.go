package console

import (
	"context"
	"strings"
	"time"
)

// Tools has the tools of all servers.
type Tools interface {
	// Tools returns the tools that a filter selects, sorted by server and name.
	Tools(ctx context.Context, f ToolFilter) (*ToolList, error)
}

// ToolFilter selects tools. The zero value selects all.
type ToolFilter struct {
	Server string
	Name   string // a part of the name
	State  string // "refused", "hidden", "waiting" or "called"
}

// Matches reports whether the filter selects a tool.
func (f ToolFilter) Matches(t *ToolState) bool {
	if f.Server != "" && t.Server != f.Server || !strings.Contains(strings.ToLower(t.Name),
		strings.ToLower(f.Name)) {
		return false
	}
	switch f.State {
	case "refused":
		return t.Refused > 0
	case "hidden":
		return len(t.HiddenBy) > 0
	case "waiting":
		return t.Pin == PinWaiting
	case "called":
		return t.Calls > 0
	}
	return true
}

// ToolList is a list of tools.
type ToolList struct {
	Counted CountedPeriod
	Servers []string // all servers of the configuration
	All     int      // tools without the filter
	Tools   []*ToolState
	More    int // further tools that the filter selects
}

// PinState is the state of the pin of a tool. The zero value is a tool that is not pinned.
type PinState string

// States of pins.
const (
	PinApproved PinState = "approved"
	PinWaiting  PinState = "waiting"  // another definition is held back
	PinRejected PinState = "rejected" // another definition was declined
)

// ToolState is the state of one tool.
type ToolState struct {
	Server, Name string
	Pin          PinState
	Annotations  Annotations
	Listed       time.Time // when the server listed it last; zero if it did not since the start
	HiddenBy     []string  // stages that hid it in the counted period
	Calls        int       // in the counted period, as the next two
	Refused      int
	LastRefusal  *LastRefusal
}

// Traffic returns the filter of the traffic of the tool.
func (t *ToolState) Traffic() string {
	return "--server " + quoteWord(t.Server) + " --tool " + quoteWord(t.Name)
}

// quoteWord returns a word as filters have it. A quote that cannot be written becomes "*", which
// stands for any text.
func quoteWord(word string) string {
	if !strings.Contains(word, "'") {
		return "'" + word + "'"
	}
	return `"` + strings.ReplaceAll(word, `"`, "*") + `"`
}

// Annotations are the promises of a server about a tool. A server may lie.
type Annotations struct{ ReadOnly, NotDestructive, Idempotent, ClosedWorld bool }

// Words returns the promises in words.
func (a Annotations) Words() (words []string) {
	for _, promise := range []struct {
		made bool
		word string
	}{{a.ReadOnly, "read-only"}, {a.NotDestructive && !a.ReadOnly, "not destructive"},
		{a.Idempotent, "idempotent"}, {a.ClosedWorld, "closed world"}} {
		if promise.made {
			words = append(words, promise.word)
		}
	}
	return words
}

// LastRefusal is the last refusal of a call.
type LastRefusal struct {
	Seq           uint64 // of the first record of the call
	Time          time.Time
	Stage, Reason string
}

// ToolsPage returns the page with the tools of all servers.
func ToolsPage(t Tools) Page {
	type view struct {
		*ToolList
		Filter   ToolFilter
		Filtered bool
	}
	return Page{Name: "tools", Title: "Tools", Refresh: 10 * time.Second,
		Data: func(ctx context.Context, r Request) (any, error) {
			f := ToolFilter{Server: r.Query.Get("server"), Name: r.Query.Get("name"),
				State: r.Query.Get("state")}
			list, err := t.Tools(ctx, f)
			if err != nil {
				return nil, err
			}
			return view{list, f, f != ToolFilter{}}, nil
		},
	}
}
