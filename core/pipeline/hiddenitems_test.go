package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// hideTest has pipelines that share their HiddenItems, as the pipelines before and after a reload.
type hideTest struct {
	t     *testing.T
	items pipeline.HiddenItems
	names pipeline.RecordableNames
	log   record
}

// pass passes m through a new pipeline. Its stage "judge" hides the names.
func (h *hideTest) pass(m *mcp.Message, config pipeline.StageConfig, names ...string) error {
	h.t.Helper()
	config.Name, config.KeepHidden = "judge", true
	if config.Stage == nil {
		config.Stage = allow
		if len(names) > 0 && m.Kind == mcp.Response {
			config.Stage = hide(names...)
		}
	}
	p := pipeline.New(&h.log, pipeline.Options{HiddenItems: &h.items, RecordableNames: &h.names},
		config)
	_, err := p.Pass(h.t.Context(), m)
	return err
}

// wantUses uses items and checks which uses are denied. Each use is a method, a space and params.
func (h *hideTest) wantUses(wantDenied bool, uses ...string) {
	h.t.Helper()
	for _, use := range uses {
		method, params, _ := strings.Cut(use, " ")
		m := request(h.t, method, params, "")
		m.Server = "a"
		err := h.pass(m, pipeline.StageConfig{})
		if (err != nil) != wantDenied {
			h.t.Errorf("%s: got the error %v, want a denial: %v", use, err, wantDenied)
			continue
		}
		o := h.log.last(h.t)
		if last := len(o.Steps) - 1; wantDenied && (o.Action != "deny" || o.After != nil ||
			o.Steps[last].Stage != "judge" || !strings.Contains(o.Reason, "hidden")) {
			h.t.Errorf("%s: the record is %+v, want a denial of the stage", use, o)
		}
	}
}

func (h *hideTest) list(method, result string) *mcp.Message {
	m := list(h.t, method, result)
	m.Server = "a"
	return m
}

