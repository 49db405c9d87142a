package sdktest

import (
	"slices"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/plugins/sdk"
)

// checkReuse tests the promise of a stage with [sdk.Reuse]. The verdict on a definition must be the
// same again, for another principal and session, and definitions must make no difference for other
// messages. A stage that compares lists may act differently after other lists and for another
// principal.
func (s suite) checkReuse(t testing.TB) {
	stage := s.newStage(t)
	r, ok := stage.(sdk.StageWithReuse)
	if !ok {
		return
	}
	reuse := r.Reuse()
	if reuse == nil {
		return
	}
	if reuse.Principals < 0 || reuse.Principals > 0 && !s.plugin.Stateful {
		t.Errorf("Reuse returns %d principals: a stage that remembers lists must be Stateful, and "+
			"other stages return 0", reuse.Principals)
	}
	if s.plugin.Needs.Request {
		t.Errorf("the stage needs the request of a result, so its verdicts cannot be kept")
	}
	definitions := s.definitions()
	others := slices.DeleteFunc(append(OrdinaryMessages(), s.allSamples()...), mcp.HasDefinitions)
	inspectAll := func(messages []*mcp.Message) (all []result) {
		for _, m := range messages {
			all = append(all, s.inspect(t.Context(), stage, m))
		}
		return all
	}
	inspectAll(others)
	before := inspectAll(others)
	first := inspectAll(definitions)
	if reuse.Principals == 0 {
		for i, after := range inspectAll(others) {
			if d := difference(before[i], after); d != "" {
				t.Errorf("%s: after definitions, the stage returns another %s, but Reuse lets "+
					"Gatekit keep verdicts on definitions", describe(others[i]), d)
			}
		}
	}
	for i, m := range definitions {
		if reuse.Principals > 0 { // the stage compares each list with the others
			first[i] = s.inspect(t.Context(), stage, m)
		}
		again := *m
		again.Session, again.Exchange = "another", "another"
		if reuse.Principals == 0 {
			again.Principal = identity.FromID("another")
		}
		got := s.inspect(t.Context(), stage, &again)
		if d := difference(first[i], got); d != "" || got.err != nil {
			t.Errorf("%s: for another session, the stage returns another %s (%v), but Reuse lets "+
				"Gatekit keep the verdict", describe(m), d, got.err)
		}
	}
}

// definitions returns definitions of servers: ordinary ones, and the texts of the samples in the
// descriptions of tools.
func (s suite) definitions() (all []*mcp.Message) {
	for _, m := range append(OrdinaryMessages(), s.allSamples()...) {
		if mcp.HasDefinitions(m) {
			all = append(all, m)
			continue
		}
		var edits []mcp.Edit
		m.Leaves(func(l mcp.Leaf) bool {
			if l.Kind == mcp.StringLeaf && len(edits) == 0 && len(l.Text()) > 12 {
				edits = append(edits, mcp.Set("/tools/0/description", mcp.Quote(l.Text())))
			}
			return true
		})
		list, err := toolList().Edit(edits...)
		if err == nil && len(edits) > 0 {
			all = append(all, list)
		}
	}
	return all
}

// toolList returns a list with one tool.
func toolList() *mcp.Message {
	m := parse(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"echo","description":"",` +
		`"inputSchema":{"type":"object"}}]}}`)
	m.Direction, m.Method, m.Server, m.Session = mcp.ToClient, "tools/list", "everything", "sdktest"
	return m
}
