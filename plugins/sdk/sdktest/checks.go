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

func (s suite) checkDescription(t testing.TB) {
	p := s.plugin
	if !pluginName.MatchString(p.Name) {
		t.Errorf("Name is %q, want a-z, 0-9 and -, beginning with a letter", p.Name)
	}
	if p.Version == "" {
		t.Errorf("Version is missing")
	}
	if p.Doc == "" || strings.Contains(p.Doc, "\n") {
		t.Errorf("Doc is %q, want one line", p.Doc)
	}
	if slices.Contains(p.Wants.Methods, "") {
		t.Errorf("Wants has an empty method")
	}
	if err := p.Check(s.config); err != nil {
		t.Errorf("the schema rejects the configuration: %v", err)
	}
	if err := p.Check(withUnknownOption(s.config)); err == nil {
		t.Errorf("the schema accepts an unknown option: add \"additionalProperties\": false")
	}
	if p.Schema != nil {
		var schema map[string]any
		if err := json.Unmarshal(p.Schema, &schema); err != nil {
			t.Errorf("Schema: %v", err)
		}
		for _, option := range undescribed(schema, "") {
			t.Errorf("the schema has no description for the option %s", option)
		}
	}
	s.newStage(t)
}

// withUnknownOption returns config with an option that no plugin has.
func withUnknownOption(config []byte) []byte {
	const option = `{"sdktest-has-no-such-option":1`
	rest := bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimSpace(config), []byte("{")), " \t\r\n")
	if bytes.HasPrefix(rest, []byte("}")) {
		return append([]byte(option), rest...)
	}
	return append([]byte(option+","), rest...)
}

