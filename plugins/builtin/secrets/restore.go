package secrets

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// This file decides which redacted values Gatekit may restore. Gatekit keeps these values; the
// plugin only names them in its verdict.

// maxRedacted is how many values of one message may be restored.
const maxRedacted = 1000

// Restore implements sdk.StageWithRestore.
func (s *stage) Restore() *pipeline.Restore {
	if s.config.Restore == "off" {
		return nil
	}
	return &pipeline.Restore{For: s.config.restoreFor, Tools: s.config.RestoreTools}
}

// placeholder returns the placeholder for a secret in a text, whose characters are given. If the
// text may be restored, placeholder notes it for the verdict.
func (in *inspection) placeholder(c candidate, text string) string {
	if !in.isRestorable(text) {
		return in.placeholders.forSecret(c.rule, c.value)
	}
	p := in.placeholders.forSession(c.rule, text, in.message)
	if !pipeline.IsPlaceholder(p) {
		return in.placeholders.forSecret(c.rule, c.value)
	}
	if !in.restorable[p] {
		if in.restorable == nil {
			in.restorable = make(map[string]bool)
		}
		in.restorable[p] = true
		in.redacted = append(in.redacted, pipeline.Redacted{Placeholder: p, Value: text})
	}
	return p
}

// isRestorable reports whether the server of the message may get the text back. Placeholders in
// definitions depend on the definition alone, so that Gatekit can reuse verdicts on definitions.
func (in *inspection) isRestorable(text string) bool {
	m := in.message
	return in.config.Restore != "off" && m.Direction == mcp.ToClient && m.Server != "" &&
		!in.isDefinition() && m.Method != "initialize" && m.Method != "server/discover" &&
		len(in.redacted) < maxRedacted && isOpaque(text)
}

// isOpaque reports whether a text can only be a part of a name or of a value, and leaves the rest
// of an argument as it is. Policies judge the placeholder and not the text, so an author of a file
// could otherwise hide a path, a command or a member of JSON from them: "password: /etc/shadow",
// "Bearer ../../.ssh/id_rsa".
func isOpaque(text string) bool {
	if text == "" {
		return false
	}
	if rest, ok := strings.CutPrefix(text, "-----BEGIN "); ok {
		return strings.HasSuffix(rest, "-----") && !strings.ContainsFunc(rest, func(r rune) bool {
			return !isASCIIAlnum(r) && !strings.ContainsRune("+/=-:, \r\n", r)
		})
	}
	if strings.ContainsFunc(text, func(r rune) bool {
		return !isASCIIAlnum(r) && r < utf8.RuneSelf && !strings.ContainsRune("!#+,-./:=@^_~", r) ||
			unicode.IsSpace(r) || !unicode.IsPrint(r) || r == utf8.RuneError
	}) {
		return false
	}
	// With a dot, or at an end, a slash could change the meaning of the text around it.
	return !strings.ContainsRune("!#+,-./:=@^~", rune(text[0])) && !strings.HasSuffix(text, "/") &&
		!strings.Contains(text, "..") && !strings.Contains(text, ":/") &&
		!(strings.Contains(text, "/") && strings.Contains(text, "."))
}

// dropPlaceholders removes the candidates that are in placeholders of earlier messages.
func dropPlaceholders(all []candidate, s string) []candidate {
	if len(all) > 0 {
		pipeline.EachPlaceholder(s, func(from, to int) bool {
			all = slices.DeleteFunc(all, func(c candidate) bool {
				return c.span.from >= from && c.span.to <= to
			})
			return len(all) > 0
		})
	}
	return all
}