// What a stage hid from a list cannot be used, although the stage allows the use: it may have
// forgotten what it hid. Once the stage shows the item again, it can be used.
func TestHiddenItemStaysHiddenUntilItIsJudgedAgain(t *testing.T) {
	for _, tt := range []struct {
		method, result string
		hidden         []string
		denied, passed []string
	}{
		{"tools/list", `{"tools":[{"name":"evil"},{"name":"good"}]}`, []string{"evil"},
			[]string{`tools/call {"name":"evil"}`, `tools/call {"name":"ev\u0069l"}`},
			[]string{`tools/call {"name":"good"}`, `prompts/get {"name":"evil"}`, `tools/call {}`}},
		{"prompts/list", `{"prompts":[{"name":"evil"},{"name":"good"}]}`, []string{"evil"},
			[]string{`prompts/get {"name":"evil"}`,
				`completion/complete {"ref":{"type":"ref/prompt","name":"evil"}}`},
			[]string{`prompts/get {"name":"good"}`, `tools/call {"name":"evil"}`,
				`completion/complete {"ref":{"type":"ref/prompt","name":"good"}}`}},
		{"resources/list", `{"resources":[{"uri":"test://x/evil"},{"uri":"test://x/good"}]}`,
			[]string{"test://x/evil"},
			[]string{`resources/read {"uri":"test://x/evil"}`,
				`resources/read {"uri":"TEST://x/%65vil"}`,
				`resources/subscribe {"uri":"test://x/evil"}`,
				`resources/directory/read {"uri":"test://x/evil"}`},
			[]string{`resources/read {"uri":"test://x/good"}`,
				`resources/unsubscribe {"uri":"test://x/evil"}`}},
		{"resources/directory/read", `{"resources":[{"uri":"test://x/evil"}]}`,
			[]string{"test://x/evil"}, []string{`resources/read {"uri":"test://x/evil"}`}, nil},
		{"skills/list", `{"skills":[{"uri":"skill://evil/SKILL.md"}]}`,
			[]string{"skill://evil/SKILL.md"},
			[]string{`skills/get {"uri":"skill://evil/SKILL.md"}`},
			[]string{`skills/get {"uri":"skill://good/SKILL.md"}`}},
		{"resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"test://x/{id}"},` +
			`{"uriTemplate":"test://x/{id}/text"},{"uriTemplate":"test://y/{+path}.txt"},` +
			`{"uriTemplate":"test://w/{a}{b}-/c/{d}.txt"},{"uriTemplate":"test://q/plain"}]}`,
			[]string{"test://x/{id}", "test://y/{+path}.txt", "test://w/{a}{b}-/c/{d}.txt",
				"test://q/plain"},
			[]string{`resources/read {"uri":"test://x/1"}`, `resources/read {"uri":"TEST://x/1"}`,
				`resources/read {"uri":"test://y/a/b.txt"}`,
				`resources/read {"uri":"test://w/12-/c/3.txt"}`,
				`resources/read {"uri":"TEST://q/plain"}`,
				`completion/complete {"ref":{"type":"ref/resource","uri":"test://x/{id}"}}`,
				`resources/read {"uri":"test://x/` + strings.Repeat("1", 8<<10) + `"}`},
			[]string{`resources/read {"uri":"test://x/1/text"}`,
				`resources/read {"uri":"test://z/1"}`, `resources/read {"uri":"test://y/a.doc"}`,
				`resources/read {"uri":"test:"}`, `resources/read {"uri":"test://w/12-/e/3.txt"}`,
				`resources/read {"uri":"test://q/plainer"}`,
				`resources/read {"uri":"test://z/` + strings.Repeat("1", 8<<10-9) + `"}`,
				`completion/complete {"ref":{"type":"ref/resource","uri":"test://x/{id}/text"}}`}},
	} {
		t.Run(tt.method, func(t *testing.T) {
			h := &hideTest{t: t}
			h.wantUses(false, tt.denied...)
			h.names = pipeline.RecordableNames{} // the uses above have added names
			if err := h.pass(h.list(tt.method, tt.result), pipeline.StageConfig{},
				tt.hidden...); err != nil {
				t.Fatal(err)
			}
			h.wantUses(true, tt.denied...)
			h.wantUses(false, tt.passed...)
			// a list without the items does not show them again
			if err := h.pass(h.list(tt.method, `{}`), pipeline.StageConfig{}); err != nil {
				t.Fatal(err)
			}
			h.wantUses(true, tt.denied...)
			h.pass(h.list(tt.method, tt.result), pipeline.StageConfig{})
			h.wantUses(false, tt.denied...)
		})
	}
}

