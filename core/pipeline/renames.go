package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"gatekit/core/mcp"
)

// Renames maps the server's names of tools and prompts to the names that clients use. The package
// documentation explains why a rename is not an edit.
type Renames struct {
	Tools   map[string]string
	Prompts map[string]string
}

// Validate returns an error if names are ambiguous: two items get the same new name, or the new
// name of an item is the name that the server uses for another renamed item.
func (r Renames) Validate() error {
	return errors.Join(checkNames("tool", r.Tools), checkNames("prompt", r.Prompts))
}

// checkNames validates the names of one kind of item: "tool" or "prompt".
func checkNames(kind string, names map[string]string) error {
	var faults []error
	taken := map[string]string{}
	for _, serverName := range slices.Sorted(maps.Keys(names)) {
		clientName := names[serverName]
		_, renamed := names[clientName]
		switch {
		case serverName == "" || clientName == "":
			faults = append(faults, fmt.Errorf("rename %s %q to %q: a name must not be empty", kind,
				serverName, clientName))
		case serverName == clientName:
			faults = append(faults, fmt.Errorf("rename %s %q: the new name is the same", kind,
				serverName))
		case renamed:
			faults = append(faults, fmt.Errorf("rename %s %q to %q: that is the server's name "+
				"of another %s: take a name that no %[1]s has", kind, serverName, clientName, kind))
		case taken[clientName] != "":
			faults = append(faults, fmt.Errorf("rename %s %q to %q: %q gets that name too: give "+
				"each its own name", kind, serverName, clientName, taken[clientName]))
		}
		taken[clientName] = serverName
	}
	return errors.Join(faults...)
}

// renameLayer has the Renames of one stage. A client's name in one layer is a server's name in the
// next layer, so that no layer can undo the renames of another layer.
type renameLayer struct {
	stage          string
	servers        []string
	tools, prompts nameMap
}

// nameMap maps the names of tools, or the names of prompts, in both directions.
type nameMap struct {
	clientName map[string]string // by the server's name
	serverName map[string]string // by the clients' name
}

func newRenameLayer(config StageConfig) *renameLayer {
	if err := config.Renames.Validate(); err != nil {
		panic(fmt.Sprintf("pipeline: stage %q: %v", config.Name, err))
	}
	l := &renameLayer{stage: config.Name, servers: config.Wants.Servers}
	for to, from := range map[*nameMap]map[string]string{&l.tools: config.Renames.Tools,
		&l.prompts: config.Renames.Prompts} {
		to.clientName, to.serverName = maps.Clone(from), make(map[string]string, len(from))
		for serverName, clientName := range from {
			to.serverName[clientName] = serverName
		}
	}
	return l
}

// namesFor returns the names that messages of a method use.
func (l *renameLayer) namesFor(method string) nameMap {
	switch method {
	case "tools/list", "tools/call":
		return l.tools
	case "prompts/list", "prompts/get", "completion/complete":
		return l.prompts
	}
	return nameMap{}
}

// layersFor returns the layers that may rename the items in m, in order.
func (p *Pipeline) layersFor(m *mcp.Message) (layers []*renameLayer) {
	for _, l := range p.layers {
		if len(l.namesFor(m.Method).serverName) > 0 && matchesAny(l.servers, m.Server) {
			layers = append(layers, l)
		}
	}
	return layers
}

// withServerName returns m with the Name that the server uses for the item.
func (p *Pipeline) withServerName(m *mcp.Message) *mcp.Message {
	for _, l := range slices.Backward(p.layersFor(m)) {
		if serverName, ok := l.namesFor(m.Method).serverName[m.Name]; ok {
			m = withName(m, serverName)
		}
	}
	return m
}

func withName(m *mcp.Message, name string) *mcp.Message {
	c := *m
	c.Name = name
	return &c
}

// toServerNames replaces the client's name in the request of o by the server's name, before any
// stage sees the request. If the request uses the server's name of a renamed item, toServerNames
// denies the request.
func toServerNames(o *Outcome, layers []*renameLayer) *DeniedError {
	for _, l := range slices.Backward(layers) {
		names := l.namesFor(o.After.Method)
		stale, serverName := false, ""
		next, err := mcp.RewriteNames(o.After, func(p mcp.NamePlace, v string) (string, error) {
			if p.NameKind != mcp.ToolName && p.NameKind != mcp.PromptName {
				return v, nil
			}
			if _, renamed := names.clientName[v]; renamed {
				stale = true
				return v, nil
			}
			if name, ok := names.serverName[v]; ok {
				serverName = name
				return name, nil
			}
			return v, nil
		})
		step := Step{Stage: l.stage, Action: "modify", Reason: "requested by the client name"}
		if stale || err != nil {
			step.Action, step.Reason = "deny", "requested by a name that clients do not use"
			o.Steps = append(o.Steps, step)
			o.After, o.Action, o.Reason, o.Err = nil, step.Action, step.Reason, err
			return &DeniedError{Stage: l.stage, Action: step.Action, Reason: step.Reason, Err: err}
		}
		if serverName != "" {
			o.Steps = append(o.Steps, step)
			o.Before, o.After = withName(o.Before, serverName), withName(next, serverName)
		}
	}
	return nil
}

// toClientNames puts the clients' names into the list of o, after all stages have seen the list. If
// clients use an item's name for another item, toClientNames removes the item from the list, since
// clients could not call it.
func toClientNames(o *Outcome, layers []*renameLayer) *DeniedError {
	method, _ := mcp.LookupMethod(o.After.Method)
	for _, l := range layers {
		names := l.namesFor(o.After.Method)
		var edits []mcp.Edit
		var steps []Step
		note := func(action, reason string) {
			if !slices.ContainsFunc(steps, func(s Step) bool { return s.Action == action }) {
				steps = append(steps, Step{Stage: l.stage, Action: action, Reason: reason})
			}
		}
		o.After.ItemTexts(method.ItemsPointer, method.ItemNamePointer, func(i int, _ []byte,
			name string, _ bool) bool {
			at := method.ItemsPointer + "/" + strconv.Itoa(i)
			if clientName, ok := names.clientName[name]; ok {
				edits = append(edits, mcp.Set(at+method.ItemNamePointer, mcp.Quote(clientName)))
				note("modify", "client names")
			} else if _, taken := names.serverName[name]; taken {
				edits = append(edits, mcp.Remove(at))
				note("hide", "the name is the client name of another item")
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
