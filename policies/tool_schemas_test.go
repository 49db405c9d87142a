package policies_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
)

// schemaStage returns a stage with the rule tools/schema, in whose session a tool x is listed.
func schemaStage(t *testing.T, settings map[string]any, tool string) *policies.Stage {
	t.Helper()
	s := fromLibrary(t, "tools/schema", settings)
	list := sent(mcp.NewResponse("1", []byte(`{"tools":[`+tool+`]}`)), mcp.ToClient, "")
	list.Method = "tools/list"
	if refused(t, s, list) {
		t.Fatal("the list is denied")
	}
	return s
}

// notesOf returns the findings on a message, and fails the test if the message is denied.
func notesOf(t *testing.T, s *policies.Stage, m *mcp.Message) (notes string) {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil || v.Action != pipeline.Allow {
		t.Fatalf("%s: the verdict is %+v, %v, want it allowed", m.Body(), v, err)
	}
	for _, f := range v.Findings {
		notes += f.Type + "\n"
	}
	return notes
}

func TestArgumentsAreComparedWithInputSchema(t *testing.T) {
	const properties = `"properties":{"s":{"type":"string"},"n":{"type":"integer","minimum":1},` +
		`"e":{"enum":["a","b"]},"l":{"type":"array","items":{"$ref":"#/$defs/l"}},` +
		`"f":{"type":"string","format":"email","pattern":"^(?=a)"}},"required":["s"],` +
		`"$defs":{"l":{"type":"object","properties":{"to":{"type":"string"}}}}`
	for _, schema := range []string{
		`{"type":"object",` + properties + `}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",` + properties + `}`,
		`{"allOf":[{"type":"object",` + properties[:strings.Index(properties, `,"$defs"`)] + `}],` +
			properties[strings.Index(properties, `"$defs"`):] + `}`,
	} {
		noted := schemaStage(t, nil, `{"name":"x","inputSchema":`+schema+`}`)
		strict := schemaStage(t, map[string]any{"arguments": "deny"}, `{"name":"x","inputSchema":`+
			schema+`}`)
		for arguments, problem := range map[string]string{
			`{"s":"x","n":2,"e":"a","l":[{"to":"y"}],"f":"b"}`: "",
			`{"s":"x","more":1}`:              "",
			`{"s":"x","n":2.0}`:               "",
			`{"s":1}`:                         "argument /s is of type number, not string",
			`{"s":"x","n":1.5}`:               "argument /n is of type number, not integer",
			`{"s":"x","n":0}`:                 "argument /n does not match the keyword minimum",
			`{"s":"x","e":["a"]}`:             "argument /e is none of the allowed values",
			`{"s":"x","l":[{},{"to":["a"]}]}`: "argument /l/1/to is of type array, not string",
			`{"n":2}`:                         "argument the value lacks s",
		} {
			notes := notesOf(t, noted, called("x", arguments))
			if problem == "" && notes != "" || !strings.Contains(notes, problem) {
				t.Errorf("%s with %s: the notes are %q, want %q", schema, arguments, notes, problem)
			}
			if denied := refused(t, strict, called("x", arguments)); denied != (problem != "") {
				t.Errorf("%s with %s: denied is %v", schema, arguments, denied)
			}
		}
		if got := verdictOf(t, strict, called("x", `{"s":1}`)); got !=
			"denied: tools/schema: argument /s is of type number, not string" {
			t.Errorf("the verdict is %q", got)
		}
	}
}

