package policies

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// trainingForm is a labelled form of testdata/elicitation.
type trainingForm struct {
	Secret  *bool                   `json:"secret"`
	Lang    string                  `json:"lang"`
	Message string                  `json:"message"`
	Fields  map[string]trainingPart `json:"fields"`
	file    string
	line    string
	parts   [][]string // features of each part
}

// trainingPart is the schema of a field.
type trainingPart struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	Type        string `json:"type"`
	Format      string `json:"format"`
	Enum        []any  `json:"enum"`
	OneOf       []any  `json:"oneOf"`
	AnyOf       []any  `json:"anyOf"`
}

// form returns the form with the fields into which the user can write.
func (f *trainingForm) form() askingForm {
	form := askingForm{Message: f.Message}
	for _, name := range slices.Sorted(maps.Keys(f.Fields)) {
		p := f.Fields[name]
		if p.Type == "boolean" || p.Type == "array" || len(p.Enum)+len(p.OneOf)+len(p.AnyOf) > 0 ||
			p.Format == "date" || p.Format == "date-time" {
			continue
		}
		form.Fields = append(form.Fields,
			askingField{name, p.Title, p.Description, p.Type, p.Format})
	}
	return form
}

// heldOutFiles are the sets of which a case with an odd first byte in the SHA-256 of its line is
// not trained on. See TestElicitationGateOnForms.
var heldOutFiles = []string{"fourth.jsonl", "tenth.jsonl"}

// trainingForms returns the forms to train on. Forms with choices only are left out: the model
// never sees them.
func trainingForms(t *testing.T, m *askingModel) (all []*trainingForm) {
	t.Helper()
	files, err := filepath.Glob("testdata/elicitation/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if slices.Contains(untrainedFiles, name) {
			continue
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			f := &trainingForm{file: name, line: lines.Text()}
			// Some forms have fields that are no objects.
			if json.Unmarshal(lines.Bytes(), f) != nil || f.Secret == nil ||
				slices.Contains(heldOutFiles, name) && sha256.Sum256(lines.Bytes())[0]%2 == 1 {
				continue
			}
			m.eachPart(f.form(), func(features []string) { f.parts = append(f.parts, features) })
			if len(f.parts) > 0 {
				all = append(all, f)
			}
		}
	}
	return all
}

// untrainedFiles are sets that are not trained on at all.
var untrainedFiles = []string{"twelfth.jsonl", "fifteenth.jsonl"}

// trainAskingModel returns weights by logistic regression with AdaGrad. The part with the highest
// sum stands for the form. It is deterministic.
func trainAskingModel(forms []*trainingForm) (weights map[string]float64, bias float64) {
	counts := map[string]int{}
	for _, f := range forms {
		seen := map[string]bool{}
		for _, part := range f.parts {
			for _, x := range part {
				if !seen[x] {
					seen[x] = true
					counts[x]++
				}
			}
		}
	}
	numbers := map[string]int{}
	var names []string
	type example struct {
		parts    [][]int
		isAsking float64
		weight   float64
	}
	var examples []example
	for _, f := range forms {
		e := example{weight: 1}
		if *f.Secret {
			e.isAsking, e.weight = 1, askingWeight
		}
		for _, part := range f.parts {
			var p []int
			for _, x := range part {
				if counts[x] < 2 {
					continue
				}
				n, ok := numbers[x]
				if !ok {
					n = len(names)
					numbers[x], names = n, append(names, x)
				}
				p = append(p, n)
			}
			e.parts = append(e.parts, p)
		}
		examples = append(examples, e)
	}
	w, squares := make([]float64, len(names)), make([]float64, len(names))
	const rate, epochs = 0.1, 30
	random := rand.New(rand.NewPCG(1, 2))
	order := random.Perm(len(examples))
	for range epochs {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			e := examples[i]
			best, z := 0, math.Inf(-1)
			for j, p := range e.parts {
				s := bias
				for _, n := range p {
					s += w[n]
				}
				if s > z {
					best, z = j, s
				}
			}
			g := (1/(1+math.Exp(-z)) - e.isAsking) * e.weight
			bias -= 0.01 * g
			for _, n := range e.parts[best] {
				d := g + askingDecay*w[n]
				squares[n] += d * d
				w[n] -= rate * d / math.Sqrt(squares[n]+1)
			}
		}
	}
	weights = map[string]float64{}
	for n, name := range names {
		if math.Abs(w[n]) >= minAskingWeight {
			weights[name] = w[n]
		}
	}
	return weights, bias
}

