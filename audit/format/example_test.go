package format_test

import (
	"fmt"
	"os"

	"gatekit/audit"
	"gatekit/audit/format"
)

// What a hostile server calls itself does nothing to the terminal that shows it.
func ExampleNewWriter() {
	r, err := audit.ParseRecord([]byte(
		`{"seq":17,"time":"2026-11-21T11:00:00.123456Z","direction":"to_server","kind":"request","method":"tools/call","server":"files","name":"\u001b[2Jread","action":"deny","reason":"outside of the roots","steps":[{"stage":"roots/traversal","action":"deny"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	form, err := format.New(format.Text, format.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := format.NewWriter(os.Stdout, form, false).Write(r); err != nil {
		fmt.Println(err)
	}
	// Output: 2026-11-21 11:00:00.123Z #17 deny to_server files tools/call \x1b[2Jread: outside of
	// the roots [roots/traversal]
}
