package pipeline_test

import (
	"context"
	"fmt"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// noDeletes hides the tool "delete". So the pipeline also denies calls of it.
type noDeletes struct{}

func (noDeletes) Inspect(context.Context, *mcp.Message) (pipeline.Verdict, error) {
	return pipeline.Verdict{Action: pipeline.Allow, Hide: []string{"delete"}}, nil
}

// printingRecorder prints outcomes.
type printingRecorder struct{}

func (printingRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	fmt.Println("recorded:", o.Action, o.Before.Method, o.Before.Name)
	return 1, nil
}

func ExamplePipeline_Pass() {
	p := pipeline.New(printingRecorder{}, pipeline.Options{},
		pipeline.StageConfig{Name: "no-deletes",
			Stage: noDeletes{}})
	for _, tool := range []string{"read", "delete"} {
		m, err := mcp.Parse([]byte(
			`{"id":1,"method":"tools/call","params":{"name":"` + tool + `"},"jsonrpc":"2.0"}`))
		if err != nil {
			panic(err)
		}
		m.Direction, m.Name = mcp.ToServer, tool
		passed, err := p.Pass(context.Background(), m)
		if denied, ok := err.(*pipeline.DeniedError); ok {
			refusal := denied.Response(m.ID()).Message()
			data, _ := refusal.Get("/data")
			fmt.Printf("to the client: %d %s\n", refusal.ErrorCode(), data)
			continue
		}
		fmt.Printf("to the server: %s\n", passed.Message().Append(nil))
	}
	// Output:
	// recorded: pass tools/call read
	// to the server: {"id":1,"method":"tools/call","params":{"name":"read"},"jsonrpc":"2.0"}
	// recorded: deny tools/call delete
	// to the client: -31000 {"gatekit":{"action":"deny","stage":"no-deletes","record":1}}
}
