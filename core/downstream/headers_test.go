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
	"gatekit/test/downstreamtest"
)

// TestParamHeadersReadAListOnce uses very long lists of tools. If the proxy searched the list from
// its start for each tool or property, the time would be quadratic, and all calls would wait.
func TestParamHeadersReadAListOnce(t *testing.T) {
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
			s := &downstreamtest.Server{Answer: func(_ context.Context, m *mcp.Message,
				_ proxy.Handler) string {
				if m.Method == "tools/list" {
					return `{"tools":[` + c.tools + `]}`
				}
				return "{}"
			}}
			w := downstreamtest.New(t, s, downstream.Limits{})
			defer w.Close(t)
			h := w.HTTPClient("")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			x := h.BeginModern(t, "tools/list", "", downstreamtest.ModernRequest(1,
				"tools/list", ""))
			<-x.Done
			if ctx.Err() != nil {
				t.Error("the list took more than 10s")
			}
			x = h.BeginModern(t, "tools/call", "t", downstreamtest.ModernRequest(2,
				"tools/call", `"name":"t","arguments":{"a":"x"}`))
			<-x.Done
			downstreamtest.ContainsText(t, "a call without the header", x.Text(),
				`400 {"jsonrpc":"2.0","id":2,"error":{"code":-32020,`)
		})
	}
}

func TestParamHeadersRepeatNumbersInDecimal(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(_ context.Context, m *mcp.Message,
		_ proxy.Handler) string {
		if m.Method == "tools/list" {
			return `{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"integer",` +
				`"x-mcp-header":"A"}}}}]}`
		}
		return "{}"
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		h := w.HTTPClient("")
		x := h.BeginModern(t, "tools/list", "", downstreamtest.ModernRequest(1, "tools/list", ""))
		<-x.Done
		for _, c := range []struct{ header, argument, want string }{
			{"3", "3", "200 "},
			{"3.0", "3", "200 "},
			{"3", "3.00", "200 "},
			{"-3", "-3.0", "200 "},
			{"3e0", "3e0", "200 "}, // the same bytes
			{"4", "3", "400 "},
			{"-3", "3", "400 "},
			{"0b11", "3", "400 "},
			{"0o3", "3", "400 "},
			{"0x3", "3", "400 "},
			{"03", "3", "400 "},
			{"+3", "3", "400 "},
			{"3.", "3", "400 "},
			{".5", "0.5", "400 "},
			{"6/2", "3", "400 "},
			{"3_0", "30", "400 "},
		} {
			x := h.BeginModern(t, "tools/call", "t", downstreamtest.ModernRequest(2, "tools/call",
				`"name":"t","arguments":{"a":`+c.argument+`}`), "Mcp-Param-A: "+c.header)
			<-x.Done
			downstreamtest.ContainsText(t, "the header "+c.header+" for the argument "+c.argument,
				x.Text(), c.want)
		}
	})
}

func TestParamHeadersFollowTheLatestList(t *testing.T) {
	tool := func(name, header string) string {
		return `{"name":"` + name + `","inputSchema":{"properties":{"a":{"x-mcp-header":"` +
			header + `"}}}}`
	}
	list := ""
	s := &downstreamtest.Server{Answer: func(_ context.Context, m *mcp.Message,
		_ proxy.Handler) string {
		if m.Method == "tools/list" {
			return `{"tools":[` + list + `]}`
		}
		return "{}"
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		h := w.HTTPClient("")
		for _, step := range []struct{ name, list, header, want string }{
			{"a tool without header arguments", `{"name":"t"}`, "Mcp-Param-A: other", "200 "},
			{"a tool with a header argument", tool("t", "A"), "Mcp-Param-A: x", "200 "},
			{"a wrong value for that argument", tool("t", "A"), "Mcp-Param-A: other", "400 "},
			{"a later page without the tool: the header still counts", tool("other", "A"),
				"Mcp-Param-A: other", "400 "},
			{"a later page without annotations: the header still counts", `{"name":"other"}`,
				"Mcp-Param-A: other", "400 "},
			{"the tool with another header", tool("t", "B"), "Mcp-Param-B: x", "200 "},
			{"a tool listed twice: the last entry counts", tool("t", "A") + `,` + tool("t", "C"),
				"Mcp-Param-C: x", "200 "},
			{"the tool without header arguments", `{"name":"t"}`, "Mcp-Param-C: other", "200 "},
		} {
			list = step.list
			x := h.BeginModern(t, "tools/list", "", downstreamtest.ModernRequest(1,
				"tools/list", ""))
			<-x.Done
			x = h.BeginModern(t, "tools/call", "t", downstreamtest.ModernRequest(2,
				"tools/call", `"name":"t","arguments":{"a":"x"}`), step.header)
			<-x.Done
			downstreamtest.ContainsText(t, step.name, x.Text(), step.want)
		}
	})
}
