package policies_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
)

// TestExplainedInputIsACase checks that the input that Explain returns is a case, and that this
// case gets the same verdict as the original case.
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
				"has the verdict %s, %d effects and the input\n%s\nwant both equal, error %v", c,
				one.Outcome.Reason, len(one.Effects), one.Input, two.Outcome.Reason,
				len(two.Effects), two.Input, err)
		}
	}
}

// A record of the audit log is a case, even if a newer Gatekit has added members to it.
func TestRecordOfChangedMessageIsACase(t *testing.T) {
	c, err := policies.ParseCase([]byte(`{"seq":7,"prev":"ab","session":"s","direction":` +
		`"to_server","kind":"request","method":"tools/call","server":"a","name":"x","action":` +
		`"modify","steps":[{"stage":"secrets","action":"modify","micros":3,"changed":` +
		`["/arguments/a"],"findings":[{"type":"token","pointer":"/arguments/a","later":1}]},` +
		`{"stage":"policy","action":"pass","micros":3}],"before":{"size":9,"hmac":"00"},` +
		`"after":{"size":9,"sha256":"01","hmac":"02","body":{"name":"x"}},"later":{"a":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Seq != 7 || c.RecordedAction != "pass" || c.BodyMissing || len(c.Findings) != 1 ||
		c.Findings[0].Type != "token" || string(c.Message.Body()) != `{"name":"x"}` {
		t.Errorf("the case is %+v with the body %s, want record 7 with its finding, the action "+
			"pass and the body after the edit", c, c.Message.Body())
	}
}

// A message with lone surrogates, and its record, are cases: the message was accepted before.
func TestMessageWithLoneSurrogatesIsACase(t *testing.T) {
	const body = `{"name":"x","arguments":{"cut \ud83d":"\ude00"}}`
	for _, raw := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + body + `}`,
		`{"seq":7,"prev":"ab","session":"s","direction":"to_server","kind":"request",` +
			`"method":"tools/call","server":"a","name":"x","action":"pass",` +
			`"before":{"size":9,"sha256":"01"},"after":{"size":9,"sha256":"01","body":` + body +
			`}}`,
	} {
		c, err := policies.ParseCase([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if string(c.Message.Body()) != body {
			t.Errorf("%s: the body is %s, want %s", raw, c.Message.Body(), body)
		}
	}
}

// MissingMembers considers only the rules that can hold for a message.
func TestMissingMembers(t *testing.T) {
	s := loaded(t, `
deny contains "long" if { input.method == "tools/call"; input.kind == "request"; count(input.params.arguments) > 3 }
deny contains "never" if input.name == "never"
hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.size > 5 }
hide contains item.name if { input.method == "prompts/list"; some item in input.items; item.name == "p" }
deny contains "disguised" if { input.method == "acme/x"; gatekit.path.disguised(input.params.arguments) }`)
	for method, want := range map[string]string{"tools/call": "params", "prompts/get": "",
		"resources/read": "items", "ping": "", "acme/x": "params"} {
		for _, body := range []string{"", `,"after":{"size":9,"sha256":"01","body":{"name":"x"}}`} {
			c, err := policies.ParseCase([]byte(`{"seq":7,"prev":"ab","session":"s","direction":` +
				`"to_server","kind":"request","method":"` + method + `","server":"a","name":"x",` +
				`"action":"pass","before":{"size":9}` + body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			missing, err := s.MissingMembers(c)
			got := strings.Join(missing, " ")
			if err != nil || body == "" && got != want || body != "" && got != "" {
				t.Errorf("%s%s: %q is missing, error %v; want %q, or nothing if there is a body",
					method, body, got, err, want)
			}
		}
	}
}

// ParseCase derives the kind, the direction and the name of a message if a case does not have them.
func TestKindAndDirectionOfACase(t *testing.T) {
	for source, want := range map[string]string{
		`{"method":"ping"}`:                                        "request to server",
		`{"method":"x/unknown"}`:                                   "notification to server",
		`{"method":"x/unknown","id":2}`:                            "request to server",
		`{"method":"notifications/resources/updated"}`:             "notification to client",
		`{"method":"roots/list"}`:                                  "request to client",
		`{"method":"roots/list","direction":"to_server"}`:          "request to server",
		`{"method":"ping","direction":"to_client"}`:                "request to client",
		`{"method":"tools/call","params":{"name":"x"}}`:            "request to server x",
		`{"method":"tools/call","result":{},"name":"y"}`:           "response to client y",
		`{"method":"roots/list","result":{}}`:                      "response to server",
		`{"method":"roots/list","kind":"error"}`:                   "error to server",
		`{"method":"tools/call","error":{"code":1,"message":"m"}}`: "error to client",
		`{"method":"tools/call","result":{},"request":{"name":"x"}}`: "response to client x " +
			"of request to server x",
		`{"method":"roots/list","kind":"error","request":{}}`: "error to server  " +
			"of request to client",
		`{"method":"tools/call","kind":"request","params":{"name":"x"},"request":{"name":"y"}}`: "request to server x",
	} {
		describe := func(m *mcp.Message) string {
			to := map[mcp.Direction]string{mcp.ToServer: "server", mcp.ToClient: "client"}
			return fmt.Sprintf("%v to %s %s", m.Kind, to[m.Direction], m.Name)
		}
		m := parsedCase(t, source).Message
		got := describe(m)
		if m.Request != nil {
			got += " of " + describe(m.Request)
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}

// TestStageOfARecord checks which stage caused the action of a record: the stage that denied, or
// otherwise the first stage with the action.
func TestStageOfARecord(t *testing.T) {
	for _, c := range []struct{ action, steps, want string }{
		{"pass", `{"stage":"pii","action":"warn"}`, ""},
		{"modify", `{"stage":"injection","action":"warn"},{"stage":"pii","action":"modify"},` +
			`{"stage":"policy","action":"modify"}`, "pii"},
		{"deny", `{"stage":"pii","action":"modify"},{"stage":"policy","action":"deny"}`, "policy"},
		{"ask", `{"stage":"pii","action":"ask"},{"stage":"policy","action":"deny"}`, "policy"},
	} {
		got := parsedCase(t, `{"seq":7,"prev":"ab","kind":"request","method":"ping","action":"`+
			c.action+`","steps":[`+c.steps+`]}`)
		if got.Stage != c.want {
			t.Errorf("%s: the stage is %q, want %q", c.steps, got.Stage, c.want)
		}
	}
}