// A resource that a server lists may be read, even if it matches only a hidden template.
func TestListedResourceThatMatchesAHiddenTemplate(t *testing.T) {
	h := &hideTest{t: t}
	h.pass(h.list("resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"x://{id}"}]}`),
		pipeline.StageConfig{}, "x://{id}")
	h.wantUses(true, `resources/read {"uri":"x://1"}`)
	h.pass(h.list("resources/list", `{"resources":[{"uri":"x://1"}]}`), pipeline.StageConfig{})
	h.wantUses(false, `resources/read {"uri":"x://1"}`)
}

// A template that an earlier page of the list shows counts, too.
func TestTemplateOfAnEarlierPage(t *testing.T) {
	h := &hideTest{t: t}
	page := func(template string) *mcp.Message {
		return h.list("resources/templates/list",
			`{"resourceTemplates":[{"uriTemplate":"`+template+`"}]}`)
	}
	h.pass(page("x://{id}"), pipeline.StageConfig{})
	h.pass(page("x://{a}/{b}"), pipeline.StageConfig{}, "x://{a}/{b}")
	h.wantUses(false, `resources/read {"uri":"x://1/2"}`)
}

// An item is hidden only by the stage that hid it, for the principal and the server of the list.
func TestHiddenItemIsHiddenOnlyWhereItWasJudged(t *testing.T) {
	use := func(t *testing.T) *mcp.Message {
		m := request(t, "tools/call", `{"name":"evil"}`, "evil")
		m.Server = "a"
		return m
	}
	list := `{"tools":[{"name":"evil"}]}`
	for _, tt := range []struct {
		name   string
		change func(m *mcp.Message)
		config pipeline.StageConfig
		denied bool
	}{
		{"the same stage", func(*mcp.Message) {}, pipeline.StageConfig{}, true},
		{"another server", func(m *mcp.Message) { m.Server = "b" }, pipeline.StageConfig{}, false},
		{"another principal", func(m *mcp.Message) { m.Principal = identity.FromID("eve") },
			pipeline.StageConfig{}, false},
		{"another session", func(m *mcp.Message) { m.Session = "2" }, pipeline.StageConfig{}, true},
		{"a stage that does not want the use", func(*mcp.Message) {},
			pipeline.StageConfig{Wants: pipeline.Wants{Methods: []string{"tools/list"}}}, true},
		{"a stage that does not want requests", func(*mcp.Message) {},
			pipeline.StageConfig{Wants: pipeline.Wants{Kinds: []mcp.Kind{mcp.Response}}}, true},
		{"a stage that no longer wants the list", func(*mcp.Message) {},
			pipeline.StageConfig{Wants: pipeline.Wants{Methods: []string{"tools/call"}}}, false},
		{"a stage that no longer wants responses", func(*mcp.Message) {},
			pipeline.StageConfig{Wants: pipeline.Wants{Kinds: []mcp.Kind{mcp.Request}}}, false},
		{"a stage that no longer wants the server", func(*mcp.Message) {},
			pipeline.StageConfig{Wants: pipeline.Wants{Servers: []string{"b"}}}, false},
		{"a stage that answers", func(*mcp.Message) {}, pipeline.StageConfig{Stage: always(
			pipeline.Verdict{Action: pipeline.Answer, Answer: []byte(`{}`)})}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &hideTest{t: t}
			h.pass(h.list("tools/list", list), pipeline.StageConfig{}, "evil")
			m := use(t)
			tt.change(m)
			err := h.pass(m, tt.config)
			d, _ := err.(*pipeline.DeniedError)
			if isDenied := d != nil && d.Action == "deny"; isDenied != tt.denied {
				t.Errorf("got the error %v, want a denial: %v", err, tt.denied)
			}
		})
	}
	t.Run("a stage that does not keep what it hides", func(t *testing.T) {
		p := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "policy",
			Stage: hide("evil"), Wants: pipeline.Wants{Methods: []string{"tools/list"}}})
		h := &hideTest{t: t}
		p.Pass(t.Context(), h.list("tools/list", list))
		if _, err := p.Pass(t.Context(), use(t)); err != nil {
			t.Errorf("got the error %v, want none", err)
		}
	})
}

// A verdict that fails or denies the list changes nothing: the list was not judged again.
func TestFailedVerdictShowsNothingAgain(t *testing.T) {
	for name, v := range map[string]pipeline.Verdict{
		"a denial":           {Action: pipeline.Deny},
		"an invalid verdict": {Action: pipeline.Modify},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hideTest{t: t}
			list := h.list("tools/list", `{"tools":[{"name":"evil"}]}`)
			h.pass(list, pipeline.StageConfig{}, "evil")
			h.pass(list, pipeline.StageConfig{Stage: always(v)})
			h.wantUses(true, `tools/call {"name":"evil"}`)
		})
	}
	t.Run("a stage that is skipped", func(t *testing.T) {
		h := &hideTest{t: t}
		list := h.list("tools/list", `{"tools":[{"name":"evil"}]}`)
		h.pass(list, pipeline.StageConfig{}, "evil")
		failing := pipeline.StageConfig{SkipOnError: true, Stage: always(pipeline.Verdict{})}
		failing.Stage = stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			return pipeline.Verdict{}, fmt.Errorf("no")
		})
		if err := h.pass(list, failing); err != nil {
			t.Fatal(err)
		}
		h.wantUses(true, `tools/call {"name":"evil"}`)
	})
}

