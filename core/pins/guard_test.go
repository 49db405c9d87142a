package pins

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// guardTest is a Guard in a pipeline, in front of the server "s".
type guardTest struct {
	testing.TB
	guard  *Guard
	pipe   *pipeline.Pipeline
	hidden pipeline.HiddenItems
	last   pipeline.Outcome
}

// Record implements pipeline.Recorder.
func (g *guardTest) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	g.last = o
	return 1, nil
}

var allKinds = []Kind{Tool, Prompt, Template, Resource, Instructions}

// newGuardTest returns a guard for a lock that approves the items.
func newGuardTest(t testing.TB, changed Changed, items ...*Item) *guardTest {
	approved := &Server{Start: Start{Command: "server"}}
	for _, i := range items {
		approved.Add(i)
	}
	g := &guardTest{TB: t}
	g.use(newGuard(&Lock{Servers: map[string]*Server{"s": approved}}, nil,
		GuardedServer{Start: approved.Start, Changed: changed}))
	return g
}

// newGuard returns a guard of all kinds for the server "s".
func newGuard(lock *Lock, previous *Guard, s GuardedServer) *Guard {
	s.Name = "s"
	return NewGuard(GuardOptions{Lock: lock, Kinds: allKinds, Servers: []GuardedServer{s},
		Previous: previous})
}

func (g *guardTest) use(guard *Guard) {
	g.guard = guard
	g.pipe = pipeline.New(g, pipeline.Options{HiddenItems: &g.hidden}, pipeline.StageConfig{
		Name: "pins", Stage: guard, KeepHidden: true, ReturnsOnCancel: true, Timeout: time.Minute,
		Wants: pipeline.Wants{Methods: guard.Methods()}})
}

// pass passes a message of the server "s". It returns nil if the message is denied.
func (g *guardTest) pass(m *mcp.Message, principal string) *mcp.Message {
	g.Helper()
	m.Server, m.Principal = "s", identity.FromID(principal)
	passed, err := g.pipe.Pass(g.Context(), m)
	if err != nil && g.last.Action != "deny" {
		g.Fatalf("%v; the record is %+v, want a denial", err, g.last)
	}
	return passed.Message()
}

// listed passes a page of a list to a client and returns the names on it.
func (g *guardTest) listed(method string, items ...string) (names []string) {
	return g.listedTo("ann", method, items...)
}

func (g *guardTest) listedTo(principal, method string, items ...string) (names []string) {
	g.Helper()
	known, _ := mcp.LookupMethod(method)
	m := mcp.NewResponse(`1`, []byte(`{"`+known.ItemsPointer[1:]+`":[`+
		strings.Join(items, ",")+`]}`))
	m.Method, m.Direction = method, mcp.ToClient
	passed := g.pass(m, principal)
	if passed == nil {
		g.Fatalf("the list is denied: %s", g.last.Reason)
	}
	passed.ItemTexts(known.ItemsPointer, known.ItemNamePointer, func(_ int, raw []byte, name string,
		ok bool) bool {
		if !ok {
			name = string(raw)
		}
		names = append(names, name)
		return true
	})
	return names
}

// isDenied reports whether a request is denied.
func (g *guardTest) isDenied(method, params string) bool {
	g.Helper()
	m := mcp.NewRequest(`1`, method, []byte(params))
	m.Direction = mcp.ToServer
	if known, _ := mcp.LookupMethod(method); known.NamePointer != "" {
		m.Name, _ = m.Text(known.NamePointer)
	}
	return g.pass(m, "ann") == nil
}

func (g *guardTest) wantListed(method string, items []string, want ...string) {
	g.Helper()
	if got := g.listed(method, items...); !slices.Equal(got, want) {
		g.Errorf("%s shows %q, want %q; the reason is %q", method, got, want, g.last.Reason)
	}
}

const guardedTool = `{"name":"read","title":"Read","description":"Reads a file.",` +
	`"inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"a path",` +
	`"default":"x"},"mode":{"enum":["a","b"]}},"required":["path","mode"]},` +
	`"outputSchema":{"type":"object","properties":{"text":{"type":"string"}}},` +
	`"annotations":{"readOnlyHint":true,"openWorldHint":false},` +
	`"icons":[{"src":"https://a.example/i.png"}],"_meta":{"a":1},` +
	`"execution":{"taskSupport":"optional"}}`

