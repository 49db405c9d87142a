package injection

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// wordingFiles are the attacks that the model is trained on.
var wordingFiles = []string{"attacks.jsonl", "heldout.jsonl", "fresh.jsonl", "unseen.jsonl",
	"unseen-second.jsonl", "languages.jsonl", "own-words.jsonl"}

// wordingExample is the features of one part of a text.
type wordingExample struct {
	features []wordPair
	isAttack bool
	weight   float64
}

// wordingDocument is a text of a corpus or of a file in testdata, split into parts.
type wordingDocument struct {
	parts        [][]wordPair
	kind         string // README, tool, short; for attacks, the file
	isDefinition bool
	fold         int
}

// partsOf returns the features of the parts of a text.
func partsOf(t testing.TB, s *stage, text string) (parts [][]wordPair) {
	t.Helper()
	scored := s.scorer.score(text, false, &scratch{})
	p := wordingParts{tokens: scored.tokens}
	for p.next() {
		var features []wordPair
		s.scorer.wording.eachFeature(scored.tokens[p.from:p.to], func(w wordPair) {
			features = append(features, w)
		})
		parts = append(parts, features)
	}
	return parts
}

// writeWordingWords writes the words of at least two attacks that are in few READMEs. Words of
// scripts without spaces are left out, and words that mix scripts, which are read as Latin.
func writeWordingWords(t *testing.T) {
	t.Helper()
	pattern := regexp.MustCompile(`\p{L}[\p{L}\p{M}]{2,}`)
	unspaced := regexp.MustCompile(`[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]`)
	latin := regexp.MustCompile(`\p{Latin}`)
	other := regexp.MustCompile(`[^\p{Latin}\p{M}]`)
	count := func(counts map[string]int, text string) {
		words := pattern.FindAllString(strings.ToLower(text), -1)
		slices.Sort(words)
		for _, w := range slices.Compact(words) {
			counts[w]++
		}
	}
	attacks, readmes, n := map[string]int{}, map[string]int{}, 0
	for _, file := range wordingFiles {
		for _, l := range lines[labelled](t, file) {
			count(attacks, l.Text)
		}
	}
	corpusLines(t, "readmes.jsonl", func(x struct {
		Text string `json:"text"`
	}) {
		count(readmes, x.Text)
		n++
	})
	var b strings.Builder
	for _, w := range slices.Sorted(maps.Keys(attacks)) {
		mixed := latin.MatchString(w) && other.MatchString(w)
		if !mixed && attacks[w] >= 2 && readmes[w]*7 < n && !unspaced.MatchString(w) {
			fmt.Fprintln(&b, w)
		}
	}
	if err := os.WriteFile("wordingwords.txt", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

const wordingFolds = 3

func foldOf(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % wordingFolds)
}

// stringsOf returns the strings in a JSON value.
func stringsOf(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, x := range v {
			all = append(all, stringsOf(x)...)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(all, stringsOf(v[k])...)
		}
	}
	return all
}

// trainWording returns weights of the features by logistic regression with AdaGrad. It is
// deterministic.
func trainWording(s *stage, examples []wordingExample) (weights map[wordPair]float64,
	bias float64) {
	isNameOfTests := map[int32]bool{}
	for n, w := range s.scorer.words {
		isNameOfTests[int32(n)] = slices.Contains(namesOfTests, w)
	}
	// A word that only attacks have may be a word of a language that no honest text is in.
	honest, counts := map[int32]int{}, map[wordPair]int{}
	for _, x := range examples {
		for _, f := range x.features {
			if !x.isAttack && f.second < 0 {
				honest[f.first]++
			}
		}
	}
	isKnown := func(word int32) bool {
		return int(word) >= len(s.scorer.words) ||
			honest[word] >= minHonestParts && !isNameOfTests[word]
	}
	for _, x := range examples {
		for _, f := range x.features {
			counts[f]++
		}
	}
	numbers := map[wordPair]int{}
	var names []wordPair
	data := make([][]int, len(examples))
	for i, x := range examples {
		for _, f := range x.features {
			if counts[f] < 4 || !isKnown(f.first) ||
				f.second >= 0 && !isKnown(f.second) {
				continue
			}
			n, ok := numbers[f]
			if !ok {
				n = len(names)
				numbers[f], names = n, append(names, f)
			}
			data[i] = append(data[i], n)
		}
	}
	w, squares := make([]float64, len(names)), make([]float64, len(names))
	const decay, rate, epochs = 2e-4, 0.15, 8
	bias = -2
	random := rand.New(rand.NewPCG(1, 2))
	order := random.Perm(len(data))
	for range epochs {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			z, y := bias, 0.0
			for _, n := range data[i] {
				z += w[n]
			}
			if examples[i].isAttack {
				y = 1
			}
			g := (1/(1+math.Exp(-z)) - y) * examples[i].weight
			bias -= 0.005 * g
			for _, n := range data[i] {
				d := g + decay*w[n]
				squares[n] += d * d
				w[n] -= rate * d / math.Sqrt(squares[n]+0.1)
			}
		}
	}
	weights = map[wordPair]float64{}
	for n, f := range names {
		if math.Abs(w[n]) >= minWordingWeight {
			weights[f] = w[n]
		}
	}
	return weights, bias
}

