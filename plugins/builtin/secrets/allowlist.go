package secrets

import (
	"fmt"
	"regexp"
	"strings"
)

// allowlist says what is no secret although a rule finds it; gitleaks' format.
type allowlist struct {
	// "": the secret; "match": all that the rule matched; "line": the lines of it
	RegexTarget string
	Regexes     []string
	StopWords   []string
	Condition   string   // "AND": all of it; else any
	Paths       []string // of files; there are none in messages

	compiled  []*regexp.Regexp
	stopIndex map[[3]byte][]string // by their first three bytes
}

// compileAllowlists are the lists that can apply to a message, ready.
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
				return nil, fmt.Errorf("allow-list: %w", err)
			}
			a.compiled = append(a.compiled, re)
		}
		a.stopIndex = make(map[[3]byte][]string)
		for _, w := range a.StopWords {
			if len(w) < 3 {
				return nil, fmt.Errorf("allow-list: the stop word %q is shorter than three bytes",
					w)
			}
			w = strings.ToLower(w)
			a.stopIndex[[3]byte([]byte(w[:3]))] = append(a.stopIndex[[3]byte([]byte(w[:3]))], w)
		}
		ready = append(ready, a)
	}
	return ready, nil
}

// allows says whether the list lets the secret pass, which was found in s at match.
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
