package pipeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/mcp"
)

// Allowances are the interventions of stages that an operator has allowed. An intervention is a
// denial, an edit or a hidden item. The pipeline asks only when a stage intervenes. An intervention
// that is allowed has no effect, and the record names its id. Many goroutines may use Allowances.
//
// Faults, time-outs, verdicts that ask a human, answers of stages, and verdicts that are final
// ([Verdict]) are not interventions in this sense: they have no id and cannot be allowed.
type Allowances interface {
	// ID returns the id of an intervention on a message of the server. The description is unique to
	// the intervention and to the content that was judged. ID must use a secret key: a plain hash
	// would let a reader of the log guess a redacted text, and would let a server search for two
	// texts with one id. If ID returns "", the intervention cannot be allowed.
	ID(server string, description []byte) string
	// Holds reports whether the intervention is allowed now.
	Holds(id string) bool
	// Use reports whether the intervention is allowed now, and uses up an allowance that is valid
	// once. The pipeline calls it when the message would otherwise pass. For a hidden item, that is
	// a message that uses the item, not a list that shows it.
	Use(id string) bool
}

const (
	maxIDs = 100 // ids of one step; further interventions have no id
	// The values at the edited places of a message are looked up one by one. This is the number of
	// bytes that may be searched for them.
	maxSearchedBytes = 64 << 20
)

// exemption is a verdict without the interventions that are allowed.
type exemption struct {
	verdict  Verdict
	denialID string   // if the verdict still denies
	ids      []string // of the edits that remain
	allowed  []string // ids of the interventions without effect
	used     []string // the ids in allowed that this message uses up
}

// exempt removes the allowed interventions from a verdict of the stage s on m. A verdict that
// contradicts itself stays as it is, so that it denies m.
func (p *Pipeline) exempt(s *stage, m *mcp.Message, v Verdict) exemption {
	x := exemption{verdict: v}
	if p.options.Allowances == nil || v.isFinal() || v.Answer != nil {
		return x
	}
	switch {
	case v.Action == Deny:
		x.exemptDenial(p.denialID(s, m, v.usesHidden()), p)
		if len(x.allowed) > 0 {
			// the rest of the verdict stays in effect
			x.verdict.Action = Allow
			if len(v.Edits) > 0 {
				x.verdict.Action = Modify
			}
		}
	case v.Action != Allow && v.Action != Modify, v.Action == Allow && len(v.Edits) > 0:
	default:
		if len(v.Edits) > 0 {
			x.exemptEdits(p, s, m)
		}
		if len(v.Hide) > 0 && x.verdict.denies(m) {
			x.exemptDenial(p.denialID(s, m, true), p)
			if len(x.allowed) > 0 {
				names := namesIn(m)
				x.verdict.Hide = slices.DeleteFunc(slices.Clone(v.Hide), func(name string) bool {
					return slices.Contains(names, name)
				})
			}
		} else if len(v.Hide) > 0 {
			x.exemptItems(p, s, m)
		}
		if v.Action == Modify && len(x.verdict.Edits)+len(x.verdict.Hide) == 0 &&
			len(x.allowed) > 0 {
			x.verdict.Action = Allow
		}
	}
	return x
}

// exemptDenial adds the id of a denial.
func (x *exemption) exemptDenial(id string, p *Pipeline) {
	switch {
	case id == "":
	case p.options.Allowances.Holds(id):
		x.allowed, x.used = append(x.allowed, id), append(x.used, id)
	default:
		x.denialID = id
	}
}

// exemptEdits removes the edits that are allowed.
func (x *exemption) exemptEdits(p *Pipeline, s *stage, m *mcp.Message) {
	limit := min(maxIDs, maxSearchedBytes/(len(m.Body())+1))
	var whole []byte // digest of the whole request
	if m.Kind == mcp.Request {
		var err error
		if whole, err = mcp.RetryDigest(m); err != nil {
			return
		}
	}
	remaining := make([]mcp.Edit, 0, len(x.verdict.Edits))
	for i, e := range x.verdict.Edits {
		id := ""
		if i < limit {
			id = p.editID(s, m, e.Pointer, whole)
		}
		if id != "" && p.options.Allowances.Holds(id) {
			x.allowed, x.used = append(x.allowed, id), append(x.used, id)
			continue
		}
		remaining = append(remaining, e)
		if id != "" && !slices.Contains(x.ids, id) {
			x.ids = append(x.ids, id)
		}
	}
	x.verdict.Edits = remaining
}

// exemptItems computes the ids of the hidden items of a list, and shows the items that are allowed.
// Two different items with one name have no id: it would be unknown which of them is used.
func (x *exemption) exemptItems(p *Pipeline, s *stage, m *mcp.Message) {
	method, _ := mcp.LookupMethod(m.Method)
	if m.Kind != mcp.Response || listKind(m.Method) == "" {
		return
	}
	hidden := x.verdict.hiddenNames()
	ids := map[string]string{}
	m.ItemTexts(method.ItemsPointer, method.ItemNamePointer, func(_ int, raw []byte, name string,
		ok bool) bool {
		if !ok || !hidden[name] {
			return true
		}
		before, known := ids[name]
		if !known && len(ids) >= maxIDs {
			return true
		}
		id := ""
		if digest, err := mcp.CanonicalDigest(raw); err == nil {
			id = p.options.Allowances.ID(m.Server, describe("item", s, m, name, "", digest))
		}
		if known && before != id {
			id = ""
		}
		ids[name] = id
		return true
	})
	x.verdict.itemIDs = ids
	x.verdict.Hide = slices.DeleteFunc(slices.Clone(x.verdict.Hide), func(name string) bool {
		id := ids[name]
		if id == "" || !p.options.Allowances.Holds(id) {
			return false
		}
		if !slices.Contains(x.allowed, id) {
			x.allowed = append(x.allowed, id)
		}
		return true
	})
}

