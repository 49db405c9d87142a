package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
)

// BenchmarkInspect is a call, by the size of an argument that no rule reads.
func BenchmarkInspect(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s, err := policies.Load(policies.Options{Rules: []string{"tools/readonly"}})
			if err != nil {
				b.Fatal(err)
			}
			list := answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""), `{"tools":[{"name":"x","annotations":{"readOnlyHint":true}}]}`)
			if _, err := s.Inspect(b.Context(), list); err != nil {
				b.Fatal(err)
			}
			m := called("x", `{"text":"`+strings.Repeat("x", size)+`"}`)
			b.ReportAllocs()
			for b.Loop() {
				if v, err := s.Inspect(b.Context(), m); err != nil || v.Action == 0 {
					b.Fatal(v, err)
				}
			}
		})
	}
}
