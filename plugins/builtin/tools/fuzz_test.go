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

// FuzzPatterns checks, in calls and in lists, that * stands for any characters and that no other
// character is special.
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
		p, _ := newPipeline(t, `{"tools":{"hide":[`+string(mcp.Quote(pattern))+`]}}`)
		want := regexp.MustCompile(`(?s)\A` + strings.Join(quoteAll(strings.Split(pattern, "*")),
			".*") + `\z`).MatchString(name)
		item := `{"name":` + string(mcp.Quote(name)) + `}`
		if got := pass(t, p, request(t, "tools/call", item, name)) == "denied"; got != want {
			t.Errorf("pattern %q, name %q: hidden %v, want %v", pattern, name, got, want)
		}
		if got := pass(t, p, response(t,
			"tools/list", `{"tools":[`+item+`]}`)) == `{"tools":[]}`; got != want {
			t.Errorf("pattern %q, name %q: hidden in a list %v, want %v", pattern, name, got, want)
		}
	})
}

func quoteAll(parts []string) []string {
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return parts
}

// FuzzAllowedURI parses each URI with Go's package url. It checks that the path of a URI which
// passes an allow list is within the allowed path. It also checks that the path of a URI which
// passes a hide list is not within the hidden path.
func FuzzAllowedURI(f *testing.F) {
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
		m := request(t, "resources/read", params, uri)
		allow, _ := newPipeline(t, `{"resources":{"allow":["file:///logs/*"]}}`)
		hide, _ := newPipeline(t, `{"resources":{"hide":["file:///etc/*"]}}`)
		u, err := url.Parse(uri)
		if err != nil {
			return
		}
		cleaned := path.Clean(u.Path)
		if pass(t, allow, m) != "denied" && cleaned != "/logs" && !strings.HasPrefix(cleaned,
			"/logs/") {
			t.Errorf("%q is allowed, but its path is %q", uri, cleaned)
		}
		if pass(t, hide, m) != "denied" && strings.HasPrefix(cleaned, "/etc/") {
			t.Errorf("%q is not hidden, but its path is %q", uri, cleaned)
		}
	})
}