// denialID returns the id of a denial of m. If the stage denies m only because m uses an item that
// the stage hid from a list, the id is the id of this item.
func (p *Pipeline) denialID(s *stage, m *mcp.Message, usesHidden bool) string {
	if usesHidden {
		if id := p.usedItemID(s, m); id != "" {
			return id
		}
	}
	var digest []byte
	var err error
	if m.Kind == mcp.Request {
		digest, err = mcp.RetryDigest(m)
	} else {
		digest, err = mcp.CanonicalDigest(m.Body())
	}
	if err != nil {
		return ""
	}
	return p.options.Allowances.ID(m.Server, describe("deny", s, m, m.Name, "", digest))
}

// usedItemID returns the id of the item that the request uses, if the stage hid the item from a
// list.
func (p *Pipeline) usedItemID(s *stage, m *mcp.Message) string {
	if m.Kind != mcp.Request || m.Direction != mcp.ToServer {
		return ""
	}
	for _, use := range usesOf(m.Method) {
		if name, ok := m.Text(use.pointer); ok {
			key := listKey{s.name, m.Principal.ID(), m.Server, use.kind}
			if state := p.hiddenItem(key, name); state.id != "" {
				return state.id
			}
		}
	}
	return ""
}

// editID returns the id of an edit, which depends on the value that it replaces or removes. An edit
// that adds a value has no id. The digest of a whole request is also a part of the id: a value in
// an argument, such as false, means little without the other arguments. A result may differ in
// other places, since a server seldom sends the same result twice.
func (p *Pipeline) editID(s *stage, m *mcp.Message, pointer string, whole []byte) string {
	value, ok := m.Get(pointer)
	if !ok {
		return ""
	}
	digest, err := mcp.CanonicalDigest(value)
	if err != nil {
		return ""
	}
	name := m.Name
	method, _ := mcp.LookupMethod(m.Method)
	if rest, ok := strings.CutPrefix(pointer, method.ItemsPointer+"/"); ok &&
		m.Kind == mcp.Response && method.ItemsPointer != "" {
		index, _, _ := strings.Cut(rest, "/")
		if name, ok = m.Text(method.ItemsPointer + "/" + index + method.ItemNamePointer); !ok {
			return ""
		}
	}
	return p.options.Allowances.ID(m.Server, describe("edit", s, m, name, withoutIndices(pointer),
		whole, digest))
}

// withoutIndices returns a JSON pointer with a star in place of each index of an element. The same
// value may be at another index in the next result.
func withoutIndices(pointer string) string {
	tokens := strings.Split(pointer, "/")
	for i, token := range tokens {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, "/")
}

// describe returns the description of an intervention. Each part has its length before it, so that
// no other parts have the same description.
func describe(kind string, s *stage, m *mcp.Message, name, place string,
	digests ...[]byte) []byte {
	var b []byte
	add := func(part string) { b = fmt.Appendf(b, "%d:%s", len(part), part) }
	for _, part := range []string{kind, s.name, m.Principal.ID(), m.Server, m.Direction.String(),
		m.Kind.String(), m.Method, name, place} {
		add(part)
	}
	for _, d := range digests {
		add(string(d))
	}
	return b
}

// Types of findings that say why a stage denies a message. Stages of all kinds use them, also
// plugins in other processes.
const (
	// The only reason is that the message uses an item that the stage hides. If the item is
	// allowed, its use is allowed, too.
	FindingHidden = "hidden"
	// The stage could not judge the message, because its memory is full. The denial is final.
	FindingFull = "full"
)

// isFinal reports whether no allowance can change v.
func (v *Verdict) isFinal() bool {
	return v.Final || slices.ContainsFunc(v.Findings, func(f Finding) bool {
		return f.Type == FindingFull
	})
}

// usesHidden reports whether v denies a message only because the message uses a hidden item.
func (v *Verdict) usesHidden() bool {
	return slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Type == FindingHidden })
}

// useAll uses up the allowances without which a message would not pass. It returns a denial if one
// of them no longer holds: another message has used it, or it has expired.
func (p *Pipeline) useAll(o *Outcome, used []usedAllowance) *DeniedError {
	for i, u := range used {
		if slices.Contains(used[:i], u) || p.options.Allowances.Use(u.id) {
			continue
		}
		reason := "the allowance " + u.id + " no longer holds: another message has used it, or " +
			"it has expired"
		return o.denyByHost(u.stage, reason, "")
	}
	return nil
}

// usedAllowance is an allowance that a message uses, and the stage whose intervention it allows.
type usedAllowance struct{ id, stage string }

// denyByHost denies the message of o for the stage, which has not denied it itself. It returns the
// denial. The id is the id of the denial, if it can be allowed.
func (o *Outcome) denyByHost(stage, reason, id string) *DeniedError {
	o.removeChanged()
	step := Step{Stage: stage, Action: "deny", Reason: reason}
	if id != "" {
		step.IDs = []string{id}
	}
	o.Steps = append(o.Steps, step)
	o.After, o.Action, o.Reason = nil, "deny", reason
	return &DeniedError{Stage: stage, Action: "deny", Reason: reason, ID: id}
}
