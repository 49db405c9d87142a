package downstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// What a list says was looked for from its start once, for each tool and each property, and nobody
// could call meanwhile.
func TestAListWithAnnotationsIsWalkedOnce(t *testing.T) {
	var properties strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&properties, `"p%d":{"x-mcp-header":7},`, i)
	}
	const last = `{"name":"t","inputSchema":{"properties":{"a":{"x-mcp-header":"A"}}}}`
	for _, c := range []struct{ name, tools string }{
		{"many tools", strings.Repeat(`{"name":""},`, 100_000) + last},
		{"many properties", `{"name":"x","inputSchema":{"properties":{` + properties.String() +
			`"a":{}}}},` + last},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
				if m.Method == "tools/list" {
					return `{"tools":[` + c.tools + `]}`
				}
				return "{}"
			}}
			w := newWorld(t, s, downstream.Limits{})
			defer w.close(t)
			h := w.client("")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			x := h.modernPost(t, "tools/list", "", modern(1, "tools/list", ""))
			<-x.done
			if ctx.Err() != nil {
				t.Error("not within 10s")
			}
			x = h.modernPost(t, "tools/call", "t", modern(2,
				"tools/call", `"name":"t","arguments":{"a":"x"}`))
			<-x.done
			contains(t, "a call without the header", x.text(),
				`400 {"jsonrpc":"2.0","id":2,"error":{"code":-32020,`)
		})
	}
}

func TestWhatToolsWantIsLearntAnew(t *testing.T) {
	tool := func(name, header string) string {
		return `{"name":"` + name + `","inputSchema":{"properties":{"a":{"x-mcp-header":"` +
			header + `"}}}}`
	}
	list := ""
	s := &server{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		if m.Method == "tools/list" {
			return `{"tools":[` + list + `]}`
		}
		return "{}"
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		h := w.client("")
		for _, step := range []struct{ name, list, header, want string }{
			{"a tool that wants nothing", `{"name":"t"}`, "Mcp-Param-A: other", "200 "},
			{"one that does", tool("t", "A"), "Mcp-Param-A: x", "200 "},
			{"the same", tool("t", "A"), "Mcp-Param-A: other", "400 "},
			{"a page that does not have it", tool("other", "A"), "Mcp-Param-A: other", "400 "},
			{"a page without annotations that does not have it", `{"name":"other"}`,
				"Mcp-Param-A: other", "400 "},
			{"another header", tool("t", "B"), "Mcp-Param-B: x", "200 "},
			{"listed twice, the last counts", tool("t", "A") + `,` + tool("t", "C"),
				"Mcp-Param-C: x", "200 "},
			{"now it wants nothing", `{"name":"t"}`, "Mcp-Param-C: other", "200 "},
		} {
			list = step.list
			x := h.modernPost(t, "tools/list", "", modern(1, "tools/list", ""))
			<-x.done
			x = h.modernPost(t, "tools/call", "t", modern(2,
				"tools/call", `"name":"t","arguments":{"a":"x"}`), step.header)
			<-x.done
			contains(t, step.name, x.text(), step.want)
		}
	})
}