const (
	askingWeight    = 1.2
	askingDecay     = 0.02
	minAskingWeight = 0.03
)

func scoreParts(f *trainingForm, weights map[string]float64, bias float64) float64 {
	best := math.Inf(-1)
	for _, p := range f.parts {
		z := bias
		for _, x := range p {
			z += weights[x]
		}
		best = max(best, z)
	}
	return best
}

// TestTrainAskingForms writes asking_weights.txt with TRAIN=weights. With TRAIN=check, it prints
// how many forms reach which sum, by cross-validation: each form is scored by a model that was
// trained without a fifth of the forms, among them this form.
//
//	TRAIN=check go test -v -run TestTrainAskingForms ./policies
//	TRAIN=weights go test -v -run TestTrainAskingForms ./policies
//
// The limits of elicitation/gate are chosen by the cross-validation.
func TestTrainAskingForms(t *testing.T) {
	mode := os.Getenv("TRAIN")
	if mode == "" {
		t.Skip("TRAIN is not set")
	}
	m := defaultAskingModel()
	forms := trainingForms(t, m)
	if mode == "check" {
		const folds = 5
		foldOf := func(f *trainingForm) int {
			return int(sha256.Sum256([]byte(f.line))[1]) % folds
		}
		hits := map[string][]float64{}
		for fold := range folds {
			var rest []*trainingForm
			for _, f := range forms {
				if foldOf(f) != fold {
					rest = append(rest, f)
				}
			}
			weights, bias := trainAskingModel(rest)
			for _, f := range forms {
				if foldOf(f) != fold {
					continue
				}
				z := scoreParts(f, weights, bias)
				for _, set := range []string{f.file, "all"} {
					name := fmt.Sprintf("%s secret=%t", set, *f.Secret)
					hits[name] = append(hits[name], z)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(hits)) {
			var b bytes.Buffer
			for _, limit := range []float64{-3, -2, -1, 0, 1, 2, 3, 4} {
				n := 0
				for _, z := range hits[name] {
					if z >= limit {
						n++
					}
				}
				fmt.Fprintf(&b, " %g: %d", limit, n)
			}
			t.Logf("%s %d:%s", name, len(hits[name]), b.String())
		}
		return
	}
	weights, bias := trainAskingModel(forms)
	var b bytes.Buffer
	fmt.Fprintf(&b, "=bias %d\n", int(math.Round(bias*100)))
	for _, name := range slices.SortedFunc(maps.Keys(weights), func(a, b string) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b))
	}) {
		if n := int(math.Round(weights[name] * 100)); n != 0 {
			fmt.Fprintf(&b, "%s %d\n", name, n)
		}
	}
	if err := os.WriteFile("asking_weights.txt", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d features", len(weights))
}

// TestAskingWeightsAreTrained checks that TestTrainAskingForms writes the table. The rounding of
// floating-point numbers differs slightly between processors.
func TestAskingWeightsAreTrained(t *testing.T) {
	m := defaultAskingModel()
	weights, bias := trainAskingModel(trainingForms(t, m))
	if math.Abs(bias*100-float64(m.bias)) > 2 {
		t.Errorf("the bias is %d, want %.0f: see TestTrainAskingForms", m.bias, bias*100)
	}
	wrong := 0
	for name, w := range weights {
		if math.Abs(w*100-float64(m.weights[name])) > 4 {
			wrong++
		}
	}
	for name := range m.weights {
		if _, ok := weights[name]; !ok && math.Abs(float64(m.weights[name])) > 4 {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d weights differ: see TestTrainAskingForms", wrong, len(weights))
	}
}
