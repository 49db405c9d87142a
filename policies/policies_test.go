package policies_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
)

// loaded returns a stage with rules in the package data.gatekit.t.
func loaded(t *testing.T, rego string) *policies.Stage {
	t.Helper()
	s, err := load(t, rego)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// load loads rules in the package data.gatekit.t.
func load(t *testing.T, rego string) (*policies.Stage, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "t.rego")
	if err := os.WriteFile(file, []byte("package gatekit.t\n\n"+rego), 0o600); err != nil {
		t.Fatal(err)
	}
	return policies.Load(policies.Options{Files: []string{file}})
}

// called returns a tools/call to server a.
func called(name, arguments string) *mcp.Message {
	return sent(mcp.NewRequest("1", "tools/call", []byte(`{"name":"`+name+`","arguments":`+
		arguments+`}`)), mcp.ToServer, name)
}

// sent sets the fields that the proxy sets, for a message of ann's session with server a.
func sent(m *mcp.Message, to mcp.Direction, name string) *mcp.Message {
	m.Direction, m.Server, m.Session, m.Principal, m.Name = to, "a", "s1", identity.FromID("ann"),
		name
	return m
}

// answered returns the response to a request.
func answered(request *mcp.Message, result string) *mcp.Message {
	m := sent(mcp.NewResponse("1", []byte(result)), mcp.ToClient, request.Name)
	m.Method, m.Request = request.Method, request
	return m
}

// journal keeps the last outcome.
type journal struct{ last pipeline.Outcome }

func (j *journal) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	j.last = o
	return 1, nil
}

// verdictOf returns the verdict on a message as text. If the message passes, this is its body after
// the edits. Otherwise it is "denied: " with the reason, or "error: " with the error.
func verdictOf(t *testing.T, s pipeline.Stage, m *mcp.Message) string {
	t.Helper()
	j := &journal{}
	p, err := pipeline.New(j, pipeline.Options{}, pipeline.StageConfig{Name: "policy",
		Stage: s}).Pass(t.Context(), m)
	if err != nil {
		if j.last.Err != nil {
			return "error: " + j.last.Err.Error()
		}
		return "denied: " + j.last.Reason
	}
	return string(p.Message().Body())
}