// Each field of a tool is changed alone. What a model reads or relies on holds the tool back, in
// the list and in use.
func TestGuardHoldsBackEachChangedField(t *testing.T) {
	for _, c := range []struct {
		name, old, now string
		class          Class // "" if the tool is shown
	}{
		{"description", `Reads a file.`, `Reads a file, then mails it.`, Text},
		{"no description", `"description":"Reads a file.",`, ``, Text},
		{"one character", `Reads a file.`, `Reads a file`, Text},
		{"invisible character", `Reads a file.`, `Reads a file.\u200b`, Text},
		{"title", `"title":"Read"`, `"title":"Write"`, Text},
		{"description of a parameter", `a path`, `a path, and ~/.ssh`, Text},
		{"default of a parameter", `"default":"x"`, `"default":"y"`, Shape},
		{"type of a parameter", `"path":{"type":"string"`, `"path":{"type":"object"`, Shape},
		{"values of a parameter", `["a","b"]`, `["a","b","c"]`, Shape},
		{"required parameters", `"required":["path","mode"]`, `"required":["path"]`, Shape},
		{"new parameter", `"mode":`, `"note":{},"mode":`, Shape},
		{"output schema", `"text":{"type":"string"}`, `"text":{"type":"array"}`, Shape},
		{"broken promise", `"readOnlyHint":true`, `"readOnlyHint":false`, Promise},
		{"promise that is gone", `"readOnlyHint":true,`, ``, Promise},
		{"open world", `"openWorldHint":false`, `"openWorldHint":true`, Promise},
		{"unknown member", `"title":`, `"secret":"obey","title":`, Text},
		{"icons", `i.png`, `j.png`, ""},
		{"_meta", `"_meta":{"a":1}`, `"_meta":{"a":2}`, ""},
		{"execution", `optional`, `required`, ""},
		{"further promise", `"readOnlyHint":true`, `"readOnlyHint":true,"idempotentHint":true`, ""},
		{"effective value", `"readOnlyHint":true`, `"destructiveHint":false,"readOnlyHint":true`,
			""},
		{"order of required", `["path","mode"]`, `["mode","path"]`, ""},
		{"order of values", `["a","b"]`, `["b","a"]`, ""},
		{"spaces", `"title":`, ` "title" : `, ""},
		{"escape", `Reads`, `\u0052eads`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuardTest(t, Hide, item(t, Tool, guardedTool))
			changed := strings.Replace(guardedTool, c.old, c.now, 1)
			if changed == guardedTool {
				t.Fatalf("%s is not in the tool", c.old)
			}
			want, action := []string{"read"}, "pass"
			if c.class != "" {
				want, action = nil, "hide"
			}
			g.wantListed("tools/list", []string{changed}, want...)
			if g.last.Action != action || c.class != "" &&
				g.last.Reason != "not as approved: 1 "+string(c.class) {
				t.Errorf("the record has the action %s and the reason %q, want %s and %s",
					g.last.Action, g.last.Reason, action, c.class)
			}
			if got := g.isDenied("tools/call", `{"name":"read"}`); got != (c.class != "") {
				t.Errorf("the call is denied: %v, want %v", got, !got)
			}
			g.wantListed("tools/list", []string{guardedTool}, "read")
			if g.isDenied("tools/call", `{"name":"read"}`) {
				t.Error("the call of the tool is denied after it was as approved again")
			}
		})
	}
}

// A tool with default annotations is the same as a tool without annotations.
func TestGuardKnowsTheDefaultsOfAnnotations(t *testing.T) {
	const plain, explicit = `{"name":"a"}`, `{"annotations":{"readOnlyHint":false,` +
		`"destructiveHint":true,"idempotentHint":false,"openWorldHint":true},"name":"a"}`
	newGuardTest(t, Hide, item(t, Tool, plain)).wantListed("tools/list", []string{explicit}, "a")
	newGuardTest(t, Hide, item(t, Tool, explicit)).wantListed("tools/list", []string{plain}, "a")
}

// Every page is compared, in any order of pages and items, and only the changed items are missing.
func TestGuardComparesEveryPage(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, `{"name":"a"}`), item(t, Tool, `{"name":"b"}`),
		item(t, Tool, `{"name":"c"}`))
	g.wantListed("tools/list", []string{`{"name":"c"}`}, "c")
	g.wantListed("tools/list", []string{`{"name":"b","title":"evil"}`, `{"name":"a"}`}, "a")
	g.wantListed("tools/list", []string{`{"name":"d"}`})
	for name, want := range map[string]bool{"a": false, "b": true, "c": false, "d": true} {
		if got := g.isDenied("tools/call", `{"name":"`+name+`"}`); got != want {
			t.Errorf("the call of %s is denied: %v, want %v", name, got, want)
		}
	}
	if got := g.guard.Waiting()["s"]; got != 2 {
		t.Errorf("%d items wait, want 2", got)
	}
}