// undescribed returns the names of the properties that have no description, at any depth.
func undescribed(schema map[string]any, parent string) (names []string) {
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		path := strings.TrimPrefix(parent+"."+name, ".")
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

func (s suite) checkOrdinaryMessages(t testing.TB) {
	stage := s.newStage(t)
	for _, m := range OrdinaryMessages() {
		switch r := s.inspect(t.Context(), stage, m); {
		case r.err != nil:
			t.Errorf("%s: %v", describe(m), r.err)
		case r.action == "deny" || r.action == "answer":
			t.Errorf("%s: got the action %s (%s), want the message forwarded", describe(m),
				r.action, r.verdict.Reason)
		}
	}
}

func (s suite) checkSamples(t testing.TB) {
	for i, m := range s.allSamples() {
		stage := s.newStage(t)
		switch r := s.inspect(t.Context(), stage, m); {
		case r.err != nil:
			t.Errorf("sample %d, %s: %v", i, describe(m), r.err)
		case !r.inspected:
			t.Errorf("sample %d, %s: the stage does not want it", i, describe(m))
		case r.action == "pass" && len(r.verdict.Findings)+len(r.verdict.Labels) == 0:
			t.Errorf("sample %d, %s: the stage does not act on it", i, describe(m))
		}
	}
}

// marker is a text that no reason contains by accident.
const marker = "Xq7ZkW3vPlanted9"

func (s suite) checkNoContent(t testing.TB) {
	stage := s.newStage(t)
	messages := append(OrdinaryMessages(), s.allSamples()...)
	for _, value := range []string{`"` + marker + ` text"`,
		`{"` + marker + `":"` + marker + `"}`} {
		messages = append(messages, messagesWith(value)...)
	}
	call, err := messagesWith(`"a"`)[0].Edit(mcp.Set("/name", mcp.Quote(marker)))
	if err != nil {
		t.Fatalf("set a tool's name: %v", err)
	}
	call.Name = marker
	for _, m := range append(messages, call) {
		r := s.inspect(t.Context(), stage, m)
		recorded := append([]string{r.verdict.Reason}, r.verdict.Labels...)
		for _, f := range r.verdict.Findings {
			recorded = append(recorded, f.Type)
			if _, ok := m.Get(f.Pointer); !ok && s.plugin.Needs.Body {
				t.Errorf("%s: a finding's pointer %.100q names no place in the body", describe(m),
					f.Pointer)
			}
		}
		if r.err != nil {
			recorded = append(recorded, r.err.Error())
		}
		for _, text := range recorded {
			if part := contentIn(text, m); part != "" {
				t.Errorf("%s: %q holds content of the message: %q", describe(m), text, part)
			}
		}
	}
}

// A part of a message counts as content if it has at least minContent bytes. A recorded text may
// share shorter parts with a message by accident.
const minContent = 12

// contentIn returns a part of m's content that the recorded text contains, or "" if there is none.
func contentIn(recorded string, m *mcp.Message) (part string) {
	if len(recorded) < minContent {
		return ""
	}
	if strings.Contains(recorded, marker) {
		return marker
	}
	parts := make(map[string]bool, len(recorded))
	for i := range len(recorded) - minContent + 1 {
		parts[recorded[i:i+minContent]] = true
	}
	m.Leaves(func(l mcp.Leaf) bool {
		text := l.Text()
		for i := range max(len(text)-minContent+1, 0) {
			if parts[text[i:i+minContent]] {
				part = text[i : i+minContent]
				return false
			}
		}
		return true
	})
	return part
}

// untouched is JSON that no stage has a reason to change. A stage that decodes it and encodes it
// again would change its spelling.
const untouched = `{ "n":[1.0,1E2,-0, 12345678901234567890123,0.10], ` +
	`"s":"\u0041\/\u00e9" , "o":{"b":[ ],"a":{ }}, "":null}`

func (s suite) checkUntouchedBytes(t testing.TB) {
	const member = "/_meta/sdktest.example~1untouched"
	for i, m := range s.allSamples() {
		marked, err := m.Edit(mcp.Set(member, []byte(untouched)))
		if err != nil {
			continue // the body is no object
		}
		*marked = withFields(marked, m)
		r := s.inspect(t.Context(), s.newStage(t), marked)
		if r.err != nil || r.after == nil || r.after == marked || !s.plugin.Needs.Body {
			continue
		}
		if got, _ := r.after.Get(member); string(got) != untouched {
			t.Errorf("sample %d, %s: the untouched part of _meta became %s, want %s", i,
				describe(m), got, untouched)
		}
		if _, err := mcp.Parse(r.after.Append(nil)); err != nil {
			t.Errorf("sample %d, %s: the edited message is invalid: %v", i, describe(m), err)
		}
		for _, name := range memberNames(marked) {
			if !slices.Contains(memberNames(r.after), name) && !removed(r.verdict.Edits, name) {
				t.Errorf("sample %d, %s: the member %.40q is lost", i, describe(m), name)
			}
		}
	}
}

// memberNames returns the names of the body's members.
func memberNames(m *mcp.Message) (names []string) {
	m.Members("", func(name string, _ []byte) bool {
		names = append(names, name)
		return true
	})
	return names
}

// removed reports whether one of the edits removes the member of the body with this name.
func removed(edits []mcp.Edit, name string) bool {
	return slices.ContainsFunc(edits, func(e mcp.Edit) bool {
		return e.Value == nil && e.Pointer == "/"+mcp.EscapePointer(name)
	})
}

func (s suite) checkNoMutation(t testing.TB) {
	stage := s.newStage(t)
	for _, m := range append(append(OrdinaryMessages(), s.allSamples()...),
		messagesWith(`{"a":[1,"b"]}`)...) {
		m = s.asSent(m)
		before, raw := *m, m.Append(nil)
		body := bytes.Clone(m.Body())
		_, _ = inspectDirectly(t.Context(), stage, m)
		if !bytes.Equal(raw, m.Append(nil)) || !bytes.Equal(body, m.Body()) {
			t.Errorf("%s: the stage changed the bytes of the message; it must return edits instead",
				describe(m))
		}
		if !reflect.DeepEqual(before, *m) {
			t.Errorf("%s: the stage changed the fields of the message", describe(m))
		}
	}
}

// inspectDirectly calls Inspect without a pipeline. A panic becomes an error.
func inspectDirectly(ctx context.Context, stage sdk.Stage,
	m *mcp.Message) (v sdk.Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panicked: %v", r)
		}
	}()
	return stage.Inspect(ctx, m)
}

func (s suite) checkDeterministic(t testing.TB) {
	if s.plugin.Stateful {
		return
	}
	one, other := s.newStage(t), s.newStage(t)
	messages := append(OrdinaryMessages(), s.allSamples()...)
	var first []result
	for _, m := range messages {
		first = append(first, s.inspect(t.Context(), one, m))
	}
	for i, m := range messages {
		if d := difference(first[i], s.inspect(t.Context(), one, m)); d != "" {
			t.Errorf("%s: the same message got another %s: set Stateful if the plugin "+
				"remembers messages", describe(m), d)
		}
		// Replacements may differ between stages, for example if they depend on a random key. The
		// decision and the findings must be equal.
		b := s.inspect(t.Context(), other, m)
		if a := first[i]; a.action != b.action || !slices.Equal(a.verdict.Findings,
			b.verdict.Findings) || !slices.Equal(a.verdict.Hide, b.verdict.Hide) {
			t.Errorf("%s: another stage with the same configuration decides differently: set "+
				"Stateful if the plugin remembers messages", describe(m))
		}
	}
}

