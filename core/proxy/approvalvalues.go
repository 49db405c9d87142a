package proxy

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"gatekit/core/display"
	"gatekit/core/mcp"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the values that a human sees before approving a request.
const (
	maxApprovalValues = 2_000 // bytes of all values together
	maxApprovalValue  = 200   // bytes of one string or number
	maxMaskedText     = 4_000 // bytes of one string that are searched for secrets
)

// secretName matches the names of members whose values are not shown. secretText matches secrets
// inside of values that are shown.
var (
	secretName = regexp.MustCompile(`(?i)pass(wd|word|phrase|code)|pwd|secret|token|api[-_]?key|` +
		`credential|authorization|private[-_]?key|access[-_]?key|cookie|^(otp|pin|auth|bearer)$`)
	secretText = regexp.MustCompile(`(?i)-----BEGIN [A-Z ]*PRIVATE KEY(?s:.*)|` +
		`\b(sk|pk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|` +
		`\bxox[a-z]-[\w-]{10,}|\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|` +
		`\beyJ[\w-]{8,}\.[\w-]{8,}(\.[\w-]*)?|\b(bearer|basic)\s+[\w.~+/=-]{8,}|` +
		`//[^/\s:@]*:[^/\s@]+@|` +
		`\b[\w-]*(password|passwd|secret|token|api[-_]?key)["']?\s*[=:]\s*["']?[^\s"'&,;]+`)
)

const masked = "[masked]"

// approvalValues returns the params of m as a text. A human who has to approve m reads this text.
// The text is bounded and escaped, has one line, and its secrets are masked. The members of _meta
// come last. Progress tokens, members that the protocol reserves, and members that Gatekit removes
// are left out. Where values are cut, their size is shown.
func approvalValues(m *mcp.Message) string {
	var all strings.Builder
	left, size := maxApprovalValues, 0
	show := func(name string, raw []byte) {
		text := displayed(name, raw, left)
		size += len(raw)
		if left > 0 {
			if all.Len() > 0 {
				all.WriteString(", ")
			}
			all.WriteString(display.EscapeLine(name, maxApprovalValue) + ": " + text)
			left -= len(name) + len(text)
		}
	}
	m.Members("", func(name string, raw []byte) bool {
		if name != "_meta" {
			show(name, raw)
		}
		return true
	})
	m.Members("/_meta", func(name string, raw []byte) bool {
		if name != "progressToken" && !strings.HasPrefix(name, mcp.ReservedMetaPrefix) &&
			!mcp.IsTrustMeta(name) {
			show("_meta."+name, raw)
		}
		return true
	})
	if left <= 0 {
		return all.String() + fmt.Sprintf(" … (%d bytes in all; the rest is not shown)", size)
	}
	return all.String()
}

// displayed returns a member's value as JSON on one line. It stops when the text is longer than
// limit bytes.
func displayed(name string, raw []byte, limit int) string {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true))
	var b strings.Builder
	// for each open object or array, the name of the member whose value comes next
	names := []string{name}
	afterName, first := false, true
	for {
		t, err := d.ReadToken()
		if err != nil {
			return b.String()
		}
		kind := t.Kind()
		if kind == '}' || kind == ']' {
			names = names[:len(names)-1]
			b.WriteByte(byte(kind))
			first = false
			if d.StackDepth() == 0 {
				return b.String()
			}
			continue
		}
		if b.Len() > limit {
			return b.String() + "…"
		}
		if !first && !afterName {
			b.WriteString(", ")
		}
		first = false
		container, members := d.StackIndex(d.StackDepth())
		isName := kind == '"' && container == '{' && members%2 == 1
		switch {
		case isName:
			names[len(names)-1] = t.String()
			b.WriteString(display.Quote(t.String(), maxApprovalValue) + ": ")
		case kind == '{' || kind == '[':
			inner := names[len(names)-1]
			if secretName.MatchString(inner) {
				inner = "secret" // so that everything inside is masked
			}
			names = append(names, inner)
			b.WriteByte(byte(kind))
			first = true
		case kind == '"':
			b.WriteString(displayedString(names, t.String()))
		case kind == '0' && anySecret(names[:len(names)-1]):
			b.WriteString(masked)
		default:
			b.WriteString(display.Clip(t.String(), maxApprovalValue))
		}
		afterName = isName
		if d.StackDepth() == 0 {
			return b.String()
		}
	}
}

func anySecret(names []string) bool {
	for _, n := range names {
		if secretName.MatchString(n) {
			return true
		}
	}
	return false
}

// displayedString returns text as humans see it. names are the names of the members that contain
// text.
func displayedString(names []string, text string) string {
	if anySecret(names) {
		return masked
	}
	size := len(text)
	text = secretText.ReplaceAllString(display.Clip(text, maxMaskedText), masked)
	if size <= maxApprovalValue {
		return display.Quote(text, maxApprovalValue)
	}
	return fmt.Sprintf("%s (%d bytes)", display.Quote(text, maxApprovalValue), size)
}
