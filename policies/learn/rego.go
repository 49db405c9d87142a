package learn

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"gatekit/core/mcp"
)

// quote returns a text as a string of Rego.
func quote(s string) string { return escape(mcp.Quote(s)) }

// escape returns JSON with the characters escaped that Rego or YAML may not have in a file, such as
// a byte-order mark. They can only be in texts, and servers and clients choose the texts.
func escape[T ~string | ~[]byte](raw T) string {
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case unicode.IsPrint(r) || r == '\n':
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func isNotPrint(r rune) bool { return !unicode.IsPrint(r) }

// rawQuote returns a text as a raw string of Rego, if this is possible.
func rawQuote(s string) string {
	if strings.ContainsRune(s, '`') || strings.ContainsFunc(s, isNotPrint) {
		return quote(s)
	}
	return "`" + s + "`"
}

var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// keywords of Rego are not identifiers.
var keywords = []string{"as", "contains", "data", "default", "else", "every", "false", "if",
	"import", "in", "input", "not", "null", "package", "some", "true", "with"}

// packagePath returns the path of a rule's package below root.
func packagePath(root, rule string) string {
	for part := range strings.SplitSeq(rule, "/") {
		if identifier.MatchString(part) && !slices.Contains(keywords, part) {
			root += "." + part
		} else {
			root += "[" + quote(part) + "]"
		}
	}
	return root
}

// Files returns the files of the policy by their paths with slashes, relative to a folder: each
// statement and its tests. The mode of the statements is enforce or shadow.
func (p *Policy) Files(mode string) map[string][]byte {
	files := map[string][]byte{}
	for _, s := range p.Statements {
		files[s.File] = []byte(s.source(mode))
		files[strings.TrimSuffix(s.File, ".rego")+"_test.rego"] = []byte(s.tests())
	}
	return files
}

// placePrefix begins the line of a file that says where in the arguments the values are: the names
// of members, and true for the items of an array.
const placePrefix = "# Place: "

// source returns the Rego of a statement.
func (s *Statement) source(mode string) string {
	var b strings.Builder
	// the title may have names that servers and clients chose, and YAML has other escapes than JSON
	title := strings.Map(func(r rune) rune {
		if isNotPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s.Title)
	fmt.Fprintf(&b, "# METADATA\n# title: %s\n", quote(title))
	if mode == "shadow" {
		b.WriteString("# custom:\n#   mode: shadow\n")
	}
	fmt.Fprintf(&b, "package %s\n\n", packagePath("gatekit", s.Rule))
	records := make([]string, len(s.Records))
	for i, r := range s.Records {
		records[i] = fmt.Sprint(r)
	}
	fmt.Fprintf(&b, "# Learned from %s of %s.\n", plural(s.Count, "request"),
		plural(s.Principals, "principal"))
	fmt.Fprintf(&b, "# First seen %s, last seen %s.\n", s.First.Format(time.RFC3339),
		s.Last.Format(time.RFC3339))
	fmt.Fprintf(&b, "# Records: %s.\n", strings.Join(records, ", "))
	if raw, err := marshal(s.place); err == nil && s.place != nil {
		fmt.Fprintf(&b, "%s%s\n", placePrefix, escape(raw))
	}
	for _, v := range s.FewPrincipals {
		fmt.Fprintf(&b, "# FEW PRINCIPALS: only one principal accounts for %s.\n", quote(v))
	}
	return b.String() + s.body
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// tests returns the tests of a statement.
func (s *Statement) tests() string {
	path := packagePath("gatekit", s.Rule)
	b := fmt.Sprintf("package %s\n\nimport data.%s as learned\n", packagePath("gatekit",
		s.Rule+"_test"), path)
	if s.allowedExample != "" {
		b += fmt.Sprintf("\ntest_learned_is_allowed if {\n\tcount(learned.deny) == 0 with input "+
			"as %s\n}\n", s.allowedExample)
	}
	return b + fmt.Sprintf("\ntest_other_is_refused if {\n\tcount(learned.deny) == 1 with "+
		"input as %s\n}\n", s.refusedExample)
}
