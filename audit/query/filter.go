package query

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"gatekit/audit"
)

// Filter says which records are asked for: those for which all of it is true. The zero Filter takes
// all.
type Filter struct {
	Since, Until time.Time // from Since on, before Until; zero is no bound

	Session, Exchange, Principal, Server, Name, Method Patterns

	Kind   Patterns // request, response, error, notification, event
	Action Patterns
	Stage  Patterns // that did anything but let pass; together with Action, that did that
}

// Patterns are alternatives. A "*" in one stands for any text. None is no condition.
type Patterns []string

func (w Patterns) match(s string) bool {
	return len(w) == 0 || slices.ContainsFunc(w, func(pattern string) bool {
		return like(pattern, s)
	})
}

// like says whether s is of the pattern. It looks for what stands between the stars, each as early
// as it can be.
func like(pattern, s string) bool {
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

// Match says whether the filter takes r, of which all was read.
func (f *Filter) Match(r *audit.Record) bool { return f.matchHead(r) && f.matchSteps(r) }

// matchHead looks at what Glance reads.
func (f *Filter) matchHead(r *audit.Record) bool {
	return (f.Since.IsZero() || !r.Time.Before(f.Since)) && (f.Until.IsZero() ||
		r.Time.Before(f.Until)) &&
		f.Session.match(r.Session) && f.Exchange.match(r.Exchange) &&
		f.Principal.match(r.Principal) &&
		f.Server.match(r.Server) && f.Name.match(r.Name) && f.Method.match(r.Method) &&
		f.Kind.match(kindOf(r)) && (len(f.Stage) > 0 || f.Action.match(r.Action))
}

func (f *Filter) matchSteps(r *audit.Record) bool {
	return len(f.Stage) == 0 || slices.ContainsFunc(r.Steps, func(s audit.Step) bool {
		if len(f.Action) == 0 && s.Action == "pass" {
			return false
		}
		return f.Stage.match(s.Stage) && f.Action.match(s.Action)
	})
}

// notifications says whether those that passed are asked for.
func (f *Filter) notifications() bool {
	return len(f.Kind) > 0 && f.Kind.match("notification") || slices.ContainsFunc(f.Method,
		func(m string) bool { return strings.HasPrefix(m, "notifications/") })
}

func kindOf(r *audit.Record) string {
	if r.IsEvent() {
		return "event"
	}
	return r.Kind
}

// matchLine is Match of a record that was glanced at.
func (f *Filter) matchLine(r *audit.Record) (bool, error) {
	if !f.matchHead(r) {
		return false, nil
	}
	if len(f.Stage) == 0 {
		return true, nil
	}
	if !bytes.Contains(r.Line, []byte(`"steps":[`)) { // most of what is not found is not found here
		return false, nil
	}
	whole, err := audit.ParseRecord(r.Line)
	return err == nil && f.matchSteps(&whole), err
}
