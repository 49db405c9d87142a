package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatekit/core/mcp"
)

// This file redacts the values that servers return after they were restored. The stage that found a
// value may not find its copy, for example where no name is beside it.

const (
	maxReturnedValues = 100  // restored values of one server whose copies are redacted
	maxReturnedBytes  = 4096 // of an encrypted value whose copies are redacted
	// of all values whose copies are redacted; 20 servers can get as many as possible
	maxAllReturnedBytes = 8 << 20
	// shortValue is the length below which a copy must not stand within a longer word.
	shortValue = 16
)

// FindingReturned is the type of the finding about copies of restored values in a text.
const FindingReturned = "returned"

// noteRestored remembers that a server got values, for the next messages of the server. If there
// are too many, it forgets those that were restored first.
func (r *RedactedValues) noteRestored(m *mcp.Message, values map[string]*keptValue) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	of := r.valuesOf(clientOf(m), m.Server)
	of.lastRestored = now
	for _, v := range values {
		if len(v.sealed) > maxReturnedBytes {
			continue
		}
		r.dropRestored(of, func(other *keptValue) bool {
			return other.placeholder == v.placeholder || len(of.restored) >= maxReturnedValues &&
				other == of.restored[0]
		})
		of.restored = append(of.restored, v)
		r.restoredBytes += len(v.sealed)
	}
	for r.restoredBytes > maxAllReturnedBytes {
		oldest := of
		for _, servers := range r.byClient {
			for _, other := range servers {
				if len(other.restored) > 0 && other.lastRestored.Before(oldest.lastRestored) {
					oldest = other
				}
			}
		}
		r.dropRestored(oldest, func(*keptValue) bool { return true })
	}
}

// dropRestored forgets that the server got some values. r.mu must be held.
func (r *RedactedValues) dropRestored(of *valuesOfServer, drop func(*keptValue) bool) {
	var remaining []*keptValue
	for _, v := range of.restored {
		if drop(v) {
			r.restoredBytes -= len(v.sealed)
			continue
		}
		remaining = append(remaining, v)
	}
	of.restored = remaining
}

// restoredTo returns the values that the server of m got from the client of m.
func (r *RedactedValues) restoredTo(m *mcp.Message) (values []*keptValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.byClient[clientOf(m)][m.Server]
	if of == nil {
		return nil
	}
	now := time.Now()
	for _, v := range of.restored {
		if now.Before(v.expires) {
			values = append(values, v)
		}
	}
	return values
}

// redactReturned puts placeholders in the place of restored values that the server of o.After
// returns, before any stage sees the message. It adds a step for the record. It denies a message
// with such a value in the name of a member. Definitions and names are not searched.
func (p *Pipeline) redactReturned(o *Outcome) *DeniedError {
	m := o.After
	if len(p.restores) == 0 || m.Direction != mcp.ToClient || m.Server == "" ||
		mcp.HasDefinitions(m) {
		return nil
	}
	kept := p.options.RedactedValues.restoredTo(m)
	if len(kept) == 0 {
		return nil
	}
	client := clientOf(m)
	var values []Redacted
	for _, v := range kept {
		text, ok := p.options.RedactedValues.open(client, v)
		if ok && IsDistinctive(text) {
			values = append(values, Redacted{v.placeholder, text})
		}
	}
	step := Step{Stage: kept[0].stage, Action: "modify"}
	copies, inName := 0, false
	var edits []mcp.Edit
	m.Leaves(func(l mcp.Leaf) bool {
		text := l.Text()
		redacted, n := withoutCopies(text, values)
		if n > maxCopies {
			copies = n
			return false
		}
		if n == 0 || l.Kind == mcp.NumberLeaf && !IsPlaceholder(redacted) {
			return true
		}
		if inName = l.Kind == mcp.NameLeaf; inName {
			return false
		}
		if copies += n; copies > maxCopies {
			return false
		}
		pointer := l.Pointer()
		edits = append(edits, mcp.Set(pointer, mcp.Quote(redacted)))
		if len(step.Findings) < maxReportedTexts && len(pointer) <= maxNameBytes {
			step.Findings = append(step.Findings, Finding{FindingReturned, pointer})
		}
		return true
	})
	if inName {
		o.fullyInspected = false
		return o.denyByHost(step.Stage, "the name of a member is a value that was restored", "")
	}
	switch {
	case copies == 0:
		return nil
	case copies > maxCopies:
		o.fullyInspected = false
		return o.denyByHost(step.Stage, fmt.Sprintf("the message has more than %d copies of "+
			"values that were restored", maxCopies), "")
	}
	edited, err := m.Edit(edits...)
	if err != nil {
		err = fmt.Errorf("redact restored values: %w", err)
		o.After, o.Action, o.Err, o.fullyInspected = nil, "deny", err, false
		return &DeniedError{Stage: step.Stage, Action: "deny", Err: err}
	}
	o.After = edited
	step.Reason = "the server returned " + counted(copies, "restored value")
	step.Changed = changedPlaces(edits)
	o.Steps = append(o.Steps, step)
	return nil
}

