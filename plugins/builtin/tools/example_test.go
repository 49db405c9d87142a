package tools_test

import (
	"context"
	"fmt"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/tools"
)

func ExamplePlugin() {
	stage, err := tools.Plugin().New([]byte(
		`{"tools": {"allow": ["read_*", "list_*"], "hide": ["read_secret*"]}}`))
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"read_file", "read_secrets", "delete_file"} {
		m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"`+name+`"}`))
		m.Direction, m.Name = mcp.ToServer, name
		v, err := stage.Inspect(context.Background(), m)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: allowed %v\n", name, v.Action == pipeline.Allow)
	}
	// Output:
	// read_file: allowed true
	// read_secrets: allowed false
	// delete_file: allowed false
}
