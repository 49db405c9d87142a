package policies

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Decision is one answer of the policies, for a decision log. It holds no content that a plugin or a policy took out, nor what a rule wrote into the message, and bodies only where Options
// wanted them: those of what passes, as it goes on.
type Decision struct {
	Time              time.Time
	Took              time.Duration
	Session, Exchange string            // as in the audit log
	Bundles           map[string]string // their revisions, by name
	Digest            string            // of the policies
	Input             ast.Value         // an object: the input's fields, without those that hold content
	Action            string            // pass, deny, modify, ask; before the pipeline weighs it against the other stages
	Reason            string
	Failed            bool                // they could not say: the audit log has why
	Effects           map[string][]string // by rule's effect; of redact and set only where
	Would             []string            // "effect by rule", of those that are not enforced
	Size              int                 // about how many bytes it holds
}

// beyondContent are the fields of the input that say what a message is about, and hold nothing of what it says.
var beyondContent = []string{"direction", "kind", "method", "server", "name", "session", "principal", "findings", "time"}

// about is the part of the input that a Decision may hold.
func (s *Stage) about(m *mcp.Message, session *session, b beside, fields ...string) ast.Value {
	r := reads{}
	for _, f := range append(fields, beyondContent...) {
		r[f] = nil
	}
	return s.input(m, session, b, r)
}

// decided makes of a verdict what is told of it.
func (s *Stage) told(ctx context.Context, m *mcp.Message, session *session, b beside, made *decision, v pipeline.Verdict, err error) *Decision {
	d := &Decision{Time: b.at, Session: m.Session, Exchange: m.Exchange, Bundles: s.revisions, Digest: s.digest, Failed: err != nil, Action: "deny"}
	var content []string
	after := m
	switch {
	case err != nil:
	case waits(ctx, v):
		d.Action, d.Reason = "ask", v.Reason
	case v.Action != pipeline.Deny:
		d.Action, d.Reason = "pass", v.Reason
		if len(v.Edits) > 0 {
			d.Action = "modify"
		}
		if next, err := m.Edit(v.Edits...); s.bodies && len(v.Hide) == 0 && err == nil {
			after, content = next, []string{"params", "result", "error"}
		}
	default:
		d.Reason = v.Reason
	}
	d.Input = s.about(after, session, b, content...)
	d.Size = 2 << 10
	if content != nil {
		d.Size += len(after.Body())
	}
	if made == nil || err != nil {
		return d
	}
	d.Would = made.would
	d.Effects = made.effects()
	if len(made.redactions) > 0 && d.Action != "modify" { // a reason may say what another rule took out
		for _, which := range []string{"deny", "ask"} {
			for i, reason := range d.Effects[which] {
				d.Effects[which][i], _, _ = strings.Cut(reason, ": ")
			}
		}
		d.Reason = ""
	}
	return d
}

// effects are what the rules said, without content.
func (d *decision) effects() map[string][]string {
	all := map[string][]string{"deny": slices.Clone(d.denies), "ask": slices.Clone(d.asks), "hide": slices.Clone(d.hide), "label": slices.Clone(d.labels)}
	for _, r := range d.redactions {
		at := "a pattern"
		if r.pointer != "" {
			at = r.pointer
		}
		all["redact"] = append(all["redact"], r.by+": "+at)
	}
	for _, e := range d.sets {
		all["set"] = append(all["set"], e.Pointer)
	}
	maps.DeleteFunc(all, func(_ string, values []string) bool { return len(values) == 0 })
	for effect, values := range all {
		slices.Sort(values)
		all[effect] = slices.Compact(values)
	}
	return all
}
