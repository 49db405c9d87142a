package policies

import (
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A text in which the quick check finds nothing has only one decoding, so that the full check finds
// nothing either.
func TestQuickCheckFindsEveryHiddenTraversal(t *testing.T) {
	letters := []string{".", "..", "/", "a", " ", "-", "~", "$", "A:", "\\", "%2e",
		";", "．", "file:"}
	var try func(text string, n int)
	try = func(text string, n int) {
		if !hasSpecialCharacters(text) {
			if mayHideTraversal(text) {
				t.Errorf("%q may be disguised", text)
			}
			if all := slices.DeleteFunc(decodeOnce(text), func(o string) bool {
				return strings.TrimSpace(o) == strings.TrimSpace(text)
			}); len(all) > 0 {
				t.Errorf("%q can be read as %q", text, all)
			}
		}
		if why := hiddenTraversal(text); why != "" && !mayHideTraversal(text) {
			t.Errorf("%q: %s", text, why)
		}
		if mayHideTraversal(text) && isPlainJSON(mcp.Quote(text)) {
			t.Errorf("%q is plain", text)
		}
		if n > 0 {
			for _, l := range letters {
				try(text+l, n-1)
			}
		}
	}
	try("", 4)
}

// isPlainJSON sees JSON as it is written: with escapes, in member names and values, at every
// length.
func TestPlainJSONHidesNoTraversal(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"a":"../b","c":["d"]}`:                    false,
		`{"path":"/srv/data.txt","n":1.5,"x":null}`: true,
		`"line\n\t\"quoted\"\/"`:                    true,
		`{"a":"%2e%2e/b"}`:                          false,
		`{"a":"\u002e./b"}`:                         false,
		`{"a":"b\u0000"}`:                           false,
		`{"a":"..\\b"}`:                             false,
		`{"a":"x\\y"}`:                              false,
		`{"．．/":1}`:                                 false,
		`{"a":[{"b":"/．．/"}]}`:                      false,
		`{}`:                                        true,
	} {
		for pad := range 9 { // the check reads eight bytes at a time
			padded := strings.Repeat(" ", pad) + raw
			if got := isPlainJSON([]byte(padded)); got != want {
				t.Errorf("plain(%s) = %v", padded, got)
			}
		}
	}
}

// jsonMayHideTraversal returns for JSON what gatekit.path.disguised returns for its value.
func FuzzDisguisedIn(f *testing.F) {
	for _, seed := range []string{`{"a":"..%2f"}`, `["\u002e\u002e/x", {"．．":1}]`,
		`"\\..\\"`, `{"a":"x..;/"}`, `"\ud800"`, `1e5`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"x":` + string(raw) +
			`}}`)); err != nil {
			return
		}
		if got, want := jsonMayHideTraversal(raw), anyTextMayHideTraversal(ast.NewTerm(valueOf(raw,
			nil))); got != want {
			t.Errorf("%s: %v, the built-in function returns %v", raw, got, want)
		}
	})
}
