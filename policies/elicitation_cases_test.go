package policies_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies/library"
)

// elicitationCase is a form or a URL of a file in testdata/elicitation.
type elicitationCase struct {
	Secret     *bool                      `json:"secret"` // whether the form asks for a secret
	Suspicious *bool                      `json:"suspicious"`
	Message    string                     `json:"message"`
	Fields     map[string]json.RawMessage `json:"fields"`
	URL        string                     `json:"url"`
}

func (c elicitationCase) isAttack() bool {
	return c.Secret != nil && *c.Secret || c.Suspicious != nil && *c.Suspicious
}

func (c elicitationCase) request(t *testing.T) *mcp.Message {
	t.Helper()
	params := map[string]any{"mode": "url", "message": "Please continue there",
		"elicitationId": "1", "url": c.URL}
	if c.Secret != nil {
		params = map[string]any{"message": c.Message, "requestedSchema": map[string]any{
			"type": "object", "properties": c.Fields}}
	}
	body, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	return sent(mcp.NewRequest("1", "elicitation/create", body), mcp.ToClient, "")
}

// TestElicitationGateOnForms counts the wrong verdicts of elicitation/gate, with the settings of
// wrap, on forms and URLs that must pass or be denied. Each set was written before the rule was
// tried on any of its cases. The comments at the sets have the wrong verdicts at the first try, and
// for the first set those before it was read: held-out honest forms that were denied, and held-out
// attacks that passed. The last four sets were tried as a whole.
//
// In the sets with a held-out half, a case whose line has an odd first byte in its SHA-256 is held
// out: neither the rule nor its classifier was changed for it, and the test does not print it. The
// other sets also had such a half, until its cases were read to change the rule. The twelfth set is
// held out as a whole. The fifteenth set has another author, who had not read the rule; its wrong
// verdicts are known, and nothing was changed for them.
//
// The environment variable FORMS names the file of a further set, whose wrong verdicts are printed
// and are failures:
//
//	FORMS=/tmp/new.jsonl go test ./policies -run TestElicitationGateOnForms/FORMS -v
//
// Each line is one form. secret tells whether the form asks for a secret; lang and source are not
// read. The members of fields are the properties of requestedSchema:
//
//	{"secret": true, "lang": "en", "message": "Sign in", "fields": {"p": {"type": "string"}}}
//
// Cases with a source "retold" say in other words what forms of published servers say. The number
// is that of the text in which the form was found.
func TestElicitationGateOnForms(t *testing.T) {
	for _, set := range []struct {
		file    string
		heldOut bool
		atMost  map[string]int
	}{
		{file: "cases.jsonl"},  // 7 of 217, 5 of 124
		{file: "second.jsonl"}, // 4 of 73, 9 of 52
		{file: "third.jsonl"},  // 15 of 88, 2 of 19
		{file: "fourth.jsonl", heldOut: true, atMost: map[string]int{ // 25 of 110, 0 of 45
			"held-out forms, honest ones denied": 1, "held-out forms, attacks that pass": 1}},
		{file: "fifth.jsonl"},   // 5 of 92, 6 of 49
		{file: "sixth.jsonl"},   // 9 of 102, 24 of 108
		{file: "seventh.jsonl"}, // 10 of 110, 10 of 82
		{file: "eighth.jsonl"},  // 6 of 105, 4 of 66
		{file: "ninth.jsonl"},   // 4 of 91, 5 of 58
		{file: "tenth.jsonl", heldOut: true, atMost: map[string]int{ // 4 of 408, 97 of 334
			"tuning forms, attacks that pass": 1, "held-out forms, attacks that pass": 12}},
		{file: "eleventh.jsonl", atMost: map[string]int{ // 19 of 617, 179 of 475
			"tuning forms, honest ones denied": 2, "tuning forms, attacks that pass": 14}},
		{file: "twelfth.jsonl", heldOut: true, atMost: map[string]int{ // 1 of 85, 31 of 73
			"held-out forms, honest ones denied": 1, "held-out forms, attacks that pass": 11}},
		{file: "thirteenth.jsonl", atMost: map[string]int{ // 2 of 273, 117 of 196
			"tuning forms, attacks that pass": 30}},
		{file: "fourteenth.jsonl"}, // 2 of 160, with the classifier
		{file: "fifteenth.jsonl", atMost: map[string]int{ // 2 of 121, 5 of 100
			"tuning forms, honest ones denied": 2, "tuning forms, attacks that pass": 1}},
	} {
		t.Run(set.file, func(t *testing.T) {
			testElicitationCases(t, set.file, set.heldOut, set.atMost)
		})
	}
	if file := os.Getenv("FORMS"); file != "" {
		t.Run("FORMS", func(t *testing.T) { testElicitationCases(t, file, false, nil) })
	}
}

// testElicitationCases compares the verdicts on the cases of a file with what is wanted. atMost has
// the numbers of wrong verdicts that are allowed.
func testElicitationCases(t *testing.T, file string, hasHeldOut bool, atMost map[string]int) {
	t.Helper()
	if !filepath.IsAbs(file) {
		file = filepath.Join("testdata", "elicitation", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := fromLibrary(t, "elicitation/gate", library.DefaultRules()["elicitation/gate"])
	counts := map[string]*[2]int{} // wrong verdicts and cases
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var c elicitationCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		heldOut := hasHeldOut && (filepath.Base(file) == "twelfth.jsonl" ||
			sha256.Sum256(lines.Bytes())[0]%2 == 1)
		name := "tuning"
		if heldOut {
			name = "held-out"
		}
		if c.URL != "" {
			name += " URLs"
		} else {
			name += " forms"
		}
		if c.isAttack() {
			name += ", attacks that pass"
		} else {
			name += ", honest ones denied"
		}
		if counts[name] == nil {
			counts[name] = &[2]int{}
		}
		counts[name][1]++
		if refused(t, s, c.request(t)) == c.isAttack() {
			continue
		}
		counts[name][0]++
		if !heldOut {
			t.Logf("wrong verdict for %s", lines.Bytes())
		}
	}
	for name, c := range counts {
		t.Logf("%s: %d of %d", name, c[0], c[1])
		if c[0] > atMost[name] {
			t.Errorf("%s: %d of %d, want at most %d", name, c[0], c[1], atMost[name])
		}
	}
}

// BenchmarkElicitationGate measures elicitation/gate on a form without a word for a secret, on a
// form that only mentions one, and on a form that asks for one.
func BenchmarkElicitationGate(b *testing.B) {
	s := fromLibrary(b, "elicitation/gate", library.DefaultRules()["elicitation/gate"])
	for _, form := range []struct{ name, message, title string }{
		{"ordinary", "Which city should the report cover?", "City"},
		{"mention", "Why should the token of the build server be revoked?", "Reason"},
		{"request", "Enter the password of the build server", "Value"},
	} {
		b.Run(form.name, func(b *testing.B) {
			m := received(b, sent(mcp.NewRequest("1", "elicitation/create",
				[]byte(`{"message":`+quoted(form.message)+`,"requestedSchema":{"type":"object",`+
					`"properties":{"field":{"type":"string","title":`+quoted(form.title)+`}}}}`)),
				mcp.ToClient, ""))
			for b.Loop() {
				if _, err := s.Inspect(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
