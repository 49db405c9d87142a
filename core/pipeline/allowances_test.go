package pipeline_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// allowed is a pipeline.Allowances in memory.
type allowed struct {
	mu   sync.Mutex
	once map[string]bool // by id: whether the allowance is valid once
	all  bool            // everything is allowed
	asks int
}

func (a *allowed) ID(_ string, description []byte) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks++
	h := hmac.New(sha256.New, []byte("key"))
	h.Write(description)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (a *allowed) Holds(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.once[id]
	return ok || a.all
}

func (a *allowed) Use(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	once, ok := a.once[id]
	if once {
		delete(a.once, id)
	}
	return ok
}

func (a *allowed) add(once bool, ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.once == nil {
		a.once = map[string]bool{}
	}
	for _, id := range ids {
		a.once[id] = once
	}
}

// judged is a pipeline with allowances and one or more stages.
type judged struct {
	t          *testing.T
	log        record
	allowances allowed
	pipeline   *pipeline.Pipeline
}

func newJudged(t *testing.T, configs ...pipeline.StageConfig) *judged {
	j := &judged{t: t}
	j.pipeline = pipeline.New(&j.log, pipeline.Options{Allowances: &j.allowances}, configs...)
	return j
}

func judge(name string, s pipeline.Stage) pipeline.StageConfig {
	return pipeline.StageConfig{Name: name, Stage: s}
}

// pass passes m and returns the body of the forwarded message, or "" if m was denied. It also
// returns the record.
func (j *judged) pass(m *mcp.Message) (body string, o pipeline.Outcome) {
	j.t.Helper()
	passed, err := j.pipeline.Pass(j.t.Context(), m)
	if (err == nil) != (passed.Message() != nil) {
		j.t.Fatalf("got the message %v and the error %v", passed.Message(), err)
	}
	if err == nil {
		body = string(passed.Message().Body())
	}
	return body, j.log.last(j.t)
}

// ids returns all ids of interventions with an effect in a record.
func ids(o pipeline.Outcome) (all []string) {
	for _, s := range o.Steps {
		all = append(append(all, s.IDs...), s.HiddenIDs...)
	}
	return slices.DeleteFunc(all, func(id string) bool { return id == "" })
}

func allowedIDs(o pipeline.Outcome) (all []string) {
	for _, s := range o.Steps {
		all = append(all, s.Allowed...)
	}
	return all
}

// toolCall returns a call of the tool "echo" of the server "files" by ann.
func toolCall(t *testing.T, arguments string) *mcp.Message {
	m := request(t, "tools/call", `{"name":"echo","arguments":`+arguments+`}`, "")
	m.Server, m.Principal, m.Name = "files", identity.FromID("ann"), "echo"
	return m
}

func toolResult(t *testing.T, result string) *mcp.Message {
	m := list(t, "tools/call", result)
	m.Server, m.Principal, m.Name = "files", identity.FromID("ann"), "echo"
	return m
}

