package mcp_test

import (
	"errors"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// A long run of plain characters is read many bytes at a time. What ends it is found at every
// offset.
func TestLongStringsAreReadStrictly(t *testing.T) {
	for _, c := range []struct {
		text   string // after a run of plain characters
		plain  string // what the text means
		reason string // why it is refused; "" if it is not
	}{
		{"", "", ""},
		{`\n`, "\n", ""},
		{`\"`, `"`, ""},
		{`\\`, `\`, ""},
		{`\u00e9`, "é", ""},
		{"é", "é", ""},
		{"\x7f", "\x7f", ""},
		{"\x1f", "", "control character in a string"},
		{"\x01", "", "control character in a string"},
		{`\q`, "", "invalid escape"},
		{`\u00g9`, "", "invalid escape"},
		{"\xff", "", "invalid UTF-8"},
		{"\xc3", "", "invalid UTF-8"},
	} {
		for before := range 140 {
			for _, after := range []int{0, 7, 40, 100} {
				text := strings.Repeat("é", before%2) + strings.Repeat("0", before)
				start := `{"jsonrpc":"2.0","method":"m","params":{"a":"` + text
				tail := strings.Repeat("1", after)
				raw := start + c.text + tail + `","b":1}}`
				m, err := mcp.Parse([]byte(raw))
				if c.reason != "" {
					var e *mcp.ParseError
					if !errors.As(err, &e) || e.Reason != c.reason ||
						e.Offset != int64(len(start)) {
						t.Fatalf("%q: got the error %v, want %q at byte %d", raw, err, c.reason,
							len(start))
					}
					continue
				}
				if err != nil {
					t.Fatalf("%q: %v", raw, err)
				}
				got, _ := m.Text("/a")
				b, _ := m.Get("/b")
				if want := text + c.plain + tail; got != want || string(b) != "1" {
					t.Fatalf("%q has the text %q and the member %q, want %q and 1", raw, got, b,
						want)
				}
			}
		}
	}
}

// A string that ends too early is refused at its end, not at an escape before it.
func TestStringsThatAreCutOff(t *testing.T) {
	for _, end := range []string{"", `\n`, `\u00e9`, "é"} {
		for n := range 140 {
			raw := `{"jsonrpc":"2.0","method":"` + strings.Repeat("x", n) + end
			var e *mcp.ParseError
			if _, err := mcp.Parse([]byte(raw)); !errors.As(err, &e) ||
				e.Reason != "unexpected end" || e.Offset != int64(len(raw)) {
				t.Fatalf("%q: got the error %v, want an unexpected end at byte %d", raw, err,
					len(raw))
			}
		}
	}
}

// Bytes that are not JSON are searched without a panic, wherever they end.
func TestSearchOfCutOffJSONDoesNotPanic(t *testing.T) {
	const tool = `{"title":"x-mcp-header","inputSchema":{"properties":{"b":{"x-mcp-header":"B"},` +
		`"n":-1.5e3 , "d":[1,{"e":[]}],"default":"\u00e9\\","c":{"x-mcp-header":12}}},"x":12 }`
	for i := range len(tool) + 1 {
		mcp.VisitHeaderAnnotations([]byte(tool[:i]), func(string, string) {})
	}
	leafTexts(mcp.NewNotification("x", []byte(`"\u00e9\`)))
}

// The elements of an array that is a body are not taken for members.
func TestBodyThatIsAnArrayHasNoMembers(t *testing.T) {
	m := mcp.NewResponse("1", []byte(`["a",1,"_meta",{"b":2}]`))
	if raw, ok := m.Get("/a"); ok {
		t.Errorf("the array has the member a: %s", raw)
	}
	if raw, _ := m.Get("/0"); string(raw) != `"a"` {
		t.Errorf(`the first element is %s, want "a"`, raw)
	}
}
