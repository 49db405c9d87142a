package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
)

// FuzzSelection compares two evaluations of the same policies. The first evaluates only the rules
// that [ruleSelector] selects for a message, with only the members of the input that these rules
// read. The second evaluates all rules with the whole input. Both must give the same sets. Each
// byte of the fuzzer's input is one choice of the generator, so that the fuzzer can mutate single
// choices.
//
// TestSelectionOverManyModules makes the same comparison for modules from random choices.
func FuzzSelection(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(randomChoices(seed, 400))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		compareSelection(t, choices, 20)
	})
}

// TestSelectionOverManyModules is FuzzSelection with modules from random choices. A pair is a
// module and a message. GATEKIT_SELECTION_PAIRS sets the number of pairs, and
// GATEKIT_SELECTION_SEED sets the first seed. If the test fails, it prints the seed of the module.
func TestSelectionOverManyModules(t *testing.T) {
	pairs, _ := strconv.Atoi(os.Getenv("GATEKIT_SELECTION_PAIRS"))
	if pairs == 0 {
		pairs = 5_000
	}
	seed, _ := strconv.ParseUint(os.Getenv("GATEKIT_SELECTION_SEED"), 10, 64)
	var total selectionCounts
	begin := time.Now()
	for ; total.pairs < pairs; seed++ {
		n := compareSelection(t, randomChoices(seed, 600), 100)
		total.add(n)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d pairs: %d modules, %d more that do not compile, %d pairs with a rule left out, "+
		"%d where some set is not empty, %d whose evaluation fails, next seed %d, %s",
		total.pairs, total.modules, total.invalid, total.leftOut, total.effective, total.failed,
		seed, time.Since(begin).Round(time.Second))
	if total.leftOut*4 < total.pairs || total.effective*4 < total.pairs ||
		total.invalid > total.modules || total.failed*10 > total.pairs {
		t.Errorf("the generator covers too few cases: %+v", total)
	}
}

// selectionCounts counts the cases that comparisons covered.
type selectionCounts struct {
	modules   int // modules that compile
	invalid   int // modules that do not compile
	pairs     int // pairs of a module and a message
	leftOut   int // pairs for which a rule is left out
	effective int // pairs for which some set is not empty
	failed    int // pairs for which the evaluation of all rules fails
}

func (c *selectionCounts) add(o selectionCounts) {
	c.modules += o.modules
	c.invalid += o.invalid
	c.pairs += o.pairs
	c.leftOut += o.leftOut
	c.effective += o.effective
	c.failed += o.failed
}

// compareSelection generates policies and messages from choices, and evaluates each message twice.
// Policies that do not compile are skipped.
func compareSelection(t *testing.T, choices []byte, messages int) (n selectionCounts) {
	t.Helper()
	g := &policyGenerator{choices: choices}
	source := g.policies()
	s, err := loadGenerated(t.TempDir(), source)
	if err != nil {
		n.invalid++
		return n
	}
	n.modules++
	for range messages {
		m := g.message()
		leftOut, result, err := compareOnce(s, m)
		if err != nil {
			t.Errorf("%v\nmessage: %s %s %s server %q name %q %s\n%s", err, m.Direction, m.Kind,
				m.Method,
				m.Server, m.Name, m.Body(), source)
			return n
		}
		n.pairs++
		if leftOut {
			n.leftOut++
		}
		switch result {
		case evaluationFailed:
			n.failed++
		case someSets:
			n.effective++
		}
	}
	return n
}

// loadGenerated loads the files of a generated policy, which are divided by lines of "---".
func loadGenerated(dir, source string) (*Stage, error) {
	for i, text := range strings.Split(source, "---\n") {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("p%d.rego", i)), []byte(text),
			0o600); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data.json")
	if err := os.WriteFile(data, []byte(`{"lists":{"tools":["x","y"]}}`), 0o600); err != nil {
		return nil, err
	}
	return Load(Options{Files: []string{dir}, Data: []string{data},
		Rules: []string{"tools/readonly", "tools/schema"}, Config: map[string]map[string]any{
			"tools/readonly": {"except": []any{"x", "y"}},
			"tools/schema":   {"arguments": "note", "servers": []any{"a", "note"}},
		}})
}

