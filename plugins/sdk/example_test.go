package sdk_test

import (
	"context"
	"fmt"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// A plugin that denies calls about private files. A program needs only sdk.Serve(plugin) in main,
// and gatekit.toml two lines.
func Example() {
	plugin := sdk.Plugin{
		Name:    "discreet",
		Version: "1.0.0",
		Doc:     "keeps private files private",
		Wants:   pipeline.Wants{Methods: []string{"tools/call"}, Kinds: []mcp.Kind{mcp.Request}},
		Needs:   sdk.Needs{Body: true},
		New: func(config []byte) (sdk.Stage, error) {
			return sdk.StageFunc(func(_ context.Context, m *mcp.Message) (sdk.Verdict, error) {
				if path, _ := m.Text("/arguments/path"); strings.HasPrefix(path, "private/") {
					return sdk.Deny("private files are private"), nil
				}
				return sdk.Allow(), nil
			}), nil
		},
	}

	stage, err := plugin.New([]byte(`{}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"welcome.txt", "private/key.txt"} {
		m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"read_file","arguments":{"path":"`+
			path+`"}}`))
		m.Direction = mcp.ToServer
		v, err := stage.Inspect(context.Background(), m)
		fmt.Println(path, v.Action == pipeline.Allow, v.Reason, err)
	}
	// Output:
	// welcome.txt true  <nil>
	// private/key.txt false private files are private <nil>
}

func ExampleServe() {
	denyAll := func(context.Context, *mcp.Message) (sdk.Verdict, error) {
		return sdk.Deny("all calls are denied"), nil
	}

	sdk.Serve(sdk.Plugin{
		Name:    "deny-all",
		Version: "1.0.0",
		Doc:     "denies every message",
		New:     func(config []byte) (sdk.Stage, error) { return sdk.StageFunc(denyAll), nil },
	})
}

func ExamplePlugin_Check() {
	p := sdk.Plugin{Name: "codenames", Schema: []byte(`{
		"additionalProperties": false,
		"properties": {"words": {"description": "code names to redact", "type": "array", "items": {"type": "string"}}}
	}`)}
	fmt.Println(p.Check([]byte(`{"words": ["Osprey"]}`)))
	fmt.Println(p.Check([]byte(`{"wrds": ["Osprey"]}`)))
	fmt.Println(p.Check([]byte(`{"words": ["Osprey", 7]}`)))
	// Output:
	// <nil>
	// wrds: unknown option, did you mean "words"?
	// words[1]: must be a string, not a number
}

func ExampleModify() {
	m := mcp.NewResponse("1",
		[]byte(`{"content":[{"type":"text","text":"Osprey ships in May."}],"ratio":1.0}`))
	text, _ := m.Text("/content/0/text")
	edit := mcp.Set("/content/0/text", mcp.Quote(strings.ReplaceAll(text, "Osprey", "[codename]")))
	v := sdk.Modify("redacted code names", []mcp.Edit{edit}, pipeline.Finding{Type: "codename",
		Pointer: edit.Pointer})

	m, err := m.Edit(v.Edits...) // the pipeline does this
	fmt.Println(v.Findings[0].Pointer, err)
	fmt.Printf("%s\n", m.Body())
	// Output:
	// /content/0/text <nil>
	// {"content":[{"type":"text","text":"[codename] ships in May."}],"ratio":1.0}
}
