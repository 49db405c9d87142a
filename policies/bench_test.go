package policies_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
	"gatekit/policies/library"
)

// BenchmarkInspect measures a call and its response, with texts of several sizes. It uses three
// sets of policies: the default rules, one of which reads arguments; fifty rules that each read the
// arguments of a different tool; and rules that read no body.
func BenchmarkInspect(b *testing.B) {
	def := library.DefaultRules()
	for _, set := range []struct {
		name string
		o    policies.Options
	}{
		{"default", policies.Options{Rules: slices.Sorted(maps.Keys(def)), Config: def}},
		{"fifty", policies.Options{Files: []string{policies.FiftyPolicies(b)}}},
		{"no-body", policies.Options{Rules: []string{"limits/rate", "tools/readonly"}}},
	} {
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			for _, kind := range []mcp.Kind{mcp.Request, mcp.Response} {
				b.Run(fmt.Sprintf("%s/%s/%dKiB", set.name, kind, size>>10), func(b *testing.B) {
					s, err := policies.Load(set.o)
					if err != nil {
						b.Fatal(err)
					}
					list := answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
						`{"tools":[{"name":"x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`)
					if _, err := s.Inspect(b.Context(), list); err != nil {
						b.Fatal(err)
					}
					text := string(mcp.Quote(strings.Repeat(
						"a line of text, like most of them; see 2.\n", size/42)))
					m := received(b, called("x", `{"text":`+text+`}`))
					if kind == mcp.Response {
						m = received(b, answered(m, `{"content":[{"type":"text","text":`+text+`}]}`))
					}
					b.ReportAllocs()
					for b.Loop() {
						if v, err := s.Inspect(b.Context(), m); err != nil || v.Action == 0 {
							b.Fatal(v, err)
						}
					}
				})
			}
		}
	}
}

// received returns a message as it is when it was parsed.
func received(b *testing.B, m *mcp.Message) *mcp.Message {
	parsed, err := mcp.Parse(m.Append(nil))
	if err != nil {
		b.Fatal(err)
	}
	parsed.Method, parsed.Request = m.Method, m.Request
	return sent(parsed, m.Direction, m.Name)
}

// BenchmarkTexts measures a call with 64 KiB of text, for the default rules. Each kind of text has
// characters that could hide a traversal elsewhere.
func BenchmarkTexts(b *testing.B) {
	def := library.DefaultRules()
	s, err := policies.Load(policies.Options{Rules: slices.Sorted(maps.Keys(def)), Config: def})
	if err != nil {
		b.Fatal(err)
	}
	list := answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
		`{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}`)
	if _, err := s.Inspect(b.Context(), list); err != nil {
		b.Fatal(err)
	}
	for name, line := range map[string]string{
		"plain":   "a line of text, like most of them; see 2.\n",
		"percent": "a line of text, 99% like most of it... to 2\n",
		"import":  "import a from '../b/c.js'; // the text is\n",
		"latin":   "une ligne de texte, très naïve — comme 12\n",
		"escape":  "see https://x.example/a%20b for a line on",
		"regexp":  "if m, _ := re.Match(`^\\s+\\d`, \"x\"); m {",
	} {
		b.Run(name, func(b *testing.B) {
			text := mcp.Quote(strings.Repeat(line, 64<<10/len(line)))
			m := received(b, called("x", `{"text":`+string(text)+`}`))
			for b.Loop() {
				if v, err := s.Inspect(b.Context(), m); err != nil || v.Action == 0 {
					b.Fatal(v, err)
				}
			}
		})
	}
}