// listOf returns a list of n items whose names have the given pattern, and the names.
func listOf(field, member, pattern string, n int) (result string, names []string) {
	var items []string
	for i := range n {
		names = append(names, fmt.Sprintf(pattern, i))
		items = append(items, fmt.Sprintf(`{%q:%q}`, member, names[i]))
	}
	return fmt.Sprintf(`{%q:[%s]}`, field, strings.Join(items, ",")), names
}

// A list with more hidden items than can be remembered is denied.
func TestHiddenItemsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		method, field, member, pattern string
		count                          int
		denied                         bool
	}{
		{"tools/list", "tools", "name", "tool%d", 10_000, false},
		{"tools/list", "tools", "name", "tool%d", 10_001, true},
		{"resources/templates/list", "resourceTemplates", "uriTemplate",
			"x://%02d/" + strings.Repeat("y", 8<<10-7), 32, false},
		{"resources/templates/list", "resourceTemplates", "uriTemplate",
			"x://%02d/" + strings.Repeat("y", 8<<10-7), 33, true},
		{"resources/templates/list", "resourceTemplates", "uriTemplate",
			"x://%d/" + strings.Repeat("y", 8<<10), 1, true},
	} {
		h := &hideTest{t: t}
		result, names := listOf(tt.field, tt.member, tt.pattern, tt.count)
		for range 2 { // the second list has the same items
			err := h.pass(h.list(tt.method, result), pipeline.StageConfig{}, names...)
			if (err != nil) != tt.denied {
				t.Errorf("%s with %d hidden items: got the error %v, want a denial: %v", tt.method,
					tt.count, err, tt.denied)
			}
			if o := h.log.last(t); tt.denied && !strings.Contains(o.Reason, "more items than") {
				t.Errorf("the reason is %q, want the limit", o.Reason)
			}
		}
		// shown templates beyond the limit are not remembered, which is no reason to deny
		h = &hideTest{t: t}
		if err := h.pass(h.list(tt.method, result), pipeline.StageConfig{}); err != nil {
			t.Errorf("%s with %d shown items: %v", tt.method, tt.count, err)
		}
	}
}

// A hidden template is remembered even if a server has listed many others before. Templates count
// for the limit of all lists, too.
func TestShownTemplatesMakeRoom(t *testing.T) {
	h := &hideTest{t: t}
	const method, pattern = "resources/templates/list", "x://%02d/{y}"
	long := strings.Repeat("y", 8<<10-10)
	result, _ := listOf("resourceTemplates", "uriTemplate", pattern+long, 32)
	hidden, names := listOf("resourceTemplates", "uriTemplate", "z://%02d/{y}", 1)
	h.pass(h.list(method, result), pipeline.StageConfig{})
	if err := h.pass(h.list(method, hidden), pipeline.StageConfig{}, names...); err != nil {
		t.Fatal(err)
	}
	h.wantUses(true, `resources/read {"uri":"z://00/1"}`)
	h.wantUses(false, `resources/read {"uri":"x://00/1`+long+`"}`)
	for server := range 70 { // of 4096 units of weight each
		m := h.list(method, result)
		m.Server = fmt.Sprint("server", server)
		h.pass(m, pipeline.StageConfig{})
	}
	h.wantUses(false, `resources/read {"uri":"z://00/1"}`)
}

// With too many hidden names in all lists, the list that was judged longest ago is forgotten.
func TestListJudgedLongestAgoIsForgotten(t *testing.T) {
	h := &hideTest{t: t}
	judge := func(server, count int) {
		result, names := listOf("tools", "name", "tool%d", count)
		m := h.list("tools/list", result)
		m.Server = fmt.Sprint("server", server)
		if err := h.pass(m, pipeline.StageConfig{}, names...); err != nil {
			t.Fatal(err)
		}
	}
	wantForgotten := func(servers int, forgotten ...int) {
		t.Helper()
		for server := range servers {
			m := request(t, "tools/call", `{"name":"tool0"}`, "")
			m.Server = fmt.Sprint("server", server)
			isHidden := h.pass(m, pipeline.StageConfig{}) != nil
			if want := !slices.Contains(forgotten, server); isHidden != want {
				t.Errorf("the item of server %d is hidden: %v, want %v", server, isHidden, want)
			}
		}
	}
	const fit = 1 << 18 / 10_000
	for server := range fit {
		judge(server, 10_000)
	}
	judge(fit, 1<<18%10_000)
	wantForgotten(fit + 1)
	judge(fit+1, 1)
	wantForgotten(fit+2, 0)
	judge(1, 10_000)
	judge(fit+2, 10_000)
	judge(fit+3, 10_000)
	wantForgotten(fit+4, 0, 2, 3)
}