func TestHugeLimitsOfSchemas(t *testing.T) {
	for _, n := range []string{"1e300", "18446744073709551616", "1e20", "9007199254740993"} {
		for schema, want := range map[string]bool{ // denied
			`{"properties":{"a":{"maxLength":` + n + `}}}`:                 false,
			`{"properties":{"a":{"minLength":` + n + `}}}`:                 true,
			`{"maxProperties":` + n + `}`:                                  false,
			`{"minProperties":` + n + `}`:                                  true,
			`{"properties":{"l":{"maxItems":` + n + `}}}`:                  false,
			`{"properties":{"l":{"minItems":` + n + `}}}`:                  true,
			`{"properties":{"l":{"contains":{},"maxContains":` + n + `}}}`: false,
			`{"properties":{"l":{"contains":{},"minContains":` + n + `}}}`: true,
			`{"$defs":{"n":{"maxLength":` + n +
				`}},"properties":{"a":{"$ref":"#/$defs/n"}}}`: false,
		} {
			s := schemaStage(t, map[string]any{"arguments": "deny"},
				`{"name":"x","inputSchema":`+schema+`}`)
			if got := refused(t, s, called("x", `{"a":"text","l":[1]}`)); got != want {
				t.Errorf("%s: denied is %v, want %v", schema, got, want)
			}
		}
	}
}

func TestUndeclaredArguments(t *testing.T) {
	for schema, want := range map[string][2]bool{ // denied by arguments, by undeclared
		`{"properties":{"a":{}}}`:                                {false, true},
		`{"type":"object"}`:                                      {false, false},
		`{"properties":{"a":{}},"additionalProperties":false}`:   {true, false},
		`{"properties":{"a":{}},"additionalProperties":true}`:    {false, false},
		`{"anyOf":[{"properties":{"b":{}}}]}`:                    {false, false},
		`{"properties":{"a":{}},"patternProperties":{"b":{}}}`:   {false, false},
		`{"properties":{"a":{},"b":{"type":["null","number"]}}}`: {false, false},
	} {
		for i, setting := range []string{"arguments", "undeclared"} {
			s := schemaStage(t, map[string]any{setting: "deny"},
				`{"name":"x","inputSchema":`+schema+`}`)
			if got := refused(t, s, called("x", `{"a":1,"b":2}`)); got != want[i] {
				t.Errorf("%s with %s = \"deny\": denied is %v, want %v", schema, setting, got,
					want[i])
			}
			if refused(t, s, called("x", `{"a":1}`)) {
				t.Errorf("%s: a declared argument is denied", schema)
			}
		}
	}
}

func TestResultsAreComparedWithOutputSchema(t *testing.T) {
	const tool = `{"name":"x","inputSchema":{},"outputSchema":{"type":"object",` +
		`"properties":{"n":{"type":"number"}},"required":["n"]}}`
	noted := schemaStage(t, nil, tool)
	strict := schemaStage(t, map[string]any{"results": "deny"}, tool)
	for result, problem := range map[string]string{
		`{"content":[],"structuredContent":{"n":1}}`:   "",
		`{"content":[],"isError":true}`:                "",
		`{"content":[],"structuredContent":{"n":"1"}}`: "structuredContent /n is of type string",
		`{"content":[],"structuredContent":{}}`:        "structuredContent the value lacks n",
		`{"content":[],"structuredContent":"` + strings.Repeat("a", 3<<10) + `"}`: "" +
			"structuredContent the value is of type string, not object",
	} {
		notes := notesOf(t, noted, answered(called("x", `{}`), result))
		if problem == "" && notes != "" || !strings.Contains(notes, problem) {
			t.Errorf("%s: the notes are %q, want %q", result, notes, problem)
		}
		if denied := refused(t, strict, answered(called("x", `{}`),
			result)); denied != (problem != "") {
			t.Errorf("%s: denied is %v", result, denied)
		}
	}
}