// The results of an evaluation with all rules.
const (
	noSets = iota
	someSets
	evaluationFailed
)

// compareOnce evaluates a message with all rules and with the selected rules. If the evaluation of
// all rules fails, there is nothing to compare: the failing rule may be one that is not selected.
func compareOnce(s *Stage, m *mcp.Message) (leftOut bool, result int, err error) {
	ctx := context.Background()
	b := messageContext{now: time.Unix(1_700_000_000, 0)}
	session := s.sessions.session(m)
	all, err := s.all.eval(ctx, s.input(m, session, b, nil), b.now)
	if err != nil {
		return false, evaluationFailed, nil
	}
	want := map[string]string{}
	for i, r := range s.all.rules {
		if all[i].Len() > 0 {
			want[r.ref] = all[i].String()
			result = someSets
		}
	}
	q, err := s.selector.query(s.all, s.classOf(m, session, b))
	if err != nil {
		return false, result, err
	}
	got := map[string]string{}
	if len(q.rules) > 0 {
		some, err := q.eval(ctx, s.input(m, session, b, q.reads), b.now)
		if err != nil {
			return false, result, fmt.Errorf("only the evaluation of the selected rules fails: %w",
				err)
		}
		for i, r := range q.rules {
			if some[i].Len() > 0 {
				got[r.ref] = some[i].String()
			}
		}
	}
	for ref, set := range want {
		if got[ref] != set {
			return false, result, fmt.Errorf("%s is %s with the selected rules, want %s", ref,
				got[ref], set)
		}
	}
	if len(got) > len(want) {
		return false, result, fmt.Errorf("the selected rules have the sets %v, want %v", got, want)
	}
	return len(q.rules) < len(s.all.rules)-1, result, nil // gatekit.uses is always left out
}

// randomChoices returns n choices, which are the same for the same seed.
func randomChoices(seed uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b { // splitmix64
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		b[i] = byte(z >> 32)
	}
	return b
}

// policyGenerator makes policies and messages from a stream of choices.
type policyGenerator struct {
	choices []byte
	used    int // number of choices that were used
	locals  int // number of local variables
}

// pick returns a number below n, from the next choice. After the last choice, it cycles through the
// numbers.
func (g *policyGenerator) pick(n int) int {
	g.used++
	if g.used <= len(g.choices) {
		return int(g.choices[g.used-1]) % n
	}
	return g.used * 7919 % n
}

func (g *policyGenerator) oneOf(texts ...string) string { return texts[g.pick(len(texts))] }

// chance returns true for about one of n choices.
func (g *policyGenerator) chance(n int) bool { return g.pick(n) == n-1 }

func (g *policyGenerator) local() string {
	g.locals++
	return "v" + strconv.Itoa(g.locals)
}

// The values that rules compare and messages have. The kind "question" and the direction "nowhere"
// are only in rules. Messages can also have the server and the name "other".
var (
	generatedMembers = []string{"method", "kind", "direction", "server", "name"}
	generatedValues  = map[string][]string{
		"method":    {"tools/call", "ping", "tools/list", "prompts/get", "acme/other"},
		"kind":      {"request", "response", "notification", "error", "question"},
		"direction": {"to_server", "to_client", "nowhere"},
		"server":    {"a", "b", "ab", "c"},
		"name":      {"x", "y", "x y", "", "z"},
	}
)

func (g *policyGenerator) member() string {
	return generatedMembers[g.pick(len(generatedMembers))]
}

func (g *policyGenerator) valueOf(member string) string {
	return strconv.Quote(g.value(member))
}