// Gatekit's own tool of a server and a tool of the server that has the same name are two items: a
// decision of a stage about one of them does not hold for the other.
func TestOwnToolIsHiddenApart(t *testing.T) {
	for _, isOwn := range []bool{true, false} {
		h := &hideTest{t: t}
		pass := func(m *mcp.Message, isOwn bool, names ...string) error {
			m.Server, m.Own = "a", isOwn
			return h.pass(m, pipeline.StageConfig{}, names...)
		}
		call := func(isOwn bool) error {
			return pass(request(t, "tools/call", `{"name":"connect"}`, ""), isOwn)
		}
		tools := func() *mcp.Message {
			return h.list("tools/list", `{"tools":[{"name":"connect"}]}`)
		}
		if err := pass(tools(), isOwn, "connect"); err != nil {
			t.Fatal(err)
		}
		if err := pass(tools(), !isOwn); err != nil {
			t.Fatal(err)
		}
		if call(isOwn) == nil || call(!isOwn) != nil {
			t.Errorf("own is hidden: %v; a call of the hidden tool passes, or one of the other "+
				"tool is denied", isOwn)
		}
		want := "the tool is hidden"
		if isOwn {
			want = "the connect tool is hidden"
		}
		call(isOwn)
		if got := h.log.last(t).Reason; !strings.Contains(got, want) {
			t.Errorf("got the reason %q, want one with %q", got, want)
		}
	}
}

// listReader is a stage that says which lists it needs.
type listReader struct {
	pipeline.Stage
	list string
}

func (r listReader) NeedsList(_ *mcp.Message, list string) bool { return list == r.list }

func TestNeedsList(t *testing.T) {
	call := request(t, "tools/call", `{"name":"x"}`, "")
	call.Server = "a"
	onlyB := pipeline.Wants{Servers: []string{"b"}}
	for name, c := range map[string]struct {
		wants   pipeline.Wants
		stage   pipeline.Stage
		keeps   bool
		tools   bool // tools/list is needed
		prompts bool // prompts/list is needed
	}{
		"hides": {stage: allow, keeps: true, tools: true, prompts: true},
		"hides tools": {wants: pipeline.Wants{Methods: []string{"tools/list"}}, stage: allow,
			keeps: true, tools: true},
		"sees no answers": {wants: pipeline.Wants{Kinds: []mcp.Kind{mcp.Request}}, stage: allow,
			keeps: true},
		"sees another server":   {wants: onlyB, stage: allow, keeps: true},
		"hides nothing":         {stage: allow},
		"reads lists":           {stage: listReader{allow, "tools/list"}, tools: true},
		"reads lists of others": {wants: onlyB, stage: listReader{allow, "tools/list"}},
		"hides, and reads no lists": {stage: listReader{allow, ""}, keeps: true, tools: true,
			prompts: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "first",
				Stage: allow}, pipeline.StageConfig{Name: "s", Wants: c.wants, Stage: c.stage,
				KeepHidden: c.keeps})
			if got := p.NeedsList(call, "tools/list"); got != c.tools {
				t.Errorf("tools/list is needed: %v, want %v", got, c.tools)
			}
			if got := p.NeedsList(call, "prompts/list"); got != c.prompts {
				t.Errorf("prompts/list is needed: %v, want %v", got, c.prompts)
			}
		})
	}
}
