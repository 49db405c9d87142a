package query

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"gatekit/audit"
)

// Filter selects the records that meet all of its conditions. The zero Filter selects all.
type Filter struct {
	Since, Until time.Time // time of the record: Since or later, and before Until; zero is no bound

	Session, Exchange, Principal, Client, Server, Name, Method Patterns

	Kind   Patterns // "request", "response", "error", "notification" or "event"
	Action Patterns
	// selects records in which a stage that Stage matches took an action that Action matches; an
	// empty Action then matches every action but pass
	Stage Patterns
}

// Patterns are alternatives, in which "*" stands for any text. An empty list matches everything.
type Patterns []string

// Match reports whether s matches one of the patterns, or there is no pattern.
func (p Patterns) Match(s string) bool { return p.match(s) }

func (p Patterns) match(s string) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(pattern string) bool {
		return matchesWildcard(pattern, s)
	})
}

// matchesWildcard reports whether s matches the pattern. It searches s for the parts between the
// stars, from left to right, and takes the first occurrence of each part.
func matchesWildcard(pattern, s string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, first)
	for ok {
		var part string
		if part, rest, star = strings.Cut(rest, "*"); !star {
			return strings.HasSuffix(s, part)
		}
		_, s, ok = strings.Cut(s, part)
	}
	return false
}

// Match reports whether the filter selects a completely parsed record.
func (f *Filter) Match(r *audit.Record) bool { return f.matchSummary(r) && f.matchSteps(r) }

// matchSummary checks the conditions on the fields that audit.ParseSummary sets.
func (f *Filter) matchSummary(r *audit.Record) bool {
	return (f.Since.IsZero() || !r.Time.Before(f.Since)) && (f.Until.IsZero() ||
		r.Time.Before(f.Until)) &&
		f.Session.match(r.Session) && f.Exchange.match(r.Exchange) &&
		f.Principal.match(r.Principal) &&
		f.Client.match(r.Client) &&
		f.Server.match(r.Server) && f.Name.match(r.Name) && f.Method.match(r.Method) &&
		f.Kind.match(recordKind(r)) && (len(f.Stage) > 0 || f.Action.match(r.Action))
}

func (f *Filter) matchSteps(r *audit.Record) bool {
	return len(f.Stage) == 0 || slices.ContainsFunc(r.Steps, func(s audit.Step) bool {
		if len(f.Action) == 0 && s.Action == "pass" {
			return false
		}
		return f.Stage.match(s.Stage) && f.Action.match(s.Action)
	})
}

// WantsNotifications reports whether the filter asks for notifications that passed.
func (f *Filter) WantsNotifications() bool {
	return len(f.Kind) > 0 && f.Kind.match("notification") || slices.ContainsFunc(f.Method,
		func(m string) bool { return strings.HasPrefix(m, "notifications/") })
}

// WantsOwn reports whether the filter asks for Gatekit's own messages to servers.
func (f *Filter) WantsOwn() bool { return len(f.Action) > 0 && f.Action.match("own") }

func recordKind(r *audit.Record) string {
	if r.IsEvent() {
		return "event"
	}
	return r.Kind
}

// matchLine is Match for a record from audit.ParseSummary.
func (f *Filter) matchLine(r *audit.Record) (bool, error) {
	if !f.matchSummary(r) {
		return false, nil
	}
	if len(f.Stage) == 0 {
		return true, nil
	}
	if !bytes.Contains(r.Line, []byte(`"steps":[`)) { // skip most lines without parsing them
		return false, nil
	}
	whole, err := audit.ParseRecord(r.Line)
	return err == nil && f.matchSteps(&whole), err
}