// maxCopies bounds the copies of restored values in a message. A placeholder is longer than a short
// value, so a message of many copies would grow to several times its size.
const maxCopies = 10_000

// withoutCopies returns a text with placeholders in the place of values, and the number of copies.
// If there are more than maxCopies, it returns no text.
func withoutCopies(text string, values []Redacted) (redacted string, copies int) {
	type match struct {
		from, to    int
		placeholder string
	}
	var found []match
	for _, v := range values {
		for at := 0; ; {
			i := strings.Index(text[at:], v.Value)
			if i < 0 {
				break
			}
			from := at + i
			to := from + len(v.Value)
			if at = to; len(v.Value) >= shortValue || isWordAlone(text, from, to) {
				if found = append(found, match{from, to, v.Placeholder}); len(found) > maxCopies {
					return "", len(found)
				}
			}
		}
	}
	if len(found) == 0 {
		return text, 0
	}
	slices.SortFunc(found, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to))
	})
	outside, rest := found[:0], found // of placeholders
	EachPlaceholder(text, func(from, to int) bool {
		for len(rest) > 0 && rest[0].from < to {
			if rest[0].from < from || rest[0].to > to {
				outside = append(outside, rest[0])
			}
			rest = rest[1:]
		}
		return len(rest) > 0
	})
	found = append(outside, rest...)
	var b strings.Builder
	end := 0
	for _, m := range found {
		if m.from >= end {
			b.WriteString(text[end:m.from])
			b.WriteString(m.placeholder)
			copies++
		}
		end = max(end, m.to) // an overlapping copy is removed, too
	}
	b.WriteString(text[end:])
	return b.String(), copies
}

// isWordAlone reports whether no letter or digit is directly before or behind s[from:to].
func isWordAlone(s string, from, to int) bool {
	return (from == 0 || !isAlnum(s[from-1])) && (to == len(s) || !isAlnum(s[to]))
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// IsDistinctive reports whether copies of a redacted value can be told from ordinary words and
// numbers. A password that is an ordinary word is redacted only where a stage finds it.
func IsDistinctive(value string) bool {
	if len(value) >= shortValue {
		return true
	}
	var digits, letters, signs, capitals int
	for i := range len(value) {
		switch c := value[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'z':
			letters++
		case c >= 'A' && c <= 'Z':
			letters++
			if i > 0 {
				capitals++
			}
		case c != '-' && c != '_' && c != '.' && c != ' ':
			signs++
		}
	}
	switch {
	case letters == 0 && signs == 0:
		return digits >= 6
	case digits > 0 || signs > 0:
		return len(value) >= 4
	}
	return len(value) >= 6 && capitals > 0 && capitals < letters-1
}
