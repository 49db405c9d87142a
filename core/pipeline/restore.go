package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gatekit/core/mcp"
)

// Restore are the settings of a stage whose redacted values may be restored. If a call of a tool
// has the placeholder of such a value in its arguments, the server gets the value. Everyone else
// sees the placeholder: all stages, the record, and the request of the answer.
type Restore struct {
	For time.Duration // how long a value may be restored
	// The tools that get values of all servers, as SERVER/TOOL; a "*" at the end stands for any
	// text. All other tools get only values that their own server sent.
	Tools []string
}

// entitles reports whether the called tool gets values of all servers.
func (r *Restore) entitles(m *mcp.Message) bool {
	tool := m.Server + "/" + m.Name
	for _, pattern := range r.Tools {
		prefix, open := strings.CutSuffix(pattern, "*")
		// The pattern names the server, so that "a*" does not entitle the server "ab".
		if server, _, ok := strings.Cut(prefix, "/"); ok && server == m.Server &&
			(tool == pattern || open && strings.HasPrefix(tool, prefix)) {
			return true
		}
	}
	return false
}

// Limits of one request.
const (
	maxRestored      = 1000    // placeholders
	maxRestoredBytes = 1 << 20 // of all values that are put in
	maxReportedTexts = 100     // findings about restored values
)

// The types of the findings of a restoration.
const (
	FindingRestored    = "restored"     // the server gets the value
	FindingNotRestored = "not-restored" // the server gets the placeholder
)

// Restoration puts redacted values back into a request. The zero Restoration changes nothing.
type Restoration struct {
	store  *RedactedValues
	client clientKey
	values map[string]*keptValue // by placeholder
}

// Apply returns m with the values in place of their placeholders, in the texts of the arguments.
// Only the code that writes the message to its server may call Apply. The returned message must be
// neither recorded nor kept.
func (r Restoration) Apply(m *mcp.Message) *mcp.Message {
	if len(r.values) == 0 {
		return m
	}
	plain := make(map[string]string, len(r.values))
	for placeholder, v := range r.values {
		if text, ok := r.store.open(r.client, v); ok {
			plain[placeholder] = text
		}
	}
	var edits []mcp.Edit
	eachArgument(m, func(pointer, text string) bool {
		var b strings.Builder
		copied := 0
		EachPlaceholder(text, func(from, to int) bool {
			if value, ok := plain[text[from:to]]; ok {
				b.WriteString(text[copied:from])
				b.WriteString(value)
				copied = to
			}
			return true
		})
		if copied > 0 {
			b.WriteString(text[copied:])
			edits = append(edits, mcp.Set(pointer, mcp.Quote(b.String())))
		}
		return true
	})
	restored, err := m.Edit(edits...)
	if err != nil { // the server gets the placeholders
		return m
	}
	return restored
}

// eachArgument calls yield for each string in the arguments of m that may have a placeholder, until
// yield returns false.
func eachArgument(m *mcp.Message, yield func(pointer, text string) bool) {
	m.Leaves(func(l mcp.Leaf) bool {
		if l.Kind != mcp.StringLeaf || !bytes.Contains(l.Raw, []byte(placeholderStart)) {
			return true
		}
		pointer := l.Pointer()
		return !strings.HasPrefix(pointer, "/arguments/") || yield(pointer, l.Text())
	})
}

// restore returns the restoration of the request in o, and adds a step to o for the record. It is
// called when all stages have seen the request. If the request has too many placeholders, restore
// denies it.
func (p *Pipeline) restore(ctx context.Context, o *Outcome) (r Restoration, d *DeniedError) {
	m := o.After
	if len(p.restores) == 0 || m == nil || m.Method != "tools/call" || m.Kind != mcp.Request ||
		m.Direction != mcp.ToServer || m.Server == "" ||
		!bytes.Contains(m.Body(), []byte(placeholderStart)) {
		return r, nil
	}
	r = Restoration{store: p.options.RedactedValues, client: clientOf(m),
		values: make(map[string]*keptValue)}
	shared := r.store.findShared(ctx, m, p.restores)
	step := Step{Action: "pass"}
	restored, missing, size := 0, 0, 0
	found := findingsOf(o.Steps...)
	eachArgument(m, func(pointer, text string) bool {
		before, missingBefore := restored, missing
		EachPlaceholder(text, func(from, to int) bool {
			placeholder := text[from:to]
			v := r.values[placeholder]
			if v == nil {
				if v = r.store.find(m, placeholder, p.restores); v == nil {
					v = shared[placeholder]
				}
				if v == nil {
					missing++
					return true
				}
				placeholder = strings.Clone(placeholder)
				r.values[placeholder] = v
				if step.Stage == "" {
					step.Stage = v.stage
				}
			}
			restored++
			size += len(v.sealed)
			return restored <= maxRestored && size <= maxRestoredBytes
		})
		if found.cover(pointer) || len(pointer) > maxNameBytes {
			pointer = "" // a stage may have found something in the name of a member
		}
		if restored > before && len(step.Findings) < maxReportedTexts {
			step.Findings = append(step.Findings, Finding{FindingRestored, pointer})
		}
		if missing > missingBefore && len(step.Findings) < maxReportedTexts {
			step.Findings = append(step.Findings, Finding{FindingNotRestored, pointer})
		}
		return restored <= maxRestored && size <= maxRestoredBytes
	})
	if restored+missing == 0 {
		return Restoration{}, nil
	}
	if step.Stage == "" {
		step.Stage = ownStage
	}
	if restored > maxRestored || size > maxRestoredBytes {
		return Restoration{}, o.denyByHost(step.Stage, fmt.Sprintf("the arguments have more than "+
			"%d placeholders of redacted values, or values of more than %d bytes", maxRestored,
			maxRestoredBytes), "")
	}
	var reasons []string
	if restored > 0 {
		step.Action = "restore"
		reasons = append(reasons, "restored "+counted(restored, "redacted value"))
	}
	if missing > 0 {
		reasons = append(reasons, counted(missing, "placeholder")+" not restored: unknown, "+
			"expired, or of another server or session")
	}
	step.Reason = strings.Join(reasons, "; ")
	if len(r.values) > 0 {
		r.store.noteRestored(m, r.values)
	}
	o.Steps = append(o.Steps, step)
	o.Action, o.Reason = summarize(o.Steps)
	return r, nil
}

// counted returns the number with the noun in the singular or plural.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// keepRedacted keeps the values that the stages redacted in a message that is forwarded to the
// client.
func (p *Pipeline) keepRedacted(ctx context.Context, o *Outcome) {
	if o.After == nil || o.After.Direction != mcp.ToClient || o.After.Server == "" {
		return
	}
	for _, of := range o.redacted {
		p.options.RedactedValues.keep(ctx, of.stage, o.After, of.values, p.restores[of.stage].For)
	}
}

// redactedBy is the values that one stage redacted in a message.
type redactedBy struct {
	stage  string
	values []Redacted
}