// TestAllowedDenialPasses allows a denial. Only a message that is equal in every part of the id
// passes.
func TestAllowedDenialPasses(t *testing.T) {
	deny := always(pipeline.Verdict{Reason: "an attack", Findings: []pipeline.Finding{
		{Type: "attack", Pointer: "/arguments/text"}}})
	for _, tt := range []struct {
		name  string
		other func(m *mcp.Message) *mcp.Message // nil returns an equal message
		stage string
		want  bool
	}{
		{name: "the same call", want: true},
		{name: "another progress token", want: true, other: func(m *mcp.Message) *mcp.Message {
			return edited(t, m, mcp.Set("/_meta/progressToken", []byte(`7`)))
		}},
		{name: "members in another order", want: true, other: func(*mcp.Message) *mcp.Message {
			m := request(t, "tools/call", `{"arguments":{"text":"x"},"name":"echo"}`, "")
			m.Server, m.Principal, m.Name = "files", identity.FromID("ann"), "echo"
			return m
		}},
		{name: "another argument", other: func(m *mcp.Message) *mcp.Message {
			return edited(t, m, mcp.Set("/arguments/text", []byte(`"y"`)))
		}},
		{name: "one more argument", other: func(m *mcp.Message) *mcp.Message {
			return edited(t, m, mcp.Set("/arguments/more", []byte(`true`)))
		}},
		{name: "another principal", other: func(m *mcp.Message) *mcp.Message {
			m.Principal = identity.FromID("bob")
			return m
		}},
		{name: "another server", other: func(m *mcp.Message) *mcp.Message {
			m.Server = "mail"
			return m
		}},
		{name: "another tool", other: func(m *mcp.Message) *mcp.Message {
			m = edited(t, m, mcp.Set("/name", []byte(`"send"`)))
			m.Name = "send"
			return m
		}},
		{name: "another stage", stage: "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := newJudged(t, judge("guard", deny))
			body, o := j.pass(toolCall(t, `{"text":"x"}`))
			if body != "" || len(ids(o)) != 1 || o.Action != "deny" {
				t.Fatalf("got the body %q and the record %+v, want a denial with an id", body, o)
			}
			id := ids(o)[0]
			j.allowances.add(false, id)
			if tt.stage != "" {
				j.pipeline = pipeline.New(&j.log, pipeline.Options{Allowances: &j.allowances},
					judge(tt.stage, deny))
			}
			m := toolCall(t, `{"text":"x"}`)
			if tt.other != nil {
				m = tt.other(m)
			}
			body, o = j.pass(m)
			if (body != "") != tt.want {
				t.Fatalf("got the body %q and the record %+v, want it to pass: %v", body, o,
					tt.want)
			}
			switch {
			case !tt.want && (len(ids(o)) != 1 || ids(o)[0] == id || len(allowedIDs(o)) > 0):
				t.Errorf("the denial has the ids %q, want one that is not %q", ids(o), id)
			case tt.want && (o.Action != "allowed" || o.Reason != "an attack" ||
				!slices.Equal(allowedIDs(o), []string{id}) || len(ids(o)) > 0):
				t.Errorf("the record is %+v, want the action allowed with the id %q", o, id)
			}
		})
	}
}

