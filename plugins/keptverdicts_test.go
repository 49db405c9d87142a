package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// newReusingStage returns a stage whose verdicts are kept. It compares the lists of a number of
// principals; 0 means that it compares none.
func newReusingStage(principals int) *Stage {
	s := &Stage{reuses: true, comparesPrincipals: principals}
	s.visibility.Principal = true
	return s
}

// newList returns a server's list of tools for a principal. The tools have these texts, and their
// names are the first letters of the texts.
func newList(server, principal string, tools ...string) *mcp.Message {
	for i, text := range tools {
		tools[i] = fmt.Sprintf(`{"name":%q,"description":%q}`, text[:1], text)
	}
	m := mcp.NewResponse("1", []byte(`{"tools":[`+strings.Join(tools, ",")+`]}`))
	m.Direction, m.Server, m.Method = mcp.ToClient, server, "tools/list"
	m.Principal = identity.FromID(principal)
	return m.WithDigest()
}

// manyTools returns a list with a number of tools.
func manyTools(server, principal string, count int) *mcp.Message {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, `,{"name":"%d"}`, i)
	}
	m := mcp.NewResponse("1", []byte(`{"tools":[`+strings.TrimPrefix(b.String(), ",")+`]}`))
	m.Direction, m.Server, m.Method = mcp.ToClient, server, "tools/list"
	m.Principal = identity.FromID(principal)
	return m.WithDigest()
}

// asker asks a stage about definitions, unless its verdict is kept.
type asker struct {
	kept  *keptVerdicts
	count int
}

// ask returns the verdict's reason, which is the number of the question that the stage was asked.
func (a *asker) ask(s *Stage, m *mcp.Message) string {
	if v, ok := a.kept.find(newDefinition(s, m)); ok {
		return v.Reason
	}
	a.count++
	v := pipeline.Verdict{Action: pipeline.Allow, Reason: fmt.Sprint(a.count)}
	a.kept.end(a.kept.begin(s, m), v, nil, true)
	return v.Reason
}

// checkItems checks that the number of remembered items is right.
func (a *asker) checkItems(t *testing.T) {
	t.Helper()
	want := 0
	for _, lists := range a.kept.compared {
		for _, of := range lists.Values() {
			for _, method := range of.methods {
				for _, server := range method.servers {
					want += len(server.digests)
				}
			}
		}
	}
	if a.kept.items != want {
		t.Errorf("%d items are counted, and %d are remembered", a.kept.items, want)
	}
}

// A stage that compares no lists is asked once about each definition.
func TestDefinitionIsAskedAboutOnce(t *testing.T) {
	a, s, other := asker{kept: newKeptVerdicts()}, newReusingStage(0), newReusingStage(0)
	prompts := newList("a", "ann", "x")
	prompts.Method = "prompts/list"
	for i, c := range []struct {
		s    *Stage
		m    *mcp.Message
		want string
	}{
		{s, newList("a", "ann", "x"), "1"}, {s, newList("a", "ann", "x"), "1"},
		{s, newList("a", "bob", "x"), "2"}, {s, newList("b", "ann", "x"), "3"},
		{s, newList("a", "ann", "y"), "4"}, {s, prompts, "5"},
		{other, newList("a", "ann", "x"), "6"}, {s, newList("a", "ann", "x"), "1"},
	} {
		if got := a.ask(c.s, c.m); got != c.want {
			t.Errorf("question %d: got the verdict %s, want %s", i, got, c.want)
		}
	}
	a.kept.drop(s)
	for s, want := range map[*Stage]string{s: "7", other: "6"} {
		if got := a.ask(s, newList("a", "ann", "x")); got != want {
			t.Errorf("after a stage was dropped: got the verdict %s, want %s", got, want)
		}
	}
}

