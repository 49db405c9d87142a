package learn_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/policies"
	"gatekit/policies/learn"
	"gatekit/test/mcptest"
)

// recorder makes audit records of calls and their answers.
type recorder struct {
	lines []string
	seq   int
	now   time.Time
}

var firstDay = time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)

// record is a record; the zero values of a call are a call of files/read that passed.
type record struct {
	principal, server, tool, arguments string
	action, answer                     string // of the records of the request and of the answer
	findings, changed                  string // of the answer
	unanswered, noBody, failed         bool
}

func (r *recorder) call(c record) {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	if r.now.IsZero() {
		r.now = firstDay
	}
	line := func(direction, kind, action, body, findings, changed string) {
		r.seq++
		r.now = r.now.Add(time.Second)
		if body != "" {
			body = `,"body":` + body
		}
		r.lines = append(r.lines, fmt.Sprintf(`{"seq":%d,"time":%q,"prev":"00","session":"s",`+
			`"exchange":"e%d","principal":%q,"direction":%q,"kind":%q,"method":"tools/call",`+
			`"server":%q,"name":%s,"action":%q,"steps":[{"stage":"guard","action":"pass",`+
			`"findings":[%s],"changed":[%s]}],"before":{"size":9},"after":{"size":9%s}}`, r.seq,
			r.now.Format(time.RFC3339), len(r.lines)/2, c.principal, direction, kind,
			or(c.server, "files"), mcptest.Quote(or(c.tool, "read")), action, findings, changed,
			body))
	}
	body := fmt.Sprintf(`{"name":%s,"arguments":%s}`, mcptest.Quote(or(c.tool, "read")),
		or(c.arguments, "{}"))
	if c.noBody {
		body = ""
	}
	line("to_server", "request", or(c.action, "pass"), body, "", "")
	if c.unanswered {
		r.lines = append(r.lines, "") // keeps the exchanges in pairs
		return
	}
	kind := "response"
	if c.failed {
		kind = "error"
	}
	line("to_client", kind, or(c.answer, "pass"), `{"content":[],"code":1,"message":"m"}`,
		c.findings, c.changed)
}

func (r *recorder) source(f func(*policies.Case) error) error {
	for _, line := range r.lines {
		if line == "" {
			continue
		}
		c, err := policies.ParseCase([]byte(line))
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if err := f(c); err != nil {
			return err
		}
	}
	return nil
}

