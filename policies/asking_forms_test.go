package policies

import (
	"slices"
	"strings"
	"testing"
)

func textForm(message, title string) askingForm {
	return askingForm{message, []askingField{{Name: "field", Title: title, Type: "string"}}}
}

func TestBrokenAskingTablesAreRejected(t *testing.T) {
	for _, c := range []struct{ concepts, weights, want string }{
		{"PASS password,mot de passe\n# comment\n", "=bias -5\nm PASS 10\n", ""},
		{"!PASS password", "", ""},
		{"PASS", "", "is not a concept"},
		{"pass password", "", "is not a concept"},
		{"PASS password,,x", "", "empty word"},
		{"PASS password", "m PASS x", "invalid syntax"},
		{"PASS password", "m PASS 99999", "out of range"},
		{"PASS password", "PASS", "is not a feature with a weight"},
		{"PASS password", " 5", "is not a feature with a weight"},
		{"PASS password", "a 5", ""},
	} {
		_, err := parseAskingModel(c.concepts, c.weights)
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q, %q: got the error %v, want %q", c.concepts, c.weights, err, c.want)
		}
	}
}

// TestConceptsOfTokens checks how words of a text are found in the concepts.
func TestConceptsOfTokens(t *testing.T) {
	m, err := parseAskingModel("PASS password,mot de passe,*passwort*,парол*,パスワード\n"+
		"NAME name,nom*,名前\nKEY 키\n", "")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"Enter your Password":           "PASS",
		"pass\u200bword":                "PASS",
		"passwords":                     "",
		"Le mot de passe, le nom":       "PASS NAME",
		"mot passe":                     "",
		"Bankpasswortname":              "PASS",
		"паролями":                      "PASS",
		"パスワードの名前":                      "PASS NAME",
		"키의 name":                       "KEY NAME",
		"名前 password 名前 名前":             "NAME PASS NAME",
		`Translate "enter my password"`: "",
		"“password” is a word":          "PASS",
	} {
		if got := strings.Join(textOf(m.tokens(text)).concepts, " "); got != want {
			t.Errorf("%q: got the concepts %q, want %q", text, got, want)
		}
	}
}

// TestEachFieldIsScoredOnItsOwn checks that neither harmless fields nor harmless sentences in front
// of a request, or behind it, make the sum much smaller.
func TestEachFieldIsScoredOnItsOwn(t *testing.T) {
	m := defaultAskingModel()
	request := "Look at your phone: which six digits are shown?"
	alone := m.score(textForm(request, "Digits"))
	if alone < 120 {
		t.Fatalf("the request has the score %d, want one that is denied", alone)
	}
	story := strings.Repeat("The report covers the weather in all cities of the north. ", 40)
	for name, message := range map[string]string{
		"behind a story":      story + request,
		"in front of a story": request + " " + story,
	} {
		if got := m.score(textForm(message, "Digits")); got < 0 {
			t.Errorf("%s: got the score %d, want more than 0", name, got)
		}
	}
	form := textForm(request, "Digits")
	for range maxAskingFields {
		form.Fields = append(form.Fields, askingField{Name: "city", Title: "City", Type: "string"})
	}
	if got := m.score(form); got < 0 {
		t.Errorf("with harmless fields: got the score %d, want more than 0", got)
	}
	slices.Reverse(form.Fields)
	if got := m.score(form); got < 0 {
		t.Errorf("behind harmless fields: got the score %d, want more than 0", got)
	}
}

// TestNoLanguageIsASecret checks that a form without a word of a concept that secrets have is not
// taken for a request, whatever its language is.
func TestNoLanguageIsASecret(t *testing.T) {
	m := defaultAskingModel()
	for _, text := range []string{"Hvað heitir þú?", "როგორ ხართ?", "ምን ትፈልጋለህ?", "நீங்கள் யார்?",
		"ঢাকা কোথায়?", "Ano ang gusto mo?", "Unataka nini?", "Ինչ եք ուզում", "မင်္ဂလာပါ",
		"อยากไปที่ไหน", "Что вы хотите?", "何が欲しいですか", "你想要什么?", "무엇을 원하세요?"} {
		if got := m.score(textForm(text, text)); got >= 0 {
			t.Errorf("%s: got the score %d, want less than 0", text, got)
		}
	}
}

func TestFormWithoutFieldsHasTheLowestScore(t *testing.T) {
	if got := defaultAskingModel().score(askingForm{Message: "Enter your password"}); got > -10000 {
		t.Errorf("got the score %d, want the lowest", got)
	}
}

// TestScoreOfLargeForms checks that the message is left out for further fields.
func TestScoreOfLargeForms(t *testing.T) {
	m := defaultAskingModel()
	form := askingForm{Message: "Please fill in"}
	for range 2 * maxAskingFields {
		form.Fields = append(form.Fields, askingField{Name: "city", Title: "City", Type: "string"})
	}
	form.Fields = append(form.Fields, askingField{Name: "p", Title: "Card number and CVV"})
	parts := 0
	m.eachPart(form, func([]string) { parts++ })
	if got := m.score(form); got < 0 || parts != len(form.Fields) {
		t.Errorf("got the score %d of %d parts, want more than 0 of %d", got, parts,
			len(form.Fields))
	}
	form.Message = strings.Repeat("weather ", 3000)
	parts = 0
	m.eachPart(form, func([]string) { parts++ })
	if limit := maxAskingFields*(maxAskingParts+1) + len(form.Fields); parts > limit {
		t.Errorf("got %d parts, want at most %d", parts, limit)
	}
}

// TestOnlySecretConceptsMakeARequest checks that no weight makes a request of a form without a
// concept that has a "!" in asking_concepts.txt.
func TestOnlySecretConceptsMakeARequest(t *testing.T) {
	m, err := parseAskingModel("!PASS password\nNAME name\n", "=bias 500\n")
	if err != nil {
		t.Fatal(err)
	}
	for title, want := range map[string]int{"Password": 500, "Name": -1, "City": -1} {
		if got := m.score(textForm("Please fill in", title)); got != want {
			t.Errorf("%s: got the score %d, want %d", title, got, want)
		}
	}
}