// value prefers the first values, so that rules often hold.
func (g *policyGenerator) value(member string) string {
	n := len(generatedValues[member])
	return generatedValues[member][min(g.pick(n), g.pick(n))]
}

// values returns several values of a member, separated by commas. Some of them are not constants.
func (g *policyGenerator) values(member string) string {
	var all []string
	for range 1 + g.pick(3) {
		v := g.valueOf(member)
		switch g.pick(12) {
		case 0:
			v = "lower(" + strconv.Quote(strings.ToUpper(strings.Trim(v, `"`))) + ")"
		case 1:
			v = "held_" + member
		case 2:
			v = "input.params.held"
		case 3:
			v = "data.lists.tools[0]"
		case 4:
			v = "input." + g.member()
		case 5:
			v = "7"
		case 6:
			v = "[" + v + "]"
		case 7:
			v = `concat("", [q | some q in [` + v + "]])"
		}
		all = append(all, v)
	}
	return strings.Join(all, ", ")
}

// policies returns the files of one set of policies, separated by lines of "---".
func (g *policyGenerator) policies() string {
	var b strings.Builder
	b.WriteString("package gatekit.generated\n\nimport data.shared as lib\nimport input as " +
		"message\n" +
		"import input.params as args\n\n")
	b.WriteString("deny contains \"imports\" if { lib.never; message.method == \"none\"; " +
		"args.none }\n")
	for i := range 2 + g.pick(4) {
		head := fmt.Sprintf("deny contains \"r%d\"", i)
		switch g.pick(9) {
		case 3:
			head = "hide contains input.name"
		case 0:
			head = fmt.Sprintf("label contains \"r%d\"", i)
		case 1:
			head = "note contains input.name"
		case 2:
			head = fmt.Sprintf("deny contains sprintf(\"r%d %%v\", [input.method])", i)
		}
		fmt.Fprintf(&b, "%s if {\n%s}\n", head, g.body(1+g.pick(3), 0))
	}
	b.WriteString(g.helpers())
	b.WriteString("---\npackage shared\n\nimport input as message\n" +
		"import input.params as args\n\n" +
		"never if { message.method == \"never\"; args.none }\n")
	g.constants(&b)
	fmt.Fprintf(&b, "common if {\n%s}\n", g.body(1+g.pick(2), 2))
	fmt.Fprintf(&b, "spoken contains input.%s if {\n%s}\n", g.member(), g.body(1, 2))
	// This rule never holds. It uses all helpers, because Load rejects rules that nothing uses.
	b.WriteString("---\npackage gatekit.uses\n\nnote contains \"uses\" if {\n" +
		"\tinput.method == \"never/used\"\n\tdata.gatekit.generated != 1\n\tdata.shared != 1\n}\n")
	return b.String()
}

// helpers returns the rules and functions that generated bodies use.
func (g *policyGenerator) helpers() string {
	var b strings.Builder
	g.constants(&b)
	fmt.Fprintf(&b, "plain if {\n%s}\n", g.body(1+g.pick(2), 1))
	if g.chance(2) {
		fmt.Fprintf(&b, "plain if {\n%s}\n", g.body(1+g.pick(2), 1))
	}
	fmt.Fprintf(&b, "default off := false\noff if {\n%s}\n", g.body(1+g.pick(2), 1))
	fmt.Fprintf(&b, "default on := true\non := false if {\n%s}\n", g.body(1+g.pick(2), 1))
	fmt.Fprintf(&b, "graded := %s if {\n%s} else := %s if {\n%s}\n",
		g.oneOf("true", "true", "true", "false"),
		g.body(1, 1), g.oneOf("true", "true", "true", "false"), g.body(1, 1))
	fmt.Fprintf(&b, "names contains %s if {\n%s}\n", g.oneOf("input.name", "input.method", `"x"`),
		g.body(1, 1))
	fmt.Fprintf(&b, "table[input.%s] := input.%s if {\n%s}\n", g.member(), g.member(), g.body(1, 1))
	fmt.Fprintf(&b, "nested.one.two if {\n%s}\n", g.body(1, 1))
	member := g.member()
	fmt.Fprintf(&b, "about(v) if {\n\tinput.%s == v\n%s}\n", member, g.body(1, 1))
	fmt.Fprintf(&b, "grade(%s) := 1\ngrade(v) := 2 if startswith(v, \"to\")\n", `"x"`)
	fmt.Fprintf(&b, "default usual(_) := false\nusual(v) if {\n\tv == input.%s\n%s}\n", g.member(),
		g.body(1, 1))
	return b.String()
}

