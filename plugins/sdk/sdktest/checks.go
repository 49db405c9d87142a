package sdktest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

var pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

func (s suite) description(t testing.TB) {
	p := s.p
	if !pluginName.MatchString(p.Name) {
		t.Errorf("Name is %q, want a-z, 0-9 and -, first a letter", p.Name)
	}
	if p.Version == "" {
		t.Errorf("Version is missing")
	}
	if p.Doc == "" || strings.Contains(p.Doc, "\n") {
		t.Errorf("Doc is %q, want one line", p.Doc)
	}
	for _, w := range p.Wants.Methods {
		if w == "" {
			t.Errorf("Wants has an empty method, which is none")
		}
	}
	if err := p.Check(s.config); err != nil {
		t.Errorf("the schema refuses the configuration: %v", err)
	}
	if err := p.Check(stranger(s.config)); err == nil {
		t.Errorf("the schema takes an option that nobody knows: it needs " +
			"\"additionalProperties\": false")
	}
	if p.Schema != nil {
		var schema map[string]any
		if err := json.Unmarshal(p.Schema, &schema); err != nil {
			t.Errorf("Schema: %v", err)
		}
		for _, at := range undescribed(schema, "") {
			t.Errorf("the schema has no description for the option %s", at)
		}
	}
	s.stage(t)
}

// stranger is config with an option that no plugin has.
func stranger(config []byte) []byte {
	const option = `{"sdktest-has-no-such-option":1`
	inside := bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimSpace(config), []byte("{")), " \t\r\n")
	if bytes.HasPrefix(inside, []byte("}")) {
		return append([]byte(option), inside...)
	}
	return append([]byte(option+","), inside...)
}

// undescribed are the properties without a description, at any depth.
func undescribed(schema map[string]any, at string) (names []string) {
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		path := strings.TrimPrefix(at+"."+name, ".")
		if text, _ := property["description"].(string); text == "" {
			names = append(names, path)
		}
		names = append(names, undescribed(property, path)...)
		if items, ok := property["items"].(map[string]any); ok {
			names = append(names, undescribed(items, path+"[]")...)
		}
	}
	return names
}

func (s suite) ordinary(t testing.TB) {
	stage := s.stage(t)
	for _, m := range OrdinaryMessages() {
		switch j := s.judge(t.Context(), stage, m); {
		case j.fault != nil:
			t.Errorf("%s: %v", about(m), j.fault)
		case j.action == "deny" || j.action == "answer":
			t.Errorf("%s: got %s (%s), want it to pass", about(m), j.action, j.verdict.Reason)
		}
	}
}

func (s suite) acted(t testing.TB) {
	for i, m := range s.acts() {
		stage := s.stage(t)
		switch j := s.judge(t.Context(), stage, m); {
		case j.fault != nil:
			t.Errorf("sample %d, %s: %v", i, about(m), j.fault)
		case !j.asked:
			t.Errorf("sample %d, %s: the stage does not want it", i, about(m))
		case j.action == "pass" && len(j.verdict.Findings)+len(j.verdict.Labels) == 0:
			t.Errorf("sample %d, %s: the stage does nothing about it", i, about(m))
		}
	}
}

// planted are letters that no reason has by accident.
const planted = "Xq7ZkW3vPlanted9"

func (s suite) noContent(t testing.TB) {
	stage := s.stage(t)
	messages := append(OrdinaryMessages(), s.acts()...)
	for _, value := range []string{`"` + planted + ` text"`,
		`{"` + planted + `":"` + planted + `"}`} {
		messages = append(messages, messagesOf(value)...)
	}
	call := messagesOf(`"a"`)[0]
	call.Name = planted
	named, err := call.Edit(mcp.Set("/name", mcp.Quote(planted)))
	if err != nil {
		t.Fatalf("name a tool: %v", err)
	}
	named.Name = planted
	for _, m := range append(messages, named) {
		j := s.judge(t.Context(), stage, m)
		words := append([]string{j.verdict.Reason}, j.verdict.Labels...)
		for _, f := range j.verdict.Findings {
			words = append(words, f.Type)
			if _, ok := m.Get(f.Pointer); !ok && s.p.Needs.Body {
				t.Errorf("%s: a finding's pointer %.100q leads nowhere", about(m), f.Pointer)
			}
		}
		if j.fault != nil {
			words = append(words, j.fault.Error())
		}
		for _, w := range words {
			if part := content(m, w); part != "" {
				t.Errorf("%s: %q holds content of the message: %q", about(m), w, part)
			}
		}
	}
}

// least is how many characters of a message in a row are content, and not by accident.
const least = 12

