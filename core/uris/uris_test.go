package uris_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/uris"
)

// TestCanonicalIsTheSameForAllSpellings checks spellings with which a client of the usual SDKs gets
// the same resource, and URIs of other resources.
func TestCanonicalIsTheSameForAllSpellings(t *testing.T) {
	for want, spellings := range map[string][]string{
		"file:///D/a": {"file:///D/a", "file://localhost/D/a", "FILE:/D/a", "file:////D/a",
			"file://LOCALHOST./D/a", " file:///D/a", "file:///x/%2e%2E/D/a", `file:\\\D\a`,
			"\ufefffile:///D/a", "file://127.0.0.1/D/a", "fi\tle:///D/%61"},
		"https://h.example/a": {"HTTPS://H.Example:443/a", "https://u:p@h.example./a",
			"https:/h.example/a", `https:\\h.example\a`, "https://%68.example/%61",
			"https://\uff48.example/b/../a", "https://h.example:/a"},
		"http://127.0.0.1/": {"http://127.1", "http://0x7f.1/", "http://0177.0.0.1:80/"},
		"https://[::1]/":    {"https://[0:0::1]/", "https://[::1]:443"},
		"note://box/a":      {"NOTE://box/x/../a", "note://box//%61"},
		"secret":            {" secret", "sec\nret"},
	} {
		for _, s := range spellings {
			if got := uris.Canonical(s); got != want {
				t.Errorf("the canonical spelling of %q is %q, want %q", s, got, want)
			}
			if !slices.Contains(uris.Readings(s), want) {
				t.Errorf("the readings of %q lack %q", s, want)
			}
		}
	}
	for _, pair := range [][2]string{{"file:///a", "file:///A"}, {"https://h/a", "http://h/a"},
		{"https://h/a", "https://h:444/a"}, {"file:///a%2Fb", "file:///a/b"},
		{"file:///a%25b", "file:///a%b/"}, {"note:a", "note:A"}} {
		if uris.Canonical(pair[0]) == uris.Canonical(pair[1]) {
			t.Errorf("%q and %q have the same canonical spelling, want two", pair[0], pair[1])
		}
	}
}

// hostileURIs returns URIs of about n bytes that a slow parser takes quadratic time for.
func hostileURIs(n int) (all []string) {
	for _, s := range []string{"/", "../", "%2e%2e/", "a/../", "%", "%25", "\t", " ", ".", "@", ":",
		"\\", "{", "{a}", "{/a*}", "?", "#", "[", "é", ". .", "..  ", "0x1."} {
		for _, scheme := range []string{"", "file://", "https://", "note:", "note://"} {
			all = append(all, scheme+strings.Repeat(s, n/len(s)))
		}
	}
	return all
}

// TestHostileURIsTakeLinearTime compares the time for URIs of 1 MB with a bound that a quadratic
// function exceeds by far.
func TestHostileURIsTakeLinearTime(t *testing.T) {
	for _, uri := range hostileURIs(1 << 20) {
		started := time.Now()
		uris.Readings(uri)
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("the readings of 1 MB of %.20q took %v, want less than 10 s", uri, took)
		}
	}
}

// FuzzCanonical checks that no path leads to another host or scheme, that the canonical spelling of
// a canonical spelling is the same, and that it has no tab and no line break.
func FuzzCanonical(f *testing.F) {
	for _, s := range append(hostileURIs(9), "D/a", "/C:/x", "?b#c", "%41%2f%u0041", "x:/..//..",
		"..%5c..", "//evil.example/", `\\evil.example\`, "@evil.example/", "\u2025/", "%7%30",
		"%%370") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for _, prefix := range []string{"https://h.example/", "file:///", "note://h/"} {
			c := uris.Canonical(prefix + path)
			if !strings.HasPrefix(c, prefix) {
				t.Errorf("%q: the canonical spelling is %q, want %s at its beginning", prefix+path,
					c, prefix)
			}
			if again := uris.Canonical(c); again != c {
				t.Errorf("%q: the canonical spelling is %q, and of that %q", prefix+path, c, again)
			}
			if strings.ContainsAny(c, "\t\n\r") {
				t.Errorf("%q: the canonical spelling %q has a tab or a line break", prefix+path, c)
			}
		}
		uris.Readings(path)
	})
}
