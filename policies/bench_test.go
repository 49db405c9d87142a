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
					text := strings.Repeat("x", size)
					m := called("x", `{"text":"`+text+`"}`)
					if kind == mcp.Response {
						m = answered(m, `{"content":[{"type":"text","text":"`+text+`"}]}`)
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