// Only verdicts that hold for the same definition again are kept.
func TestVerdictsThatAreNotKept(t *testing.T) {
	allow := pipeline.Verdict{Action: pipeline.Allow}
	for name, c := range map[string]struct {
		v      pipeline.Verdict
		err    error
		isSure bool
		want   bool
	}{
		"allow":                {allow, nil, true, true},
		"modify":               {pipeline.Verdict{Action: pipeline.Modify}, nil, true, true},
		"deny":                 {pipeline.Verdict{}, nil, true, false},
		"answer":               {pipeline.Verdict{Action: pipeline.Answer}, nil, true, false},
		"an error":             {allow, errors.New("no"), true, false},
		"from another process": {allow, nil, false, false},
		"a final verdict": {pipeline.Verdict{Action: pipeline.Allow, Final: true}, nil, true,
			false},
		"redacted values": {pipeline.Verdict{Action: pipeline.Modify,
			Redacted: []pipeline.Redacted{{Placeholder: "p"}}}, nil, true, false},
	} {
		for _, principals := range []int{0, 8} {
			k, s, m := newKeptVerdicts(), newReusingStage(principals), newList("a", "ann", "x")
			for range 2 { // the first verdict on a list that is compared is not kept
				k.end(k.begin(s, m), c.v, c.err, c.isSure)
			}
			if _, got := k.find(newDefinition(s, m)); got != c.want {
				t.Errorf("%s, %d principals: kept %v, want %v", name, principals, got, c.want)
			}
		}
	}
}

// A stage that compares lists is asked again after another list of the principal has changed.
func TestComparedListIsAskedAboutAgain(t *testing.T) {
	a, s := asker{kept: newKeptVerdicts()}, newReusingStage(8)
	prompts := newList("c", "ann", "y")
	prompts.Method = "prompts/list"
	for i, c := range []struct {
		m    *mcp.Message
		want string
	}{
		{newList("a", "ann", "x"), "1"}, // new: another list may be asked about at the same time
		{newList("a", "ann", "x"), "2"}, {newList("a", "ann", "x"), "2"},
		{newList("b", "ann", "x"), "3"},
		{newList("a", "ann", "x"), "4"}, {newList("b", "ann", "x"), "5"},
		{newList("a", "ann", "x"), "4"}, {newList("b", "ann", "x"), "5"},
		{newList("a", "bob", "x"), "6"}, {newList("a", "bob", "x"), "7"}, // no list of ann
		{newList("a", "ann", "x"), "4"},
		{prompts, "8"}, {newList("a", "ann", "x"), "4"}, // nor do lists of other methods matter
		{newList("d", "ann"), "9"}, {newList("d", "ann"), "9"}, // a list without items
		{newList("a", "ann", "x"), "4"},
		{newList("b", "ann", "x", "y"), "10"},
		{newList("a", "ann", "x"), "11"}, {newList("a", "ann", "x"), "11"},
		{newList("b", "ann", "xx"), "12"},
		{newList("a", "ann", "x"), "13"}, {newList("b", "ann", "xx"), "14"},
		{newList("b", "ann", "x", "x"), "15"}, {newList("b", "ann", "x", "x"), "16"},
		{newList("b", "ann", "x", "x"), "16"},
	} {
		if got := a.ask(s, c.m); got != c.want {
			t.Errorf("question %d: got the verdict %s, want %s", i, got, c.want)
		}
		a.checkItems(t)
	}
	a.kept.drop(s)
	if a.checkItems(t); a.kept.items != 0 {
		t.Errorf("%d items are remembered after the stage was dropped", a.kept.items)
	}
}

// A definition that is no list is compared as a whole.
func TestComparedDefinitionWithoutItems(t *testing.T) {
	a, s := asker{kept: newKeptVerdicts()}, newReusingStage(8)
	ask := func(text, want string) {
		t.Helper()
		m := mcp.NewResponse("1", []byte(`{"instructions":"`+text+`"}`))
		m.Direction, m.Server, m.Method = mcp.ToClient, "a", "initialize"
		m.Principal = identity.FromID("ann")
		if got := a.ask(s, m.WithDigest()); got != want {
			t.Errorf("%s: got the verdict %s, want %s", text, got, want)
		}
	}
	ask("x", "1")
	ask("x", "2")
	ask("x", "2")
	ask("y", "3")
	ask("x", "4")
	a.checkItems(t)
}

