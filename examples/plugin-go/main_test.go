package main

import (
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/sdktest"
)

const config = `{"words":["Blue","Blue Heron"]}`

func call(params string) *mcp.Message {
	m := mcp.NewRequest("1", "tools/call", []byte(params))
	m.Direction, m.Server, m.Name = mcp.ToServer, "files", "read_file"
	return m
}

func result(body string) *mcp.Message {
	m := mcp.NewResponse("1", []byte(body))
	m.Direction, m.Server, m.Method, m.Name = mcp.ToClient, "files", "tools/call", "read_file"
	return m
}

// TestPlugin runs the test suite for all plugins.
func TestPlugin(t *testing.T) {
	sdktest.Run(t, plugin(), config,
		result(`{"content":[{"type":"text","text":"BLUE HERON ships in May."}]}`))
}

// TestStage tests the verdicts of this plugin.
func TestStage(t *testing.T) {
	stage, err := plugin().New([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		m      *mcp.Message
		action pipeline.Action
		want   string // the forwarded body
	}{
		{"a call without a code name", call(`{"arguments":{"path":"red.txt"}}`), pipeline.Allow,
			`{"arguments":{"path":"red.txt"}}`},
		{"a call with a code name", call(`{"arguments":{"path":"blue heron.txt"}}`), pipeline.Deny,
			""},
		{"a code name as the name of an argument", call(`{"arguments":{"Blue Heron":1}}`),
			pipeline.Deny,
			""},
		{"a result with two code names", result(`{"text":"Blue Heron, then Blue.","n":1.0}`),
			pipeline.Modify, `{"text":"[codename], then [codename].","n":1.0}`},
		{"a code name as the name of a member of a result", result(`{"blue":1}`), pipeline.Deny,
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := stage.Inspect(t.Context(), c.m)
			if err != nil || v.Action != c.action {
				t.Fatalf("got action %d (%v), want %d", v.Action, err, c.action)
			}
			if v.Action == pipeline.Deny {
				return
			}
			after, err := c.m.Edit(v.Edits...)
			if err != nil || string(after.Body()) != c.want {
				t.Errorf("got %s (%v), want %s", after.Body(), err, c.want)
			}
		})
	}
}