// A server that changes a tool at every list is compared at every list. Other clients cannot use a
// tool that one client saw changed.
func TestGuardOfAServerThatChangesAtEachList(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, guardedTool))
	poisoned := strings.Replace(guardedTool, "Reads", "Mails", 1)
	for range 3 {
		g.wantListed("tools/list", []string{guardedTool}, "read")
		if g.isDenied("tools/call", `{"name":"read"}`) {
			t.Error("the approved tool is denied")
		}
		if names := g.listedTo("bob", "tools/list", poisoned); len(names) > 0 {
			t.Errorf("the changed tool is listed: %q", names)
		}
		if !g.isDenied("tools/call", `{"name":"read"}`) {
			t.Error("the tool that was seen changed is not denied")
		}
	}
}

// What is hidden cannot be used, and a client that does not list cannot use more.
func TestGuardDecidesListsAndUseTogether(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, `{"name":"a"}`), item(t, Prompt, `{"name":"p"}`),
		item(t, Template, `{"name":"t","uriTemplate":"f:///{x}"}`),
		item(t, Resource, `{"name":"r","uri":"g:///r"}`))
	denied := func(want bool, uses ...string) {
		t.Helper()
		for _, use := range uses {
			method, params, _ := strings.Cut(use, " ")
			if got := g.isDenied(method, params); got != want {
				t.Errorf("%s is denied: %v, want %v (%s)", use, got, want, g.last.Reason)
			}
		}
	}
	known := []string{`tools/call {"name":"a"}`, `prompts/get {"name":"p"}`,
		`completion/complete {"ref":{"type":"ref/prompt","name":"p"}}`,
		`completion/complete {"ref":{"type":"ref/resource","uri":"f:///{x}"}}`}
	denied(false, known...)
	denied(true, `tools/call {"name":"b"}`, `tools/call {"name":7}`, `tools/call {"name":"A"}`,
		`prompts/get {"name":"q"}`, `completion/complete {"ref":{"type":"ref/prompt","name":"q"}}`,
		`completion/complete {"ref":{"type":"ref/resource","uri":"f:///{y}"}}`)
	for _, l := range []struct{ method, item string }{
		{"tools/list", `{"name":"a","description":"evil"}`},
		{"prompts/list", `{"name":"p","description":"evil"}`},
		{"resources/templates/list", `{"name":"t","uriTemplate":"f:///{x}","description":"evil"}`},
		{"resources/list", `{"name":"r","uri":"g:///r","description":"evil"}`},
	} {
		g.wantListed(l.method, []string{l.item})
	}
	denied(true, append(known, `resources/read {"uri":"f:///etc"}`,
		`resources/read {"uri":"g:///r"}`)...)
}

// An item without a name, or with two definitions of which one is not approved, is not shown.
func TestGuardOfAmbiguousItems(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, `{"name":"a"}`), item(t, Tool, `{"name":"b"}`))
	g.wantListed("tools/list", []string{`7`, `{"name":"b"}`, `{}`, `{"name":7}`, `{"name":""}`,
		`"b"`}, "b")
	for _, items := range [][]string{{`{"name":"a"}`, `{"name":"a","title":"evil"}`},
		{`{"name":"a","title":"evil"}`, `{"name":"a"}`}} {
		g.wantListed("tools/list", append(items, `{"name":"b"}`), "b")
		if !g.isDenied("tools/call", `{"name":"a"}`) {
			t.Errorf("the tool of the list %q is not denied", items)
		}
	}
}