// difference returns the name of the first part in which two results differ, or "".
func difference(a, b result) string {
	switch {
	case a.action != b.action:
		return fmt.Sprintf("action (%s, then %s)", a.action, b.action)
	case a.verdict.Reason != b.verdict.Reason:
		return "reason"
	case !reflect.DeepEqual(a.verdict.Edits, b.verdict.Edits):
		return "list of edits"
	case !slices.Equal(a.verdict.Findings, b.verdict.Findings):
		return "list of findings"
	case !slices.Equal(a.verdict.Hide, b.verdict.Hide), !slices.Equal(a.verdict.Labels,
		b.verdict.Labels), !bytes.Equal(a.verdict.Answer, b.verdict.Answer):
		return "verdict"
	}
	return ""
}

func (s suite) checkUnusualMessages(t testing.TB) {
	stage := s.newStage(t)
	try := func(name string, m *mcp.Message) {
		if r := s.inspect(t.Context(), stage, m); r.err != nil {
			t.Errorf("%s, %s: %.300s", name, describe(m), r.err.Error())
		}
	}
	values := unusualValues()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, m := range messagesWith(values[name]) {
			try(name, m)
		}
	}
	for _, m := range messagesWithoutValidBody() {
		try("a missing or invalid body", m)
	}
	for _, m := range messagesWith(string(mcp.Quote(largeText()))) {
		started := time.Now()
		try("5 MiB", m)
		if took := time.Since(started); took > defaultTimeout && s.plugin.Needs.Body {
			t.Logf("%s with 5 MiB: Inspect took %v; the host denies a message without a verdict "+
				"within %v, unless the configuration sets a longer timeout", describe(m), took,
				defaultTimeout)
		}
	}
}

// defaultTimeout is the default of the option timeout in [[plugin]].
const defaultTimeout = 2 * time.Second

func (s suite) checkCancellation(t testing.TB) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	stage := s.newStage(t)
	for _, m := range messagesWith(string(mcp.Quote(largeText()))) {
		if !isWanted(s.wants(stage), m) {
			continue
		}
		deadline, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		for name, ctx := range map[string]context.Context{"a context that has ended": cancelled,
			"a deadline of 10ms": deadline} {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = inspectDirectly(ctx, stage, s.asSent(m))
			}()
			select {
			case <-ended:
			case <-time.After(s.cancelTimeout):
				stop()
				t.Errorf("%s: with %s, Inspect has not returned within %v", describe(m), name,
					s.cancelTimeout)
				return
			}
		}
		stop()
	}
}

// isWanted reports whether a pipeline would pass m to a stage with the wants w.
func isWanted(w pipeline.Wants, m *mcp.Message) (yes bool) {
	p := pipeline.New(&firstOutcome{}, pipeline.Options{}, pipeline.StageConfig{Name: "x", Wants: w,
		Stage: sdk.StageFunc(func(context.Context, *mcp.Message) (sdk.Verdict, error) {
			yes = true
			return sdk.Allow(), nil
		})})
	_, _ = p.Pass(context.Background(), m)
	return yes
}

func (s suite) checkConcurrency(t testing.TB) {
	stage := s.newStage(t)
	messages := append(OrdinaryMessages(), s.allSamples()...)
	want := make([]result, len(messages))
	for i, m := range messages {
		want[i] = s.inspect(t.Context(), stage, m)
	}
	const goroutines = 8
	got := make([][]result, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for _, m := range messages {
				got[g] = append(got[g], s.inspect(t.Context(), stage, m))
			}
		})
	}
	all.Wait()
	for _, got := range got {
		for i, m := range messages {
			switch d := difference(want[i], got[i]); {
			case got[i].err != nil && want[i].err == nil:
				t.Errorf("%s: from several goroutines: %v", describe(m), got[i].err)
				return
			case d != "" && !s.plugin.Stateful:
				t.Errorf("%s: from several goroutines, the stage returns another %s", describe(m),
					d)
				return
			}
		}
	}
}

func (s suite) checkSelfTest(t testing.TB) {
	c := s.selfTest()
	if c == nil {
		return
	}
	if c.Description == "" {
		t.Errorf("the self-test has no description")
	}
	m := c.Message
	if m == nil || m.Kind == 0 || m.Direction == 0 || m.Server == "" {
		t.Fatalf("the self-test has no message with a kind, a direction and a server")
	}
	r := s.inspect(t.Context(), s.newStage(t), m)
	if r.err != nil || !r.inspected || r.verdict.Action != c.Action {
		t.Errorf("the self-test (%s): got the action %d (%s, %v), want %d", c.Description,
			r.verdict.Action, r.verdict.Reason, r.err, c.Action)
	}
}

// describe returns the method, kind and direction of m.
func describe(m *mcp.Message) string {
	return fmt.Sprintf("%s %s %s", m.Method, m.Kind, m.Direction)
}