// A case sets the state of its session. For the members that a case does not have, the session
// keeps its state.
func TestStateOfACase(t *testing.T) {
	s := loaded(t, `deny contains json.marshal([
	object.get(input.session, "client", null), object.get(input.session, "capabilities", null),
	object.get(input.session, "log_level", null), object.get(input, "roots", null),
	input.session.labels, input.session.calls, input.session.minute, object.get(input, "item", null),
])`)
	const all, changed = `[1,2,"info",[],["l"],{"a x":2},{"":4,"a x":4},{"n":5}]`,
		`[6,7,"debug",[8],["m"],{"a x":9},{"":1,"a y":1},{"n":3}]`
	for i, c := range []struct{ members, want string }{
		{`"item":{"n":5},"roots":[],"session":{"client":1,"capabilities":2,"log_level":"info",` +
			`"labels":["l"],"calls":{"a x":2},"minute":{"a x":4}}`, all},
		{`"session":{}`, all},
		{`"item":{"n":3},"roots":[8],"session":{"client":6,"capabilities":7,"log_level":"debug",` +
			`"labels":["m"],"calls":{"a x":9},"minute":{"a y":1}}`, changed},
		{`"session":{}`, changed},
	} {
		o := s.Evaluate(t.Context(), parsedCase(t, `{"method":"tools/call","server":"a",`+
			`"params":{"name":"x"},"time":"2026-01-01T00:00:00Z",`+c.members+`}`))
		if o.Err != nil || o.Reason != "t: "+c.want {
			t.Errorf("case %d: the state is %s, error %v; want %s", i, o.Reason, o.Err, c.want)
		}
	}
}