func edited(t *testing.T, m *mcp.Message, edits ...mcp.Edit) *mcp.Message {
	t.Helper()
	m, err := m.Edit(edits...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// redactKeys redacts each text that contains "key".
var redactKeys = stage(func(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	var edits []mcp.Edit
	for _, at := range []string{"/content/0/text", "/content/1/text", "/content/2/text"} {
		if text, _ := m.Text(at); strings.Contains(text, "key") {
			edits = append(edits, mcp.Set(at, []byte(`"[redacted]"`)))
		}
	}
	if len(edits) == 0 {
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	return pipeline.Verdict{Action: pipeline.Modify, Edits: edits, Reason: "keys"}, nil
})

// TestAllowedRedactionIsLeftOut allows one of two redactions of a result. The other one stays. The
// rest of the result may differ.
func TestAllowedRedactionIsLeftOut(t *testing.T) {
	j := newJudged(t, judge("secrets", redactKeys))
	first := `{"content":[{"type":"text","text":"key one"},{"type":"text","text":"key two"}]}`
	body, o := j.pass(toolResult(t, first))
	if strings.Count(body, "[redacted]") != 2 || len(ids(o)) != 2 || ids(o)[0] == ids(o)[1] {
		t.Fatalf("got %s with the ids %q, want two redactions with an id each", body, ids(o))
	}
	one, two := ids(o)[0], ids(o)[1]
	j.allowances.add(false, one)
	for _, tt := range []struct {
		name, result, want, action string
		remaining                  []string
	}{
		{"the same result", first,
			`{"content":[{"type":"text","text":"key one"},{"type":"text","text":"[redacted]"}]}`,
			"modify", []string{two}},
		{"at another index, in another result",
			`{"content":[{"type":"text","text":"new"},{"type":"text","text":"key one"}],"more":1}`,
			`{"content":[{"type":"text","text":"new"},{"type":"text","text":"key one"}],"more":1}`,
			"allowed", nil},
	} {
		body, o := j.pass(toolResult(t, tt.result))
		if body != tt.want || o.Action != tt.action || !slices.Equal(ids(o), tt.remaining) ||
			!slices.Equal(allowedIDs(o), []string{one}) {
			t.Errorf("%s: got %s with the record %+v, want %s with the action %s", tt.name, body, o,
				tt.want, tt.action)
		}
	}
	for name, change := range map[string]func(m *mcp.Message){
		"another principal": func(m *mcp.Message) { m.Principal = identity.FromID("bob") },
		"another server":    func(m *mcp.Message) { m.Server = "mail" },
		"another tool":      func(m *mcp.Message) { m.Name = "read" },
	} {
		m := toolResult(t, first)
		change(m)
		if body, o := j.pass(m); strings.Count(body, "[redacted]") != 2 || len(allowedIDs(o)) > 0 {
			t.Errorf("%s: got %s, want two redactions", name, body)
		}
	}
	for _, longer := range []string{"key one ", "key one\u200b", "KEY one key"} {
		body, _ := j.pass(toolResult(t, `{"content":[{"type":"text","text":"`+longer+`"}]}`))
		if !strings.Contains(body, "[redacted]") {
			t.Errorf("%q passed with the allowance of another text", longer)
		}
	}
}

// TestAllowedEditLeavesTheRestOfTheVerdict allows one of two edits in a list. The other edit stays,
// and the verdict still hides a tool.
func TestAllowedEditLeavesTheRestOfTheVerdict(t *testing.T) {
	const tools = `{"tools":[{"name":"a","description":"same"},` +
		`{"name":"b","description":"same"},{"name":"evil"}]}`
	j := newJudged(t, judge("guard", always(pipeline.Verdict{Action: pipeline.Modify,
		Hide: []string{"evil"}, Edits: []mcp.Edit{
			mcp.Set("/tools/0/description", []byte(`"-"`)),
			mcp.Set("/tools/1/description", []byte(`"-"`))}})))
	_, o := j.pass(list(t, "tools/list", tools))
	// The tools have different ids, although their descriptions are the same.
	if len(o.Steps[0].IDs) != 2 || o.Steps[0].IDs[0] == o.Steps[0].IDs[1] {
		t.Fatalf("got the ids %q, want two", o.Steps[0].IDs)
	}
	j.allowances.add(false, o.Steps[0].IDs[0])
	body, o := j.pass(list(t, "tools/list", tools))
	const want = `{"tools":[{"name":"a","description":"same"},{"name":"b","description":"-"}]}`
	if body != want || o.Action != "modify" || len(o.Steps[0].Hidden) != 1 {
		t.Errorf("got %s with the record %+v, want %s", body, o, want)
	}
}

// TestAllowedEditOfRequestCoversWholeRequest checks that an edit of a request is allowed only for
// the whole request: a value such as false means little without the other arguments.
func TestAllowedEditOfRequestCoversWholeRequest(t *testing.T) {
	j := newJudged(t, judge("force", modify(mcp.Set("/arguments/dry", []byte(`true`)))))
	_, o := j.pass(toolCall(t, `{"dry":false,"path":"a"}`))
	j.allowances.add(false, ids(o)...)
	if body, _ := j.pass(toolCall(t, `{"dry":false,"path":"a"}`)); !strings.Contains(body,
		`"dry":false`) {
		t.Errorf("the allowed request was forwarded as %s", body)
	}
	if body, _ := j.pass(toolCall(t, `{"dry":false,"path":"b"}`)); !strings.Contains(body,
		`"dry":true`) {
		t.Errorf("another request was forwarded as %s", body)
	}
	// an edit that adds a value removes nothing, so it cannot be allowed
	if _, o := j.pass(toolCall(t, `{"path":"a"}`)); o.Action != "modify" || len(ids(o)) > 0 {
		t.Errorf("the record of an added value is %+v, want no id", o)
	}
}

// TestInterventionsWithoutID checks the verdicts that cannot be allowed.
func TestInterventionsWithoutID(t *testing.T) {
	failing := stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
		return pipeline.Verdict{}, errors.New("broken")
	})
	for name, s := range map[string]stage{
		"final denial": always(pipeline.Verdict{Reason: "outside of the roots", Final: true}),
		"final edit": always(pipeline.Verdict{Action: pipeline.Modify, Final: true,
			Edits: []mcp.Edit{mcp.Set("/arguments/text", []byte(`"y"`))}}),
		"full": always(pipeline.Verdict{Reason: "too many", Findings: []pipeline.Finding{
			{Type: pipeline.FindingFull}}}),
		"question":        always(pipeline.Verdict{Action: pipeline.Ask, Reason: "sure?"}),
		"failure":         failing,
		"unknown action":  always(pipeline.Verdict{Action: 99}),
		"contradiction":   always(pipeline.Verdict{Action: pipeline.Allow, Edits: []mcp.Edit{{}}}),
		"no edit":         always(pipeline.Verdict{Action: pipeline.Modify}),
		"change of route": modify(mcp.Set("/name", []byte(`"other"`))),
	} {
		j := newJudged(t, judge("guard", s))
		_, before := j.pass(toolCall(t, `{"text":"x"}`))
		j.allowances.all = name != "change of route" // without its edit, the request would pass
		_, o := j.pass(toolCall(t, `{"text":"x"}`))
		if len(ids(before)) > 0 || o.Action != before.Action || len(allowedIDs(o)) > 0 ||
			o.Action == "pass" {
			t.Errorf("%s: the records are %+v and %+v, want the same action without an id", name,
				before, o)
		}
	}
}

// TestPassingMessageAsksNoAllowances checks that allowances cost nothing as long as no stage
// intervenes.
func TestPassingMessageAsksNoAllowances(t *testing.T) {
	j := newJudged(t, judge("guard", always(pipeline.Verdict{Action: pipeline.Allow,
		Findings: []pipeline.Finding{{Type: "note"}}})))
	j.pass(toolCall(t, `{}`))
	j.pass(toolResult(t, `{"content":[]}`))
	if j.allowances.asks > 0 {
		t.Errorf("the allowances were asked %d times", j.allowances.asks)
	}
}

// TestAllowanceOfOneMessage sends many equal messages at the same time. One of them passes.
func TestAllowanceOfOneMessage(t *testing.T) {
	j := newJudged(t, judge("guard", always(pipeline.Verdict{})))
	_, o := j.pass(toolCall(t, `{}`))
	j.allowances.add(true, ids(o)...)
	var wg sync.WaitGroup
	results := make(chan bool, 50)
	for range cap(results) {
		m := toolCall(t, `{}`)
		wg.Go(func() {
			_, err := j.pipeline.Pass(t.Context(), m)
			results <- err == nil
		})
	}
	wg.Wait()
	close(results)
	passed := 0
	for ok := range results {
		if ok {
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d messages passed, want 1", passed)
	}
}

// TestAllowanceThatAnotherMessageUses lets a stage use up an allowance after the stage before has
// judged by it.
func TestAllowanceThatAnotherMessageUses(t *testing.T) {
	var id string
	j := newJudged(t)
	j.pipeline = pipeline.New(&j.log, pipeline.Options{Allowances: &j.allowances},
		judge("guard", always(pipeline.Verdict{Reason: "an attack"})),
		judge("other", stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			j.allowances.Use(id)
			return pipeline.Verdict{Action: pipeline.Allow}, nil
		})))
	_, o := j.pass(toolCall(t, `{}`))
	id = ids(o)[0]
	j.allowances.add(true, id)
	body, o := j.pass(toolCall(t, `{}`))
	want := "the allowance " + id + " no longer holds: another message has used it, or it has " +
		"expired"
	if last := o.Steps[len(o.Steps)-1]; body != "" || o.Action != "deny" || o.Reason != want ||
		last.Stage != "guard" || last.Action != "deny" || last.Reason != want {
		t.Errorf("got the body %q and the record %+v, want a denial with the reason %q", body, o,
			want)
	}
}