// Instructions that are not as approved are removed, in both eras, and nothing else.
func TestGuardRemovesChangedInstructions(t *testing.T) {
	for _, c := range []struct{ name, approved, now, class string }{
		{"the same", `"Be kind."`, `"Be kind."`, ""},
		{"changed", `"Be kind."`, `"Be evil."`, "text"},
		{"new", ``, `"Be evil."`, "new"},
		{"null", `"Be kind."`, `null`, "new"},
		{"gone", `"Be kind."`, ``, ""},
	} {
		for _, method := range []string{"initialize", "server/discover"} {
			var items []*Item
			if c.approved != "" {
				items = append(items, item(t, Instructions, c.approved))
			}
			g := newGuardTest(t, Hide, items...)
			result := `{"capabilities":{"tools":{}}}`
			if c.now != "" {
				result = `{"instructions":` + c.now + `,"capabilities":{"tools":{}}}`
			}
			m := mcp.NewResponse(`1`, []byte(result))
			m.Method, m.Direction = method, mcp.ToClient
			passed := g.pass(m, "ann")
			_, has := passed.Get("/instructions")
			_, hasRest := passed.Get("/capabilities/tools")
			if want := c.class == "" && c.now != ""; has != want || !hasRest {
				t.Errorf("%s, %s: got %s, want instructions: %v", method, c.name, passed.Body(),
					want)
			}
			if wantsReason := c.class != ""; strings.HasSuffix(g.last.Reason, "("+c.class+")") !=
				wantsReason || (g.last.Action == "modify") != wantsReason {
				t.Errorf("%s, %s: the record is %s %q, want the class %q", method, c.name,
					g.last.Action, g.last.Reason, c.class)
			}
		}
	}
}

// A server that is started in another way, or that the lock does not have, is held back whole.
func TestGuardOfAnotherLaunch(t *testing.T) {
	approved := &Server{Start: Start{Command: "npx", Args: []string{"-y", "a@1"}}}
	approved.Add(item(t, Tool, `{"name":"a"}`))
	approved.Add(item(t, Instructions, `"Be kind."`))
	lock := &Lock{Servers: map[string]*Server{"s": approved}}
	for _, c := range []struct {
		name   string
		lock   *Lock
		start  Start
		reason string
	}{
		{"arguments", lock, Start{Command: "npx", Args: []string{"-y", "a@2"}}, "1 launch"},
		{"a URL", lock, Start{URL: "https://a.example"}, "1 launch"},
		{"a variable", lock, Start{Command: "npx", Args: []string{"-y", "a@1"},
			Env: []string{"NODE_OPTIONS"}}, "1 launch"},
		{"no approval", &Lock{Servers: map[string]*Server{"t": approved}}, approved.Start, "1 new"},
	} {
		g := &guardTest{TB: t}
		g.use(newGuard(c.lock, nil, GuardedServer{Start: c.start}))
		if !g.isDenied("tools/call", `{"name":"a"}`) {
			t.Errorf("%s: the call is not denied before a list", c.name)
		}
		g.wantListed("tools/list", []string{`{"name":"a"}`})
		if !strings.HasSuffix(g.last.Reason, c.reason) {
			t.Errorf("%s: the reason is %q, want %s", c.name, g.last.Reason, c.reason)
		}
		m := mcp.NewResponse(`1`, []byte(`{"instructions":"Be kind."}`))
		m.Method, m.Direction = "initialize", mcp.ToClient
		if _, has := g.pass(m, "ann").Get("/instructions"); has {
			t.Errorf("%s: the instructions pass", c.name)
		}
	}
}

// With Warn, changed items pass, and the record says what would have happened. New items are
// held back all the same.
func TestGuardThatWarns(t *testing.T) {
	g := newGuardTest(t, Warn, item(t, Tool, `{"name":"a"}`), item(t, Instructions, `"Be kind."`))
	g.wantListed("tools/list", []string{`{"name":"a","title":"new words"}`}, "a")
	if g.last.Action != "would_hide" || g.last.Reason != "not as approved: 1 text" {
		t.Errorf("the record of the list is %s %q, want would_hide", g.last.Action, g.last.Reason)
	}
	if g.isDenied("tools/call", `{"name":"a"}`) || g.last.Action != "would_deny" {
		t.Errorf("the record of the call is %s, want would_deny", g.last.Action)
	}
	m := mcp.NewResponse(`1`, []byte(`{"instructions":"Be evil."}`))
	m.Method, m.Direction = "initialize", mcp.ToClient
	if _, has := g.pass(m, "ann").Get("/instructions"); !has || g.last.Action != "would_modify" {
		t.Errorf("the instructions pass: %v, with the record %s, want would_modify", has,
			g.last.Action)
	}
	g.wantListed("tools/list", []string{`{"name":"a"}`, `{"name":"new"}`}, "a")
	if !g.isDenied("tools/call", `{"name":"new"}`) {
		t.Error("the new tool can be used")
	}
}