func TestEffects(t *testing.T) {
	list := answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
		`{"tools":[{"name":"x"},{"name":"y"}]}`)
	for name, c := range map[string]struct {
		rego string
		m    *mcp.Message
		want string
	}{
		"nothing": {`deny contains "no" if input.name == "y"`, called("x", `{}`),
			`{"name":"x","arguments":{}}`},
		"deny": {`deny contains "no" if input.name == "x"`, called("x", `{}`),
			`denied: t: no`},
		"deny with an object": {`deny contains {"reason": "no", "code": 7}`,
			called("x", `{}`), `denied: t: no`},
		"deny beats all": {`deny contains "no"` + "\n" +
			`set contains {"path": "/arguments/a", "value": 1}` + "\n" + `hide contains "x"`,
			called("x", `{}`), `denied: t: no`},
		"hide in a list": {`hide contains item.name if { some item in input.items; item.name == "x" }`, list, `{"tools":[{"name":"y"}]}`},
		"hide in a call": {`hide contains "x"`, called("x", `{}`),
			`denied: t: the tool is hidden from this client`},
		"set": {`set contains {"path": "/arguments/a", "value": {"b": [1, "c", null, true]}}`,
			called("x", `{"k": 1.0}`),
			`{"name":"x","arguments":{"k": 1.0,"a":{"b":[1,"c",null,true]}}}`},
		"redact a path": {`redact contains {"path": "/arguments/a", "with": "[gone]"}`,
			called("x", `{"a":{"b":1},"c":2}`), `{"name":"x","arguments":{"a":"[gone]","c":2}}`},
		"redact an absent value": {`redact contains {"path": "/arguments/z", "with": "[gone]"}`,
			called("x", `{"a":1}`), `{"name":"x","arguments":{"a":1}}`},
		"redact a value and values inside it": {`redact contains {"path": path, "with": "[gone]"} if some path in ["/arguments/a/b", "/arguments/a", "/arguments/a/c"]`, called("x", `{"a":{"b":1},"c":2}`), `{"name":"x","arguments":{"a":"[gone]","c":2}}`},
		"redact a value after a value inside it": {`redact contains {"comment": "sorted first", "path": "/arguments/a/b", "with": "[b]"}
redact contains {"path": "/arguments/a", "with": "[gone]"}`, called("x", `{"a":{"b":1}}`),
			`{"name":"x","arguments":{"a":"[gone]"}}`},
		"set a value and a value inside it": {`set contains {"path": path, "value": 1} if some path in ["/arguments/a", "/arguments/a/b"]`, called("x", `{"a":{"b":2}}`), `{"name":"x","arguments":{"a":1}}`},
		"redact a pattern": {`redact contains {"pattern": "k[0-9]+", "with": "K"}`,
			called("x", `{"a":"k1 and k22","k3":["k4"]}`),
			`{"name":"x","arguments":{"a":"K and K","K":["K"]}}`},
		"redact a pattern in a member's name, and set": {`redact contains {"pattern": "k[0-9]+", "with": "K"}` + "\n" +
			`set contains {"path": "/arguments/a", "value": 1}`, called("x", `{"k3":["k4"],"a":0}`),
			`{"name":"x","arguments":{"a":1,"K":["K"]}}`},
		"redact a pattern in one text, and set": {`redact contains {"pattern": "k[0-9]+", "with": "K"}` + "\n" +
			`set contains {"path": "/arguments/a", "value": 1}`, called("x", `{"b":"k4","a":0}`),
			`{"name":"x","arguments":{"b":"K","a":1}}`},
		"set for two spellings of a URI": {`set contains {"path": "/_meta/a", "value": 1} if input.name == "FILE:///a"` + "\n" +
			`set contains {"path": "/_meta/b", "value": 2} if input.name == "file:///a"`,
			reading("FILE:///a"), `{"uri":"FILE:///a","_meta":{"a":1,"b":2}}`},
		"redact beats set": {`redact contains {"path": "/arguments/a", "with": "R"}` + "\n" +
			`set contains {"path": "/arguments/a", "value": "S"}`, called("x", `{"a":1}`),
			`{"name":"x","arguments":{"a":"R"}}`},
		"ask": {`ask contains {"reason": "it is large"}`, called("x", `{}`),
			`denied: needs approval: t: it is large`},
		"an element of the wrong type": {`deny contains count(input.name)`, called("x", `{}`),
			`error: stage "policy": t: deny contains an element of type number, want reasons, or objects with a "reason"`},
		"an error at run time": {`deny contains "no" if { x := to_number(input.name); x > 1 }`,
			called("x", `{}`), `error: stage "policy": evaluate the policies`},
		"an invalid pattern": {`redact contains {"pattern": concat("(", ["", input.name]), "with": "K"}`,
			called("x", `{}`), `error: stage "policy": t: redact: pattern "(x"`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdictOf(t, loaded(t, c.rego), c.m); !strings.HasPrefix(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEditIsRecordedWithItsRule(t *testing.T) {
	for name, c := range map[string]struct {
		rego    string
		changed string // the changed places
	}{
		"set":    {`set contains {"path": "/arguments/a", "value": 1}`, "/arguments/a"},
		"redact": {`redact contains {"path": "/arguments/a", "with": "R"}`, "/arguments/a"},
		"both": {`redact contains {"path": "/arguments/a", "with": "R"}` + "\n" +
			`set contains {"path": "/arguments/b", "value": 1}`, "/arguments/a /arguments/b"},
		"both, with a pattern": {`redact contains {"pattern": "v", "with": "R"}` + "\n" +
			`set contains {"path": "/arguments/b", "value": 1}`, "/arguments/a /arguments/b"},
	} {
		j := &journal{}
		p := pipeline.New(j, pipeline.Options{}, pipeline.StageConfig{Name: "policy",
			Stage: loaded(t, c.rego)})
		if _, err := p.Pass(t.Context(), called("x", `{"a":"v"}`)); err != nil {
			t.Fatal(err)
		}
		if o := j.last; o.Action != "modify" || o.Reason != "t" || len(o.Steps) != 1 ||
			strings.Join(o.Steps[0].Changed, " ") != c.changed {
			t.Errorf("%s is recorded as %s %q with %+v; want modify, the rule t, and one step "+
				"that changed %s", name, o.Action, o.Reason, o.Steps, c.changed)
		}
	}
}

func TestErrorsHaveFileAndLine(t *testing.T) {
	for rego, want := range map[string]string{
		`deny contains "no" if input.params.nmae == "x"` + "\n" +
			`deny contains "no" if input.methd == "x"`: `t.rego:4:23: undefined ref: input.methd`,
		`deny contains "no" if input.session.lables == []`: `t.rego:3:23: undefined ref: input.session.lables`,
		`deny := true`:                         `t.rego:3: deny must be a set`,
		`deny if true`:                         `t.rego:3: deny must be a set`,
		`x := 1`:                               `the policies decide nothing`,
		`deny contains "no" if http.send({})`:  `undefined function http.send`,
		`deny contains x if { opa.runtime() }`: `undefined function opa.runtime`,
		`deny contains "no" if`:                `t.rego:3`,
		`import data.other` + "\n" + `deny contains "no"`: `t.rego:3:1: import data.other unused`,
	} {
		if _, err := load(t, rego); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", rego, err, want)
		}
	}
}

func TestPolicySeesSession(t *testing.T) {
	s := loaded(t, `
deny contains "no" if { input.method == "tools/call"; not input.item.annotations.readOnlyHint }
deny contains "too many" if { input.name == "x"; input.kind == "request"; input.session.calls["a x"] >= 2 }
deny contains "tainted" if { "tainted" in input.session.labels; input.name == "send" }
label contains "tainted" if { input.method == "tools/call"; input.kind == "response" }
deny contains "not in the roots" if { input.name == "rooted"; not "file:///w" in {r.uri | some r in input.roots} }
deny contains sprintf("%v of %v", [input.session.id, input.principal.subject]) if input.name == "who"
deny contains "wrong answer" if { input.kind == "response"; input.request.arguments.n == 7 }
`)
	const definition = `{"name":"x","annotations":{"readOnlyHint":true}}`
	if got := verdictOf(t, s, called("x", `{}`)); got != "denied: t: no" {
		t.Errorf("before the list: %s, want denied: t: no", got)
	}
	names := []string{"x", "send", "rooted", "who"}
	var tools []string
	for _, n := range names {
		tools = append(tools, strings.Replace(definition, `"x"`, `"`+n+`"`, 1))
	}
	verdictOf(t, s, answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
		`{"tools":[`+strings.Join(tools, ",")+`]}`))
	for i, want := range []string{`{"name":"x","arguments":{}}`, `{"name":"x","arguments":{}}`,
		"denied: t: too many"} {
		if got := verdictOf(t, s, called("x", `{}`)); got != want {
			t.Errorf("call %d: got %s, want %s", i+1, got, want)
		}
	}
	if got := verdictOf(t, s, called("send", `{}`)); strings.HasPrefix(got, "denied") {
		t.Errorf("before a response with a label: %s, want it allowed", got)
	}
	if got := verdictOf(t, s, answered(called("x", `{"n":7}`),
		`{}`)); got != "denied: t: wrong answer" {
		t.Errorf("a response that a rule denies by its request: %s, want it denied", got)
	}
	verdictOf(t, s, answered(called("x", `{}`), `{"content":[]}`))
	if got := verdictOf(t, s, called("send", `{}`)); got != "denied: t: tainted" {
		t.Errorf("after a response with a label: %s, want denied: t: tainted", got)
	}
	other := called("send", `{}`)
	other.Principal = identity.FromID("bob") // with the same session id
	if got := verdictOf(t, s, other); got != "denied: t: no" {
		t.Errorf("another principal: %s, want denied: t: no", got)
	}
	if got := verdictOf(t, s, called("rooted", `{}`)); got != "denied: t: not in the roots" {
		t.Errorf("without roots: %s, want it denied", got)
	}
	roots := sent(mcp.NewResponse("1", []byte(`{"roots":[{"uri":"file:///w"}]}`)), mcp.ToServer, "")
	roots.Method = "roots/list"
	verdictOf(t, s, roots)
	if got := verdictOf(t, s, called("rooted", `{}`)); strings.Contains(got, "roots") {
		t.Errorf("with the root: %s, want it allowed", got)
	}
	if got := verdictOf(t, s, called("who", `{}`)); got != "denied: t: s1 of ann" {
		t.Errorf("the call of who: %s, want the session and the principal", got)
	}
}

// slowRule takes very long.
const slowRule = `deny contains "no" if { count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); some c in numbers.range(1, 3000); a + b == c]) < 0 }`

func TestSlowPolicyDenies(t *testing.T) {
	s := loaded(t, slowRule)
	j := &journal{}
	_, err := pipeline.New(j, pipeline.Options{}, pipeline.StageConfig{Name: "policy", Stage: s,
		Timeout: 50 * time.Millisecond}).Pass(t.Context(), called("x", `{}`))
	if err == nil || !strings.Contains(j.last.Err.Error(), "no verdict within") {
		t.Errorf("error %v, recorded error %v; want that there is no verdict in time", err,
			j.last.Err)
	}
}

func TestErrorOfCancelledEvaluationIsItsCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the client is gone")
	cancel(cause)
	if _, err := loaded(t, slowRule).Inspect(ctx, called("x", `{}`)); err != cause {
		t.Errorf("error %v, want %v", err, cause)
	}
}

// Rules may be in the package gatekit itself.
func TestRulesOfPackageGatekit(t *testing.T) {
	dir := folder(t, map[string]string{"a.rego": "package gatekit\n\ndeny contains \"no\"\n"})
	s, err := policies.Load(policies.Options{Files: []string{filepath.Join(dir, "a.rego")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := verdictOf(t, s, called("x", `{}`)); !strings.HasPrefix(got, "denied: ") {
		t.Errorf("got %s, want a denial", got)
	}
}

// Roots that a rule hides are not in input.roots.
func TestHiddenRootsAreNotInInput(t *testing.T) {
	s := loaded(t, `hide contains "file:///b"
deny contains r.uri if { input.method == "tools/call"; some r in input.roots }`)
	roots := answered(sent(mcp.NewRequest("1", "roots/list", nil), mcp.ToClient, ""),
		`{"roots":[{"uri":"file:///a"},{"uri":"file:///b"},{"uri":"file:///c"},{"name":"d"}]}`)
	roots.Direction = mcp.ToServer
	verdictOf(t, s, roots)
	if got, want := verdictOf(t, s, called("x", `{}`)),
		"denied: t: file:///a; t: file:///c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
