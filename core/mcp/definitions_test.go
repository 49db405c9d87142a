package mcp_test

import (
	"testing"

	"gatekit/core/mcp"
)

func TestHasDefinitions(t *testing.T) {
	list := mcp.Message{Kind: mcp.Response, Direction: mcp.ToClient, Method: "tools/list"}
	if !mcp.HasDefinitions(&list) {
		t.Error("a list of tools has no definitions")
	}
	request, toServer, call := list, list, list
	request.Kind, toServer.Direction, call.Method = mcp.Request, mcp.ToServer, "tools/call"
	for name, m := range map[string]*mcp.Message{"a request": &request,
		"a result to a server": &toServer, "the result of a call": &call} {
		if mcp.HasDefinitions(m) {
			t.Errorf("%s has definitions", name)
		}
	}
}