// After a reload, an item stays held back until it is approved or is as approved again.
func TestGuardAfterAReload(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, `{"name":"a"}`), item(t, Tool, `{"name":"b"}`))
	changed := []string{`{"name":"a","title":"x"}`, `{"name":"b","title":"x"}`}
	g.wantListed("tools/list", changed)
	next := &Server{Start: Start{Command: "server"}}
	next.Add(item(t, Tool, changed[0]))
	next.Add(item(t, Tool, `{"name":"b"}`))
	before := g.guard
	g.hidden = pipeline.HiddenItems{} // what the pipeline remembers is tested in core/pipeline
	g.use(newGuard(&Lock{Servers: map[string]*Server{"s": next}}, before,
		GuardedServer{Start: next.Start, Changed: Hide}))
	if before.Approves(g.guard, "s") || !g.guard.Approves(g.guard, "s") {
		t.Error("Approves does not tell that another lock approves something else")
	}
	if g.isDenied("tools/call", `{"name":"a"}`) {
		t.Error("the approved tool is denied")
	}
	if !g.isDenied("tools/call", `{"name":"b"}`) {
		t.Error("the tool that is not approved is not denied")
	}
	g.wantListed("tools/list", changed, "a")
}

// The guard before sees a change after the next guard was made, and before it is used.
func TestGuardKeepsWhatWasSeenDuringAReload(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, `{"name":"a"}`))
	same := &Server{Start: Start{Command: "server"}}
	same.Add(item(t, Tool, `{"name":"a"}`))
	before := g.guard
	next := newGuard(&Lock{Servers: map[string]*Server{"s": same}}, before,
		GuardedServer{Start: same.Start})
	g.wantListed("tools/list", []string{`{"name":"a","title":"x"}`})
	next.KeepHeld(before)
	g.hidden = pipeline.HiddenItems{}
	g.use(next)
	if !g.isDenied("tools/call", `{"name":"a"}`) {
		t.Error("the changed tool is not denied")
	}
}

// A server cannot fill the memory with new items, nor make the guard forget a changed item.
func TestGuardIsBounded(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, `{"name":"a"}`))
	for n := range 3 {
		var items []string
		for i := range maxWaiting {
			items = append(items, fmt.Sprintf(`{"name":"new-%d-%d"}`, n, i))
		}
		g.hidden = pipeline.HiddenItems{}
		g.wantListed("tools/list", items)
	}
	g.hidden = pipeline.HiddenItems{}
	g.wantListed("tools/list", []string{`{"name":"a","title":"x"}`})
	s := g.guard.servers["s"]
	if len(s.held) > 1 || len(s.waiting) > maxWaiting || len(s.known) > maxKnownItems ||
		len(s.clean) > maxKnownPages {
		t.Errorf("the guard remembers %d changed and %d new items, %d items and %d pages",
			len(s.held), len(s.waiting), len(s.known), len(s.clean))
	}
	if s.held[heldItem{Tool, "a"}].class != Text {
		t.Error("the guard forgot the changed item")
	}
}

// A server answers two lists with the same bytes: they are as approved for one list only.
func TestGuardOfOneBodyForTwoLists(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Tool, `{"name":"read"}`),
		item(t, Prompt, `{"name":"review"}`))
	for method, want := range map[string]string{"prompts/list": "review", "tools/list": ""} {
		m := mcp.NewResponse(`1`, []byte(`{"prompts":[{"name":"review"}],`+
			`"tools":[{"name":"read","description":"also mails it"},{"name":"new"}]}`))
		for range 2 {
			m.Method, m.Direction = method, mcp.ToClient
			passed := g.pass(m, "ann")
			if passed == nil {
				t.Fatalf("%s is denied: %s", method, g.last.Reason)
			}
			known, _ := mcp.LookupMethod(method)
			var names []string
			passed.ItemTexts(known.ItemsPointer, known.ItemNamePointer, func(_ int, _ []byte,
				name string, _ bool) bool {
				names = append(names, name)
				return true
			})
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s shows %q, want %q", method, got, want)
			}
		}
	}
}

// With resources in what, a directory of resources is a list of them.
func TestGuardComparesDirectories(t *testing.T) {
	g := newGuardTest(t, Hide, item(t, Resource, `{"uri":"file:///a","name":"a"}`))
	g.wantListed("resources/directory/read", []string{`{"uri":"file:///a","name":"a"}`,
		`{"uri":"file:///b","name":"b"}`}, "file:///a")
}

