package policies_test

import (
	"strings"
	"testing"

	"gatekit/policies"
)

// TestExplainedInputIsACase checks that the input that Explain returns is a case, and that this
// case gets the same verdict as the message.
func TestExplainedInputIsACase(t *testing.T) {
	const rego = `
deny contains "tainted" if "bad" in input.session.labels
deny contains "asked for it" if input.request.arguments.n == 7
deny contains "the roots" if input.roots[0].uri == "file:///w"
deny contains f.type if some f in input.findings
deny contains input.time if input.time < "2027"
deny contains input.principal.subject
deny contains input.session.client.name
deny contains input.direction
deny contains input.params.message
deny contains tool if some tool in input.tools
deny contains "it has roots" if input.session.capabilities.roots
`
	for _, c := range []string{
		`{"method":"tools/call","kind":"response","name":"x","server":"a","result":{"content":[]},"request":{"name":"x","arguments":{"n":7}},"time":"2026-01-01T00:00:00Z"}`,
		`{"jsonrpc":"2.0","method":"roots/list","id":3,"session":{"id":"s","labels":["bad"],"client":{"name":"c"}},"roots":[{"uri":"file:///w"}],"principal":"ann","findings":[{"type":"email","pointer":"/x"}],"time":"2026-01-01T00:00:00Z"}`,
		`{"method":"tools/call","error":{"code":1,"message":"m"},"time":"2026-01-01T00:00:00Z"}`,
		`{"method":"notifications/progress","direction":"to_client","kind":"notification","server":"a","tools":["x"],"session":{"capabilities":{"roots":{}},"calls":{"a y":1}},"principal":"ann","time":"2026-01-01T00:00:00Z"}`,
		`{"method":"notifications/elicitation/complete","params":{"message":"hello"},"time":"2026-01-01T00:00:00Z"}`,
	} {
		first, err := policies.ParseCase([]byte(c))
		if err != nil {
			t.Fatal(c, err)
		}
		one, err := loaded(t, rego).Explain(t.Context(), first)
		if err != nil || one.Outcome.Err != nil {
			t.Fatal(c, err, one.Outcome.Err)
		}
		again, err := policies.ParseCase(one.Input)
		if err != nil {
			t.Fatalf("%s: %v", one.Input, err)
		}
		two, err := loaded(t, rego).Explain(t.Context(), again)
		if err != nil || string(two.Input) != string(one.Input) ||
			two.Outcome.Reason != one.Outcome.Reason || len(two.Effects) != len(one.Effects) ||
			len(one.Effects) < 3 {
			t.Errorf("%s\nthe case has the verdict %s, %d effects and the input\n%s\nits input "+
				"has the verdict %s, %d effects and the input\n%s\nwant the same, error %v", c,
				one.Outcome.Reason, len(one.Effects), one.Input, two.Outcome.Reason,
				len(two.Effects), two.Input, err)
		}
	}
}

func TestInvalidCaseIsRejected(t *testing.T) {
	for source, want := range map[string]string{
		`[1]`:                         "not a JSON object",
		`{"method":`:                  "not valid JSON",
		`{}`:                          `no "method"`,
		`{} {}`:                       "more than one",
		`{"Method":1}`:                `unknown member "Method"`,
		`{"method":1}`:                "method: cannot unmarshal number",
		`{"method":"x","method":"y"}`: "duplicate",
		`{"method":"x","params":[1]}`: "params",
		`{"method":"x","kind":"response","params":{}}`:    `a response has no member "params"`,
		`{"method":"x","kind":"question"}`:                `kind is "question"`,
		`{"method":"x","session":{"lables":[]}}`:          `session: unknown field "lables"`,
		`{"method":"x","roots":{}}`:                       "roots is not a JSON array",
		`{"method":"x","time":"yesterday"}`:               "time: ",
		`{"seq":1,"prev":"0","kind":"request","time":1}`:  `no "method"`,
		`{"method":"tools/call","result":{},"request":1}`: "request: ",
	} {
		if _, err := policies.ParseCase([]byte(source)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", source, err, want)
		}
	}
}

// TestExplainReportsLines checks that the line of an effect is the line of the rule that caused it.
func TestExplainReportsLines(t *testing.T) {
	s := loaded(t, `deny contains "one" if input.name == "x"
deny contains x if { x := concat("", ["t", "wo"]) }
hide contains v if {
	some v in ["a", "b"]
}
set contains {"path": "/a", "value": {"n": [input.name]}} if used
used if input.method == "tools/call"
deny contains "three" if {
	input.kind == "request"
	input.name == "z"
}`)
	c, err := policies.ParseCase([]byte(`{"method":"tools/call","params":{"name":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.Explain(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, f := range e.Effects {
		lines[f.Effect+" "+f.Value] = f.Line
	}
	for effect, line := range map[string]int{`deny "one"`: 3, `deny "two"`: 4, `hide "a"`: 5,
		`hide "b"`: 5, `set {"path":"/a","value":{"n":["x"]}}`: 8} {
		if lines[effect] != line {
			t.Errorf("%s is at line %d, want %d", effect, lines[effect], line)
		}
	}
	if len(lines) != 5 || len(e.NotMatched) != 1 || e.NotMatched[0].Line != 10 ||
		!strings.HasSuffix(e.NotMatched[0].Value, `t.rego:12: input.name == "z"`) {
		t.Errorf("the effects are %v, and %+v did not match; want 5, and only the rule in line 10",
			lines, e.NotMatched)
	}
	for _, f := range e.Effects {
		if f.Effect == "set" && (len(f.Reads) != 2 ||
			f.Reads[0] != (policies.Read{Ref: "input.method", Value: `"tools/call"`})) {
			t.Errorf("the set rule reads %v, want input.method and input.name", f.Reads)
		}
	}
}

// TestExplainIgnoresErrorsOfSkippedRules has a rule that the pipeline skips, and that fails when it
// is evaluated. The rule must not change the explanation.
func TestExplainIgnoresErrorsOfSkippedRules(t *testing.T) {
	for source, want := range map[string]string{
		`{"method":"tools/call","params":{"name":"x"}}`: "t: no",
		`{"method":"tools/call","params":{"name":"n"}}`: "",
	} {
		s := loaded(t, "deny contains \"no\" if input.name == \"x\"\ndeny contains \"two\" if "+
			"{\n\tto_number(input.name) == 1\n\tinput.name == \"n\"\n}")
		c, err := policies.ParseCase([]byte(source))
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Explain(t.Context(), c)
		if err != nil || e.Outcome.Reason != want || (e.Outcome.Err != nil) != (want == "") ||
			len(e.Effects) != len(want)/5 {
			t.Errorf("%s: error %v, reason %q, outcome error %v, effects %+v; want the reason %q",
				source, err, e.Outcome.Reason, e.Outcome.Err, e.Effects, want)
		}
	}
}