// Two lists of a server that are asked about at the same time leave open which of them the stage
// remembers.
func TestListsAskedAboutAtTheSameTime(t *testing.T) {
	a, s := asker{kept: newKeptVerdicts()}, newReusingStage(8)
	allow := pipeline.Verdict{Action: pipeline.Allow, Reason: "at the same time"}
	x, y, b := newList("a", "ann", "x"), newList("a", "ann", "xy"), newList("b", "ann", "x")
	a.ask(s, x)
	a.ask(s, b)
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		questions := []question{a.kept.begin(s, x), a.kept.begin(s, y)}
		for _, i := range order {
			a.kept.end(questions[i], allow, nil, true)
			a.checkItems(t)
		}
		for _, m := range []*mcp.Message{x, y, b} {
			if v, ok := a.kept.find(newDefinition(s, m)); ok {
				t.Errorf("ended in the order %d: the verdict %q on %s is kept", order, v.Reason,
					m.Body())
			}
		}
		first := a.ask(s, y) // the host does not know what the stage compares it with
		second := a.ask(s, y)
		if third := a.ask(s, y); first == second || second != third {
			t.Errorf("ended in the order %d: got the verdicts %s, %s, %s; want the second kept",
				order, first, second, third)
		}
	}
	// The same list twice at the same time is no conflict.
	questions := []question{a.kept.begin(s, y), a.kept.begin(s, y)}
	for _, q := range questions {
		a.kept.end(q, allow, nil, true)
	}
	if got := a.ask(s, y); got != allow.Reason {
		t.Errorf("the same list at the same time: got the verdict %q, want that it is kept", got)
	}
	// While a list is asked about, another list of the principal changes.
	q := a.kept.begin(s, y)
	a.ask(s, newList("b", "ann", "z"))
	a.kept.end(q, allow, nil, true)
	if got := a.ask(s, y); got == allow.Reason {
		t.Error("a verdict is kept although another list has changed meanwhile")
	}
	// After an error, it is unknown which items the stage remembers.
	a.ask(s, y)
	a.kept.end(a.kept.begin(s, y), pipeline.Verdict{}, errors.New("no"), true)
	a.checkItems(t)
	first, second := a.ask(s, y), a.ask(s, y)
	if first == second {
		t.Errorf("after an error, the verdict %s is kept", first)
	}
	// While one of two lists is still asked about, the stage may forget a third list for it.
	z := newList("a", "ann", "xyz")
	questions = []question{a.kept.begin(s, x), a.kept.begin(s, y)}
	a.kept.end(questions[0], allow, nil, true)
	a.ask(s, z)
	a.ask(s, z)
	a.kept.end(questions[1], allow, nil, true)
	a.checkItems(t)
	if v, ok := a.kept.find(newDefinition(s, z)); ok {
		t.Errorf("the verdict %s is kept although the stage was asked about another list", v.Reason)
	}
	// A question may end after its stage was closed.
	q = a.kept.begin(s, y)
	a.kept.drop(s)
	a.kept.end(q, allow, nil, true)
	if len(a.kept.compared) != 0 || a.kept.verdicts.Len() != 0 {
		t.Error("something of a closed stage is kept")
	}
}

// The host remembers the lists of half as many principals as the stage.
func TestListsOfHalfThePrincipalsAreRemembered(t *testing.T) {
	a, s := asker{kept: newKeptVerdicts()}, newReusingStage(6)
	for i, c := range []struct{ principal, want string }{
		{"ann", "1"}, {"ann", "2"}, {"bob", "3"}, {"bob", "4"}, {"eve", "5"}, {"eve", "6"},
		{"ann", "2"}, {"bob", "4"}, {"eve", "6"}, // kept verdicts do not make a principal recent
		{"joe", "7"}, {"bob", "4"}, {"eve", "6"}, {"ann", "8"},
	} {
		if got := a.ask(s, newList("a", c.principal, "x")); got != c.want {
			t.Errorf("question %d: got the verdict %s, want %s", i, got, c.want)
		}
		a.checkItems(t)
	}
}

