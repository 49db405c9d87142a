package format_test

import (
	"fmt"
	"os"

	"gatekit/audit"
	"gatekit/audit/format"
)

// The name of a tool contains an escape sequence. The text format escapes it, so a terminal does
// not execute it.
func ExampleNewWriter() {
	r, err := audit.ParseRecord([]byte(`{"seq":17,"time":"2026-11-21T11:00:00.123456Z",` +
		`"direction":"to_server","kind":"request","method":"tools/call",` +
		`"name":"\u001b[2Jread","action":"deny",` +
		`"steps":[{"stage":"roots/traversal","action":"deny"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	encoder, err := format.New(format.Text, format.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := format.NewWriter(os.Stdout, encoder, false).Write(r); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2026-11-21 11:00:00.123Z #17   deny       to_server  tools/call \x1b[2Jread [roots/traversal]
}
