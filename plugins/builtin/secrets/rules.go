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

// file is a file of rules, in gitleaks' format; changes are ours.
type file struct {
	Allowlist allowlist
	Rules     []source
	Changes   []change
}

// source is a rule as it is written.
type source struct {
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

// change is what is not as gitleaks has it, and why.
type change struct {
	ID    string
	Why   string
	Whole bool
	Off   bool
	Drop  bool
}

// How gitleaks writes "name = value", and what ends a secret.
const (
	leading  = `[\w.-]{0,50}?(?:`
	between  = `)(?:[ \t\w.-]{0,20})[\s'"\\]{0,5}`
	operator = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)`
	opening  = `[\x60'"\s=\\]{0,7}`
)

// ending is how gitleaks writes what ends a secret.
const ending = `(?:[\x60'"\s;]|\\[nr]|$)`

// escapable lets quotes be escaped, as in JSON within a text.
var escapable = strings.NewReplacer(
	`)(?:[ \t\w.-]{0,20})[\s'"]{0,3}`, between,
	`[\x60'"\s=]{0,5}`, opening,
)

// widened is a regex of gitleaks' that finds its secrets in JSON within a text, in URLs, logs and
// prose, too. What a generic rule takes for a value may not be ended by what ends names in code.
func widened(id, regex string) string {
	end := `(?:[\x60'"\s;\\&#|<,>)}\]]|[.:!?](?:\s|$)|$)`
	if strings.Contains(id, "generic") {
		end = `(?:[\x60'"\s;\\&#|<]|$)`
	}
	return strings.ReplaceAll(escapable.Replace(regex), ending, end)
}

// rule is a rule in use.
type rule struct {
	id      string
	group   int // of the secret; 0: the first that is not empty, or all; -1: all
	entropy float64
	allow   []allowlist
	letters bool   // a secret of letters alone is allowed
	around  int    // bytes on either side of a keyword, when neither heads nor names are known
	reach   int    // bytes of a match at most
	value   []head // of an assignment: how its value may begin
	regex   func() *regexp.Regexp
	find    finder // instead of regex
	after   string // this stands before, not far
}

// generic says whether others' findings are better than this rule's.
func (r *rule) generic() bool { return strings.Contains(r.id, "generic") }

// anchor is a word that a match of a rule holds.
type anchor struct {
	rule *rule
	head head // of the match, or of the name in an assignment; nil: the word is anywhere
	at   int  // of the word in the head
	kind anchorKind
}

type anchorKind uint8

const (
	begins anchorKind = iota // the match begins with head
	names                    // the name of an assignment does
	nearby                   // the word is near
)

// ruleset is all that is looked for in texts.
type ruleset struct {
	rules   []*rule
	words   *keywords
	lengths []int
	anchors [][]anchor // by word
	names   *keywords  // words in names of assignments
	allow   []allowlist
}

// load reads the rules that come with the program.
func load() (gitleaks, own file, err error) {
	if _, err := toml.Decode(gitleaksRules, &gitleaks); err != nil {
		return gitleaks, own, fmt.Errorf("gitleaks.toml: %w", err)
	}
	if _, err := toml.Decode(ownRules, &own); err != nil {
		return gitleaks, own, fmt.Errorf("rules.toml: %w", err)
	}
	return gitleaks, own, nil
}

// builtin are the rules that come with the program, gitleaks' with our changes and our own, and
// gitleaks' allow-list for all.
func builtin() ([]source, allowlist, error) {
	gitleaks, own, err := load()
	if err != nil {
		return nil, allowlist{}, err
	}
	var all []source
	for _, s := range gitleaks.Rules {
		n := slices.IndexFunc(own.Changes, func(c change) bool { return c.ID == s.ID })
		if n >= 0 {
			if own.Changes[n].Drop {
				continue
			}
			s.Whole, s.Off = own.Changes[n].Whole, own.Changes[n].Off
		}
		s.Regex = widened(s.ID, s.Regex)
		all = append(all, s)
	}
	return append(all, own.Rules...), gitleaks.Allowlist, nil
}

// newRuleset makes the rules ready. The expressions of those that come with the program are
// compiled when they are needed first, since there are many; shapes are read at once.
func newRuleset(sources []source, everywhere allowlist) (*ruleset, error) {
	set := &ruleset{}
	var x shapes
	index := make(map[string]int)
	var words, ofNames []string
	put := func(word string, a anchor) {
		n, ok := index[word]
		if !ok {
			n = len(words)
			index[word] = n
			words = append(words, word)
			set.lengths = append(set.lengths, len(word))
			set.anchors = append(set.anchors, nil)
		}
		set.anchors[n] = append(set.anchors[n], a)
		if a.kind == names {
			ofNames = append(ofNames, word)
		}
	}
	var err error
	if set.allow, err = prepared([]allowlist{everywhere}); err != nil {
		return nil, fmt.Errorf("the allow-list for all rules: %w", err)
	}
	for _, s := range sources {
		r := &rule{id: s.ID, group: s.SecretGroup, entropy: s.Entropy, find: finders[s.ID]}
		if s.Whole {
			r.group = -1
		}
		if r.allow, err = prepared(s.Allowlists); err != nil {
			return nil, fmt.Errorf("rule %q: %w", s.ID, err)
		}
		r.letters = slices.ContainsFunc(s.Allowlists, func(a allowlist) bool {
			return slices.Contains(a.Regexes, onlyLetters)
		})
		set.rules = append(set.rules, r)
		if r.find != nil {
			for _, k := range s.Keywords {
				put(strings.ToLower(k), anchor{rule: r, kind: nearby})
			}
			continue
		}
		if rest, ok := strings.CutPrefix(s.Regex, afterCurl); ok {
			s.Regex, r.after = rest, "curl"
		} else if rest, ok := strings.CutPrefix(s.Regex, afterCurlGreedy); ok {
			s.Regex, r.after = rest, "curl"
		}
		parsed, err := parse(s.Regex)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", s.ID, err)
		}
		r.regex = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s.Regex) })
		r.reach = reach(parsed)
		kind, heads := begins, []head(nil)
		if name, value, ok := assignment(s.Regex); ok {
			parsedName, err := parse(name)
			if err != nil {
				return nil, fmt.Errorf("rule %q: %w", s.ID, err)
			}
			parsedValue, err := parse(value)
			if err != nil {
				return nil, fmt.Errorf("rule %q: %w", s.ID, err)
			}
			kind, heads, r.value = names, x.heads(parsedName), x.heads(parsedValue)
			r.reach = reach(parsedValue)
		} else {
			heads = x.heads(parsed)
		}
		var anchors []anchor
		var at []string
		for _, h := range heads {
			word, n := h.word()
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
		r.around = min(max(r.reach, 256), longest)
		for _, k := range s.Keywords {
			put(strings.ToLower(k), anchor{rule: r, kind: nearby})
		}
	}
	set.words, set.names = newKeywords(words), newKeywords(ofNames)
	return set, nil
}

// How gitleaks asks for curl up to five lines before an option. It takes an expression several
// milliseconds to find out that there is none, so that it is looked for without.
const (
	afterCurl       = `\bcurl\b(?:.*?|.*?(?:[\r\n]{1,2}.*?){1,5})[ \t\n\r]`
	afterCurlGreedy = `\bcurl\b(?:.*|.*(?:[\r\n]{1,2}.*){1,5})[ \t\n\r]`
)

// onlyLetters is gitleaks' way to say that a secret is no word.
const onlyLetters = `^[a-zA-Z_.-]+$`