// The kept verdicts take at most 8 MiB, and each at most 1 MiB.
func TestSizeOfKeptVerdicts(t *testing.T) {
	const largest = maxKeptBytes / 8
	k, s := newKeptVerdicts(), newReusingStage(0)
	keep := func(name string, size int) {
		m := newList("a", "ann", name)
		k.end(k.begin(s, m), pipeline.Verdict{Action: pipeline.Allow,
			Reason: strings.Repeat("x", size-keptOverhead)}, nil, true)
	}
	kept := func() (names string) {
		for _, name := range strings.Split("abcdefghi", "") {
			if _, ok := k.find(newDefinition(s, newList("a", "ann", name))); ok {
				names += name
			}
		}
		return names
	}
	for _, c := range []struct {
		name string
		size int
		want string
	}{
		{"a", largest + 1, ""}, {"a", largest, "a"}, {"b", largest, "ab"}, {"c", largest, "abc"},
		{"a", largest, "abc"}, // it replaces the first one
		{"d", largest, "abcd"}, {"e", largest, "abcde"}, {"f", largest, "abcdef"},
		{"g", largest, "abcdefg"}, {"h", largest, "abcdefgh"},
		{"i", keptOverhead, "bcdefghi"}, // a was used longest ago
	} {
		if keep(c.name, c.size); kept() != c.want {
			t.Errorf("after %s with %d bytes, the verdicts on %s are kept, want %s", c.name, c.size,
				kept(), c.want)
		}
	}
}

// The memory of a verdict is that of its texts, and some more for each edit, finding, hidden name
// and label.
func TestSizeOfAVerdict(t *testing.T) {
	for want, v := range map[int]pipeline.Verdict{
		0:               {},
		3:               {Reason: "abc"},
		64 + 2 + 3:      {Edits: []mcp.Edit{{Pointer: "/a", Value: []byte("123")}}},
		2 * (32 + 1):    {Findings: []pipeline.Finding{{Type: "x"}, {Pointer: "/"}}},
		16 + 3 + 16 + 5: {Hide: []string{"abc"}, Labels: []string{"label"}},
		2 + 64 + 1 + 32: {Reason: "ab", Edits: []mcp.Edit{{Pointer: "/"}},
			Findings: []pipeline.Finding{{}}},
	} {
		if got := textBytes(v); got != want {
			t.Errorf("%+v has %d bytes, want %d", v, got, want)
		}
	}
}

// If the items of all lists are too many, the lists of the stage that is asked are forgotten first,
// and those of the principal itself last.
func TestItemsOfComparedListsAreBounded(t *testing.T) {
	a, s, other := asker{kept: newKeptVerdicts()}, newReusingStage(8), newReusingStage(8)
	known := func() (principals []string) {
		for _, stage := range []*Stage{s, other} {
			if lists := a.kept.compared[stage]; lists != nil {
				for _, principal := range lists.Keys() {
					principals = append(principals, strings.Split(principal, " ")[0])
				}
			}
		}
		return principals
	}
	for _, c := range []struct {
		s         *Stage
		principal string
		items     int
		want      []string // of whom lists are remembered
	}{
		{other, "ann", maxKeptItems / 2, []string{"ann"}},
		{s, "bob", maxKeptItems/2 - 1, []string{"bob", "ann"}},
		{s, "eve", 1, []string{"bob", "eve", "ann"}},
		{s, "eve", 2, []string{"eve", "ann"}},           // one item too many
		{s, "eve", maxKeptItems/2 + 1, []string{"eve"}}, // eve is the last principal of the stage
		{s, "eve", maxKeptItems + 1, nil},
	} {
		a.ask(c.s, manyTools("a", c.principal, c.items))
		a.checkItems(t)
		if got := known(); !slices.Equal(got, c.want) {
			t.Errorf("after %d items of %s: lists of %q are remembered, want %q", c.items,
				c.principal, got, c.want)
		}
	}
}