// TestRepeatedItemOfACase evaluates cases with the same large item. It takes the room of one
// definition of its session.
func TestRepeatedItemOfACase(t *testing.T) {
	s := loaded(t, `deny contains "not listed" if { input.method == "tools/call"; not input.item }`)
	call := parsedCase(t, `{"method":"tools/call","server":"a","params":{"name":"x"},"item":{"d":"`+
		strings.Repeat("d", 900_000)+`"}}`)
	for range 6 {
		s.Evaluate(t.Context(), call)
	}
	s.Evaluate(t.Context(), parsedCase(t,
		`{"method":"tools/list","server":"a","result":{"tools":[{"name":"y"}]}}`))
	o := s.Evaluate(t.Context(), parsedCase(t,
		`{"method":"tools/call","server":"a","params":{"name":"y"}}`))
	if o.Action != "pass" {
		t.Errorf("the call of a listed tool: %s %s, error %v; want that it passes", o.Action,
			o.Reason, o.Err)
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
		`{"method":"x","item":[]}`:                        "item is not a JSON object",
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

// TestExplainShortensLongValues checks that an explanation shows up to 120 bytes of a value that a
// rule reads. The bytes include the quotes of a string, and no character is cut in two.
func TestExplainShortensLongValues(t *testing.T) {
	s := loaded(t, `deny contains "one" if contains(input.params.arguments.x, "a")`)
	for x, want := range map[string]string{
		strings.Repeat("a", 118):            `"` + strings.Repeat("a", 118) + `"`,
		strings.Repeat("a", 119):            `"` + strings.Repeat("a", 119) + `…`,
		strings.Repeat("a", 118) + "é bbbb": `"` + strings.Repeat("a", 118) + `…`,
	} {
		e, err := s.Explain(t.Context(), parsedCase(t,
			`{"method":"tools/call","params":{"name":"x","arguments":{"x":"`+x+`"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		read := policies.Read{Ref: "input.params.arguments.x", Value: want}
		if len(e.Effects) != 1 || !slices.Contains(e.Effects[0].Reads, read) {
			t.Errorf("the effects are %+v, want one that reads %v", e.Effects, read)
		}
	}
}

// TestExplainCoversTheCanonicalURI explains the read of a resource whose URI has another spelling.
// Rules about the canonical spelling, and hide rules, have an effect on it, too.
func TestExplainCoversTheCanonicalURI(t *testing.T) {
	s := loaded(t, `deny contains "no" if input.name == "file:///D/a"
deny contains "no" if input.kind == "request"
hide contains item.uri if { some item in input.items; startswith(item.uri, "file:///D/") }`)
	e, err := s.Explain(t.Context(), parsedCase(t,
		`{"method":"resources/read","server":"a","params":{"uri":"FILE:/D/a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range e.Effects {
		got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Effect, f.Value))
	}
	if want := `4 deny "no", 3 deny "no", 5 hide "file:///D/a"`; strings.Join(got, ", ") != want {
		t.Errorf("the effects are %q, want %s", got, want)
	}
}

// TestExplainIgnoresErrorsOfSkippedRules has a rule that fails when it is evaluated. The rule
// is not evaluated for a live message with the name x, so it must not change the explanation of
// this message. For the name n, the rule is evaluated, and its error is the outcome.
func TestExplainIgnoresErrorsOfSkippedRules(t *testing.T) {
	for what, skipped := range map[string]string{
		"by OPA's rule index": `deny contains "two" if {
	to_number(input.name) == 1
	input.name == "n"
}`,
		"by the selection": `note contains "two" if {
	to_number(input.name) == 1
	has_name_n
}
has_name_n if input.name == "n"`,
	} {
		for source, want := range map[string]string{
			`{"method":"tools/call","params":{"name":"x"}}`: "t: no",
			`{"method":"tools/call","params":{"name":"n"}}`: "",
		} {
			s := loaded(t, "deny contains \"no\" if input.name == \"x\"\n"+skipped)
			c, err := policies.ParseCase([]byte(source))
			if err != nil {
				t.Fatal(err)
			}
			e, err := s.Explain(t.Context(), c)
			if err != nil || e.Outcome.Reason != want || (e.Outcome.Err != nil) != (want == "") ||
				len(e.Effects) != len(want)/5 {
				t.Errorf("a rule that is skipped %s: %s: error %v, reason %q, outcome error %v, "+
					"effects %+v; want the reason %q", what, source, err, e.Outcome.Reason,
					e.Outcome.Err, e.Effects, want)
			}
		}
	}
}

// TestExplainFailsIfEffectsAreMissing has a rule that fails for the list of tools. This list is not
// evaluated for a live call that another rule denies. So the verdict is no error, but Explain
// cannot find all effects.
func TestExplainFailsIfEffectsAreMissing(t *testing.T) {
	s := loaded(t, `deny contains "no" if input.method == "tools/call"
hide contains "y" if {
	input.method == "tools/list"
	to_number(input.server) == 1
}`)
	c, err := policies.ParseCase([]byte(
		`{"method":"tools/call","server":"a","params":{"name":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `the verdict is "deny: t: no", but its reasons are not known: `
	e, err := s.Explain(t.Context(), c)
	if err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "to_number") {
		t.Errorf("got the error %v and the effects %v, want the error %q", err, e.Effects, want)
	}
}

// parsedCase parses a case.
func parsedCase(t *testing.T, source string) *policies.Case {
	t.Helper()
	c, err := policies.ParseCase([]byte(source))
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return c
}

func TestWasEvaluated(t *testing.T) {
	const record = `{"seq":7,"prev":"ab","session":"s","direction":"to_server","kind":"request",` +
		`"method":"ping",`
	for source, want := range map[string]bool{
		`{"method":"ping"}`:                       true,
		`{"seq":7,"prev":"ab","action":"reload"}`: false,
		record + `"action":"pass"}`:               true,
		record + `"action":"deny","steps":[{"stage":"policy","action":"deny"}]}`:  true,
		record + `"action":"deny","steps":[{"stage":"secrets","action":"deny"}]}`: false,
	} {
		if got := parsedCase(t, source).WasEvaluated(); got != want {
			t.Errorf("%s: evaluated %v, want %v", source, got, want)
		}
	}
}

// A RequestMatcher gives a response the request of the same exchange, principal, session, method
// and server, unless the response has a request already.
func TestRequestMatcher(t *testing.T) {
	record := func(kind, exchange, more string) string {
		return `{"seq":7,"prev":"ab","session":"s","kind":"` + kind + `","method":"ping","server":` +
			`"a","exchange":"` + exchange + `","principal":"ann","action":"pass"` + more + `}`
	}
	const before = `,"before":{"size":9}`
	after := func(n string) string {
		return before + `,"after":{"size":9,"body":{"n":"` + n + `"}}`
	}
	var matcher policies.RequestMatcher
	for i, c := range []struct{ source, want string }{ // want is the body of the request
		{`{"seq":6,"prev":"ab","exchange":"1","action":"start"}`, ""},
		{record("request", "1", after("one")), ""},
		{record("request", "2", after("two")), ""},
		{record("request", "3", before), ""},
		{record("notification", "1", after("notification")), ""},
		{record("response", "2", ""), `{"n":"two"}`},
		{record("error", "1", ""), `{"n":"one"}`},
		{record("response", "1", ""), ""}, // the exchange is over
		{record("response", "3", ""), ""}, // the request's body is not in the log
		{record("request", "4", after("four")), ""},
		{record("response", "4", `,"request":{"n":"own"}`), `{"n":"own"}`},
		{strings.Replace(record("request", "5", after("five")), "ann", "bob", 1), ""},
		{record("response", "5", ""), ""},
		{record("request", "", after("none")), ""},
		{record("response", "", ""), ""},
	} {
		one := parsedCase(t, c.source)
		matcher.Add(one)
		got := ""
		if !one.IsEvent && one.Message.Request != nil {
			got = string(one.Message.Request.Body())
		}
		if got != c.want {
			t.Errorf("case %d has the request %s, want %s", i, got, c.want)
		}
	}
}

// A RequestMatcher forgets the oldest of too many or too large requests without a response. Then
// MissingMembers reports the request of the response.
func TestRequestMatcherForgetsTheOldestRequests(t *testing.T) {
	s := loaded(t, `deny contains "no" if input.request.n == "one"`)
	record := func(kind, exchange, body string) *policies.Case {
		return parsedCase(t, `{"seq":7,"prev":"ab","session":"s","kind":"`+kind+`","method":"ping",`+
			`"server":"a","exchange":"`+exchange+`","action":"pass","before":{"size":9},`+
			`"after":{"size":9,"body":`+body+`}}`)
	}
	large := `{"n":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, c := range map[string]struct {
		later     int
		body      string
		forgotten bool
	}{
		"as many as are kept":  {99_999, `{}`, false},
		"one more":             {100_000, `{}`, true},
		"as large as are kept": {63, large, false},
		"more bytes":           {64, large, true},
	} {
		t.Run(name, func(t *testing.T) {
			var matcher policies.RequestMatcher
			matcher.Add(record("request", "first", `{"n":"one"}`))
			other := record("request", "other", c.body)
			for i := range c.later {
				message, own := *other.Message, *other
				message.Session, own.Message = fmt.Sprint(i), &message
				matcher.Add(&own)
			}
			response := record("response", "first", `{}`)
			matcher.Add(response)
			missing, err := s.MissingMembers(response)
			if forgotten := response.Message.Request == nil; err != nil ||
				forgotten != c.forgotten || (len(missing) > 0) != c.forgotten {
				t.Errorf("forgotten %v, and %q are missing, error %v; want forgotten %v",
					forgotten, missing, err, c.forgotten)
			}
		})
	}
}

// A recorded message was only added to if every change added an item or was made in _meta.
func TestOnlyAddedTo(t *testing.T) {
	for changed, want := range map[string]bool{``: false, `"/content/-"`: true,
		`"/_meta/traceparent"`: true, `"/content/-","/_meta/x"`: true, `"/content/0/text"`: false,
		`"/content/-","/content/0"`: false, `"/_meta"`: false} {
		c := parsedCase(t, `{"seq":7,"prev":"ab","kind":"response","method":"ping","action":`+
			`"modify","steps":[{"stage":"trace","action":"modify","changed":[`+changed+`]}]}`)
		if got := c.OnlyAddedTo(); got != want {
			t.Errorf("changed %s: only added to %v, want %v", changed, got, want)
		}
	}
}

// The request of a recorded answer is missing if rules read it and no earlier case has it. A case
// that was written by hand needs no request.
func TestRequestOfAnAnswerIsMissing(t *testing.T) {
	s := loaded(t, `deny contains "no" if input.request.n == 1
deny contains "never" if input.result.n == 1`)
	const record = `{"seq":7,"prev":"ab","session":"s","method":"ping","server":"a","action":` +
		`"pass","before":{"size":2},"after":{"size":2,"body":{}},`
	for source, want := range map[string]string{
		record + `"kind":"response"}`:                           "request",
		record + `"kind":"error"}`:                              "request",
		record + `"kind":"request"}`:                            "",
		record + `"kind":"response","request":{"n":1}}`:         "",
		`{"method":"ping","direction":"to_client","result":{}}`: "",
	} {
		missing, err := s.MissingMembers(parsedCase(t, source))
		if got := strings.Join(missing, " "); got != want || err != nil {
			t.Errorf("%s: %q is missing, error %v; want %q", source, got, err, want)
		}
	}
}

// For a recorded call, the calls of the last minute are those of the minute before the record.
func TestReplayCountsCallsOfTheMinute(t *testing.T) {
	s, err := policies.Load(policies.Options{Rules: []string{"limits/rate"},
		Config: map[string]map[string]any{"limits/rate": {"per_minute": 2}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ time, want string }{{"10:00:00", "pass"}, {"10:00:30", "pass"},
		{"10:00:59", "deny"}, {"10:01:00", "pass"}, {"10:01:29", "deny"}} {
		o := s.Evaluate(t.Context(), parsedCase(t, `{"method":"tools/call","server":"a","params":`+
			`{"name":"x"},"time":"2026-01-01T`+c.time+`Z"}`))
		if o.Action != c.want {
			t.Errorf("the call at %s: %s %s, error %v; want %s", c.time, o.Action, o.Reason, o.Err,
				c.want)
		}
	}
}

// TestPrincipalOfACase reads principals of test cases: names, and principals that are
// authenticated.
func TestPrincipalOfACase(t *testing.T) {
	s := loaded(t, `deny contains sprintf("%v|%v|%v|%v|%v|%v", [p.id, p.method, p.subject, p.scopes, p.groups, p.claims]) if p := input.principal`)
	for principal, want := range map[string]string{
		`"ann"`:                   `ann||ann|[]|[]|{}`,
		`"token:ci"`:              `token:ci|token|ci|[]|[]|{}`,
		`"https://a.example#ann"`: `https://a.example#ann|jwt|ann|[]|[]|{}`,
		`{"id":"ann"}`:            `ann||ann|[]|[]|{}`,
		`{"subject":"a"}`:         `a||a|[]|[]|{}`,
		`{"subject":"a","scopes":["s"],"groups":["g"]}`:             `local:a||a|["s"]|["g"]|{}`,
		`{"issuer":"https://a.example","subject":"a"}`:              `https://a.example#a|jwt|a|[]|[]|{}`,
		`{"method":"token","subject":"a","claims":{"c":1}}`:         `token:a|token|a|[]|[]|{"c": 1}`,
		`{"method":"token","subject":"a","id":"token:a"}`:           `token:a|token|a|[]|[]|{}`,
		`{"method":"token","subject":"a","id":"token:b"}`:           "error: the id of the principal",
		`{"method":"token","subject":"a","issuer":"https://a.org"}`: "error: principal: ",
		`{"method":"token"}`:                                        "error: principal: ",
	} {
		c, err := policies.ParseCase([]byte(`{"method":"ping","principal":` + principal + `}`))
		got := fmt.Sprint("error: ", err)
		if err == nil {
			got = strings.TrimPrefix(s.Evaluate(t.Context(), c).Reason, "t: ")
		}
		if got != want && !(strings.HasPrefix(want, "error: ") && strings.Contains(got,
			strings.TrimPrefix(want, "error: "))) {
			t.Errorf("%s: got %s, want %s", principal, got, want)
		}
	}
}

// TestPrincipalOfARecord reads principals of audit records. The record of a response has no scopes,
// so it has those of the request.
func TestPrincipalOfARecord(t *testing.T) {
	const record = `{"seq":7,"prev":"ab","session":"s","server":"a","exchange":"1","action":"pass",` +
		`"method":"ping","before":{"size":2},"after":{"size":2,"body":{}},`
	const ann = `"principal":"https://a.example#ann","client":"ide"`
	s := loaded(t, `deny contains sprintf("%v|%v|%v|%v|%v", [p.issuer, p.method, p.subject, p.client, p.scopes]) if p := input.principal`)
	var matcher policies.RequestMatcher
	for _, c := range []struct{ source, want string }{
		{record + `"kind":"request",` + ann + `,"authentication":"introspection","scope":"x y"}`,
			`https://a.example|introspection|ann|ide|["x", "y"]`},
		{record + `"kind":"response",` + ann + `}`,
			`https://a.example|introspection|ann|ide|["x", "y"]`},
		{record + `"kind":"request",` + ann + `,"authentication":"jwt"}`,
			`https://a.example|jwt|ann|ide|[]`},
		{record + `"kind":"request","principal":"token:ci","authentication":"introspection"}`,
			`|token|ci||[]`},
		{record + `"kind":"request"}`, `||||[]`},
	} {
		one := parsedCase(t, c.source)
		matcher.Add(one)
		o := s.Evaluate(t.Context(), one)
		if got := strings.TrimPrefix(o.Reason, "t: "); got != c.want || o.Err != nil {
			t.Errorf("%s: got %s, error %v; want %s", c.source, got, o.Err, c.want)
		}
	}
}

// TestCallsOfACaseWereMade evaluates calls of a tool that is not listed. The case has the number of
// earlier calls.
func TestCallsOfACaseWereMade(t *testing.T) {
	s := loaded(t, `deny contains input.schema.unlisted if input.schema.state == "unlisted"`)
	for calls, want := range map[string]string{`{}`: "t: first", `{"a x":0}`: "t: first",
		`{"a x":1}`: "t: again", `{"a y":1}`: "t: first"} {
		o := s.Evaluate(t.Context(), parsedCase(t, `{"method":"tools/call","server":"a",`+
			`"params":{"name":"x"},"session":{"calls":`+calls+`}}`))
		if o.Reason != want {
			t.Errorf("calls %s: denied with %q, error %v, want %q", calls, o.Reason, o.Err, want)
		}
	}
}