// content is a part of m's texts that stands in words, or "".
func content(m *mcp.Message, words string) (part string) {
	if len(words) < least {
		return ""
	}
	if strings.Contains(words, planted) {
		return planted
	}
	grams := make(map[string]bool, len(words))
	for i := range len(words) - least + 1 {
		grams[words[i:i+least]] = true
	}
	m.Leaves(func(l mcp.Leaf) bool {
		text := l.Text()
		for i := range max(len(text)-least+1, 0) {
			if grams[text[i:i+least]] {
				part = text[i : i+least]
				return false
			}
		}
		return true
	})
	return part
}

// untouched is what no stage has a reason to change, spelt as only a copy keeps it.
const untouched = `{ "n":[1.0,1E2,-0, 12345678901234567890123,0.10], "s":"\u0041\/\u00e9" , "o":{"b":[ ],"a":{ }}, "":null}`

func (s suite) otherBytes(t testing.TB) {
	const member = "/_meta/sdktest.example~1untouched"
	for i, m := range s.acts() {
		marked, err := m.Edit(mcp.Set(member, []byte(untouched)))
		if err != nil {
			continue // it has no place for it
		}
		*marked = with(marked, m)
		j := s.judge(t.Context(), s.stage(t), marked)
		if j.fault != nil || j.after == nil || j.after == marked || !s.p.Needs.Body {
			continue
		}
		if got, _ := j.after.Get(member); string(got) != untouched {
			t.Errorf("sample %d, %s: got %s in _meta, which nobody asked to change, want %s", i,
				about(m), got, untouched)
		}
		if _, err := mcp.Parse(j.after.Append(nil)); err != nil {
			t.Errorf("sample %d, %s: what is left is no message: %v", i, about(m), err)
		}
		for _, name := range order(marked) {
			if !slices.Contains(order(j.after), name) && !removed(j.verdict.Edits, name) {
				t.Errorf("sample %d, %s: the member %.40q is lost", i, about(m), name)
			}
		}
	}
}

// order is the names of the body's members.
func order(m *mcp.Message) (names []string) {
	m.Members("", func(name string, _ []byte) bool {
		names = append(names, name)
		return true
	})
	return names
}

// removed says whether an edit takes the body's member away on purpose.
func removed(edits []mcp.Edit, name string) bool {
	return slices.ContainsFunc(edits, func(e mcp.Edit) bool {
		return e.Value == nil && e.Pointer == "/"+mcp.EscapePointer(name)
	})
}

func (s suite) noMutation(t testing.TB) {
	stage := s.stage(t)
	for _, m := range append(append(OrdinaryMessages(), s.acts()...),
		messagesOf(`{"a":[1,"b"]}`)...) {
		m = s.sent(m)
		before, raw := *m, m.Append(nil)
		body := bytes.Clone(m.Body())
		_, _ = inspect(t.Context(), stage, m)
		if !bytes.Equal(raw, m.Append(nil)) || !bytes.Equal(body, m.Body()) {
			t.Errorf("%s: the stage changed the bytes of the message: it may only say what to edit",
				about(m))
		}
		if !reflect.DeepEqual(before, *m) {
			t.Errorf("%s: the stage changed the fields of the message", about(m))
		}
	}
}

// inspect takes a panic for an error.
func inspect(ctx context.Context, stage sdk.Stage, m *mcp.Message) (v sdk.Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panicked: %v", r)
		}
	}()
	return stage.Inspect(ctx, m)
}

func (s suite) pure(t testing.TB) {
	if s.p.Stateful {
		return
	}
	one, other := s.stage(t), s.stage(t)
	messages := append(OrdinaryMessages(), s.acts()...)
	var first []judged
	for _, m := range messages {
		first = append(first, s.judge(t.Context(), one, m))
	}
	for i, m := range messages {
		if d := differs(first[i], s.judge(t.Context(), one, m)); d != "" {
			t.Errorf("%s: the same message again has another %s: set Stateful if that is the "+
				"plugin's purpose", about(m), d)
		}
		// What stands in the place of what was taken out may be a stage's own secret: what is taken
		// out may not.
		elsewhere := s.judge(t.Context(), other, m)
		if a, b := first[i], elsewhere; a.action != b.action || !slices.Equal(a.verdict.Findings,
			b.verdict.Findings) || !slices.Equal(a.verdict.Hide, b.verdict.Hide) {
			t.Errorf("%s: another stage of the same configuration decides otherwise: set "+
				"Stateful if that is the plugin's purpose", about(m))
		}
	}
}

