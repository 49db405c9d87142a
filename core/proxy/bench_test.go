package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// discardingRecorder records nothing, so that the benchmarks measure the proxy alone.
type discardingRecorder struct{}

func (discardingRecorder) Record(context.Context, pipeline.Outcome) (uint64, error) {
	return 1, nil
}

// fixedServer is a server with one prepared answer for every request.
type fixedServer struct{ answer *mcp.Message }

func (c *fixedServer) Open(context.Context, proxy.OpenOptions,
	proxy.Handler) (proxy.Server, error) {
	return c, nil
}
func (c *fixedServer) Call(_ context.Context, p pipeline.Passed,
	_ proxy.Handler) (*mcp.Message, error) {
	return c.answer.WithID(p.Message().ID()), nil
}
func (c *fixedServer) Notify(context.Context, pipeline.Passed) error { return nil }
func (c *fixedServer) Close() error                                  { return nil }

func benchmarkCalls(b *testing.B, prefix string, servers int, method, params, result string) {
	o := proxy.Options{Pipeline: pipeline.New(discardingRecorder{}, pipeline.Options{}),
		Naming: proxy.Naming{Prefix: prefix}}
	for i := range servers {
		answer, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`))
		if err != nil {
			b.Fatal(err)
		}
		o.Servers = append(o.Servers, proxy.ServerConfig{Name: fmt.Sprintf("s%d", i),
			Upstream: &fixedServer{answer}})
	}
	p, err := proxy.New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	c := &fakeClient{}
	s := p.Open(proxy.OpenOptions{Session: "s"}, c)
	m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` +
		params + `}`))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(params) + len(result)))
	for b.Loop() {
		if a := s.Call(b.Context(), m, c).Message(); a == nil || a.Kind != mcp.Response {
			b.Fatalf("the answer is %v, want a result", a)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		text := strings.Repeat("x", size)
		result := `{"content":[{"type":"text","text":"` + text + `"}]}`
		for _, c := range []struct {
			name, prefix string
			servers      int
			tool         string
		}{{"bare", "never", 1, "echo"}, {"prefixed, ten servers", "always", 10, "s7__echo"}} {
			b.Run(fmt.Sprintf("%s, %d KiB", c.name, size>>10), func(b *testing.B) {
				benchmarkCalls(b, c.prefix, c.servers,
					"tools/call", `{"name":"`+c.tool+`","arguments":{"text":"`+text+`"}}`, result)
			})
		}
	}
}

func BenchmarkList(b *testing.B) {
	var tools []string
	for i := range 100 {
		tools = append(tools, fmt.Sprintf(
			`{"name":"tool-%d","description":%q,"inputSchema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a"]}}`, i, strings.Repeat("words ", 105)))
	}
	benchmarkCalls(b, "always", 10, "tools/list", `{}`, `{"tools":[`+strings.Join(tools, ",")+`]}`)
}
