package policies

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// askingConceptsText has the concepts of askingModel: words of many languages that mean the same.
//
//go:embed asking_concepts.txt
var askingConceptsText string

// askingWeightsText is the table that TestTrainAskingForms writes. Each line has a feature and its
// weight. The feature "=bias" is the sum of a form without features.
//
//go:embed asking_weights.txt
var askingWeightsText string

// defaultAskingModel returns the model with the embedded tables. A broken table makes it panic: a
// test parses the tables.
var defaultAskingModel = sync.OnceValue(func() *askingModel {
	m, err := parseAskingModel(askingConceptsText, askingWeightsText)
	if err != nil {
		panic(err)
	}
	return m
})

// askingForm is the part of a form that a user sees.
type askingForm struct {
	Message string        `json:"message"`
	Fields  []askingField `json:"fields"`
}

// askingField is a field into which the user can write text or a number.
type askingField struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Type        string `json:"type"`
	Format      string `json:"format"`
}

// askingModel is a linear classifier for forms that ask for a secret. It adds up the weights of the
// words and the concepts in the message and in the texts of a field.
//
// A concept is a set of words of many languages that mean the same, such as NAME or ENTER. The
// weights of concepts, and of two concepts that follow each other, count in all these languages.
// "The name of the token" and "トークンの名前" therefore have the same weights.
//
// # Why the sum is the highest of all parts
//
// A sum over the whole form would sink with each harmless sentence that the form adds. The model
// takes each field, with each part of the message, on its own, and returns the highest sum.
type askingModel struct {
	weights  map[string]int32
	bias     int32
	concepts map[string][]string // by word, or by words with one blank between them
	secrets  map[string]bool     // the concepts of which a form must have one to ask for a secret
	phrases  map[string]bool     // the first words of the entries with several words
	starts   map[string][]string // by the beginning of a word
	insides  map[string][]string // by a piece of a word
	unspaced map[string][]string // by a piece of a text in a script without spaces
}

// Limits of one form. A part of a message has twice as many tokens as the stride.
const (
	askingStride     = 24
	maxAskingParts   = 8    // a longer message has longer parts
	maxAskingTokens  = 4096 // of one text
	maxAskingFields  = 16   // further fields are scored without the message
	maxAskingPhrase  = 4    // words of an entry in asking_concepts.txt
	maxAskingInside  = 14
	maxAskingCrossed = 10 // concepts of a text that are paired with those of another text
)

// parseAskingModel parses the tables. A line of concepts is the name of a concept and its words,
// with commas between them. "pass*" is the beginning of a word, and "*pass*" a piece of a word.
func parseAskingModel(concepts, weights string) (*askingModel, error) {
	m := &askingModel{weights: map[string]int32{}, concepts: map[string][]string{},
		phrases: map[string]bool{}, secrets: map[string]bool{}, starts: map[string][]string{},
		insides: map[string][]string{}, unspaced: map[string][]string{}}
	for line := range strings.Lines(concepts) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, entries, ok := strings.Cut(line, " ")
		name, isSecret := strings.CutPrefix(name, "!")
		m.secrets[name] = isSecret
		if !ok || name != strings.ToUpper(name) {
			return nil, fmt.Errorf("asking_concepts.txt: %q is not a concept with words", line)
		}
		for entry := range strings.SplitSeq(entries, ",") {
			isStart := strings.HasSuffix(entry, "*")
			isInside := isStart && strings.HasPrefix(strings.TrimSpace(entry), "*")
			words := plainWords(entry)
			if words == "" {
				return nil, fmt.Errorf("asking_concepts.txt: %s has the empty word %q", name,
					entry)
			}
			table := m.concepts
			switch first, _ := utf8.DecodeRuneInString(words); {
			case isUnspaced(first):
				table = m.unspaced
				words = strings.ReplaceAll(words, " ", "")
			case isInside:
				table = m.insides
			case isStart || unicode.Is(unicode.Hangul, first):
				table = m.starts
			}
			if first, _, ok := strings.Cut(words, " "); ok {
				m.phrases[first] = true
			}
			if !slices.Contains(table[words], name) {
				table[words] = append(table[words], name)
			}
		}
	}
	for line := range strings.Lines(weights) {
		line = strings.TrimSuffix(line, "\n")
		i := strings.LastIndexByte(line, ' ')
		if i < 1 {
			return nil, fmt.Errorf("asking_weights.txt: %q is not a feature with a weight", line)
		}
		n, err := strconv.ParseInt(line[i+1:], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("asking_weights.txt: %q: %w", line, err)
		}
		if line[:i] == "=bias" {
			m.bias = int32(n)
			continue
		}
		m.weights[line[:i]] = int32(n)
	}
	return m, nil
}

