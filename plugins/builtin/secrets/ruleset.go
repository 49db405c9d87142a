package secrets

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
)

// ruleset is the rules of a stage, ready to search texts with. It is immutable.
type ruleset struct {
	rules      []*rule
	words      *wordFinder // finds the words of all anchors
	anchors    [][]anchor  // by word
	nameWords  *wordFinder // finds the words of names in assignments
	allowlists []allowlist
}

// rule is a rule in use.
type rule struct {
	id string
	// secretGroup is the group of the regex that is the secret. 0 is the first group that is not
	// empty, or the whole match if all groups are empty. -1 is the whole match.
	secretGroup   int
	entropy       float64 // a secret must have more bits a character than this; 0 for any
	allowlists    []allowlist
	ignoresWords  bool     // the allow lists accept a secret of letters alone
	keywordRadius int      // bytes on either side of a keyword that are searched
	maxLength     int      // upper bound of the bytes of a match, or of an assignment's value
	valuePrefixes []prefix // the beginnings of the value, if the rule is for assignments
	regex         func() *regexp.Regexp
	finder        finder // used instead of regex, unless nil
	precededBy    string // a word that must stand in the lines before the match; "" for none
	// readsName is set for assignments whose name decides whether the value is a secret.
	readsName bool
}

// isGeneric reports whether the rule reads names and not forms of values, so that the detections of
// other rules in the same place are preferred to this rule's.
func (r *rule) isGeneric() bool { return strings.Contains(r.id, "generic") || r.id == namedID }

// anchor is a word that is in a match of a rule, or near it. The rule is tried wherever the word
// occurs.
type anchor struct {
	rule   *rule
	prefix prefix // the beginning of the match or of the name; nil for nearKeyword
	offset int    // where the word stands in prefix
	kind   anchorKind
}

// anchorKind is the place of an anchor's word.
type anchorKind uint8

const (
	matchStart   anchorKind = iota // in the prefix of the match
	assignedName                   // in the prefix of the name of an assignment
	nearKeyword                    // within the rule's keywordRadius of the match
)

// rulesetBuilder collects the parts of a ruleset.
type rulesetBuilder struct {
	set       *ruleset
	parser    prefixParser
	words     []string
	numbers   map[string]int // the index of each word in words
	nameWords []string
}

// newRuleset returns the rules ready for use. Regular expressions are parsed at once, but compiled
// when they are first needed, since there are many.
func newRuleset(sources []ruleSource, everywhere allowlist) (*ruleset, error) {
	b := &rulesetBuilder{set: &ruleset{}, numbers: make(map[string]int)}
	var err error
	if b.set.allowlists, err = compileAllowlists([]allowlist{everywhere}); err != nil {
		return nil, fmt.Errorf("the allow list for all rules: %w", err)
	}
	for _, s := range sources {
		if err := b.addRule(s); err != nil {
			return nil, fmt.Errorf("rule %q: %w", s.ID, err)
		}
	}
	b.set.words = newWordFinder(b.words, b.beginnings())
	b.set.nameWords = newWordFinder(b.nameWords, nil)
	return b.set, nil
}

// beginnings returns, for each word, what the texts at the word begin with; nil if the word is
// searched everywhere.
func (b *rulesetBuilder) beginnings() [][]prefix {
	all := make([][]prefix, len(b.words))
	for w, anchors := range b.set.anchors {
		for _, a := range anchors {
			if a.kind == nearKeyword {
				all[w] = nil
				break
			}
			all[w] = append(all[w], a.prefix[a.offset:])
		}
	}
	return all
}