// differs says in what two judgements do.
func differs(a, b judged) string {
	switch {
	case a.action != b.action:
		return fmt.Sprintf("action (%s, then %s)", a.action, b.action)
	case a.verdict.Reason != b.verdict.Reason:
		return "reason"
	case !reflect.DeepEqual(a.verdict.Edits, b.verdict.Edits):
		return "change"
	case !slices.Equal(a.verdict.Findings, b.verdict.Findings):
		return "list of findings, or order of it"
	case !slices.Equal(a.verdict.Hide, b.verdict.Hide), !slices.Equal(a.verdict.Labels,
		b.verdict.Labels), !bytes.Equal(a.verdict.Answer, b.verdict.Answer):
		return "verdict"
	}
	return ""
}

func (s suite) odd(t testing.TB) {
	stage := s.stage(t)
	try := func(what string, m *mcp.Message) {
		if j := s.judge(t.Context(), stage, m); j.fault != nil {
			t.Errorf("%s, %s: %.300s", what, about(m), j.fault.Error())
		}
	}
	values := oddities()
	for _, what := range slices.Sorted(maps.Keys(values)) {
		for _, m := range messagesOf(values[what]) {
			try(what, m)
		}
	}
	for _, m := range bodiless() {
		try("a body that is not there, or not as it should be", m)
	}
	for _, m := range messagesOf(string(mcp.Quote(large()))) {
		began := time.Now()
		try("5 MiB", m)
		if took := time.Since(began); took > hostPatience && s.p.Needs.Body {
			t.Logf("5 MiB, %s: took %v; a host denies what is not judged within %v unless its "+
				"configuration says more", about(m), took, hostPatience)
		}
	}
}

// hostPatience is the default of [[plugin]] timeout.
const hostPatience = 2 * time.Second

func (s suite) time(t testing.TB) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	stage := s.stage(t)
	for _, m := range messagesOf(string(mcp.Quote(large()))) {
		if w := s.wants(stage); !wanted(w, m) {
			continue
		}
		soon, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		for what, ctx := range map[string]context.Context{"a context that has ended": gone,
			"a deadline of 10ms": soon} {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = inspect(ctx, stage, s.sent(m))
			}()
			select {
			case <-ended:
			case <-time.After(s.grace):
				stop()
				t.Errorf("%s: the stage still runs %v after %s", about(m), s.grace, what)
				return
			}
		}
		stop()
	}
}

// wanted says whether w wants m, as the pipeline would.
func wanted(w pipeline.Wants, m *mcp.Message) (yes bool) {
	p := pipeline.New(&firstOutcome{}, pipeline.Options{}, pipeline.StageConfig{Name: "x", Wants: w,
		Stage: sdk.StageFunc(func(context.Context, *mcp.Message) (sdk.Verdict, error) {
			yes = true
			return sdk.Allow(), nil
		})})
	_, _ = p.Pass(context.Background(), m)
	return yes
}

func (s suite) atOnce(t testing.TB) {
	stage := s.stage(t)
	messages := append(OrdinaryMessages(), s.acts()...)
	want := make([]judged, len(messages))
	for i, m := range messages {
		want[i] = s.judge(t.Context(), stage, m)
	}
	const many = 8
	got := make([][]judged, many)
	var all sync.WaitGroup
	for g := range many {
		all.Go(func() {
			for _, m := range messages {
				got[g] = append(got[g], s.judge(t.Context(), stage, m))
			}
		})
	}
	all.Wait()
	for _, got := range got {
		for i, m := range messages {
			switch d := differs(want[i], got[i]); {
			case got[i].fault != nil && want[i].fault == nil:
				t.Errorf("%s: asked from many goroutines: %v", about(m), got[i].fault)
				return
			case d != "" && !s.p.Stateful:
				t.Errorf("%s: asked from many goroutines, the stage has another %s", about(m), d)
				return
			}
		}
	}
}

func (s suite) canary(t testing.TB) {
	c := s.sings()
	if c == nil {
		return
	}
	if c.Description == "" {
		t.Errorf("the canary does not say what is planted in it")
	}
	m := c.Message
	if m == nil || m.Kind == 0 || m.Direction == 0 || m.Server == "" {
		t.Fatalf("the canary has no message with a kind, a direction and a server")
	}
	j := s.judge(t.Context(), s.stage(t), m)
	if j.fault != nil || !j.asked || j.verdict.Action != c.Action {
		t.Errorf("the canary (%s): got the action %d (%s, %v), want %d", c.Description,
			j.verdict.Action,
			j.verdict.Reason, j.fault, c.Action)
	}
}

// about is m in a few words.
func about(m *mcp.Message) string { return fmt.Sprintf("%s %s %s", m.Method, m.Kind, m.Direction) }
