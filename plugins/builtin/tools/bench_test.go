package tools_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/plugins/builtin/tools"
)

const ordinary = "The quick brown fox jumps over the lazy dog, and the report of the third " +
	"quarter says so, too. "

func BenchmarkInspect(b *testing.B) {
	s, err := tools.Plugin().New([]byte(
		`{"tools":{"allow":["read_*","list_*","tool_*"],"hide":["*delete*","*secret*"],"change":[{"name":"tool_1","title":"One","description":"Does one."}]}}`))
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		text := string(mcp.Quote(strings.Repeat(ordinary, size/len(ordinary)+1)[:size]))
		call := request(b, "tools/call", `{"name":"read_file","arguments":{"text":`+text+`}}`,
			"read_file")
		var items []string
		for n := 0; n < size; n += len(items[len(items)-1]) {
			items = append(items, fmt.Sprintf(
				`{"name":"tool_%d","description":"%s","inputSchema":{"type":"object"}}`, len(items),
				strings.Repeat(ordinary, 4)))
		}
		list := response(b, "tools/list", `{"tools":[`+strings.Join(items, ",")+`]}`)
		for name, m := range map[string]*mcp.Message{"call": call, "list": list} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(m.Size()))
				for b.Loop() {
					if _, err := s.Inspect(b.Context(), m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