func (b *rulesetBuilder) addRule(s ruleSource) (err error) {
	r := &rule{id: s.ID, secretGroup: s.SecretGroup, entropy: s.Entropy, finder: finders[s.ID],
		readsName: s.ReadsName}
	if s.Whole {
		r.secretGroup = -1
	}
	if r.allowlists, err = compileAllowlists(s.Allowlists); err != nil {
		return err
	}
	r.ignoresWords = slices.ContainsFunc(s.Allowlists, func(a allowlist) bool {
		return slices.Contains(a.Regexes, lettersOnly)
	})
	b.set.rules = append(b.set.rules, r)
	if r.finder != nil {
		b.addKeywords(r, s.Keywords)
		return nil
	}
	for _, before := range []string{curlPrefix, curlPrefixGreedy} {
		if rest, ok := strings.CutPrefix(s.Regex, before); ok {
			s.Regex, r.precededBy = rest, "curl"
			break
		}
	}
	parsed, err := parseRegex(s.Regex)
	if err != nil {
		return err
	}
	r.regex = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s.Regex) })
	added, err := b.addPrefixes(r, s.Regex, parsed)
	if err != nil || added {
		return err
	}
	if len(s.Keywords) == 0 {
		return errors.New("the regex has no fixed beginning that could be searched for: add " +
			"keywords, one of which is in every text with such a secret")
	}
	r.keywordRadius = min(max(r.maxLength, 256), maxContext)
	b.addKeywords(r, s.Keywords)
	return nil
}

// addPrefixes adds an anchor for each beginning of the rule's matches. If one of these beginnings
// holds no word of two characters or more, and cannot be expanded to ones that do, addPrefixes adds
// no anchor and returns false.
func (b *rulesetBuilder) addPrefixes(r *rule, regex string,
	parsed *syntax.Regexp) (added bool, err error) {
	kind, prefixes := matchStart, []prefix(nil)
	r.maxLength = maxMatchLength(parsed)
	if name, value, ok := splitAssignment(regex); ok {
		parsedName, err := parseRegex(name)
		if err != nil {
			return false, err
		}
		parsedValue, err := parseRegex(value)
		if err != nil {
			return false, err
		}
		kind, prefixes = assignedName, b.parser.prefixes(parsedName)
		r.valuePrefixes = b.parser.prefixes(parsedValue)
		r.maxLength = maxMatchLength(parsedValue)
	} else {
		prefixes = b.parser.prefixes(parsed)
	}
	var words []string
	var anchors []anchor
	for len(prefixes) > 0 {
		p := prefixes[0]
		prefixes = prefixes[1:]
		word, offset := p.longestWord()
		if len(word) >= 2 {
			words, anchors = append(words, word), append(anchors, anchor{r, p, offset, kind})
			continue
		}
		expanded := b.parser.expand(p)
		if len(expanded) < 2 {
			return false, nil
		}
		prefixes = append(expanded, prefixes...)
	}
	for i, a := range anchors {
		b.addAnchor(words[i], a)
	}
	return anchors != nil, nil
}

func (b *rulesetBuilder) addKeywords(r *rule, keywords []string) {
	for _, k := range keywords {
		b.addAnchor(strings.ToLower(k), anchor{rule: r, kind: nearKeyword})
	}
}

func (b *rulesetBuilder) addAnchor(word string, a anchor) {
	n, ok := b.numbers[word]
	if !ok {
		n = len(b.words)
		b.numbers[word] = n
		b.words = append(b.words, word)
		b.set.anchors = append(b.set.anchors, nil)
	}
	b.set.anchors[n] = append(b.set.anchors[n], a)
	if a.kind == assignedName {
		b.nameWords = append(b.nameWords, word)
	}
}

// The expressions with which gitleaks matches "curl" up to five lines before an option. A regex
// takes milliseconds to find that there is no "curl". These expressions are therefore cut off, and
// [isPrecededBy] looks for the word.
const (
	curlPrefix       = `\bcurl\b(?:.*?|.*?(?:[\r\n]{1,2}.*?){1,5})[ \t\n\r]`
	curlPrefixGreedy = `\bcurl\b(?:.*|.*(?:[\r\n]{1,2}.*){1,5})[ \t\n\r]`
)

// lettersOnly is the expression with which gitleaks' allow lists accept ordinary words.
const lettersOnly = `^[a-zA-Z_.-]+$`