// TestTrainWording writes wordingwords.txt with TRAIN=words, and wording.txt with TRAIN=weights. It
// needs the half "tuning" of the corpus of test/corpus:
//
//	export CORPUS=DIR/tuning
//	TRAIN=words go test -v -run TestTrainWording ./plugins/builtin/injection
//	TRAIN=weights go test -v -run TestTrainWording ./plugins/builtin/injection
//
// The limits are chosen by cross-validation: the packages are split into three folds, and each fold
// is scored by a model that was trained without it, and without one file of attacks.
func TestTrainWording(t *testing.T) {
	switch os.Getenv("TRAIN") {
	case "words":
		writeWordingWords(t)
		return
	case "weights":
	default:
		t.Skip("TRAIN is neither words nor weights")
	}
	s := newTestStage(t, `{}`).(*stage)
	var attacks, honest []wordingDocument
	for _, file := range wordingFiles {
		for _, l := range lines[labelled](t, file) {
			isDefinition := l.Where != "result" && l.Where != ""
			attacks = append(attacks, wordingDocument{partsOf(t, s, l.Text), file, isDefinition, 0})
		}
	}
	for _, file := range []string{"benign.jsonl", "languages-benign.jsonl", "ordinary.jsonl"} {
		for _, l := range lines[labelled](t, file) {
			isDefinition := l.Where != "result" && l.Where != ""
			honest = append(honest, wordingDocument{partsOf(t, s, l.Text), "short", isDefinition,
				foldOf(l.Text)})
		}
	}
	addTools := func(name string, tools []jsontext.Value) {
		for _, raw := range tools {
			var v any
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			d := wordingDocument{nil, "tool", true, foldOf(name)}
			for _, text := range stringsOf(v) {
				if len(text) >= minScoredText {
					d.parts = append(d.parts, partsOf(t, s, text)...)
				}
			}
			honest = append(honest, d)
		}
	}
	for _, x := range lines[publishedServer](t, "servers.jsonl") {
		var list struct {
			Tools []jsontext.Value `json:"tools"`
		}
		if err := json.Unmarshal(x.Result, &list); err != nil {
			t.Fatal(err)
		}
		addTools(x.Server, list.Tools)
	}
	corpusLines(t, "servers.jsonl", func(x struct {
		Package string           `json:"package"`
		Tools   []jsontext.Value `json:"tools"`
	}) {
		addTools(x.Package, x.Tools)
	})
	corpusLines(t, "readmes.jsonl", func(x struct {
		Package string `json:"package"`
		Text    string `json:"text"`
	}) {
		honest = append(honest, wordingDocument{partsOf(t, s, x.Text), "README", false,
			foldOf(x.Package)})
	})
	examples := func(skipFile string, skipFold int) (all []wordingExample) {
		for _, d := range attacks {
			for _, p := range d.parts {
				if d.kind != skipFile {
					all = append(all, wordingExample{p, true, 4})
				}
			}
		}
		for _, d := range honest {
			weight := 1.0
			if d.kind == "short" {
				weight = 4
			}
			for _, p := range d.parts {
				if d.fold != skipFold {
					all = append(all, wordingExample{p, false, weight})
				}
			}
		}
		return all
	}
	score := func(d wordingDocument, weights map[wordPair]float64, bias float64) float64 {
		best := math.Inf(-1)
		for _, p := range d.parts {
			z := bias
			for _, f := range p {
				z += weights[f]
			}
			best = max(best, z)
		}
		return best
	}
	scores := map[string][]float64{}
	for i, file := range wordingFiles {
		fold := i % wordingFolds
		weights, bias := trainWording(s, examples(file, fold))
		for _, d := range attacks {
			if d.kind == file {
				name := file + " content"
				if d.isDefinition {
					name = file + " definition"
				}
				scores[name] = append(scores[name], score(d, weights, bias))
			}
		}
		if i < wordingFolds {
			for _, d := range honest {
				if d.fold == fold {
					scores[d.kind] = append(scores[d.kind], score(d, weights, bias))
				}
			}
		}
	}
	count := func(name string, limit float64) (n int) {
		for _, x := range scores[name] {
			if x >= limit {
				n++
			}
		}
		return n
	}
	for limit := -2.0; limit < 6; limit += 0.5 {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(scores)) {
			fmt.Fprintf(&b, " %s %d/%d;", strings.TrimSuffix(strings.Replace(name, ".jsonl", "", 1),
				"ontent"), count(name, limit), len(scores[name]))
		}
		t.Logf("%.1f:%s", limit, b.String())
	}
	weights, bias := trainWording(s, examples("", -1))
	type term struct {
		name   string
		weight int
	}
	var terms []term
	for f, w := range weights {
		name := wordingName(s.scorer.grammar, f.first)
		if f.second >= 0 {
			name += "+" + wordingName(s.scorer.grammar, f.second)
		}
		if n := int(math.Round(w * wordingScale)); n != 0 && len(strings.Fields(name)) == 1 {
			terms = append(terms, term{name, n})
		}
	}
	slices.SortFunc(terms, func(a, b term) int {
		return cmp.Or(b.weight-a.weight, strings.Compare(a.name, b.name))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "=bias %d\n=gate %d\n=content %d\n=definition %d\n",
		int(math.Round(bias*wordingScale)), int(math.Round(wordingGate*wordingScale)),
		int(math.Round(wordingContent*wordingScale)),
		int(math.Round(wordingDefinition*wordingScale)))
	for _, x := range terms {
		fmt.Fprintf(&b, "%s %d\n", x.name, x.weight)
	}
	if err := os.WriteFile("wording.txt", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d words and pairs", len(terms))
}

// The scale and the limits of the model. TestTrainWording prints how many texts reach which limit.
const (
	wordingScale      = 100
	wordingGate       = 0.0
	wordingContent    = 0.5
	wordingDefinition = 3.0
	minWordingWeight  = 0.08
	minHonestParts    = 12 // of the honest texts that a word must be in
)

// namesOfTests are words of names that only the authors of attacks give to hosts and people.
var namesOfTests = []string{"evil", "example", "attacker", "com", "org", "mallory"}
