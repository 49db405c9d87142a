package display_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"gatekit/core/display"
)

func ExampleQuote() {
	fmt.Println(display.Quote("read_file\x1b[31m", 100))
	fmt.Println(display.Quote("a name that does not end", 6))
	// Output:
	// "read_file\x1b[31m"
	// "a name…"
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"short text stays as it is", "tool", 4, "tool"},
		{"long text is cut", "tools", 4, "tool…"},
		{"no character is cut in two", "aé", 2, "a…"},
		{"the limit is shorter than the first character", "é", 1, "…"},
		{"limit 0", "tool", 0, "…"},
		{"empty text", "", 0, ""},
		{"bytes that are not UTF-8 are replaced", "a\xffb", 10, "a\uFFFDb"},
		{"bytes that are not UTF-8 in cut text", "\xff\xffabc", 3, "\uFFFDa…"},
	} {
		if got := display.Clip(c.text, c.limit); got != c.want {
			t.Errorf("%s: Clip(%q, %d) is %q, want %q", c.name, c.text, c.limit, got, c.want)
		}
	}
}

// For every text, Clip returns valid UTF-8 of bounded length, and Quote returns text
// without control characters.
func FuzzQuote(f *testing.F) {
	f.Add("read_file", 100)
	f.Add("\x1b]0;title\a\u202e\xff", 5)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(0, min(limit, 1000))
		clipped := display.Clip(text, limit)
		if !utf8.ValidString(clipped) {
			t.Errorf("Clip(%q, %d) is not UTF-8: %q", text, limit, clipped)
		}
		// Each invalid byte is replaced by U+FFFD, which has three bytes.
		if most := 3*limit + len("…"); len(clipped) > most {
			t.Errorf("Clip(%q, %d) has %d bytes, want at most %d", text, limit, len(clipped), most)
		}
		if quoted := display.Quote(text, limit); strings.ContainsFunc(quoted, func(r rune) bool {
			return r < ' ' || r == 0x7f || r == '\u202e'
		}) {
			t.Errorf("Quote(%q, %d) holds a control character: %q", text, limit, quoted)
		}
	})
}
