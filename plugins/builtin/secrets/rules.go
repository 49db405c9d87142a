package secrets

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

//go:embed gitleaks.toml
var gitleaksRules string

//go:embed rules.toml
var ownRules string

// ruleFile is a file of rules, in gitleaks' format; changes are ours.
type ruleFile struct {
	Allowlist allowlist
	Rules     []ruleSource
	Changes   []ruleChange
}

// ruleSource is a rule as it is written.
type ruleSource struct {
	ID          string
	Description string
	Regex       string
	Path        string
	Entropy     float64
	SecretGroup int
	Keywords    []string
	Allowlists  []allowlist
	Whole       bool // the secret is the whole match
	Off         bool // unless it is enabled
}

// ruleChange is what is not as gitleaks has it, and why.
type ruleChange struct {
	ID    string
	Why   string
	Whole bool
	Off   bool
	Drop  bool
}

// How gitleaks writes "name = value", and what ends a secret.
const (
	nameStart      = `[\w.-]{0,50}?(?:`
	nameEnd        = `)(?:[ \t\w.-]{0,20})[\s'"\\]{0,5}`
	assignOperator = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)`
	valueStart     = `[\x60'"\s=\\]{0,7}`
)

// secretEnd is how gitleaks writes what ends a secret.
const secretEnd = `(?:[\x60'"\s;]|\\[nr]|$)`

// escapedQuotes lets quotes be escaped, as in JSON within a text.
var escapedQuotes = strings.NewReplacer(
	`)(?:[ \t\w.-]{0,20})[\s'"]{0,3}`, nameEnd,
	`[\x60'"\s=]{0,5}`, valueStart,
)

// widenRegex is a regex of gitleaks' that finds its secrets in JSON within a text, in URLs, logs
// and prose, too. What a generic rule takes for a value may not be ended by what ends names in
// code.
func widenRegex(id, regex string) string {
	end := `(?:[\x60'"\s;\\&#|<,>)}\]]|[.:!?](?:\s|$)|$)`
	if strings.Contains(id, "generic") {
		end = `(?:[\x60'"\s;\\&#|<]|$)`
	}
	return strings.ReplaceAll(escapedQuotes.Replace(regex), secretEnd, end)
}

// rule is a rule in use.
type rule struct {
	id           string
	secretGroup  int // of the secret; 0: the first that is not empty, or all; -1: all
	entropy      float64
	allowlists   []allowlist
	ignoresWords bool // a secret of letters alone is allowed
	// bytes on either side of a keyword, when neither heads nor names are known
	keywordRadius int
	maxLength     int      // bytes of a match at most
	valuePrefixes []prefix // of an assignment: how its value may begin
	regex         func() *regexp.Regexp
	finder        finder // instead of regex
	precededBy    string // this stands before, not far
}

// isGeneric says whether others' findings are better than this rule's.
func (r *rule) isGeneric() bool { return strings.Contains(r.id, "generic") }

// anchor is a word that a match of a rule holds.
type anchor struct {
	rule   *rule
	prefix prefix // of the match, or of the name in an assignment; nil: the word is anywhere
	offset int    // of the word in the head
	kind   anchorKind
}

type anchorKind uint8

const (
	matchStart   anchorKind = iota // the match begins with head
	assignedName                   // the name of an assignment does
	nearKeyword                    // the word is near
)

// ruleset is all that is looked for in texts.
type ruleset struct {
	rules       []*rule
	automaton   *automaton
	wordLengths []int
	anchors     [][]anchor // by word
	nameWords   *automaton // words in names of assignments
	allowlists  []allowlist
}

// loadRuleFiles reads the rules that come with the program.
func loadRuleFiles() (gitleaks, own ruleFile, err error) {
	if _, err := toml.Decode(gitleaksRules, &gitleaks); err != nil {
		return gitleaks, own, fmt.Errorf("gitleaks.toml: %w", err)
	}
	if _, err := toml.Decode(ownRules, &own); err != nil {
		return gitleaks, own, fmt.Errorf("rules.toml: %w", err)
	}
	return gitleaks, own, nil
}

// builtinRules are the rules that come with the program, gitleaks' with our changes and our own,
// and gitleaks' allow-list for all.
func builtinRules() ([]ruleSource, allowlist, error) {
	gitleaks, own, err := loadRuleFiles()
	if err != nil {
		return nil, allowlist{}, err
	}
	var all []ruleSource
	for _, s := range gitleaks.Rules {
		n := slices.IndexFunc(own.Changes, func(c ruleChange) bool { return c.ID == s.ID })
		if n >= 0 {
			if own.Changes[n].Drop {
				continue
			}
			s.Whole, s.Off = own.Changes[n].Whole, own.Changes[n].Off
		}
		s.Regex = widenRegex(s.ID, s.Regex)
		all = append(all, s)
	}
	return append(all, own.Rules...), gitleaks.Allowlist, nil
}

