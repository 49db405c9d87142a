package policies

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/policies/library"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// BenchmarkSelection compares three ways to evaluate only the rules that can hold for a message:
// [ruleSelector], OPA's rule index alone, and OPA's partial evaluation. The first and the last way
// prepare a query for each combination of direction, kind, method, server and name. The case
// "prepare" measures this work. The message is a tools/call with arguments of 4 KiB. In the case
// "fifty/named", it calls a tool that one of fifty rules names.
func BenchmarkSelection(b *testing.B) {
	def := library.DefaultRules()
	for _, set := range []struct {
		name, tool string
		o          Options
	}{
		{"default", "x", Options{Rules: slices.Sorted(maps.Keys(def)), Config: def}},
		{"elicitation", "x", Options{Rules: []string{"elicitation/gate", "sampling/gate"}}},
		{"fifty/other", "x", Options{Files: []string{FiftyPolicies(b)}}},
		{"fifty/named", "delete_7", Options{Files: []string{FiftyPolicies(b)}}},
	} {
		s, err := Load(set.o)
		if err != nil {
			b.Fatal(err)
		}
		compiled := compileWithList(b, s, set.o)
		m := mcp.NewRequest("1", "tools/call", fmt.Appendf(nil,
			`{"name":%q,"arguments":{"path":"/srv/team1/x","text":%q}}`, set.tool,
			strings.Repeat("x", 4<<10)))
		m.Direction, m.Server, m.Name = mcp.ToServer, "a", set.tool
		ctx, now := context.Background(), time.Unix(1_700_000_000, 0)
		eval := func(q *ruleQuery) {
			if len(q.rules) == 0 {
				return
			}
			in := s.input(m, s.sessions.session(m), messageContext{now: now}, q.reads)
			if _, err := q.eval(ctx, in, now); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(set.name+"/selection", func(b *testing.B) {
			for b.Loop() {
				q, err := s.selector.query(s.all, s.selector.classOfMessage(m, false))
				if err != nil {
					b.Fatal(err)
				}
				eval(q)
			}
		})
		b.Run(set.name+"/selection/prepare", func(b *testing.B) {
			for b.Loop() {
				fresh := newRuleSelector(s.selector.compiler, s.selector.data, s.selector.settings)
				if _, err := fresh.query(s.all, fresh.classOfMessage(m, false)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(set.name+"/index", func(b *testing.B) {
			q, err := s.selector.query(s.all, messageClass{anyMessage})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				eval(q)
			}
		})
		b.Run(set.name+"/partial", func(b *testing.B) {
			query, read := partialQuery(b, s, compiled, m)
			for b.Loop() {
				in := s.input(m, s.sessions.session(m), messageContext{now: now}, read)
				results, err := query.Eval(ctx, rego.EvalParsedInput(in), rego.EvalTime(now))
				if err != nil || len(results) != 1 {
					b.Fatal(results, err)
				}
			}
		})
		b.Run(set.name+"/partial/prepare", func(b *testing.B) {
			for b.Loop() {
				partialQuery(b, s, compiled, m)
			}
		})
	}
}

// compileWithList compiles policies with one more rule, data.list.all, which is the array of all
// effects. Partial evaluation needs this rule, because its query must be a single reference.
func compileWithList(b *testing.B, s *Stage, o Options) *ast.Compiler {
	sources, err := readSources(o, false)
	if err != nil {
		b.Fatal(err)
	}
	refs := make([]string, len(s.all.rules))
	for i, r := range s.all.rules {
		refs[i] = r.ref
	}
	text := "package list\n\nall := [" + strings.Join(refs, ", ") + "]\n"
	if err := sources.addModule("list.rego", []byte(text)); err != nil {
		b.Fatal(err)
	}
	c, err := compiler()
	if err != nil {
		b.Fatal(err)
	}
	// the modules that partial evaluation produces are not valid in strict mode
	if c.WithStrict(false).Compile(sources.modules); c.Failed() {
		b.Fatal(c.Errors)
	}
	return c
}

// partialQuery returns the query of all rules, partially evaluated for the members of a message
// that are known before its body is read.
func partialQuery(b *testing.B, s *Stage, c *ast.Compiler,
	m *mcp.Message) (query rego.PreparedEvalQuery, read readSet) {
	known := map[string]any{"direction": m.Direction.String(), "kind": m.Kind.String(),
		"method": m.Method, "server": m.Server, "name": m.Name}
	var unknown []string
	for _, name := range inputMembers {
		if _, ok := known[name]; !ok {
			unknown = append(unknown, "input."+name)
		}
	}
	options := []func(*rego.Rego){rego.Query("data.list.all"), rego.Compiler(c),
		rego.Store(s.selector.data), rego.Input(known), rego.Unknowns(unknown)}
	var builtins []func(*rego.Rego)
	for _, f := range Builtins() {
		builtins = append(builtins, f.Func)
	}
	partial, err := rego.New(append(options, builtins...)...).PartialResult(b.Context())
	if err != nil {
		b.Skip("OPA cannot compile the partially evaluated policies: ", err)
	}
	query, err = partial.Rego(append(builtins, rego.StrictBuiltinErrors(true))...).
		PrepareForEval(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	read = readSet{}
	for _, module := range query.Modules() {
		for _, r := range module.Rules {
			read = read.addPart(r)
		}
	}
	return query, read
}

// FiftyPolicies returns a folder with fifty policies, each about the arguments of one tool.
func FiftyPolicies(tb testing.TB) string {
	dir := tb.TempDir()
	for i := range 50 {
		text := fmt.Sprintf(`package gatekit.team%d

deny contains sprintf("%%s may not be deleted", [input.params.arguments.path]) if {
	input.kind == "request"
	input.method == "tools/call"
	input.name == "delete_%d"
	startswith(input.params.arguments.path, "/srv/team%d/")
}
`, i, i, i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("team%d.rego", i)), []byte(text),
			0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}
