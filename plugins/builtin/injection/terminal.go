package injection

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"gatekit/plugins/sdk/scan"
)

const (
	esc = 0x1b
	csi = 0x9b // as one character, whose UTF-8 has two bytes
)

// controlSequence returns the span of the control character at i, or of the change of colour that
// begins there. A change of colour is removed. Any other control character is made visible.
func controlSequence(s string, i int) hiddenSpan {
	r, n := utf8.DecodeRuneInString(s[i:])
	rule, kind := "control-character", rune(0)
	last := i + n // of the bytes before the parameters, if a sequence begins at i
	switch {
	case r == esc && last < len(s):
		rule, kind = "escape-sequence", rune(s[last])
	case r == csi:
		rule, kind = "escape-sequence", '['
		last--
	case r == 0x9d || r == 0x90 || r == 0x98 || r == 0x9e || r == 0x9f: // OSC, DCS, SOS, PM, APC
		rule, kind = "escape-sequence", ']'
		last--
	}
	u := hiddenSpan{Span: scan.Span{From: i, To: i + n}, family: familyTerminal, rule: rule,
		replacement: visibleForm(r)}
	switch kind {
	case '[':
		stop := parametersEnd(s, last+1)
		if stop < len(s) && s[stop] == 'm' {
			u.rule, u.replacement, u.To = "colour", "", stop+1
			if hidesText(s[last+1 : stop]) {
				u.rule = "concealed-text"
			}
		}
	case ']':
		switch {
		case strings.HasPrefix(s[min(last+1, len(s)):], "8;"):
			u.rule = "hyperlink"
		case strings.HasPrefix(s[min(last+1, len(s)):], "52;"):
			u.rule = "clipboard"
		}
	}
	return u
}

// parametersEnd returns the end of the parameters of a control sequence that begin at i.
func parametersEnd(s string, i int) int {
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == ';' || s[i] == ':') {
		i++
	}
	return i
}

// hidesText reports whether one of the attributes conceals the text.
func hidesText(attributes string) bool {
	for a := range strings.SplitSeq(attributes, ";") {
		if a == "8" {
			return true
		}
	}
	return false
}

// visibleForm returns a control character as visible text.
func visibleForm(r rune) string {
	switch {
	case r < ' ':
		return string(0x2400 + r)
	case r == 0x7f:
		return "\u2421"
	}
	return fmt.Sprintf(`\x%02x`, r)
}
