package mcp_test

import (
	"fmt"
	"strings"

	"gatekit/core/mcp"
)

func ExampleParse() {
	m, err := mcp.Parse([]byte(
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"files__read","arguments":{"n":1.0}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	name, _ := m.Text("/name")
	n, _ := m.Get("/arguments/n")
	fmt.Println(m.Kind, m.ID(), m.Method, name, string(n))

	_, err = mcp.Parse([]byte(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","n\u0061me":"evil"}}`))
	fmt.Println(err)
	// Output:
	// request 9007199254740993 tools/call files__read 1.0
	// not a valid message: duplicate name "name" in /params/name (byte 70)
}

func ExampleMessage_Edit() {
	m, _ := mcp.Parse([]byte(
		`{"jsonrpc":"2.0", "id":1, "method":"ping", "params":{"key":"secret", "n":1.0}}`))
	m, err := m.Edit(
		mcp.Remove("/key"),
		mcp.Set("/_meta/progressToken", []byte(`7`)),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", m.WithID(`"u1"`).Append(nil))
	// Output:
	// {"jsonrpc":"2.0", "id":"u1", "method":"ping", "params":{"n":1.0,"_meta":{"progressToken":7}}}
}

func ExampleRewriteNames() {
	m := mcp.NewResponse("1", []byte(`{"tools":[{"name":"read", "description":"name a file"}]}`))
	m.Method, m.Direction = "tools/list", mcp.ToClient
	m, err := mcp.RewriteNames(m, func(p mcp.NamePlace, name string) (string, error) {
		return "files__" + name, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", m.Body())

	m, _ = mcp.Parse([]byte(
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"files__read"}}`))
	m.Direction = mcp.ToServer
	m, _ = mcp.RewriteNames(m, func(p mcp.NamePlace, name string) (string, error) {
		return strings.TrimPrefix(name, "files__"), nil
	})
	fmt.Printf("%s\n", m.Body())
	// Output:
	// {"tools":[{"name":"files__read", "description":"name a file"}]}
	// {"name":"read"}
}