// constants generates one rule for each member. The value of the rule is a value of the member.
func (g *policyGenerator) constants(b *strings.Builder) {
	for _, member := range generatedMembers {
		fmt.Fprintf(b, "held_%s := %s\n", member, g.valueOf(member))
	}
}

// body returns the expressions of a rule, one on each line. A rule refers only to rules of greater
// levels, so that no rule is recursive.
func (g *policyGenerator) body(n, level int) string {
	var lines []string
	for range n {
		lines = append(lines, g.expression(level, 0))
	}
	if g.chance(3) {
		slices.Reverse(lines)
	}
	return "\t" + strings.Join(lines, "\n\t") + "\n"
}

// expression returns one expression, or several that belong together.
func (g *policyGenerator) expression(level, depth int) string {
	f := g.member()
	v := g.valueOf(f)
	l := g.local()
	const simple = 38 // the number of cases below without another expression or a helper
	n := simple
	if depth < 2 {
		n += 9 // negations, and expressions around another expression
	}
	if level < 2 {
		n += 4 // the rules of the package shared
	}
	if level < 1 {
		n += 40 // the helpers; see rule
	}
	switch c := g.pick(n); c {
	case 0, 1, 2, 3:
		return fmt.Sprintf("input.%s == %s", f, v)
	case 4:
		return fmt.Sprintf("%s == input.%s", v, f)
	case 5:
		return fmt.Sprintf("input.%s = %s", f, v)
	case 6:
		return fmt.Sprintf("%s := input.%s; %s == %s", l, f, l, v)
	case 7:
		return fmt.Sprintf("%s = input.%s; %s = %s", l, f, v, l)
	case 8:
		return fmt.Sprintf("%s = %s; input.%s = %s", l, v, f, l)
	case 9:
		return fmt.Sprintf("input.%s != %s", f, v)
	case 10, 11:
		return fmt.Sprintf("input.%s in {%s}", f, g.values(f))
	case 12:
		return fmt.Sprintf("input.%s in [%s]", f, g.values(f))
	case 13:
		return fmt.Sprintf("input.%s in {%q: %s}", f, "k", v)
	case 14:
		return fmt.Sprintf("%s := input.%s; %s in {%s}", l, f, l, g.values(f))
	case 15:
		return fmt.Sprintf("some %s in [%s]; input.%s == %s", l, g.values(f), f, l)
	case 16:
		return fmt.Sprintf("some %s in {%s}; %s == input.%s", l, g.values(f), l, f)
	case 17:
		return fmt.Sprintf("some %s, %s_ in {%q: %s}; %s_ == input.%s; is_string(%s)", l, l, "k", v,
			l, f, l)
	case 18:
		return fmt.Sprintf("[%s, %q] = [input.%s, input.kind]; %s == %s", l, "request", f, l, v)
	case 19:
		return fmt.Sprintf("{%q: %s, %q: %s} = {%q: input.%s, %q: input.method}", "a", v, "b", l,
			"a",
			f, "b") + "; is_string(" + l + ")"
	case 20:
		return fmt.Sprintf("startswith(input.%s, %s)", f, v)
	case 21:
		return fmt.Sprintf("lower(input.%s) == %s", f, v)
	case 22:
		return fmt.Sprintf("sprintf(\"%%s\", [input.%s]) == %s", f, v)
	case 23:
		return fmt.Sprintf("glob.match(\"*\", [], input.%s)", f)
	case 24:
		return fmt.Sprintf("split(input.%s, \"/\")[0] in {\"tools\", \"x\", \"a\"}", f)
	case 25:
		return fmt.Sprintf("%s := input; %s.%s == %s", l, l, f, v)
	case 26:
		return fmt.Sprintf("object.get(input, %q, \"\") == %s", f, v)
	case 27:
		return fmt.Sprintf("%s := %q; input[%s] == %s", l, f, l, v)
	case 28:
		return fmt.Sprintf("some %s; input[%s] == %s", l, l, v)
	case 29:
		return fmt.Sprintf("walk(input, [[%q], %s])", f, v)
	case 30:
		return fmt.Sprintf("walk(input.params, [_, %s]); %s == input.%s", l, l, f)
	case 31:
		return "input.params.held == input." + f
	case 32:
		return "input.params." + g.oneOf("secret", "held", "arguments", "list[_]", "list[0]")
	case 33:
		return g.oneOf("gatekit.path.disguised(input.params.arguments)",
			"not gatekit.path.disguised(input.params.arguments)",
			fmt.Sprintf("%s := input.params.arguments; gatekit.path.disguised(%s)", l, l),
			fmt.Sprintf("%s := gatekit.path.disguised(input.params.arguments); %s == %s", l, l,
				g.oneOf("true", "false")),
			"gatekit.path.disguised(input.params.held)",
			"gatekit.path.disguised(input.params.arguments) == false")
	case 34:
		if g.chance(3) {
			setting := g.oneOf("not ", "") + "data.config[\"tools/schema\"]." +
				g.oneOf("arguments", "results", "servers", "servers[0]", "none", "none.below")
			return g.oneOf(setting+" == \"note\"", setting+" == \"deny\"", setting+" == [\"a\"]",
				setting+" == data.config[\"tools/schema\"].arguments", setting+" != \"note\"",
				l+" := "+strings.TrimPrefix(setting, "not ")+"; "+l+" == \"note\"",
				"\"note\" == "+strings.TrimPrefix(setting, "not "))
		}
		return g.oneOf("not ", "") + "data.config[\"tools/readonly\"]." + g.oneOf("except", "none",
			"except[0]", "except[\"0\"]", "except[\"9\"]", "except[5]", "except.none", "none.below")
	case 35:
		return fmt.Sprintf("message.%s == %s", f, v)
	case 36:
		return fmt.Sprintf("args.%s", g.oneOf("held", "arguments.path", "none"))
	case 37:
		return fmt.Sprintf("input.%s in data.lists.tools", f)
	default:
		if depth >= 2 {
			c += 9
		}
		if c < simple+9 {
			inner := g.expression(level, depth+1)
			switch c - simple {
			case 0, 1:
				return "not input." + f + " == " + v
			case 2:
				return fmt.Sprintf("not input.%s in {%s}", f, g.values(f))
			case 3:
				return fmt.Sprintf("every %s in [%s] { %s == input.%s }", l, g.values(f), l, f)
			case 4:
				return fmt.Sprintf("every %s in [input.%s] { %s == %s; %s }", l, f, l, v, inner)
			case 5:
				return fmt.Sprintf("count([1 | %s]) %s 0", inner, g.oneOf("==", ">"))
			case 6:
				return fmt.Sprintf("count({%s | %s := input.%s; %s}) > 0", l, l, f, inner)
			case 7:
				return fmt.Sprintf("{\"k\": %s | %s := input.%s; %s} == {\"k\": %s}", l, l, f,
					inner, v)
			default:
				return fmt.Sprintf("%s := [input.%s | %s]; %s == [%s]", l, f, inner, l, v)
			}
		}
		c -= simple + 9
		switch c {
		case 0:
			return g.oneOf("not ", "") + "lib.common"
		case 1:
			return fmt.Sprintf("%s in lib.spoken", v)
		case 2:
			return fmt.Sprintf("input.%s in data.shared.spoken", f)
		case 3:
			return fmt.Sprintf("some %s; data.shared[%s][%s]", l, l, v)
		}
		return g.rule((c-4)%18, f, v, l)
	}
}

