package policies_test

import (
	"testing"

	"gatekit/core/mcp"
)

func TestNeedsList(t *testing.T) {
	use := func(method, name string) *mcp.Message {
		return sent(mcp.NewRequest("1", method, []byte(`{}`)), mcp.ToServer, name)
	}
	call, prompt := use("tools/call", "x"), use("prompts/get", "x")
	read := use("resources/read", "file:///x")
	const ofTools = `input.method == "tools/call"; `
	for name, c := range map[string]struct {
		rule string
		m    *mcp.Message
		list string
		want bool
	}{
		"no definition":  {`deny contains "x" if { ` + ofTools + `input.name == "x" }`, call, "tools/list", false},
		"the definition": {`deny contains "x" if { ` + ofTools + `input.item.title }`, call, "tools/list", true},
		"of an answer": {`deny contains "x" if { ` + ofTools + `input.kind == "response"; input.item.title }`,
			call, "tools/list", true},
		"of an error": {`note contains "x" if { ` + ofTools + `input.kind == "error"; input.item.title }`,
			call, "tools/list", true},
		"of another tool": {`deny contains "x" if { ` + ofTools + `input.name == "y"; input.item.title }`,
			call, "tools/list", false},
		"of this tool": {`deny contains "x" if { ` + ofTools + `input.name == "x"; input.item.title }`,
			call, "tools/list", true},
		"of another method": {`deny contains "x" if { ` + ofTools + `input.item.title }`, prompt,
			"prompts/list", false},
		"of a prompt": {`deny contains "x" if input.item.title`, prompt, "prompts/list", true},
		"of a skill":  {`deny contains "x" if input.item.title`, use("skills/get", "skill:x"), "skills/list", true},
		"of a resource": {`deny contains "x" if input.item.title`, read,
			"resources/list", true},
		"of a subscribed resource": {`deny contains "x" if input.item.title`,
			use("resources/subscribe", "file:///x"), "resources/list", true},
		"of a directory": {`deny contains "x" if input.item.title`,
			use("resources/directory/read", "file:///x"), "resources/list", true},
		"of no resource template": {`deny contains "x" if input.item.title`, read,
			"resources/templates/list", false},
		"of no task":      {`deny contains "x" if input.item.title`, use("tasks/get", "t"), "tools/list", false},
		"the whole input": {`deny contains "x" if count(input) > 20`, call, "tools/list", true},
		"another spelling": {`deny contains "x" if { input.name == "file:///x"; input.item.title }`,
			use("resources/read", "file:///%78"), "resources/list", true},
		"the schema": {`deny contains "x" if input.schema.state == "unlisted"`, call, "tools/list", true},
		"no schema of a prompt": {`deny contains "x" if input.schema.state == "unlisted"`, prompt,
			"prompts/list", false},
		"hides tools": {`hide contains "z" if input.method == "tools/list"`, call, "tools/list", true},
		"hides tools, of a task": {`hide contains "z" if input.method == "tools/list"`,
			use("tasks/get", "t"), "tools/list", true},
		"hides prompts": {`hide contains "z" if input.method == "prompts/list"`, call, "tools/list",
			false},
		"hides tools of another server": {`hide contains "z" if { input.method == "tools/list"; ` +
			`input.server == "b" }`, call, "tools/list", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := loaded(t, c.rule).NeedsList(c.m, c.list); got != c.want {
				t.Errorf("NeedsList of %s is %v, want %v", c.m.Method, got, c.want)
			}
		})
	}
}