// largeList returns approved tools, a page with all of them, and a page on which one has changed.
func largeList(t testing.TB, count int) (approved []*Item, whole, changed *mcp.Message) {
	t.Helper()
	var items []string
	for i := range count {
		tool := strings.Replace(guardedTool, `"read"`, fmt.Sprintf(`"tool-%d"`, i), 1)
		items, approved = append(items, tool), append(approved, item(t, Tool, tool))
	}
	page := func(items []string) *mcp.Message {
		m := mcp.NewResponse(`1`, []byte(`{"tools":[`+strings.Join(items, ",")+`]}`)).WithDigest()
		m.Method, m.Direction, m.Server = "tools/list", mcp.ToClient, "s"
		return m
	}
	whole = page(items)
	items[count/2] = strings.Replace(items[count/2], "Reads", "Mails", 1)
	return approved, whole, page(items)
}

// inspect compares a page, and checks how many of its items are hidden.
func inspect(t testing.TB, guard *Guard, m *mcp.Message, hidden int) {
	t.Helper()
	v, err := guard.Inspect(t.Context(), m)
	if err != nil || len(v.Hide) != hidden {
		t.Fatalf("got %d hidden items, %v, want %d", len(v.Hide), err, hidden)
	}
}

// A list of 10,000 tools, the most that Gatekit gets from a server, is parsed once. When the same
// bytes come again, nothing is parsed or copied. When one tool has changed, the others are only
// looked up.
func TestLargeListIsParsedOnce(t *testing.T) {
	const count = 10_000
	approved, whole, changed := largeList(t, count)
	guard := newGuardTest(t, Hide, approved...).guard
	first := testing.AllocsPerRun(1, func() {
		inspect(t, newGuardTest(t, Hide, approved...).guard, whole, 0)
	})
	if first > 250*count {
		t.Errorf("the first comparison takes %v allocations, want at most 250 for each tool", first)
	}
	inspect(t, guard, whole, 0)
	if n := testing.AllocsPerRun(3, func() { inspect(t, guard, whole, 0) }); n > 10 {
		t.Errorf("the same list takes %v allocations, want at most 10", n)
	}
	inspect(t, guard, changed, 1)
	for _, page := range []struct {
		m      *mcp.Message
		hidden int
	}{{changed, 1}, {whole, 0}} {
		n := testing.AllocsPerRun(3, func() { inspect(t, guard, page.m, page.hidden) })
		if n > 4*count {
			t.Errorf("a list of known tools takes %v allocations, want at most 4 for each tool", n)
		}
	}
}

// BenchmarkGuard compares a list of 10,000 tools: for the first time, when the same bytes come
// again, and when one tool of the list has changed.
func BenchmarkGuard(b *testing.B) {
	approved, whole, changed := largeList(b, 10_000)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			guard := newGuardTest(b, Hide, approved...).guard
			b.StartTimer()
			inspect(b, guard, whole, 0)
		}
	})
	guard := newGuardTest(b, Hide, approved...).guard
	inspect(b, guard, whole, 0)
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			inspect(b, guard, whole, 0)
		}
	})
	b.Run("one changed", func(b *testing.B) {
		for b.Loop() {
			inspect(b, guard, changed, 1)
		}
	})
}

// Gatekit's own tool to log in to a server is nothing that the server declares. It passes, and is
// not held for an approval, while a tool of the server that has its name is.
func TestGuardIgnoresGatekitsOwnTool(t *testing.T) {
	g := newGuardTest(t, Hide)
	list := func(isOwn bool) string {
		m := mcp.NewResponse(`1`, []byte(`{"tools":[{"name":"connect","inputSchema":{}}]}`))
		m.Method, m.Direction, m.Own = "tools/list", mcp.ToClient, isOwn
		return string(g.pass(m, "ann").Body())
	}
	call := func(isOwn bool) bool {
		m := mcp.NewRequest(`1`, "tools/call", []byte(`{"name":"connect"}`))
		m.Direction, m.Name, m.Own = mcp.ToServer, "connect", isOwn
		return g.pass(m, "ann") != nil
	}
	if got := list(true); !strings.Contains(got, "connect") || g.guard.Waiting()["s"] != 0 {
		t.Errorf("Gatekit's own list is %s, and %d items wait", got, g.guard.Waiting()["s"])
	}
	if got := list(false); strings.Contains(got, "connect") || g.guard.Waiting()["s"] != 1 {
		t.Errorf("the server's list is %s, and %d items wait", got, g.guard.Waiting()["s"])
	}
	if !call(true) || call(false) {
		t.Errorf("a call of Gatekit's own tool passes: %v; of the server's: %v", call(true),
			call(false))
	}
}