// rule returns an expression that uses one of the helpers.
func (g *policyGenerator) rule(c int, f, v, l string) string {
	helper := g.oneOf("plain", "off", "on", "graded", "nested.one.two")
	switch c {
	case 0, 1, 2:
		return helper
	case 3:
		return "not " + helper
	case 4:
		return "data.gatekit.generated." + helper
	case 5:
		return helper + " == " + g.oneOf("true", "false")
	case 6:
		return fmt.Sprintf("%s := %s; %s", l, helper, l)
	case 7:
		return fmt.Sprintf("about(%s)", g.oneOf(v, "input."+f, "input.params.held"))
	case 8:
		return fmt.Sprintf("%susual(%s)", g.oneOf("", "not "), g.oneOf(v, "input."+f))
	case 9:
		return fmt.Sprintf("grade(input.%s) == %s", f, g.oneOf("1", "2"))
	case 10:
		return g.oneOf("names", "table", v+" in names", "names["+v+"]", "input."+f+" in names",
			"count(names) > 0")
	case 11:
		return g.oneOf("table[input."+f+"]", "table["+v+"] == input."+f,
			fmt.Sprintf("some %s; table[%s] == %s", l, l, v))
	case 12:
		return fmt.Sprintf("some %s in [\"plain\", \"off\"]; data.gatekit.generated[%s]", l, l)
	case 13:
		switch g.pick(5) {
		case 0, 1: // the keyword with disables the selection
			return fmt.Sprintf("%s with input.%s as %s", helper, f, v)
		case 2:
			return fmt.Sprintf("%s with input as {%q: %s, %q: input.params}", helper, f, v,
				"params")
		}
		return "nested.one"
	case 14:
		return fmt.Sprintf("nested[%q].two", "one")
	case 15, 16:
		return "graded"
	default:
		return fmt.Sprintf("%s := data.gatekit.generated.nested; %s.one.two", l, l)
	}
}

