package scan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// Redaction is a part of a text that is to go, and what is to stand in its place.
type Redaction struct {
	Text        Text
	Span        Span
	Replacement string
}

// mostNames is how many names Redact changes in one message: each takes a look at all of it.
const mostNames = 100

// Redact answers the edits that make the cuts. More than 100 names in one message are an error. Of
// cuts that overlap, the first one's words stand in the place of all. A number of which a part is
// cut becomes a string.
func Redact(m *mcp.Message, cuts []Redaction) ([]mcp.Edit, error) {
	values, names := map[string][]Redaction{}, map[string][]Redaction{}
	for _, c := range cuts {
		at := c.Text.Pointer()
		if c.Text.Kind == mcp.NameLeaf {
			names[at] = append(names[at], c)
		} else {
			values[at] = append(values[at], c)
		}
	}
	var edits []mcp.Edit
	for at, cuts := range values {
		edits = append(edits, mcp.Set(at, mcp.Quote(without(cuts))))
	}
	slices.SortFunc(edits, func(a, b mcp.Edit) int { return cmp.Compare(a.Pointer, b.Pointer) })
	if len(names) == 0 {
		return edits, nil
	}
	if len(names) > mostNames {
		return nil, fmt.Errorf("redact: %d names, more than %d", len(names), mostNames)
	}
	// A name is changed by taking its member out and putting another in: the members below first,
	// and all in a body of its own.
	renamed, err := m.Edit(edits...)
	if err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	places := make([]string, 0, len(names))
	for at := range names {
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/")), cmp.Compare(a, b))
	})
	for _, at := range places {
		value, _ := renamed.Get(at)
		parent := at[:strings.LastIndexByte(at, '/')]
		name := without(names[at])
		for n := 2; ; n++ {
			if _, taken := renamed.Get(parent + "/" + mcp.EscapePointer(name)); !taken {
				break
			}
			name = fmt.Sprintf("%s %d", without(names[at]), n)
		}
		if renamed, err = renamed.Edit(mcp.Remove(at), mcp.Set(parent+"/"+mcp.EscapePointer(name),
			slices.Clone(value))); err != nil {
			return nil, fmt.Errorf("redact a name: %w", err)
		}
	}
	return []mcp.Edit{mcp.Set("", renamed.Body())}, nil
}

// without is the text of the cuts with them made.
func without(cuts []Redaction) string {
	slices.SortStableFunc(cuts, func(a, b Redaction) int {
		return cmp.Compare(a.Span.From, b.Span.From)
	})
	s := cuts[0].Text.Value
	var b strings.Builder
	done := 0
	for _, c := range cuts {
		from, to := max(c.Span.From, 0), min(c.Span.To, len(s))
		if to <= done && done > 0 {
			continue
		}
		if from >= done {
			b.WriteString(s[done:from])
			b.WriteString(c.Replacement)
		}
		done = to
	}
	b.WriteString(s[done:])
	return b.String()
}