// TestOnceIsNotUsedByDeniedMessage denies a message by two stages. The allowance of the first stage
// is not used up as long as the second stage denies the message.
func TestOnceIsNotUsedByDeniedMessage(t *testing.T) {
	j := newJudged(t, judge("one", always(pipeline.Verdict{})),
		judge("two", always(pipeline.Verdict{})))
	_, o := j.pass(toolCall(t, `{}`))
	first := ids(o)
	j.allowances.add(true, first...)
	_, o = j.pass(toolCall(t, `{}`))
	second := ids(o)
	if o.Action != "deny" || len(second) != 1 || slices.Equal(first, second) {
		t.Fatalf("the record is %+v, want a denial by the second stage", o)
	}
	j.allowances.add(true, second...)
	if body, o := j.pass(toolCall(t, `{}`)); body == "" || o.Action != "allowed" {
		t.Errorf("the record is %+v, want the message to pass", o)
	}
	if body, _ := j.pass(toolCall(t, `{}`)); body != "" {
		t.Error("the allowances were used twice")
	}
}

// hider hides the tool "evil", and denies its use.
func hider(finding string) stage {
	return func(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
		name, _ := m.Text("/name")
		switch {
		case m.Kind == mcp.Response && m.Method == "tools/list":
			return pipeline.Verdict{Action: pipeline.Allow, Hide: []string{"evil"}}, nil
		case m.Kind == mcp.Request && name == "evil" && finding == "hide":
			return pipeline.Verdict{Action: pipeline.Allow, Hide: []string{"evil"}}, nil
		case m.Kind == mcp.Request && name == "evil" && finding != "":
			return pipeline.Verdict{Reason: "the tool is hidden", Findings: []pipeline.Finding{
				{Type: finding}}}, nil
		}
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
}

// TestAllowedItemIsShownAndUsed allows a hidden tool. It is listed, and can be called, whether the
// host or the stage denied its use. When the allowance has ended, the tool is hidden again.
func TestAllowedItemIsShownAndUsed(t *testing.T) {
	const tools = `{"tools":[{"name":"good"},{"name":"evil","description":"d"}]}`
	for name, config := range map[string]pipeline.StageConfig{
		"the host denies the use": {Stage: hider(""), KeepHidden: true},
		"the stage denies the use with a finding": {Stage: hider(pipeline.FindingHidden),
			KeepHidden: true},
		"the stage hides the name in the use":  {Stage: hider("hide"), KeepHidden: true},
		"the host does not keep hidden items":  {Stage: hider(pipeline.FindingHidden)},
		"the stage hides, the host forgets it": {Stage: hider("hide")},
	} {
		t.Run(name, func(t *testing.T) {
			config.Name = "guard"
			j := newJudged(t, config)
			listed := func(text string) (string, pipeline.Outcome) {
				m := list(t, "tools/list", text)
				m.Server, m.Principal = "files", identity.FromID("ann")
				return j.pass(m)
			}
			call := func() (string, pipeline.Outcome) {
				m := request(t, "tools/call", `{"name":"evil"}`, "")
				m.Server, m.Principal, m.Name = "files", identity.FromID("ann"), "evil"
				return j.pass(m)
			}
			body, o := listed(tools)
			if strings.Contains(body, "evil") || len(ids(o)) != 1 || len(o.Steps[0].Hidden) != 1 {
				t.Fatalf("got the list %s and the record %+v, want a hidden item with an id", body,
					o)
			}
			item := ids(o)
			if body, o := call(); body != "" || !slices.Equal(ids(o), item) {
				t.Fatalf("got the record %+v, want a denial with the id of the item", o)
			}
			j.allowances.add(true, item...)
			for range 2 { // a list uses up no allowance
				if body, o = listed(tools); body != tools || o.Action != "allowed" {
					t.Fatalf("got the list %s and the record %+v, want all tools", body, o)
				}
			}
			if body, o := call(); body == "" || !slices.Equal(allowedIDs(o), item) ||
				o.Action != "allowed" {
				t.Errorf("got the record %+v, want the call to pass", o)
			}
			if body, _ := call(); body != "" {
				t.Error("an allowance for one use was used twice")
			}
			if body, _ := listed(tools); strings.Contains(body, "evil") {
				t.Error("the tool is listed although its allowance is used up")
			}
			// Another definition with the same name is another item.
			j.allowances.add(false, item...)
			other := strings.Replace(tools, `"d"`, `"e"`, 1)
			if body, _ := listed(other); strings.Contains(body, "evil") {
				t.Error("another definition is shown")
			}
			if body, _ := call(); body != "" {
				t.Error("the tool with another definition can be called")
			}
			// Two definitions with one name cannot be told apart in a call.
			both := `{"tools":[{"name":"evil","description":"d"},` +
				`{"name":"evil","description":"e"}]}`
			if body, o := listed(both); strings.Contains(body, "evil") || len(ids(o)) > 0 {
				t.Errorf("got the list %s and the ids %q, want neither of the definitions", body,
					ids(o))
			}
			if body, _ := call(); body != "" {
				t.Error("a tool with two definitions can be called")
			}
		})
	}
}

// TestListWithHiddenItem checks which list is found by the id of an item that is hidden from it.
func TestListWithHiddenItem(t *testing.T) {
	for _, c := range []struct{ method, result, capability string }{
		{"tools/list", `{"tools":[{"name":"good"},{"name":"evil"}]}`, "tools"},
		{"prompts/list", `{"prompts":[{"name":"good"},{"name":"evil"}]}`, "prompts"},
		{"resources/list", `{"resources":[{"name":"good","uri":"good"},{"name":"x","uri":"evil"}]}`,
			"resources"},
		{"resources/templates/list", `{"resourceTemplates":[{"name":"good","uriTemplate":"good"},` +
			`{"name":"x","uriTemplate":"evil"}]}`, "resources"},
		{"skills/list", `{"skills":[{"name":"good","uri":"good"},{"name":"x","uri":"evil"}]}`, ""},
		{"own tools/list", `{"tools":[{"name":"evil"}]}`, "tools"},
	} {
		t.Run(c.method, func(t *testing.T) {
			method, isOwn := strings.CutPrefix(c.method, "own ")
			var items pipeline.HiddenItems
			hidden := []string{"evil"}
			guard := stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
				return pipeline.Verdict{Action: pipeline.Allow, Hide: hidden}, nil
			})
			j := &judged{t: t}
			j.pipeline = pipeline.New(&j.log, pipeline.Options{Allowances: &j.allowances,
				HiddenItems: &items}, judge("guard", guard))
			m := list(t, method, c.result)
			m.Server, m.Principal, m.Own = "files", identity.FromID("ann"), isOwn
			_, o := j.pass(m)
			item := ids(o)
			if len(item) != 1 {
				t.Fatalf("got the record %+v, want a hidden item with an id", o)
			}
			for id, want := range map[string]string{
				item[0]: "ann files " + c.capability + " true", "other": "   false", "": "   false",
			} {
				principal, server, capability, ok := items.ListWith(id)
				if got := fmt.Sprint(principal, " ", server, " ", capability, " ",
					ok); got != want {
					t.Errorf("the list with the item %q is %q, want %q", id, got, want)
				}
			}
			hidden = nil
			j.pass(m)
			if _, _, _, ok := items.ListWith(item[0]); ok {
				t.Error("the item is found although it is shown again")
			}
		})
	}
}

