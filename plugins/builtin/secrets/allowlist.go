package secrets

import (
	"fmt"
	"regexp"
	"strings"
)

// allowlist describes texts that are no secrets although a rule detects them, in gitleaks' format.
type allowlist struct {
	// RegexTarget selects the text that Regexes are matched against: "" is the secret, "match"
	// is the whole match, and "line" is the lines of the match.
	RegexTarget string
	Regexes     []string
	StopWords   []string
	Condition   string   // "AND" with Paths: the list applies to files only, and is not used
	Paths       []string // of files; messages have none

	compiled  []*regexp.Regexp
	stopIndex map[[3]byte][]string // StopWords in lower case, by their first three bytes
}

// compileAllowlists returns the lists that can apply to a message, ready for use.
func compileAllowlists(lists []allowlist) ([]allowlist, error) {
	var ready []allowlist
	for _, a := range lists {
		if a.Condition == "AND" && len(a.Paths) > 0 || len(a.Regexes) == 0 &&
			len(a.StopWords) == 0 {
			continue
		}
		for _, expr := range a.Regexes {
			re, err := regexp.Compile(expr)
			if err != nil {
				return nil, fmt.Errorf("allow list: %w", err)
			}
			a.compiled = append(a.compiled, re)
		}
		a.stopIndex = make(map[[3]byte][]string)
		for _, w := range a.StopWords {
			if len(w) < 3 {
				return nil, fmt.Errorf("allow list: the stop word %q is shorter than three bytes",
					w)
			}
			w = strings.ToLower(w)
			key := [3]byte([]byte(w[:3]))
			a.stopIndex[key] = append(a.stopIndex[key], w)
		}
		ready = append(ready, a)
	}
	return ready, nil
}

// allows reports whether the list accepts the secret, which is part of the match in s.
func (a *allowlist) allows(s string, match, secret span) bool {
	target := secret.substring(s)
	switch a.RegexTarget {
	case "match":
		target = match.substring(s)
	case "line":
		from := strings.LastIndexByte(s[:match.from], '\n') + 1
		to := len(s)
		if n := strings.IndexByte(s[match.to:], '\n'); n >= 0 {
			to = match.to + n
		}
		target = s[max(from, match.from-maxContext):min(to, match.to+maxContext)]
	}
	for _, re := range a.compiled {
		if re.MatchString(target) {
			return true
		}
	}
	return a.hasStopWord(secret.substring(s))
}

// hasStopWord reports whether the secret contains a stop word, regardless of case.
func (a *allowlist) hasStopWord(secret string) bool {
	if len(a.stopIndex) == 0 {
		return false
	}
	secret = strings.ToLower(secret)
	for i := 0; i+3 <= len(secret); i++ {
		for _, w := range a.stopIndex[[3]byte{secret[i], secret[i+1], secret[i+2]}] {
			if strings.HasPrefix(secret[i:], w) {
				return true
			}
		}
	}
	return false
}
