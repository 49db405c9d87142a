package tools_test

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"gatekit/core/mcp"
)

// FuzzPatterns holds that a * is any characters and nothing else is special, in calls and in lists
// alike.
func FuzzPatterns(f *testing.F) {
	for _, s := range []string{"delete_*", "*", "a*b*c", "*a*a*", "a.b", "[a-z]+", "**", `\*`,
		"wör*"} {
		f.Add(s, s)
		f.Add(s, strings.ReplaceAll(s, "*", "xa"))
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if pattern == "" || name == "" || !utf8.ValidString(pattern) || !utf8.ValidString(name) {
			return
		}
		p, _ := stageOf(t, `{"tools":{"hide":[`+string(mcp.Quote(pattern))+`]}}`)
		want := regexp.MustCompile(`(?s)\A` + strings.Join(quoted(strings.Split(pattern, "*")),
			".*") + `\z`).MatchString(name)
		item := `{"name":` + string(mcp.Quote(name)) + `}`
		if got := pass(t, p, ask(t, "tools/call", item, name)) == "denied"; got != want {
			t.Errorf("pattern %q, name %q: hidden %v, want %v", pattern, name, got, want)
		}
		if got := pass(t, p, answer(t,
			"tools/list", `{"tools":[`+item+`]}`)) == `{"tools":[]}`; got != want {
			t.Errorf("pattern %q, name %q: hidden in a list %v, want %v", pattern, name, got, want)
		}
	})
}

func quoted(parts []string) []string {
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return parts
}

// FuzzAnAllowedURILeadsNowhereElse holds that whatever URI an allow list lets through, Go's own
// reading of it is within what is allowed, and that no reading of it is what is hidden.
func FuzzAnAllowedURILeadsNowhereElse(f *testing.F) {
	for _, s := range []string{"a", "../etc/passwd", "%2e%2e/etc/passwd", `..\etc`, "a/./b",
		"a//../..//etc", "..%2f..%2fetc%", "?../", "#/..", "\t.\n./x", "..", "a/.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		uri := "file:///logs/" + rest
		if !utf8.ValidString(uri) {
			return
		}
		params := fmt.Sprintf(`{"uri":%s}`, mcp.Quote(uri))
		m := ask(t, "resources/read", params, uri)
		allow, _ := stageOf(t, `{"resources":{"allow":["file:///logs/*"]}}`)
		hide, _ := stageOf(t, `{"resources":{"hide":["file:///etc/*"]}}`)
		u, err := url.Parse(uri)
		if err != nil {
			return
		}
		at := path.Clean(u.Path)
		if pass(t, allow, m) != "denied" && at != "/logs" && !strings.HasPrefix(at, "/logs/") {
			t.Errorf("%q is %q, and allowed", uri, at)
		}
		if pass(t, hide, m) != "denied" && strings.HasPrefix(at, "/etc/") {
			t.Errorf("%q is %q, and not hidden", uri, at)
		}
	})
}