// message generates a message.
func (g *policyGenerator) message() *mcp.Message {
	value := func(member string) string {
		if g.chance(12) {
			return "other"
		}
		return g.value(member)
	}
	method, kind := g.value("method"), min(g.pick(4), g.pick(4))
	params := map[string]any{}
	if g.chance(2) {
		params["held"] = value(g.member())
	}
	if g.chance(3) {
		params["secret"] = g.chance(2)
	}
	if g.chance(3) {
		params["list"] = []any{value(g.member()), g.chance(2)}
	}
	switch g.pick(4) {
	case 0:
		params["arguments"] = map[string]any{"path": "..%2f..%2fetc/passwd"}
	case 1:
		params["arguments"] = map[string]any{"path": "a.txt"}
	case 2:
		params["arguments"] = g.oneOf("true", "%2e%2e/x")
	}
	body, err := json.Marshal(params)
	if err != nil {
		panic(err)
	}
	request := mcp.NewRequest("1", method, body)
	m := request
	switch kind {
	case 1:
		m = mcp.NewResponse("1", body)
	case 2:
		m = mcp.NewNotification(method, body)
	case 3:
		m = mcp.NewError("1", -32000, "failed", nil)
	}
	if m != request && kind != 2 && g.chance(2) {
		m.Request = request
	}
	m.Method, m.Server, m.Name = method, value("server"), value("name")
	m.Direction = []mcp.Direction{mcp.ToServer, mcp.ToClient}[g.pick(2)]
	return m
}