// TestLaterStagesOfGroupJudgeAllowedMessage checks that the stages after an allowed denial are
// asked, although their group was not asked about them the first time.
func TestLaterStagesOfGroupJudgeAllowedMessage(t *testing.T) {
	asked := 0
	second := stage(func(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
		asked++
		return pipeline.Verdict{Action: pipeline.Modify, Edits: []mcp.Edit{
			mcp.Set("/arguments/seen", []byte(`true`))}}, nil
	})
	group := inOrder{}
	j := newJudged(t, pipeline.StageConfig{Name: "one", Stage: always(pipeline.Verdict{}),
		Group: group}, pipeline.StageConfig{Name: "two", Stage: second, Group: group})
	_, o := j.pass(toolCall(t, `{}`))
	j.allowances.add(false, ids(o)...)
	body, o := j.pass(toolCall(t, `{}`))
	if !strings.Contains(body, `"seen":true`) || asked != 1 || len(o.Steps) != 2 {
		t.Errorf("got %s after %d inspections by the second stage: %+v", body, asked, o)
	}
}

// inOrder is a pipeline.StageGroup.
type inOrder struct{}

func (inOrder) InspectAll(ctx context.Context, m *mcp.Message,
	stages []pipeline.Stage) ([]pipeline.Verdict, []error, error) {
	verdicts, errs := pipeline.InspectInOrder(m, len(stages), func(i int,
		m *mcp.Message) (pipeline.Verdict, error) {
		return stages[i].Inspect(ctx, m)
	})
	return verdicts, errs, nil
}