// newRuleset makes the rules ready. The expressions of those that come with the program are
// compiled when they are needed first, since there are many; shapes are read at once.
func newRuleset(sources []ruleSource, everywhere allowlist) (*ruleset, error) {
	set := &ruleset{}
	var x prefixParser
	index := make(map[string]int)
	var words, ofNames []string
	put := func(word string, a anchor) {
		n, ok := index[word]
		if !ok {
			n = len(words)
			index[word] = n
			words = append(words, word)
			set.wordLengths = append(set.wordLengths, len(word))
			set.anchors = append(set.anchors, nil)
		}
		set.anchors[n] = append(set.anchors[n], a)
		if a.kind == assignedName {
			ofNames = append(ofNames, word)
		}
	}
	var err error
	if set.allowlists, err = compileAllowlists([]allowlist{everywhere}); err != nil {
		return nil, fmt.Errorf("the allow-list for all rules: %w", err)
	}
	for _, s := range sources {
		r := &rule{id: s.ID, secretGroup: s.SecretGroup, entropy: s.Entropy, finder: finders[s.ID]}
		if s.Whole {
			r.secretGroup = -1
		}
		if r.allowlists, err = compileAllowlists(s.Allowlists); err != nil {
			return nil, fmt.Errorf("rule %q: %w", s.ID, err)
		}
		r.ignoresWords = slices.ContainsFunc(s.Allowlists, func(a allowlist) bool {
			return slices.Contains(a.Regexes, lettersOnly)
		})
		set.rules = append(set.rules, r)
		if r.finder != nil {
			for _, k := range s.Keywords {
				put(strings.ToLower(k), anchor{rule: r, kind: nearKeyword})
			}
			continue
		}
		if rest, ok := strings.CutPrefix(s.Regex, curlPrefix); ok {
			s.Regex, r.precededBy = rest, "curl"
		} else if rest, ok := strings.CutPrefix(s.Regex, curlPrefixGreedy); ok {
			s.Regex, r.precededBy = rest, "curl"
		}
		parsed, err := parseRegex(s.Regex)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", s.ID, err)
		}
		r.regex = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s.Regex) })
		r.maxLength = maxMatchLength(parsed)
		kind, heads := matchStart, []prefix(nil)
		if name, value, ok := splitAssignment(s.Regex); ok {
			parsedName, err := parseRegex(name)
			if err != nil {
				return nil, fmt.Errorf("rule %q: %w", s.ID, err)
			}
			parsedValue, err := parseRegex(value)
			if err != nil {
				return nil, fmt.Errorf("rule %q: %w", s.ID, err)
			}
			kind, heads, r.valuePrefixes = assignedName, x.prefixes(parsedName),
				x.prefixes(parsedValue)
			r.maxLength = maxMatchLength(parsedValue)
		} else {
			heads = x.prefixes(parsed)
		}
		var anchors []anchor
		var at []string
		for _, h := range heads {
			word, n := h.longestWord()
			if len(word) < 2 {
				anchors = nil
				break
			}
			anchors, at = append(anchors, anchor{r, h, n, kind}), append(at, word)
		}
		for i, a := range anchors {
			put(at[i], a)
		}
		if anchors != nil {
			continue
		}
		if len(s.Keywords) == 0 {
			return nil, fmt.Errorf("rule %q: nothing in its regex tells where to look: give it "+
				"keywords, of which every text with such a secret has one", s.ID)
		}
		r.keywordRadius = min(max(r.maxLength, 256), maxContext)
		for _, k := range s.Keywords {
			put(strings.ToLower(k), anchor{rule: r, kind: nearKeyword})
		}
	}
	set.automaton, set.nameWords = newAutomaton(words), newAutomaton(ofNames)
	return set, nil
}

// How gitleaks asks for curl up to five lines before an option. It takes an expression several
// milliseconds to find out that there is none, so that it is looked for without.
const (
	curlPrefix       = `\bcurl\b(?:.*?|.*?(?:[\r\n]{1,2}.*?){1,5})[ \t\n\r]`
	curlPrefixGreedy = `\bcurl\b(?:.*|.*(?:[\r\n]{1,2}.*){1,5})[ \t\n\r]`
)

// lettersOnly is gitleaks' way to say that a secret is no word.
const lettersOnly = `^[a-zA-Z_.-]+$`