// learned returns the policy that is learned from the records, its rules, and a function that
// returns the rules that deny a call.
func (r *recorder) learned(t *testing.T, o learn.Options) (*learn.Policy,
	func(c record) []string) {
	t.Helper()
	p, err := learn.Learn(t.Context(), r.source, o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := p.Write(dir, "enforce"); err != nil {
		t.Fatal(err)
	}
	tests, _, err := policies.RunTests(t.Context(), policies.Options{Files: []string{dir}})
	if err != nil || len(tests) == 0 {
		t.Fatalf("got %d tests and the error %v", len(tests), err)
	}
	for _, test := range tests {
		if test.Failure != "" {
			t.Errorf("%s:%d: the test %s fails: %s", test.File, test.Line, test.Name, test.Failure)
		}
	}
	return p, func(c record) []string {
		t.Helper()
		stage, err := policies.Load(policies.Options{Files: []string{dir}})
		if err != nil {
			t.Fatal(err)
		}
		one := recorder{now: r.now}
		one.call(c)
		parsed, err := policies.ParseCase([]byte(one.lines[0]))
		if err != nil {
			t.Fatal(err)
		}
		o := stage.Evaluate(context.Background(), parsed)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		return learn.Rules(o.Reason)
	}
}

// Values are generalized by what they have in common, and other values are refused.
func TestLearnGeneralizesValues(t *testing.T) {
	numbered := func(format string) (all []string) {
		for i := range 60 {
			all = append(all, fmt.Sprintf(format, i, i))
		}
		return all
	}
	repeated := func(values ...string) (all []string) {
		for range 60 / len(values) {
			all = append(all, values...)
		}
		return all
	}
	for name, c := range map[string]struct {
		learned, allowed, refused []string
	}{
		"paths": {numbered(`"/srv/data/d%d/f%d.txt"`), []string{`"/srv/data/other/g.txt"`},
			[]string{`"/etc/passwd"`, `"/srv/data/../x.txt"`, `"/srv/data/.env"`, `"/srv/database"`,
				`"/srv/data/d1/f.sh"`, `"/srv/data/d1/f.txt\u0000"`, `"data/x.txt"`}},
		"paths in two folders": {append(numbered(`"/srv/a%d/f%d"`), numbered(`"/opt/b%d/f%d"`)...),
			[]string{`"/srv/z/x"`, `"/opt/b1"`}, []string{`"/tmp/x"`, `"/"`}},
		"hosts": {numbered(`"https://api.example/v%d/%d"`), []string{`"https://api.example/v9/x-1"`},
			[]string{`"https://evil.example/v1/1"`, `"https://api.example.evil/1"`,
				`"https://api.example@evil/1"`, `"http://api.example/v1/1"`}},
		"enumeration": {repeated(`"red"`, `"green"`), []string{`"red"`}, []string{`"blue"`, `""`}},
		"names": {numbered(`"item_%d_%d"`), []string{`"another_1"`},
			[]string{`"item 1; rm"`, `"item/1"`, `"` + strings.Repeat("x", 200) + `"`}},
		"sentences": {numbered(`"go to %d and %d."`), []string{`"See (there), 5!"`},
			[]string{`"<b>x</b>"`, `"see http://evil.example"`, `"a\nb"`, `"zero\u200bwidth"`}},
		"texts beyond ASCII": {numbered(`"größe %d %d"`), []string{`"für alle"`},
			[]string{`"zero\u200bwidth"`}},
		"numbers":  {numbered(`%d%.0d`), []string{"0", "100"}, []string{"-1", "1e308", "0.5", `"1"`}},
		"booleans": {repeated("true", "false"), []string{"true"}, []string{"1", "null"}},
		"lists": {numbered(`["a%d","b%d"]`), []string{`["c1"]`, `[]`},
			[]string{`["a/b"]`, `[1]`, `["a","b","c","d","e","f","g","h","i"]`, `"a"`}},
		"objects in lists": {numbered(`[{"old":"a%d","new":"b%d"}]`), []string{`[{"old":"x"}]`},
			[]string{`[{"old":"x","other":1}]`, `[{"old":1}]`, `["x"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			for _, v := range c.learned {
				r.call(record{arguments: `{"v":` + v + `}`})
			}
			_, deniedBy := r.learned(t, learn.Options{})
			for _, v := range c.allowed {
				if rules := deniedBy(record{arguments: `{"v":` + v + `}`}); len(rules) > 0 {
					t.Errorf("%s is denied by %s, want allowed", v, rules)
				}
			}
			for _, v := range c.refused {
				if len(deniedBy(record{arguments: `{"v":` + v + `}`})) == 0 {
					t.Errorf("%s is allowed, want denied", v)
				}
			}
		})
	}
}

// An object whose members differ in each request may have other members, but no other values.
func TestLearnAllowsOtherMembersOfOpenObjects(t *testing.T) {
	var r recorder
	for i := range 100 {
		r.call(record{arguments: fmt.Sprintf(`{"by":{"k%d":%d}}`, i, i)})
	}
	_, deniedBy := r.learned(t, learn.Options{})
	for arguments, denied := range map[string]bool{`{"by":{"other":1}}`: false,
		`{"by":[1]}`: true, `{"by":{},"other":1}`: true} {
		if rules := deniedBy(record{arguments: arguments}); len(rules) > 0 != denied {
			t.Errorf("%s is denied by %q", arguments, rules)
		}
	}
}

// Each statement is a rule of its own, and the rules name what they refuse.
func TestLearnedStatements(t *testing.T) {
	var r recorder
	for range 40 {
		r.call(record{arguments: `{"path":"/srv/a.txt"}`})
		r.call(record{principal: "https://login.example#ann", tool: "write", noBody: true})
	}
	p, deniedBy := r.learned(t, learn.Options{})
	for _, c := range []struct {
		call record
		want string
	}{
		{record{arguments: `{"path":"/srv/a.txt"}`}, ""},
		{record{principal: "https://login.example#bob", tool: "write"}, ""},
		{record{server: "other"}, "learned/servers"},
		{record{tool: "delete"}, "learned/files/tools"},
		{record{tool: "write"}, "learned/files/tools"}, // of the other group
		{record{principal: "https://elsewhere#ann", tool: "write"},
			"learned/servers learned/files/tools"},
		{record{arguments: `{"path":"/srv/a.txt","mode":1}`}, "learned/files/read/arguments"},
		{record{arguments: `{"path":"/etc/a.txt"}`}, "learned/files/read/argument/path"},
	} {
		rules := deniedBy(c.call)
		for _, want := range strings.Fields(c.want) {
			if !strings.Contains(" "+strings.Join(rules, " ")+" ", " "+want+" ") {
				t.Errorf("%+v is denied by %q, want %q", c.call, rules, c.want)
			}
		}
		if len(rules) != len(strings.Fields(c.want)) {
			t.Errorf("%+v is denied by %q, want %q", c.call, rules, c.want)
		}
	}
	for _, s := range p.Statements {
		if s.Rule != "learned/files/read/argument/path" {
			continue
		}
		b := string(p.Files("shadow")[s.File])
		for _, want := range []string{"mode: shadow", "# Learned from 40 requests of 1 principal.",
			"# First seen 2026-11-01T08:00:01Z, last seen 2026-11-01T08:02:37Z.",
			"# Records: 1, 5, 9, 157."} {
			if !strings.Contains(b, want) {
				t.Errorf("the file of %s lacks %q:\n%s", s.Rule, want, b)
			}
		}
	}
	if v := p.Validation; v.Requests != 80 || v.Refused != 0 || v.Parts != 5 {
		t.Errorf("got the validation %+v, want 0 of 80 refused in 5 parts", v)
	}
}

// Requests in which something was found, and their values, are not learned.
func TestLearnOnlyFromUnflaggedRequests(t *testing.T) {
	for name, bad := range map[string]record{
		"denied":                {action: "deny"},
		"changed":               {action: "modify"},
		"refused in shadow":     {action: "would_deny"},
		"asked for":             {action: "ask"},
		"answer denied":         {answer: "deny"},
		"answer changed":        {answer: "modify"},
		"text changed":          {answer: "modify", changed: `"/content/-","/content/0/text"`},
		"finding in the answer": {findings: `{"type":"secret","pointer":"/content"}`},
		"unanswered":            {unanswered: true},
		"failed":                {failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			for range 40 {
				r.call(record{})
				bad.tool = "bad"
				r.call(bad)
			}
			p, deniedBy := r.learned(t, learn.Options{})
			got := deniedBy(record{tool: "bad"})
			if len(got) != 1 || got[0] != "learned/files/tools" {
				t.Errorf("the call is denied by %q, want learned/files/tools", got)
			}
			if want := 40; p.Requests != want || !bad.unanswered && !bad.failed &&
				p.Flagged != want {
				t.Errorf("learned from %d requests, and %d were flagged, want %d and %d",
					p.Requests, p.Flagged, want, want)
			}
		})
	}
}

// An answer to which a stage only added something is honest: the plugin trace adds to each answer.
func TestLearnFromAnswersThatStagesAddedTo(t *testing.T) {
	var r recorder
	for range 40 {
		r.call(record{answer: "modify", changed: `"/content/-","/_meta/traceparent"`})
		r.call(record{tool: "other", answer: "modify", changed: `"/content/-"`,
			findings: `{"type":"injection"}`})
	}
	p, deniedBy := r.learned(t, learn.Options{})
	if rules := deniedBy(record{}); p.Requests != 40 || p.Flagged != 40 || len(rules) > 0 {
		t.Errorf("learned from %d requests, %d were flagged, and the call is denied by %q; want "+
			"40, 40 and none", p.Requests, p.Flagged, rules)
	}
}

// Values that one of several principals accounts for are marked.
func TestValuesOfFewPrincipalsAreMarked(t *testing.T) {
	var r recorder
	for i := range 60 {
		principal := fmt.Sprintf("https://login.example#%d", i%3)
		r.call(record{principal: principal, arguments: `{"color":"red"}`})
		if i%3 == 0 {
			r.call(record{principal: principal, arguments: `{"color":"black"}`})
			r.call(record{principal: principal, tool: "odd"})
		}
	}
	p, _ := r.learned(t, learn.Options{})
	marked := map[string]string{}
	for _, s := range p.Statements {
		if len(s.FewPrincipals) > 0 {
			marked[s.Rule] = strings.Join(s.FewPrincipals, " ")
		}
	}
	want := map[string]string{"learned/files/tools": "odd",
		"learned/files/read/argument/color": "black"}
	if fmt.Sprint(marked) != fmt.Sprint(want) {
		t.Errorf("marked %v, want %v", marked, want)
	}
	if b := string(p.Files("enforce")["files/tools.rego"]); !strings.Contains(b,
		"# FEW PRINCIPALS: only one principal accounts for \"odd\".") {
		t.Errorf("the file has no mark:\n%s", b)
	}
}

// A rule that refuses honest values of held-out parts is made more general.
func TestLearnWidensRulesThatRefuseHonestValues(t *testing.T) {
	var r recorder
	for i := range 200 {
		color := []string{"red", "green"}[i%2]
		if i >= 180 && i%2 == 0 { // only in the last part
			color = "blue"
		}
		r.call(record{arguments: fmt.Sprintf(`{"color":%q}`, color)})
	}
	p, deniedBy := r.learned(t, learn.Options{})
	const rule = "learned/files/read/argument/color"
	if v := p.Validation; v.Refused != 0 || len(v.General) != 1 || v.General[0] != rule {
		t.Errorf("got the validation %+v, want %s made more general and nothing refused", v, rule)
	}
	if rules := deniedBy(record{arguments: `{"color":"black"}`}); len(rules) > 0 {
		t.Errorf("a similar value is denied by %s", rules)
	}
	if rules := deniedBy(record{arguments: `{"color":"a/b"}`}); len(rules) != 1 {
		t.Errorf("another kind of value is denied by %s, want %s", rules, rule)
	}
}

// Days are the parts of a log of several days, and the share of refused requests is that of the
// days that a policy was not learned from.
func TestValidationUsesDays(t *testing.T) {
	var r recorder
	for day := range 4 {
		r.now = firstDay.AddDate(0, 0, day)
		for range 25 {
			r.call(record{})
		}
		r.call(record{tool: fmt.Sprintf("tool%d", day)})
	}
	p, _ := r.learned(t, learn.Options{})
	if v := p.Validation; v.Parts != 4 || v.Of != "days" || v.Requests != 104 || v.Refused != 4 ||
		v.Rules["learned/files/tools"] != 4 || v.Share() != 4.0/104 {
		t.Errorf("got the validation %+v, want 4 of 104 requests refused on 4 days", v)
	}
}

func TestLearnNeedsHonestRequests(t *testing.T) {
	var r recorder
	r.call(record{action: "deny"})
	if _, err := learn.Learn(t.Context(), r.source, learn.Options{}); err == nil ||
		!strings.Contains(err.Error(), "there is no request to learn from") {
		t.Errorf("got the error %v", err)
	}
	r.call(record{})
	p, err := learn.Learn(t.Context(), r.source, learn.Options{
		Wants: func(c *policies.Case) bool { return c.Message.Server == "files" }})
	if err != nil || p.Requests != 1 || p.Validation.Parts != 0 {
		t.Errorf("got %+v, %v, want one request and no validation", p, err)
	}
	if _, err := learn.Learn(t.Context(), r.source, learn.Options{
		Wants: func(*policies.Case) bool { return false }}); err == nil {
		t.Error("nothing is wanted: got no error")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.rego"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(dir, "shadow"); err == nil {
		t.Error("the policy was written to a folder that is not empty")
	}
}

// What one of several principals alone brings into a rule about values is marked.
func TestPartsOfOnePrincipalAreMarked(t *testing.T) {
	for name, c := range map[string]struct{ others, one, want string }{
		"number":       {`%d`, `1e300`, "numbers above 118"},
		"low number":   {`%d`, `-1e300`, "numbers below 0"},
		"small change": {`%d`, `61`, ""},
		"folder":       {`"/srv/data/f%d"`, `"/etc/passwd"`, "/etc"},
		"parent":       {`"/srv/data/f%d"`, `"/srv/data/../x"`, "texts with the folder .."},
		"hidden":       {`"/srv/data/f%d"`, `"/srv/data/.x"`, "paths with hidden files"},
		"extension":    {`"/srv/data/f%d.txt"`, `"/srv/data/x.sh"`, "the file extension .sh"},
		"host": {`"https://api.example/%d"`, `"https://evil.example/1"`,
			"https://evil.example"},
		"character":    {`"item %d"`, `"item $ 1"`, "the character $"},
		"letters":      {`"item %d"`, `"\u0431 1"`, "characters beyond ASCII"},
		"control":      {`"item %d"`, `"a\n1"`, "control characters"},
		"embedded URL": {`"a:/%d"`, `"a://1"`, "texts with ://"},
		"long text":    {`"item %d"`, `"` + strings.Repeat("a1", 200) + `"`, "texts longer than 30"},
		"long list":    {`[%d]`, `[1,2,3,4,5,6,7]`, "more than 6 items"},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			for i := range 60 {
				r.call(record{principal: fmt.Sprintf("https://login.example#%d", i%3),
					arguments: `{"v":` + fmt.Sprintf(c.others, i) + `}`})
			}
			r.call(record{principal: "https://login.example#1",
				arguments: `{"v":` + c.one + `}`})
			p, _ := r.learned(t, learn.Options{})
			var marked []string
			for _, s := range p.Statements {
				marked = append(marked, s.FewPrincipals...)
			}
			got := strings.Join(marked, ", ")
			if !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("marked %q, want %q", got, c.want)
			}
		})
	}
}

// A session that calls a server much more often than the sessions of others is marked.
func TestRateOfOnePrincipalIsMarked(t *testing.T) {
	var r recorder
	for i := range 200 {
		principal := 2
		if i < 20 {
			principal = i % 2
		}
		r.call(record{principal: fmt.Sprintf("https://login.example#%d", principal)})
		if i < 20 {
			r.now = r.now.Add(time.Minute)
		}
		if i >= 20 {
			r.now = r.now.Add(-2 * time.Second) // all of them in a second
		}
	}
	p, _ := r.learned(t, learn.Options{})
	for _, s := range p.Statements {
		if s.Rule == "learned/files/rate" && strings.Join(s.FewPrincipals, " ") !=
			"more than 32 calls a minute" {
			t.Errorf("marked %q", s.FewPrincipals)
		}
	}
}

// Hostile names and values of a log give a policy that compiles, whose tests pass, and that refuses
// what was not recorded.
func TestHostileNamesAreLearned(t *testing.T) {
	for _, name := range []string{"v_test", "..", "", "a/b", "x\"] } deny := true #", "a`b",
		"line\u2028break\u0085", "\ufeff", "a: b # c", "# METADATA", "---", "{{", "\x7f\x01\t\r\n",
		"very" + strings.Repeat("long", 60), "\ufffd", "package"} {
		t.Run(name, func(t *testing.T) {
			quoted := mcptest.Quote(name)
			var r recorder
			for i := range 60 {
				for _, other := range []string{"v", "v_"} {
					r.call(record{tool: name, principal: fmt.Sprintf("token:%d", i%3),
						arguments: fmt.Sprintf(`{%s:%s,%q:%d}`, quoted, quoted, other, i)})
				}
			}
			_, deniedBy := r.learned(t, learn.Options{})
			for arguments, denied := range map[string]bool{
				fmt.Sprintf(`{%s:%s}`, quoted, quoted): false,
				fmt.Sprintf(`{%s:[1]}`, quoted):        true,
				`{"v":"text"}`:                         true,
				`{"other":1}`:                          true,
			} {
				rules := deniedBy(record{tool: name, principal: "token:1", arguments: arguments})
				if len(rules) > 0 != denied {
					t.Errorf("%s is denied by %q, want denied %v", arguments, rules, denied)
				}
			}
		})
	}
}

// Numbers at both ends of what a number can be are learned.
func TestLargestNumbersAreLearned(t *testing.T) {
	var r recorder
	for range 30 {
		r.call(record{arguments: `{"v":1.7e308}`})
		r.call(record{arguments: `{"v":-1.7e308}`})
	}
	_, deniedBy := r.learned(t, learn.Options{})
	if rules := deniedBy(record{arguments: `{"v":0}`}); len(rules) > 0 {
		t.Errorf("0 is denied by %q", rules)
	}
	if rules := deniedBy(record{arguments: `{"v":"0"}`}); len(rules) != 1 {
		t.Errorf("a text is denied by %q, want one rule", rules)
	}
}

// One call with many arguments does not allow all arguments.
func TestManyArgumentsDoNotOpenATool(t *testing.T) {
	var r recorder
	for range 60 {
		r.call(record{arguments: `{"v":1}`})
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"junk%d":1`, i)
	}
	r.call(record{arguments: `{` + strings.Join(many, ",") + `}`})
	_, deniedBy := r.learned(t, learn.Options{})
	if rules := deniedBy(record{arguments: `{"v":1,"other":1}`}); len(rules) != 1 ||
		rules[0] != "learned/files/read/arguments" {
		t.Errorf("another argument is denied by %q, want learned/files/read/arguments", rules)
	}
	if rules := deniedBy(record{arguments: `{"v":1}`}); len(rules) > 0 {
		t.Errorf("the honest call is denied by %q", rules)
	}
}