// isUnspaced reports whether a letter belongs to a script that is written without spaces.
func isUnspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai) ||
		r == 'ー'
}

// askingToken is a word, or a letter of a script without spaces, with its concepts.
type askingToken struct {
	text     string
	concepts []string
}

// quotedPhrases finds texts of several words in quotation marks. Forms quote the texts of other
// things: "Translate 'Enter your password'".
var quotedPhrases = regexp.MustCompile(`"[^"]* [^"]*"|“[^”]* [^”]*”|“[^”]*\p{Han}[^”]*”|` +
	`„[^“”]* [^“”]*[“”]|«[^»]{2,}[^»]*»|「[^」]*」|『[^』]*』|‘[^’]* [^’]*’|` +
	`(^|[\s(])'[^']* [^']*'($|[\s.?!,;)])`)

// tokens returns the tokens of a text.
func (m *askingModel) tokens(text string) (all []askingToken) {
	words := strings.Fields(plainWords(quotedPhrases.ReplaceAllString(text, " quotedtext ")))
	for i := 0; i < len(words) && len(all) < maxAskingTokens; {
		first, _ := utf8.DecodeRuneInString(words[i])
		if isUnspaced(first) {
			all = m.appendUnspaced(all, words[i])
			i++
			continue
		}
		n, concepts := m.phraseAt(words[i:])
		if n == 1 {
			concepts = m.conceptsOf(words[i], concepts)
		}
		for j, w := range words[i : i+n] {
			if j > 0 {
				concepts = nil
			}
			all = append(all, askingToken{w, concepts})
		}
		i += n
	}
	return all
}

// phraseAt returns the concepts of the longest entry with which the words begin, and its length.
func (m *askingModel) phraseAt(words []string) (int, []string) {
	longest := min(maxAskingPhrase, len(words))
	if !m.phrases[words[0]] {
		longest = 1
	}
	for n := longest; n > 1; n-- {
		phrase := strings.Join(words[:n], " ")
		if c := m.concepts[phrase]; c != nil {
			return n, c
		}
		for end := len(phrase); end > len(phrase)-len(words[n-1]); end-- {
			if c := m.starts[phrase[:end]]; c != nil {
				return n, c
			}
		}
	}
	return 1, m.concepts[words[0]]
}

// conceptsOf returns the concepts of a word that is a whole entry with the concepts of whole, or
// that contains entries.
func (m *askingModel) conceptsOf(word string, whole []string) []string {
	if whole != nil {
		return whole
	}
	for end := len(word); end > 0; end-- {
		if c := m.starts[word[:end]]; c != nil {
			return c
		}
	}
	for start := range word {
		for end := min(len(word), start+2*maxAskingInside); end > start+2; end-- {
			if c := m.insides[word[start:end]]; c != nil {
				whole = append(whole, c...)
				break
			}
		}
	}
	return whole
}

// appendUnspaced appends the tokens of a text in a script without spaces: its entries, and the
// other letters, each as a token. Words of other scripts within the text are tokens as well.
func (m *askingModel) appendUnspaced(all []askingToken, text string) []askingToken {
	for text != "" && len(all) < maxAskingTokens {
		r, size := utf8.DecodeRuneInString(text)
		if !isUnspaced(r) {
			end := strings.IndexFunc(text, isUnspaced)
			if end < 0 {
				end = len(text)
			}
			word := text[:end]
			all = append(all, askingToken{word, m.conceptsOf(word, m.concepts[word])})
			text = text[end:]
			continue
		}
		found := askingToken{text: text[:size]}
		for end := min(len(text), 3*maxAskingInside); end > 0; end-- {
			if c := m.unspaced[text[:end]]; c != nil {
				found = askingToken{text[:end], c}
				break
			}
		}
		all = append(all, found)
		text = text[len(found.text):]
	}
	return all
}

// score returns the highest sum of a field with a part of the message, in hundredths of a natural
// logarithm of the odds. Above 0, the form is more likely to ask for a secret than not.
func (m *askingModel) score(form askingForm) int {
	best := -1 << 15
	m.eachPart(form, func(features []string) {
		sum, isSecret := m.bias, false
		for _, f := range features {
			sum += m.weights[f]
			concept, ok := strings.CutPrefix(f, "any ")
			isSecret = isSecret || ok && m.secrets[concept]
		}
		if !isSecret {
			sum = min(sum, -1)
		}
		best = max(best, int(sum))
	})
	return best
}

