package limits_test

import (
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/plugins/builtin/limits"
	"gatekit/plugins/sdk/sdktest"
)

func TestPluginSuite(t *testing.T) {
	long := func(method, body string) *mcp.Message {
		return result(method, strings.ReplaceAll(body,
			"TEXT", strings.Repeat("a word and another, ", 100)))
	}
	for _, c := range []struct {
		name, config string
		samples      []*mcp.Message
	}{
		{"defaults", `{}`, nil},
		{"cut", `{"result":{"bytes":1000},"calls":[{"per":"tool","rate":600,"concurrent":100}]}`,
			[]*mcp.Message{
				long("tools/call", `{"content":[{"type":"text","text":"TEXT"}]}`),
				long("resources/read", `{"contents":[{"uri":"file:///a","text":"TEXT"}]}`),
				long("prompts/get", `{"messages":[{"role":"user","content":{"type":"text","text":"TEXT"}}]}`),
				errorResponse(strings.ReplaceAll(`{"code":1,"message":"TEXT"}`,
					"TEXT", strings.Repeat("a word and another, ", 100))),
			}},
		{"deny", `{"calls":[],"loop":{"action":"off"},"result":{"bytes":1000,"action":"deny"}}`,
			[]*mcp.Message{
				long("tools/call", `{"content":[],"structuredContent":{"a":"TEXT"}}`),
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sdktest.Run(t, limits.Plugin(), c.config,
				c.samples...)
		})
	}
}
