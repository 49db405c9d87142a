package policies

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
	"golang.org/x/text/unicode/norm"
)

// TestQuickCheckFindsEveryHiddenTraversal tries all texts of up to four parts. A text without
// special characters must have only one decoding. The quick checks must not miss a text in which
// searchTraversal finds a problem.
func TestQuickCheckFindsEveryHiddenTraversal(t *testing.T) {
	parts := []string{".", "..", "/", "a", " ", "-", "~", "$", "A:", "\\", "%2e",
		";", "．", "file:"}
	var try func(text string, n int)
	try = func(text string, n int) {
		if !hasSpecialCharacters(text) {
			if mayHideTraversal(text) {
				t.Errorf("mayHideTraversal(%q) is true, want false: no special characters", text)
			}
			if all := slices.DeleteFunc(decodeOnce(text), func(o string) bool {
				return strings.TrimSpace(o) == strings.TrimSpace(text)
			}); len(all) > 0 {
				t.Errorf("%q has the decodings %q, want none", text, all)
			}
		}
		if why := searchTraversal(text); (why != "") != mayHideTraversal(text) {
			t.Errorf("mayHideTraversal(%q) is %v, but searchTraversal found: %q", text, why == "",
				why)
		}
		if mayHideTraversal(text) && !canDecodeToTraversal(mcp.Quote(text), true) {
			t.Errorf("canDecodeToTraversal(%q) is false, but the text may hide a traversal", text)
		}
		if n > 0 {
			for _, part := range parts {
				try(text+part, n-1)
			}
		}
	}
	try("", 4)
}

// TestScanOfJSONForTraversals checks canDecodeToTraversal with escapes, in member names and values,
// and at every alignment.
func TestScanOfJSONForTraversals(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"a":"../b","c":["d"]}`:                    true,
		`{"path":"/srv/data.txt","n":1.5,"x":null}`: false,
		`"line\n\t\"quoted\"\/"`:                    false,
		`{"a":"%2e%2e/b"}`:                          true,
		`{"a":"\u002e./b"}`:                         true,
		`{"a":"b\u0000"}`:                           true,
		`{"a":"..\\b"}`:                             true,
		`{"a":"x\\y"}`:                              false,
		`{"．．/":1}`:                                 true,
		`{"a":[{"b":"/．．/"}]}`:                      true,
		`{"a":"50% of them... or %d, %u"}`:          false,
		`{"a":"50%25"}`:                             true,
		`{"a":"%39"}`:                               true,
		`{"a":"%a1"}`:                               true,
		`{"a":"wait...\tand see"}`:                  false,
		`{"a":"%u002e"}`:                            true,
		`{"a":"wait..."}`:                           true,
		`{"a":"wait... \" \t\r;"}`:                  true,
		`{"a":"he said \"wait...\"\nand I did"}`:    false,
		`{"a":"[..\b/"}`:                            false,
		`{"a":"[...\/"}`:                            true,
		`{"a":"naïve — “日本語の本” 🙂, для всех"}`:   false,
		`{"a":"fullwidth，（like this）"}`:         false,
		`{"a":"fullwidth％like this"}`:           true,
		`{"a":"an ellipsis… here"}`:             true,
		`{"a":"no-break` + "\u00a0" + `blank"}`: true,
		`{}`:                                    false,
	} {
		for pad := range 9 { // the scan reads eight bytes at a time
			padded := strings.Repeat(" ", pad) + raw
			if got := canDecodeToTraversal([]byte(padded), true); got != want {
				t.Errorf("canDecodeToTraversal(%s) is %v, want %v", padded, got, want)
			}
		}
	}
}

// TestScanOfOtherCharacters checks which texts of characters that are not ASCII are cleared
// without a search. Frequent characters are cleared in any number, up to both ends of their ranges.
// Of other harmless characters, only a hundred are looked at. Invalid UTF-8 is never cleared.
func TestScanOfOtherCharacters(t *testing.T) {
	check := func(text string, want bool) {
		t.Helper()
		if got := canDecodeToTraversal([]byte(text), false); got != want {
			t.Errorf("canDecodeToTraversal(%q) is %v, want %v", text, got, want)
		}
	}
	const ends = "\u00c0\u0131\u0391\u03c9\u0400\u052f\u05d0\u05ea\u0620\u064a\u0904\u0939" +
		"\u2012\u2016\u2018\u2022\u2190\u21ff\u2500\u25ff\u3001\u3029\u3041\u3096\u30a1\u30fe" +
		"\u4e00\u9fff\uac00\ud7a3\U0001f300\U0001faff"
	for _, r := range ends {
		check(strings.Repeat(string(r), maxMappedRunes+1), false)
	}
	check(strings.Repeat("€", maxMappedRunes), false)
	check(strings.Repeat("€", maxMappedRunes+1), true)
	for _, invalid := range []string{"\x80", "\xff", "a\xe2\x82", "€\x80"} {
		check(invalid, true)
	}
	check("\ufffd", false)
	// In a text that is longer than maxTextBytes, names that begin with ".." count, too.
	for start, isLong := range map[string]bool{"/..x": true, `\..x`: true, "x..x": false,
		"..x": false} {
		check(start+strings.Repeat("x", maxTextBytes-len(start)), false)
		check(start+strings.Repeat("x", maxTextBytes-len(start)+1), isLong)
	}
}

// TestPairsAreFoundExactly tries all pairs of bytes, in JSON and in a text, at three offsets.
func TestPairsAreFoundExactly(t *testing.T) {
	for pair := range 1 << 16 {
		c, next := byte(pair>>8), byte(pair)
		for _, at := range []int{0, 7, scanBytes - 1} {
			b := [scanBytes + 1]byte([]byte(strings.Repeat("x", scanBytes+1)))
			b[at], b[at+1] = c, next
			isListed := func(c byte) bool { return c == '%' || c >= utf8.RuneSelf }
			want := isListed(c) || at+1 < scanBytes && isListed(next) || c == '.' && next == '.'
			if got := hasPairs(&b, ones*'\\', ones*'u'); got != (want || c == '\\' && next == 'u') {
				t.Errorf("hasPairs(%q) is %v in JSON", b, got)
			}
			want = want || c == 0 || at+1 < scanBytes && next == 0
			if got := hasPairs(&b, 0, 0); got != want {
				t.Errorf("hasPairs(%q) is %v, want %v", b, got, want)
			}
		}
	}
}

// TestOrdinaryRunesAreHarmless checks the list of frequent characters.
func TestOrdinaryRunesAreHarmless(t *testing.T) {
	for r := rune(utf8.RuneSelf); r <= unicode.MaxRune; r++ {
		text := string(r)
		if isOrdinaryRune(r) && (!isHarmlessRune(r) || lookAlikes.Replace(norm.NFKC.String(
			text)) != text) {
			t.Errorf("isOrdinaryRune(%U) is true, but decodings change it", r)
		}
	}
}

// TestScanOfLongTexts checks that the bound of the length of a path holds as without the scan.
func TestScanOfLongTexts(t *testing.T) {
	for _, part := range []string{"/...x", `\...x`, "：", "～", "，", "a\u0301", "é", "..;", "%41"} {
		for _, n := range []int{100, maxTextBytes} {
			text := strings.Repeat("x", n) + part
			if why := searchTraversal(text); why != "" && !canDecodeToTraversal([]byte(text),
				false) {
				t.Errorf("canDecodeToTraversal is false for %q after %d bytes, but: %s", part, n,
					why)
			}
		}
	}
}

// traversalParts are parts of texts that decodings treat in special ways.
var traversalParts = []string{".", "..", "/", "a", " ", "\t", "\n", "2e", "5C", "u", "0", "\\", "%",
	"%2e", "%u002e", "%2f", "%25", ";", "；", "．", "…", "‥", "／", "¥", "½", "⒈", "file:", "：", `"`, "'",
	"\x00", "\xc0\xae", "\xff", "\u00a0", "\ufeff", "\u2028", "e\u0301", "\u0338", "=", "é", "本",
	"，", "％", "２", "../", "..\\", "x;y/", "wait...", "b\b", "\v", "\u0085", "~", "C:", "http://h/",
	"🙂", "ﬁle:", "\u030c"}

