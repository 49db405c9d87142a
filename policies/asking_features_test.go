package policies

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestFeaturesOfForms checks the features of each part of a form, which the table of weights names.
func TestFeaturesOfForms(t *testing.T) {
	m, err := parseAskingModel("!PASS password\nNAME name\nENTER enter\nTOKEN token\nWHO your\n",
		"")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		form askingForm
		want []string // of each part
	}{
		{"a field with all texts", askingForm{"Enter it?", []askingField{{"person", "Token",
			"Your name", "string", "email"}}}, []string{
			"any ENTER, any NAME, any TOKEN, any WHO, any WHO>NAME, any enter, any it, any name, " +
				"any perso*, any person, any token, any your, d NAME, d WHO, d WHO>NAME, " +
				"d first WHO, d last NAME, d name, d your, d your name, fields 1, format email, " +
				"l TOKEN, l first TOKEN, l last TOKEN, l token, l whole TOKEN, l whole token, " +
				"ld TOKEN+NAME, ld TOKEN+WHO, m ?, m ENTER, m enter, m enter it, m first ENTER, " +
				"m it, m last ENTER, m short, md ENTER+NAME, md ENTER+WHO, ml ENTER+TOKEN, " +
				"n perso*, n person, type string"}},
		{"two fields", askingForm{"one two three four five", []askingField{
			{Name: "name", Type: "string"}, {Name: "token", Type: "number"}}}, []string{
			"any NAME, any five, any four, any name, any one, any three, any two, fields 2, " +
				"format , l NAME, l first NAME, l last NAME, l name, l whole NAME, l whole name, " +
				"m five, m four, m four five, m one, m one two, m three, m three four, m two, " +
				"m two three, m without concepts, o TOKEN, type string",
			"any TOKEN, any five, any four, any one, any three, any token, any two, fields 2, " +
				"format , l TOKEN, l first TOKEN, l last TOKEN, l token, l whole TOKEN, " +
				"l whole token, m five, m four, m four five, m one, m one two, m three, " +
				"m three four, m two, m two three, m without concepts, o NAME, type number"}},
		{"several concepts in a text", askingForm{"Enter your name token, then wait",
			[]askingField{{Name: "q", Title: "ok"}}}, []string{
			"any ENTER, any ENTER>WHO, any ENTER>WHO>NAME, any NAME, any NAME>TOKEN, any TOKEN, " +
				"any WHO, any WHO>NAME, any WHO>NAME>TOKEN, any enter, any name, any ok, " +
				"any then, any token, any wait, any your, fields 1, format , l ok, l whole ok, " +
				"m ENTER, m ENTER>WHO, m NAME, m NAME>TOKEN, m TOKEN, m WHO, m WHO>NAME, " +
				"m enter, m enter your, m first ENTER, m last TOKEN, m name, m name token, " +
				"m then, m then wait, m token, m token then, m wait, m your, m your name, type "}},
	} {
		var got []string
		m.eachPart(c.form, func(f []string) { got = append(got, strings.Join(f, ", ")) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got the features\n\t%s\nwant\n\t%s", c.name,
				strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
		}
	}
}

// TestLimitsOfFeatures checks, at each limit, that the first part of a form has a feature, and that
// it has not if the form goes beyond the limit.
func TestLimitsOfFeatures(t *testing.T) {
	concepts, words := "", []string{}
	for i := range 11 {
		word := "word" + string(rune('a'+i))
		concepts += fmt.Sprintf("%s %s\n", strings.ToUpper(word), word)
		words = append(words, word)
	}
	m, err := parseAskingModel(concepts, "")
	if err != nil {
		t.Fatal(err)
	}
	label := func(title string) askingForm {
		return askingForm{"", []askingField{{Name: "field", Title: title}}}
	}
	named := func(name string) askingForm { return askingForm{"", []askingField{{Name: name}}} }
	message := func(text string) askingForm {
		return askingForm{text, []askingField{{Name: "field", Title: words[0]}}}
	}
	fields := func(n int) (form askingForm) {
		for i := range n {
			form.Fields = append(form.Fields, askingField{Name: "field", Title: words[0]})
			if i == n-1 {
				form.Fields[i].Title = words[1]
			}
		}
		return form
	}
	for _, c := range []struct {
		feature        string
		within, beyond askingForm
	}{
		{"l VAGUE", named("ab"), named("abc")},
		{"l VAGUE", label("a"), label("ab")},
		{"n abc", askingForm{"", []askingField{{Name: "abc", Title: "x y"}}}, named("abc")},
		{"n abc", askingForm{"", []askingField{{Name: "abc", Title: "x y"}}},
			askingForm{"", []askingField{{Name: "ab", Title: "x y"}}}},
		{"m short", message("a b c d"), message("a b c d e")},
		{"m without concepts", message("a b"), message("a " + words[1])},
		{"any lette*", label("letters"), label("lette")},
		{"any lette*", label("letter"), label("lette")},
		{"l whole WORDA>WORDB>WORDC", label(strings.Join(words[:3], " ")),
			label(strings.Join(words[:4], " "))},
		{"l whole WORDA", label("worda b c d e"), label("worda b c d e f")},
		{"l whole a b c", label("a b c"), label("a b c d")},
		{"ml WORDJ+WORDA", message(strings.Join(words, " ")),
			message(strings.Join(words[:9], " "))},
		{"fields 2", fields(2), fields(3)},
		{"fields 3", fields(4), fields(2)},
		{"o WORDB", fields(maxAskingFields), fields(maxAskingFields + 1)},
		{"m last", message(strings.Repeat("a ", 2*askingStride-1) + "last"),
			message(strings.Repeat("a ", 2*askingStride) + "last")},
	} {
		for i, form := range []askingForm{c.within, c.beyond} {
			var first []string
			m.eachPart(form, func(f []string) {
				if first == nil {
					first = slices.Clone(f)
				}
			})
			if got, want := slices.Contains(first, c.feature), i == 0; got != want {
				t.Errorf("%+v: the feature %q is there: %v, want %v", form, c.feature, got, want)
			}
		}
	}
	m.eachPart(message(strings.Join(words, " ")), func(f []string) {
		if slices.Contains(f, "ml WORDK+WORDA") {
			t.Error("the eleventh concept of a message is paired with the label")
		}
	})
}

// TestPartsOfMessages checks into how many parts a message is cut.
func TestPartsOfMessages(t *testing.T) {
	m := defaultAskingModel()
	for words, want := range map[int]int{
		0: 1, 2 * askingStride: 1, 2*askingStride + 1: 2, 3 * askingStride: 2,
		3*askingStride + 1: 3, 100 * askingStride: maxAskingParts - 1,
		2 * maxAskingTokens: maxAskingParts - 1,
	} {
		parts, last := 0, []string(nil)
		text := strings.Repeat("a ", max(0, words-1)) + "last"
		m.eachPart(textForm(text, "City"), func(f []string) { parts, last = parts+1, f })
		if parts != want || words <= maxAskingTokens && !slices.Contains(last, "m last") {
			t.Errorf("%d words: got %d parts, want %d, the last with the last word", words, parts,
				want)
		}
	}
}
