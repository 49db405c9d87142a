package scan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// Redaction is a part of a text, and what to put in its place.
type Redaction struct {
	Text        Text
	Span        Span
	Replacement string
}

// maxNames is how many member names Redact changes at most in one message. Each change takes a pass
// over the whole message.
const maxNames = 100

// Redact returns the edits that make the redactions. If redactions overlap, the replacement of the
// first one replaces all of them. A redacted number becomes a string. Redact returns an error if
// the redactions are in more than 100 member names.
func Redact(m *mcp.Message, redactions []Redaction) ([]mcp.Edit, error) {
	values, names := map[string][]Redaction{}, map[string][]Redaction{} // by pointer
	for _, r := range redactions {
		pointer := r.Text.Pointer()
		if r.Text.Kind == mcp.NameLeaf {
			names[pointer] = append(names[pointer], r)
		} else {
			values[pointer] = append(values[pointer], r)
		}
	}
	var edits []mcp.Edit
	for pointer, redactions := range values {
		edits = append(edits, mcp.Set(pointer, mcp.Quote(redacted(redactions))))
	}
	slices.SortFunc(edits, func(a, b mcp.Edit) int { return cmp.Compare(a.Pointer, b.Pointer) })
	if len(names) == 0 {
		return edits, nil
	}
	if len(names) > maxNames {
		return nil, fmt.Errorf("redact: %d member names, more than %d", len(names), maxNames)
	}
	return redactNames(m, edits, names)
}

// redactNames returns one edit that replaces the whole body. The new body has the edits made and
// the members in names renamed. To rename a member, redactNames removes it and adds it again under
// the new name.
func redactNames(m *mcp.Message, edits []mcp.Edit,
	names map[string][]Redaction) ([]mcp.Edit, error) {
	edited, err := m.Edit(edits...)
	if err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	pointers := make([]string, 0, len(names))
	for pointer := range names {
		pointers = append(pointers, pointer)
	}
	// The deepest members come first, so that the pointers of the other members stay valid.
	slices.SortFunc(pointers, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/")), cmp.Compare(a, b))
	})
	for _, pointer := range pointers {
		value, _ := edited.Get(pointer)
		parent := pointer[:strings.LastIndexByte(pointer, '/')]
		newName := redacted(names[pointer])
		newPointer := parent + "/" + mcp.EscapePointer(newName)
		for n := 2; ; n++ { // until no other member has the name
			if _, taken := edited.Get(newPointer); !taken {
				break
			}
			newPointer = fmt.Sprintf("%s/%s %d", parent, mcp.EscapePointer(newName), n)
		}
		edited, err = edited.Edit(mcp.Remove(pointer), mcp.Set(newPointer, slices.Clone(value)))
		if err != nil {
			return nil, fmt.Errorf("redact a member name: %w", err)
		}
	}
	return []mcp.Edit{mcp.Set("", edited.Body())}, nil
}

// redacted returns the text of the redactions with all of them made. All redactions must be of the
// same text.
func redacted(redactions []Redaction) string {
	slices.SortStableFunc(redactions, func(a, b Redaction) int {
		return cmp.Compare(a.Span.From, b.Span.From)
	})
	text := redactions[0].Text.Value
	var b strings.Builder
	done := 0
	for _, r := range redactions {
		from, to := max(r.Span.From, 0), min(r.Span.To, len(text))
		if to <= done && done > 0 {
			continue
		}
		if from >= done {
			b.WriteString(text[done:from])
			b.WriteString(r.Replacement)
		}
		done = to
	}
	b.WriteString(text[done:])
	return b.String()
}
