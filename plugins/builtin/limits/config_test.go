package limits_test

import (
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/limits"
	"gatekit/plugins/sdk"
)

func TestAWrongConfigurationSaysWhatWouldBeRight(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"nothing is well", `{}`, ""},
		{"the example", `{"calls":[{"per":"tool","tools":["*"],"rate":60,"burst":10,"concurrent":4},{"per":"principal","rate":600}],"loop":{"same":5,"within":"2m"},"result":{"bytes":100000,"action":"deny"}}`, ""},
		{"what the server asks", `{"calls":[{"per":"server","methods":["sampling/createMessage"],"rate":6}]}`, ""},
		{"only results", `{"calls":[],"loop":{"action":"off"}}`, ""},
		{"nothing at all", `{"calls":[],"loop":{"action":"off"},"result":{"action":"off"}}`,
			"nothing is limited"},
		{"no rate", `{"calls":[{"per":"tool"}]}`, "calls[0].rate: is missing"},
		{"a burst of nothing", `{"calls":[{"per":"tool","concurrent":1},{"per":"tool","concurrent":1,"burst":2}]}`, "calls[1].burst: needs rate"},
		{"per what", `{"calls":[{"rate":1}]}`,
			`calls[0].per: must be "tool", "server" or "principal"`},
		{"an unknown method", `{"calls":[{"per":"server","rate":1,"methods":["tool/call"]}]}`,
			"calls[0].methods[0]: the protocol has no such method"},
		{"no method", `{"calls":[{"per":"server","rate":1,"methods":[]}]}`,
			"calls[0].methods: must name a method"},
		{"per tool of no tool", `{"calls":[{"per":"tool","rate":1,"methods":["prompts/get"]}]}`,
			`calls[0].per: "tool" is for tools/call`},
		{"tools of no tool", `{"calls":[{"per":"server","tools":["x"],"rate":1,"methods":["prompts/get"]}]}`, `calls[0].tools: are for tools/call`},
		{"questions that wait", `{"calls":[{"per":"server","concurrent":1,"methods":["elicitation/create"]}]}`, "calls[0].concurrent: counts the requests of clients only"},
		{"an unknown option", `{"call":[]}`, `call`},
		{"an option of another case", `{"Calls":[]}`, `Calls`},
		{"no time", `{"loop":{"within":"2 minutes"}}`, `loop.within: must be a time`},
		{"a short time", `{"timeout":"1ms"}`, `timeout: must be a time from "1s"`},
		{"a small result", `{"result":{"bytes":10}}`, `result.bytes: must be at least 1000`},
		{"several at once", `{"loop":{"same":0},"result":{"action":"x"}}`,
			"loop.same: must be from 1 to 128\nresult.action: must be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := limits.Plugin().New([]byte(c.config))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got the error %q, want none", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got the error %v, want one with %q", err, c.want)
			}
			if c.want == "" {
				if err := limits.Plugin().Check([]byte(c.config)); err != nil {
					t.Errorf("the schema refuses it: %v", err)
				}
			}
		})
	}
}

func TestOnlyWhatIsLimitedIsWanted(t *testing.T) {
	for _, c := range []struct {
		name, config string
		want         pipeline.Wants
	}{
		{"the size of results", `{"calls":[],"loop":{"action":"off"}}`, pipeline.Wants{
			Methods: []string{"tools/call", "resources/read", "prompts/get", "tasks/result",
				"tasks/get", "notifications/tasks"},
			Kinds:      []mcp.Kind{mcp.Response, mcp.Error, mcp.Notification},
			Directions: []mcp.Direction{mcp.ToClient}}},
		{"loops", `{"calls":[],"result":{"action":"off"}}`, pipeline.Wants{
			Methods: []string{"tools/call"}, Kinds: []mcp.Kind{mcp.Request},
			Directions: []mcp.Direction{mcp.ToServer}}},
		{"what servers ask", `{"calls":[{"per":"server","rate":1,"methods":["roots/list"]}],"loop":{"action":"off"},"result":{"action":"off"}}`, pipeline.Wants{
			Methods: []string{"roots/list"}, Kinds: []mcp.Kind{mcp.Request},
			Directions: []mcp.Direction{mcp.ToClient}}},
		{"calls at once", `{"calls":[{"per":"tool","concurrent":1}],"loop":{"action":"off"},"result":{"action":"off"}}`, pipeline.Wants{
			Methods: []string{"tools/call", "notifications/progress", "sampling/createMessage",
				"elicitation/create", "roots/list", "notifications/cancelled"},
			Kinds:      []mcp.Kind{mcp.Request, mcp.Response, mcp.Error, mcp.Notification},
			Directions: []mcp.Direction{mcp.ToServer, mcp.ToClient}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newStage(t, c.config).(sdk.StageWithWants).Wants()
			if !slices.Equal(got.Methods, c.want.Methods) || !slices.Equal(got.Kinds,
				c.want.Kinds) || !slices.Equal(got.Directions, c.want.Directions) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