// TestServerCannotForgeID sends texts that look like the parts of another id. Each part of a
// description has its length before it, so no two interventions have one description.
func TestServerCannotForgeID(t *testing.T) {
	seen := map[string]string{}
	for _, names := range [][3]string{{"a", "bc", "d"}, {"ab", "c", "d"}, {"a", "b", "cd"},
		{"1:a", "bc", "d"}, {"a2:bc", "", "d"}, {"", "abc", "d"}} {
		j := newJudged(t, judge("guard", always(pipeline.Verdict{})))
		m := request(t, "tools/call", `{}`, "")
		m.Principal, m.Server, m.Name = identity.FromID(names[0]), names[1], names[2]
		_, o := j.pass(m)
		if len(ids(o)) != 1 {
			t.Fatalf("%q: got the ids %q, want one", names, ids(o))
		}
		if other, ok := seen[ids(o)[0]]; ok {
			t.Errorf("%q has the id of %s", names, other)
		}
		seen[ids(o)[0]] = strings.Join(names[:], " ")
	}
	// The kinds of interventions differ, too: the allowance of a hidden tool does not allow a
	// denial of a message with the same text.
	j := newJudged(t, judge("guard", hider("")))
	m := list(t, "tools/list", `{"tools":[{"name":"evil"}]}`)
	_, o := j.pass(m)
	item := ids(o)
	j.pipeline = pipeline.New(&j.log, pipeline.Options{Allowances: &j.allowances},
		judge("guard", always(pipeline.Verdict{})))
	j.allowances.add(false, item...)
	m = list(t, "tools/list", `{"name":"evil"}`)
	if body, _ := j.pass(m); body != "" {
		t.Error("a denied message passed with the allowance of a hidden item")
	}
}