// eachPart calls yield with the features of each part of the form. Each feature counts once.
func (m *askingModel) eachPart(form askingForm, yield func(features []string)) {
	message := m.tokens(form.Message)
	var parts []askingText
	stride := max(askingStride, len(message)/maxAskingParts)
	for start := 0; start == 0 || start < len(message)-stride; start += stride {
		parts = append(parts, textOf(message[start:min(len(message), start+2*stride)]))
	}
	labels := make([]askingText, len(form.Fields))
	for i, f := range form.Fields {
		label := f.Title
		if label == "" {
			label = f.Name
		}
		labels[i] = textOf(m.tokens(label))
		if f.Title == "" && len(label) < 3 || len(label) == 1 {
			labels[i] = askingText{concepts: []string{"VAGUE"}} // the letter means nothing
		}
	}
	for i, f := range form.Fields {
		if i == maxAskingFields {
			parts = []askingText{{}}
		}
		var s featureSet
		label := labels[i]
		s.addText("l", label)
		s.addWhole("l", label)
		if f.Title != "" && len(f.Name) > 2 {
			name := textOf(m.tokens(f.Name))
			s.addText("n", name)
			label.concepts = append(slices.Clone(label.concepts), name.concepts...)
		}
		description := textOf(m.tokens(f.Description))
		s.addText("d", description)
		s.addCrossed("ld", label, description)
		for j, other := range labels[:min(len(labels), maxAskingFields)] {
			if j != i {
				for _, c := range other.concepts {
					s.add("o", c)
				}
			}
		}
		s.add("type", f.Type)
		s.add("format", f.Format)
		s.add("fields", strconv.Itoa(min(len(form.Fields), 3)))
		for _, part := range parts {
			p := featureSet{slices.Clone(s.features)}
			p.addText("m", part)
			p.addCrossed("ml", part, label)
			p.addCrossed("md", part, description)
			if strings.ContainsAny(form.Message, "?？؟") {
				p.add("m", "?")
			}
			if len(part.words) < 5 {
				p.add("m", "short")
			}
			if len(part.concepts) == 0 {
				p.add("m", "without concepts")
			}
			slices.Sort(p.features)
			yield(slices.Compact(p.features))
		}
	}
}

// askingText is the words and the concepts of a text, in their order.
type askingText struct{ words, concepts []string }

func textOf(tokens []askingToken) (t askingText) {
	for _, x := range tokens {
		t.words = append(t.words, x.text)
		for _, c := range x.concepts {
			if n := len(t.concepts); n == 0 || t.concepts[n-1] != c {
				t.concepts = append(t.concepts, c)
			}
		}
	}
	return t
}

// featureSet is a list of features. The name of a feature begins with the place of the text: m for
// the message, l for the label of the field, n for its name, d for its description, and o for the
// labels of the other fields.
type featureSet struct{ features []string }

func (s *featureSet) add(place, feature string) {
	s.features = append(s.features, place+" "+feature)
}

// addText adds the words and concepts of a text, and the pairs of those that follow each other.
func (s *featureSet) addText(place string, t askingText) {
	for i, w := range t.words {
		s.add(place, w)
		s.add("any", w)
		if i > 0 {
			s.add(place, t.words[i-1]+" "+w)
		}
		if stem := stemOf(w); stem != "" {
			s.add(place, stem)
			s.add("any", stem)
		}
	}
	for i, c := range t.concepts {
		s.add(place, c)
		s.add("any", c)
		if i > 0 {
			s.add(place, t.concepts[i-1]+">"+c)
			s.add("any", t.concepts[i-1]+">"+c)
		}
		if i > 1 {
			s.add("any", t.concepts[i-2]+">"+t.concepts[i-1]+">"+c)
		}
	}
	if len(t.concepts) > 0 {
		s.add(place+" first", t.concepts[0])
		s.add(place+" last", t.concepts[len(t.concepts)-1])
	}
}

// addWhole adds a text of few concepts as one feature.
func (s *featureSet) addWhole(place string, t askingText) {
	if len(t.concepts) > 0 && len(t.concepts) < 4 && len(t.words) < 6 {
		s.add(place+" whole", strings.Join(t.concepts, ">"))
	}
	if len(t.words) > 0 && len(t.words) < 4 {
		s.add(place+" whole", strings.Join(t.words, " "))
	}
}

// addCrossed adds each pair of a concept of one text and a concept of another.
func (s *featureSet) addCrossed(place string, a, b askingText) {
	for _, c := range a.concepts[:min(len(a.concepts), maxAskingCrossed)] {
		for _, d := range b.concepts[:min(len(b.concepts), maxAskingCrossed)] {
			s.add(place, c+"+"+d)
		}
	}
}

// stemOf returns the first letters of a long word, with a "*" behind them.
func stemOf(word string) string {
	n := 0
	for i := range word {
		if n++; n > 5 {
			return word[:i] + "*"
		}
	}
	return ""
}