// FuzzCanDecodeToTraversal compares the quick scan with the search in all decodings, for texts that
// consist of traversalParts.
func FuzzCanDecodeToTraversal(f *testing.F) {
	f.Add([]byte("abcd"))
	f.Fuzz(checkScan)
}

// TestScanOfRandomTexts does the same for random texts. More of them need -scans.
func TestScanOfRandomTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(13, uint64(*scans)))
	for range *scans {
		few := random.Perm(len(traversalParts))[:4] // fewer texts are suspicious than with all
		chosen := make([]byte, 1+random.IntN(12))
		for i := range chosen {
			chosen[i] = byte(few[random.IntN(len(few))])
		}
		checkScan(t, chosen)
	}
}

var scans = flag.Int("scans", 2_000, "number of texts of TestScanOfRandomTexts")

// checkScan checks that a text in which the search finds a problem is suspicious.
func checkScan(t *testing.T, chosen []byte) {
	var b strings.Builder
	for _, c := range chosen[:min(len(chosen), 40)] {
		b.WriteString(traversalParts[int(c)%len(traversalParts)])
	}
	text := b.String()
	if canDecodeToTraversal([]byte(text), false) && (!utf8.ValidString(text) ||
		canDecodeToTraversal(mcp.Quote(text), true)) {
		return
	}
	why := searchTraversal(text)
	if why == "there are too many ways to decode the text" {
		why = searchDecodings(text, 3_000)
	}
	if why != "" {
		t.Errorf("canDecodeToTraversal(%q) is false, but: %s", text, why)
	}
}

// searchDecodings is searchTraversal with another limit of the number of decodings, and without an
// error above the limit.
func searchDecodings(text string, limit int) string {
	text = strings.TrimSpace(text)
	parents := max(countParents(text), countParents(trimQuotes(text)))
	if isWindowsPath(text) {
		parents = max(parents, countParents(strings.ReplaceAll(text, `\`, "/")))
	}
	decodings, seen := []string{text}, map[string]bool{text: true}
	for i := 0; i < len(decodings) && i < limit; i++ {
		if strings.Contains(decodings[i], "\x00") || countParents(decodings[i]) > parents {
			return "one of many decodings has a traversal"
		}
		for _, next := range decodeOnce(decodings[i]) {
			if !seen[next] {
				seen[next] = true
				decodings = append(decodings, next)
			}
		}
	}
	return ""
}

// FuzzJSONMayHideTraversal checks that jsonMayHideTraversal returns the same result for JSON as
// gatekit.path.disguised returns for the decoded JSON.
func FuzzJSONMayHideTraversal(f *testing.F) {
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
			t.Errorf("jsonMayHideTraversal(%s) is %v, want %v as from the built-in function", raw,
				got, want)
		}
	})
}