// TestIDsAreBounded hides and edits more places than have ids.
func TestIDsAreBounded(t *testing.T) {
	for _, tt := range []struct{ places, size, want int }{
		{100, 0, 100},
		{101, 0, 100},
		{300, 0, 100},
		{60, 2 << 20, 31}, // each place of a large message takes time to look up
	} {
		var edits []mcp.Edit
		var hide, content, tools []string
		for i := range tt.places {
			at := string(rune('a'+i%26)) + strings.Repeat("x", i)
			content = append(content, `{"text":"`+at+`"}`)
			edits = append(edits, mcp.Set("/content/"+strconv.Itoa(i)+"/text", []byte(`"-"`)))
			hide = append(hide, at)
			tools = append(tools, `{"name":"`+at+`"}`)
		}
		j := newJudged(t, judge("secrets", modify(edits...)))
		body, o := j.pass(toolResult(t, `{"content":[`+strings.Join(content, ",")+`],"more":"`+
			strings.Repeat("x", tt.size)+`"}`))
		if strings.Count(body, `"-"`) != tt.places || len(ids(o)) != tt.want {
			t.Errorf("got %d redactions and %d ids, want %d and %d", strings.Count(body, `"-"`),
				len(ids(o)), tt.places, tt.want)
		}
		if tt.size > 0 {
			continue // a list is read only once
		}
		j = newJudged(t, judge("guard", always(pipeline.Verdict{Action: pipeline.Modify,
			Hide: hide})))
		body, o = j.pass(list(t, "tools/list", `{"tools":[`+strings.Join(tools, ",")+`]}`))
		if strings.Contains(body, "name") || len(ids(o)) != tt.want {
			t.Errorf("got the list %s and %d ids, want no tool and %d ids", body, len(ids(o)),
				tt.want)
		}
	}
	// A result of one byte is replaced as a whole.
	j := newJudged(t, judge("secrets", modify(mcp.Set("", []byte(`{}`)))))
	if body, o := j.pass(toolResult(t, "1")); body != "{}" || len(ids(o)) != 1 {
		t.Errorf("got the result %s and the ids %q, want {} and one id", body, ids(o))
	}
}