// TestRulesReadTheStateOfTheCheck loads a rule that denies calls whose arguments do not match.
func TestRulesReadTheStateOfTheCheck(t *testing.T) {
	s := loaded(t, `deny contains input.schema.state if input.schema.state != "match"`)
	list := sent(mcp.NewResponse("1", []byte(
		`{"tools":[{"name":"x","inputSchema":{"properties":{"n":{"type":"number"}}}}]}`)),
		mcp.ToClient, "")
	list.Method = "tools/list"
	refused(t, s, list)
	for arguments, want := range map[string]string{
		`{"n":1}`:       "",
		`{"n":"1"}`:     "mismatch",
		`{"n":1,"m":1}`: "undeclared",
	} {
		got := verdictOf(t, s, called("x", arguments))
		if strings.HasPrefix(got, "denied: ") != (want != "") || !strings.HasSuffix(got, want) {
			t.Errorf("%s: the verdict is %q, want a denial with the state %q", arguments, got, want)
		}
	}
}

func TestUnlistedToolIsNoted(t *testing.T) {
	s := schemaStage(t, nil, `{"name":"x","inputSchema":{}}`)
	if notes := notesOf(t, s, called("x", `{}`)); notes != "" {
		t.Errorf("the notes on a listed tool are %q", notes)
	}
	for i, want := range []string{"was not listed", "", ""} {
		notes := notesOf(t, s, called("y", `{}`))
		if !strings.Contains(notes, want) || want == "" && notes != "" {
			t.Errorf("call %d of an unlisted tool: the notes are %q, want %q", i+1, notes, want)
		}
	}
	if notes := notesOf(t, s, called("z", `{}`)); !strings.Contains(notes, "was not listed") {
		t.Errorf("the notes on another unlisted tool are %q", notes)
	}
	other := called("y", `{}`)
	other.Session = "2"
	if notes := notesOf(t, s, other); !strings.Contains(notes, "was not listed") {
		t.Errorf("the notes in another session are %q", notes)
	}
	s = schemaStage(t, map[string]any{"unlisted": "deny"}, `{"name":"x","inputSchema":{}}`)
	for range 2 {
		if !refused(t, s, called("y", `{}`)) || refused(t, s, called("x", `{}`)) {
			t.Error("want the unlisted tool denied, and the listed tool allowed")
		}
	}
}

