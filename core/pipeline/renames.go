package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"gatekit/core/mcp"
)

// Renames are the names by which clients know a server's tools and prompts, by the server's own.
// See doc.go for why they are no edits.
type Renames struct {
	Tools   map[string]string
	Prompts map[string]string
}

// Validate says why the names could not be told apart: two items of one name, or a name that
// another item had before.
func (r Renames) Validate() error {
	return errors.Join(distinct("tool", r.Tools), distinct("prompt", r.Prompts))
}

func distinct(what string, names map[string]string) error {
	var faults []error
	taken := map[string]string{}
	for _, own := range slices.Sorted(maps.Keys(names)) {
		known := names[own]
		_, renamed := names[known]
		switch {
		case own == "" || known == "":
			faults = append(faults, fmt.Errorf("rename %s %q to %q: a name is not empty", what, own,
				known))
		case own == known:
			faults = append(faults, fmt.Errorf("rename %s %q: it has that name already", what, own))
		case renamed:
			faults = append(faults, fmt.Errorf("rename %s %q to %q: that is the server's name "+
				"of another one: take a name that no %s has", what, own, known, what))
		case taken[known] != "":
			faults = append(faults, fmt.Errorf("rename %s %q to %q: %q has that name: give each "+
				"its own", what, own, known, taken[known]))
		}
		taken[known] = own
	}
	return errors.Join(faults...)
}

// layer is one stage's Renames in use. Layers lie upon each other: what is a client's name for one
// is the server's own for the next, so that none can undo what another did.
type layer struct {
	stage          string
	servers        []string
	tools, prompts names
}

// names of one kind of item, both ways.
type names struct {
	known map[string]string // by the server's own
	own   map[string]string // by the clients'
}

func newLayer(n StageConfig) *layer {
	if err := n.Renames.Validate(); err != nil {
		panic(fmt.Sprintf("pipeline: stage %q: %v", n.Name, err))
	}
	l := &layer{stage: n.Name, servers: n.Wants.Servers}
	for to, from := range map[*names]map[string]string{&l.tools: n.Renames.Tools,
		&l.prompts: n.Renames.Prompts} {
		to.known, to.own = maps.Clone(from), make(map[string]string, len(from))
		for own, known := range from {
			to.own[known] = own
		}
	}
	return l
}

// of is the names that messages of a method are about.
func (l *layer) of(method string) names {
	switch method {
	case "tools/list", "tools/call":
		return l.tools
	case "prompts/list", "prompts/get", "completion/complete":
		return l.prompts
	}
	return names{}
}

// renaming is the layers that have a name for what m may be about.
func (p *Pipeline) renaming(m *mcp.Message) (layers []*layer) {
	for _, l := range p.layers {
		if len(l.of(m.Method).own) > 0 && listed(l.servers, m.Server) {
			layers = append(layers, l)
		}
	}
	return layers
}

// ownName is m under the server's own name of what it is about.
func (p *Pipeline) ownName(m *mcp.Message) *mcp.Message {
	for _, l := range slices.Backward(p.renaming(m)) {
		if own, ok := l.of(m.Method).own[m.Name]; ok {
			m = named(m, own)
		}
	}
	return m
}

func named(m *mcp.Message, name string) *mcp.Message {
	c := *m
	c.Name = name
	return &c
}

// toOwn puts the server's own name into a request that o is about, before any stage sees it. What
// is asked for by a name that clients do not know it by is refused.
func toOwn(o *Outcome, layers []*layer) *DeniedError {
	for _, l := range slices.Backward(layers) {
		names := l.of(o.After.Method)
		stale, own := false, ""
		next, err := mcp.RewriteNames(o.After, func(p mcp.NamePlace, v string) (string, error) {
			if p.NameKind != mcp.ToolName && p.NameKind != mcp.PromptName {
				return v, nil
			}
			if _, renamed := names.known[v]; renamed {
				stale = true
				return v, nil
			}
			if name, ok := names.own[v]; ok {
				own = name
				return name, nil
			}
			return v, nil
		})
		step := Step{Stage: l.stage, Action: "modify",
			Reason: "asked for by the name that clients know"}
		if stale || err != nil {
			step.Action, step.Reason = "deny", "asked for by a name that clients do not know"
			o.Steps = append(o.Steps, step)
			o.After, o.Action, o.Reason, o.Err = nil, step.Action, step.Reason, err
			return &DeniedError{Stage: l.stage, Action: step.Action, Reason: step.Reason, Err: err}
		}
		if own != "" {
			o.Steps = append(o.Steps, step)
			o.Before, o.After = named(o.Before, own), named(next, own)
		}
	}
	return nil
}

// toKnown puts the names that clients know into a list that o is about, after all stages have seen
// it. An item that the server has under a name by which clients know another is taken out: nobody
// could ask for it.
func toKnown(o *Outcome, layers []*layer) *DeniedError {
	method, _ := mcp.LookupMethod(o.After.Method)
	for _, l := range layers {
		names := l.of(o.After.Method)
		var edits []mcp.Edit
		var steps []Step
		note := func(action, reason string) {
			if !slices.ContainsFunc(steps, func(s Step) bool { return s.Action == action }) {
				steps = append(steps, Step{Stage: l.stage, Action: action, Reason: reason})
			}
		}
		o.After.Items(method.ItemsPointer, func(i int, raw []byte) bool {
			at := method.ItemsPointer + "/" + strconv.Itoa(i)
			name, _ := mcp.NewNotification("", raw).Text(method.ItemNamePointer)
			if known, ok := names.known[name]; ok {
				edits = append(edits, mcp.Set(at+method.ItemNamePointer, mcp.Quote(known)))
				note("modify", "names that clients know")
			} else if _, taken := names.own[name]; taken {
				edits = append(edits, mcp.Remove(at))
				note("hide", "the server has an item under a name by which clients know another")
			}
			return true
		})
		next, err := o.After.Edit(edits...)
		if err != nil {
			o.After, o.Action, o.Err = nil, "deny", err
			return &DeniedError{Stage: l.stage, Action: "deny",
				Err: fmt.Errorf("rename the items of a list: %w", err)}
		}
		if len(edits) > 0 {
			o.After, o.Steps = next, append(o.Steps, steps...)
		}
	}
	return nil
}
