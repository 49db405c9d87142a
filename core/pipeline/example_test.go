package pipeline_test

import (
	"context"
	"fmt"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// noDeletes is a stage that refuses one tool and does not show it.
type noDeletes struct{}

func (noDeletes) Inspect(context.Context, *mcp.Message) (pipeline.Verdict, error) {
	return pipeline.Verdict{Action: pipeline.Allow, Hide: []string{"delete"}}, nil
}

// printed is a recorder that prints.
type printed struct{}

func (printed) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	fmt.Println("recorded:", o.Action, o.Before.Method, o.Before.Name)
	return 1, nil
}

func ExamplePipeline_Pass() {
	p := pipeline.New(printed{}, pipeline.Options{}, pipeline.StageConfig{Name: "no-deletes",
		Stage: noDeletes{}})
	for _, tool := range []string{"read", "delete"} {
		m, err := mcp.Parse([]byte(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `"}}`))
		if err != nil {
			panic(err)
		}
		m.Direction, m.Name = mcp.ToServer, tool
		passed, err := p.Pass(context.Background(), m)
		if denied, ok := err.(*pipeline.DeniedError); ok {
			fmt.Printf("to the client: %s\n", denied.Response(m.ID()).Message().Append(nil))
			continue
		}
		fmt.Printf("to the server: %s\n", passed.Message().Append(nil))
	}
	// Output: recorded: pass tools/call read to the server:
	// {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}} recorded: deny
	// tools/call delete to the client:
	// {"jsonrpc":"2.0","id":1,"error":{"code":-31000,"message":"refused by
	// policy","data":{"gatekit":{"action":"deny","stage":"no-deletes","record":1}}}}
}