// TestDeniedCallOfUnlistedToolIsNotedLater denies the first call of an unlisted tool. The note is
// on the first call that passes.
func TestDeniedCallOfUnlistedToolIsNotedLater(t *testing.T) {
	dir := t.TempDir()
	rule := "package gatekit.mine\n\ndeny contains \"no\" if input.params.arguments.bad\n"
	if err := os.WriteFile(filepath.Join(dir, "p.rego"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := policies.Load(policies.Options{Files: []string{dir}, Rules: []string{"tools/schema"}})
	if err != nil {
		t.Fatal(err)
	}
	if !refused(t, s, called("x", `{"bad":true}`)) {
		t.Fatal("the first call passed")
	}
	if notes := notesOf(t, s, called("x", `{}`)); !strings.Contains(notes, "was not listed") {
		t.Errorf("the notes on the first call that passes are %q", notes)
	}
	if notes := notesOf(t, s, called("x", `{}`)); notes != "" {
		t.Errorf("the notes on the next call are %q", notes)
	}
}

// TestLongStringsAreCompared has arguments with strings that are so long that the check does not
// decode them.
func TestLongStringsAreCompared(t *testing.T) {
	long := strings.Repeat("a", 3<<10)
	escaped := strings.Repeat(`\ud83d\ude00`, 300) // 300 characters
	for _, c := range []struct{ schema, value, problem string }{
		{`{"type":"string"}`, `"` + long + `"`, ""},
		{`{"type":"string","title":"` + long + `"}`, `"` + long + `"`, ""},
		{`{"type":"number"}`, `"` + long + `"`, "is of type string, not number"},
		{`{"type":"number"}`, strings.Repeat("1", 300) + `.` + strings.Repeat("1", 3000), ""},
		{`{"enum":["b","` + long + `"]}`, `"` + long + `"`, ""},
		{`{"enum":["b","` + long + `"]}`, `"` + long + `a"`, "none of the allowed values"},
		{`{"enum":[{"a":"` + long + `"}]}`, `{"a":"` + long + `"}`, ""},
		{`{"const":"` + long + `"}`, `"` + long + `"`, ""},
		{`{"const":["` + long + `"]}`, `["` + long + `"]`, ""},
		{`{"const":{"a":"` + long + `"}}`, `{"a":"` + long + `"}`, ""},
		{`{"const":{"pattern":"` + long + `"}}`, `{"pattern":"` + long + `"}`, ""},
		{`{"const":{"a":"x"}}`, `{"a":"` + long + `"}`, "none of the allowed values"},
		{`{"maxLength":3072}`, `"` + long + `"`, ""},
		{`{"maxLength":3071}`, `"` + long + `"`, "the keyword maxLength"},
		{`{"minLength":3072}`, `"` + long + `"`, ""},
		{`{"minLength":3073}`, `"` + long + `"`, "the keyword minLength"},
		{`{"minLength":300,"maxLength":300}`, `"` + escaped + `"`, ""},
		{`{"minLength":301}`, `"` + escaped + `"`, "the keyword minLength"},
		{`{"maxLength":299}`, `"` + escaped + `"`, "the keyword maxLength"},
		{`{"maxLength":1e6}`, `"` + long + `"`, ""},
		{`{"pattern":"^a*$"}`, `"` + long + `"`, ""},
		{`{"pattern":"^a*$"}`, `"` + long + `b"`, "the keyword pattern"},
		{`{"properties":{"pattern":{"maxLength":9}}}`, `{"pattern":"` + long + `"}`,
			"/v/pattern does not match the keyword maxLength"},
		{`{"properties":{"t":{"maxLength":9}}}`, `{"s":"x","t":"` + long + `"}`,
			"/v/t does not match the keyword maxLength"},
		{`{"uniqueItems":true}`, `["` + long + `","` + long + `b"]`, ""},
		{`{"uniqueItems":true}`, `["` + long + `","` + long + `"]`, "the keyword uniqueItems"},
		{`{"items":{"properties":{"t":{"type":"string","maxLength":9}}}}`,
			`[{"t":"x"},{"t":"` + long + `"},{"` + long + `":1}]`,
			"/v/1/t does not match the keyword maxLength"},
		{`{"propertyNames":{"maxLength":9}}`, `{"` + long + `":1}`, "the keyword"},
		{`{"items":{"maxItems":1}}`, `[[],["` + long + `"],["` + long + `","x"]]`,
			"/v/2 does not match the keyword maxItems"},
		{`{"type":"string"}`, `"\ud800` + long + `"`, ""},
		{`{"type":"string"}`, `"\ud800"`, ""},
		{`{"items":{"type":"string"}}`, `[` + strings.Repeat(`[`, 20) + `"` + long + `"` +
			strings.Repeat(`]`, 20) + `]`, "/v/0 is of type array, not string"},
	} {
		s := schemaStage(t, nil, `{"name":"x","inputSchema":{"properties":{"v":`+c.schema+`}}}`)
		notes := notesOf(t, s, called("x", `{"v":`+c.value+`}`))
		if c.problem == "" && notes != "" || !strings.Contains(notes, c.problem) {
			t.Errorf("%.80s with %.60s: the notes are %.200q, want %q", c.schema, c.value, notes,
				c.problem)
		}
	}
}

// TestLongStringsOfWholeArgumentsAreCompared has schemas that list all arguments as one value.
func TestLongStringsOfWholeArgumentsAreCompared(t *testing.T) {
	arguments := `{"v":"` + strings.Repeat("a", 3<<10) + `"}`
	for _, schema := range []string{`{"enum":[` + arguments + `]}`, `{"const":` + arguments + `}`} {
		s := schemaStage(t, nil, `{"name":"x","inputSchema":`+schema+`}`)
		if notes := notesOf(t, s, called("x", arguments)); notes != "" {
			t.Errorf("%.20s: the notes are %.200q, want none", schema, notes)
		}
	}
}

// TestSchemaOfTheLastListCounts lists a tool a second time with another schema.
func TestSchemaOfTheLastListCounts(t *testing.T) {
	s := schemaStage(t, map[string]any{"arguments": "deny"},
		`{"name":"x","inputSchema":{"required":["a"]}}`)
	if !refused(t, s, called("x", `{"b":1}`)) {
		t.Error("the first schema is not checked")
	}
	list := sent(mcp.NewResponse("1",
		[]byte(`{"tools":[{"name":"x","inputSchema":{"required":["b"]}}]}`)), mcp.ToClient, "")
	list.Method = "tools/list"
	refused(t, s, list)
	if refused(t, s, called("x", `{"b":1}`)) || !refused(t, s, called("x", `{"a":1}`)) {
		t.Error("the second schema is not checked")
	}
}

// TestUnusableSchemasAreNoted lists schemas that are invalid, or made to use time, memory or the
// network. Calls pass with a note, even if problems are denied.
func TestUnusableSchemasAreNoted(t *testing.T) {
	loaded := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		loaded = true
	}))
	defer other.Close()
	var chain strings.Builder // 2^40 comparisons
	for i := range 40 {
		fmt.Fprintf(&chain, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%[2]d"}]},`,
			i, i+1)
	}
	nested := strings.Repeat(`{"x":`, 40) + `1` + strings.Repeat(`}`, 40)
	for name, c := range map[string]struct{ schema, arguments, note string }{
		"wrong keyword": {`{"type":"strin"}`, `{}`, "no JSON Schema"},
		"no schema":     {`[1]`, `{}`, "no JSON Schema"},
		"another document": {`{"$ref":"` + other.URL + `/x.json"}`, `{}`,
			"refers to another document"},
		"a file":          {`{"$ref":"file:///etc/passwd"}`, `{}`, "refers to another document"},
		"an unknown meta": {`{"$schema":"` + other.URL + `/x.json"}`, `{}`, "another document"},
		"an id": {`{"$id":"` + other.URL + `/x","allOf":[{"$ref":"#/nowhere"}]}`, `{}`,
			"leads to no schema"},
		"a deep schema": {strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100), `{}`,
			"too deep"},
		"a deep schema in lists": {strings.Repeat(`{"allOf":[`, 100) + `{}` +
			strings.Repeat(`]}`, 100), `{}`, "too deep"},
		"a deep schema in properties": {strings.Repeat(`{"properties":{"x":`, 100) + `{}` +
			strings.Repeat(`}}`, 100), `{}`, "too deep"},
		"a large schema": {`{"description":"` + strings.Repeat("x", 300<<10) + `"}`, `{}`,
			"too large"},
		"a large number": {`{"minimum":1e999999999}`, `{}`, "too large"},
		"many comparisons": {`{"$ref":"#/$defs/d0","$defs":{` + chain.String() +
			`"d40":{"type":"object"}}}`, `{}`, "too many steps"},
		"many comparisons that fail": {`{"properties":{"x":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}},` +
			`"required":["y"]}`, nested, "too many steps"},
		"a large argument": {`{}`, `{"x":1e999999999}`, "too large"},
		"a long argument":  {`{}`, `{"x":"` + strings.Repeat("x", 2<<20) + `"}`, "too large"},
	} {
		s := schemaStage(t, map[string]any{"arguments": "deny", "undeclared": "deny"},
			`{"name":"x","inputSchema":`+c.schema+`}`)
		if notes := notesOf(t, s, called("x", c.arguments)); !strings.Contains(notes, c.note) {
			t.Errorf("%s: the notes are %q, want %q", name, notes, c.note)
		}
		if notes := notesOf(t, s, called("x", c.arguments)); !strings.Contains(notes, c.note) {
			t.Errorf("%s: the notes on the second call are %q, want %q", name, notes, c.note)
		}
	}
	if loaded {
		t.Error("another document was loaded")
	}
}
