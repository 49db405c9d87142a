package pipeline_test

import (
	"context"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// renamer returns a stage that allows all messages, and renames tools and prompts of the servers.
func renamer(name string, tools, prompts map[string]string,
	servers ...string) pipeline.StageConfig {
	return pipeline.StageConfig{Name: name, Stage: allow, Wants: pipeline.Wants{Servers: servers},
		Renames: pipeline.Renames{Tools: tools, Prompts: prompts}}
}

func request(t *testing.T, method, params, name string) *mcp.Message {
	m := parse(t, mcp.ToServer, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+
		`}`)
	m.Name = name
	return m
}

func list(t *testing.T, method, result string) *mcp.Message {
	return answerTo(t, request(t, method, `{}`, ""), `{"jsonrpc":"2.0","id":7,"result":`+result+`}`)
}

func TestRequestIsForwardedWithTheServersName(t *testing.T) {
	rename := renamer("names", map[string]string{"create_issue": "open_issue", "1.read": "look"},
		map[string]string{"ask": "question"})
	tests := []struct {
		name   string
		method string
		params string
		as     string // the message's Name
		stages []pipeline.StageConfig
		want   string // the forwarded params; "" when the request is denied
		own    string // the server's name, which stages see and which is recorded
		action string
	}{
		{name: "a tool by its new name", method: "tools/call",
			params: `{"name":"open_issue", "arguments":{"name":"open_issue"}}`, as: "open_issue",
			want: `{"name":"create_issue", "arguments":{"name":"open_issue"}}`, own: "create_issue",
			action: "modify"},
		{name: "a tool by its new name, with an escape", method: "tools/call",
			params: `{"name":"op\u0065n_issue"}`, as: "open_issue",
			want: `{"name":"create_issue"}`, own: "create_issue", action: "modify"},
		{name: "a tool by its old name", method: "tools/call", params: `{"name":"create_issue"}`,
			as: "create_issue", own: "create_issue", action: "deny"},
		{name: "a tool by its old name, with an escape", method: "tools/call",
			params: `{"name":"cr\u0065ate_issue"}`, as: "create_issue", own: "create_issue",
			action: "deny"},
		{name: "a tool that is not renamed", method: "tools/call", params: `{"name":"read"}`, as: "read",
			want: `{"name":"read"}`, own: "read", action: "pass"},
		{name: "a tool with the new name of a prompt", method: "tools/call",
			params: `{"name":"question"}`, as: "question", want: `{"name":"question"}`,
			own: "question", action: "pass"},
		{name: "a prompt by its new name", method: "prompts/get", params: `{"name":"question"}`, as: "question",
			want: `{"name":"ask"}`, own: "ask", action: "modify"},
		{name: "a prompt by its old name", method: "prompts/get", params: `{"name":"ask"}`,
			as: "ask", own: "ask", action: "deny"},
		{name: "a completion by the new name", method: "completion/complete",
			params: `{"ref":{"type":"ref/prompt","name":"question"},"argument":{"name":"question"}}`, as: "question",
			want: `{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"question"}}`,
			own:  "ask", action: "modify"},
		{name: "a completion by the old name", method: "completion/complete",
			params: `{"ref":{"type":"ref/prompt","name":"ask"}}`, as: "ask", own: "ask",
			action: "deny"},
		{name: "a resource with a renamed tool's name", method: "resources/read", params: `{"uri":"open_issue"}`,
			as: "open_issue", want: `{"uri":"open_issue"}`, own: "open_issue", action: "pass"},
		{name: "a tool of a server whose tools are not renamed", method: "tools/call",
			params: `{"name":"create_issue"}`, as: "create_issue",
			stages: []pipeline.StageConfig{renamer("names",
				map[string]string{"create_issue": "open_issue"}, nil, "git*")},
			want: `{"name":"create_issue"}`, own: "create_issue", action: "pass"},
		{name: "a tool by the name after two renames", method: "tools/call", params: `{"name":"c"}`, as: "c",
			stages: []pipeline.StageConfig{renamer("first", map[string]string{"a": "b"}, nil),
				renamer("second", map[string]string{"b": "c"}, nil)},
			want: `{"name":"a"}`, own: "a", action: "modify"},
		{name: "a tool by the name after the first of two renames", method: "tools/call",
			params: `{"name":"b"}`, as: "b",
			stages: []pipeline.StageConfig{renamer("first", map[string]string{"a": "b"}, nil),
				renamer("second", map[string]string{"b": "c"}, nil)}, own: "b", action: "deny"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := []string{}
			see := stage(func(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
				name, _ := m.Text("/name")
				if m.Name != name && m.Method != "completion/complete" &&
					m.Method != "resources/read" {
					t.Errorf("a stage sees the name %q and the body %s, want equal names", m.Name,
						m.Body())
				}
				seen = append(seen, m.Name)
				return pipeline.Verdict{Action: pipeline.Allow}, nil
			})
			if tt.stages == nil {
				tt.stages = []pipeline.StageConfig{rename}
			}
			stages := append([]pipeline.StageConfig{{Name: "before", Stage: see}}, tt.stages...)
			rec := &record{}
			p := pipeline.New(rec, pipeline.Options{},
				append(stages, pipeline.StageConfig{Name: "after", Stage: see})...)
			m := request(t, tt.method, tt.params, tt.as)
			passed, err := p.Pass(t.Context(), m)
			o := rec.last(t)
			if o.Action != tt.action || o.Before.Name != tt.own ||
				string(o.Before.Body()) != tt.params {
				t.Errorf("recorded %s of %q %s, want %s of %q with the received body", o.Action,
					o.Before.Name, o.Before.Body(), tt.action, tt.own)
			}
			if m.Name != tt.as {
				t.Errorf("Pass changed the name of its message to %q, want %q", m.Name, tt.as)
			}
			if tt.want == "" {
				if d := denied(t, passed, err); d.Err != nil || d.Reason == "" ||
					d.Stage == "before" || len(seen) > 0 {
					t.Errorf("denied by stage %q with the reason %q (error %v) after the stages "+
						"saw %q, want a denial before any stage sees the message", d.Stage,
						d.Reason, d.Err, seen)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := passed.Message(); string(got.Body()) != tt.want || got.Name != tt.own ||
				o.After != got {
				t.Errorf("forwarded %q %s, want %q %s, the same message as in the record",
					got.Name, got.Body(), tt.own, tt.want)
			}
			for _, name := range seen {
				if name != tt.own {
					t.Errorf("the stages saw %q, want %q", seen, tt.own)
				}
			}
		})
	}
}

func TestListHasClientNames(t *testing.T) {
	tests := []struct {
		name   string
		method string
		result string
		stages []pipeline.StageConfig
		want   string
		action string
	}{
		{name: "a tool", method: "tools/list",
			result: `{"tools":[{"name":"read"}, {"title":"T","name":"create_issue" }]}`,
			stages: []pipeline.StageConfig{renamer("names",
				map[string]string{"create_issue": "open_issue"}, nil)},
			want:   `{"tools":[{"name":"read"}, {"title":"T","name":"open_issue" }]}`,
			action: "modify"},
		{name: "a prompt is renamed, but not a prompt with the name of a renamed tool",
			method: "prompts/list",
			result: `{"prompts":[{"name":"ask"},{"name":"create_issue"}]}`,
			stages: []pipeline.StageConfig{renamer("names",
				map[string]string{"create_issue": "open_issue"},
				map[string]string{"ask": "question"})},
			want: `{"prompts":[{"name":"question"},{"name":"create_issue"}]}`, action: "modify"},
		{name: "items with the new name of another item are removed", method: "tools/list",
			result: `{"tools":[{"name":"open_issue"},{"name":"create_issue"},{"name":"op\u0065n_issue"}]}`,
			stages: []pipeline.StageConfig{renamer("names",
				map[string]string{"create_issue": "open_issue"}, nil)},
			want: `{"tools":[{"name":"open_issue"}]}`, action: "modify"},
		{name: "an item with the new name of an absent item is removed", method: "tools/list",
			result: `{"tools":[{"name":"open_issue","description":"mine"}]}`,
			stages: []pipeline.StageConfig{renamer("names",
				map[string]string{"create_issue": "open_issue"}, nil)},
			want: `{"tools":[]}`, action: "hide"},
		{name: "a list without renamed items", method: "tools/list",
			result: `{"tools":[{"name":"x"},{},{"name":1},null]}`,
			stages: []pipeline.StageConfig{renamer("names",
				map[string]string{"create_issue": "open_issue"}, nil)},
			want: `{"tools":[{"name":"x"},{},{"name":1},null]}`, action: "pass"},
		{name: "stages before and after a renaming stage hide by the server's names",
			method: "tools/list", result: `{"tools":[{"name":"a"},{"name":"b"},{"name":"c"}]}`,
			stages: []pipeline.StageConfig{{Name: "h", Stage: hide("a")},
				renamer("names", map[string]string{"a": "x", "b": "y", "c": "z"}, nil),
				{Name: "i", Stage: hide("b", "z")}},
			want: `{"tools":[{"name":"z"}]}`, action: "modify"},
		{name: "the second stage renames the first stage's new name", method: "tools/list",
			result: `{"tools":[{"name":"a"},{"name":"b"},{"name":"c"}]}`,
			stages: []pipeline.StageConfig{renamer("first", map[string]string{"a": "b"}, nil),
				renamer("second", map[string]string{"b": "c"}, nil)},
			want: `{"tools":[{"name":"c"}]}`, action: "modify"},
		{name: "if two stages give two items the same name, the item of the later stage is listed",
			method: "tools/list",
			result: `{"tools":[{"name":"a"},{"name":"b"}]}`,
			stages: []pipeline.StageConfig{renamer("first", map[string]string{"a": "x"}, nil),
				renamer("second", map[string]string{"b": "x"}, nil)},
			want: `{"tools":[{"name":"x"}]}`, action: "modify"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			p := pipeline.New(rec, pipeline.Options{}, tt.stages...)
			passed, err := p.Pass(t.Context(), list(t, tt.method, tt.result))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(passed.Message().Body()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if o := rec.last(t); tt.action == "pass" && o.After != o.Before {
				t.Error("an unchanged list was recorded as a copy, want the list itself")
			} else if o.Action != tt.action || string(o.Before.Body()) != tt.result {
				t.Errorf("recorded %s of %s, want %s of the received list", o.Action,
					o.Before.Body(), tt.action)
			}
		})
	}
}

// The server has three tools. The test tries all ways in which each of two stages can rename at
// most two tools. A call of a listed name must reach the tool with that name in the list. A call of
// any other name must not reach a tool. All listed names must be different.
func TestListAndCallAgreeOnNames(t *testing.T) {
	all := []string{"a", "b", "c"}
	tables := []map[string]string{nil}
	for _, own := range all {
		for _, newName := range append(all, "x") {
			tables = append(tables, map[string]string{own: newName})
			for _, other := range all {
				for _, otherNew := range append(all, "x") {
					if other > own {
						tables = append(tables, map[string]string{own: newName, other: otherNew})
					}
				}
			}
		}
	}
	tried := 0
	for _, first := range tables {
		for _, second := range tables {
			if (pipeline.Renames{Tools: first}).Validate() != nil ||
				(pipeline.Renames{Tools: second}).Validate() != nil {
				continue
			}
			tried++
			p := pipeline.New(&record{}, pipeline.Options{}, renamer("first", first, nil),
				renamer("second", second, nil))
			passed, err := p.Pass(t.Context(),
				list(t, "tools/list", `{"tools":[{"name":"a","title":"a"},{"name":"b","title":"b"},{"name":"c","title":"c"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			listed := map[string]string{}
			passed.Message().Items("/tools", func(_ int, raw []byte) bool {
				item := mcp.NewNotification("", raw)
				name, _ := item.Text("/name")
				if listed[name] != "" {
					t.Errorf("renames %v and %v: two items in the list have the name %s",
						first, second, name)
				}
				listed[name], _ = item.Text("/title")
				return true
			})
			for _, name := range append(all, "x") {
				passed, err := p.Pass(t.Context(), request(t, "tools/call", `{"name":"`+name+`"}`,
					name))
				got := ""
				if err == nil {
					got = passed.Message().Name
				}
				// the name x reaches no tool, since the server has none named x
				if want := listed[name]; got != want && !(want == "" && got == "x") {
					t.Errorf("renames %v and %v: a call of %s reaches %q, want %q as in the list",
						first, second, name, got, want)
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("%d pairs were tried, want at least 100", tried)
	}
}

func TestStageAnswerHasClientNames(t *testing.T) {
	cached := pipeline.StageConfig{Name: "cache",
		Stage: always(pipeline.Verdict{Action: pipeline.Answer,
			Answer: []byte(`{"tools":[{"name":"a"}]}`)}),
		Wants: pipeline.Wants{Kinds: []mcp.Kind{mcp.Request}}}
	p := pipeline.New(&record{}, pipeline.Options{}, cached,
		renamer("names", map[string]string{"a": "b"}, nil))
	passed, err := p.Pass(t.Context(), request(t, "tools/list", `{}`, ""))
	d := denied(t, passed, err)
	if got, want := string(d.Response(
		"7").Message().Body()), `{"tools":[{"name":"b"}]}`; got != want {
		t.Errorf("the client gets %s, want %s", got, want)
	}
}

func TestAnswersOfGatekitAreRecordedUnderTheServersName(t *testing.T) {
	rec := &record{}
	p := pipeline.New(rec, pipeline.Options{}, renamer("names", map[string]string{"a": "b"}, nil))
	m := answerTo(t, request(t, "tools/call", `{"name":"b"}`, "b"),
		`{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"timed out"}}`)
	if passed := p.PassOwn(t.Context(), m); passed.Message() != m {
		t.Errorf("PassOwn returned %s, want the message itself", text(passed.Message()))
	}
	if got := rec.last(t).Before.Name; got != "a" {
		t.Errorf("recorded with the name %q, want a, the server's name", got)
	}
}

func TestRenamesValidate(t *testing.T) {
	tests := []struct {
		name  string
		names map[string]string
		want  string // text in the error; "" if no error is wanted
	}{
		{"no names", nil, ""},
		{"different names", map[string]string{"a": "x", "b": "y"}, ""},
		{"two items with one new name", map[string]string{"a": "x", "b": "x"},
			`rename tool "b" to "x": "a" gets that name too`},
		{"a new name that is the old name", map[string]string{"a": "a"},
			`the new name is the same`},
		{"the server's name of another renamed item", map[string]string{"a": "b", "b": "c"},
			`rename tool "a" to "b": that is the server's name of another tool`},
		{"two items that exchange their names", map[string]string{"a": "b", "b": "a"},
			`that is the server's name of another tool`},
		{"an empty new name", map[string]string{"a": ""}, `a name must not be empty`},
		{"an empty server name", map[string]string{"": "a"}, `a name must not be empty`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := pipeline.Renames{Tools: tt.names}
			err := r.Validate()
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want an error with %q", err, tt.want)
			}
			defer func() {
				if recover() == nil {
					t.Error("New accepted these names, want a panic")
				}
			}()
			pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "names",
				Stage: allow, Renames: r})
		})
	}
}
