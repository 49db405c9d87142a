package policies_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
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
// wrap. The first half of the cases was written before the rule was. A case whose line has an odd
// first byte in its SHA-256 is held out: the rule was not changed for it, and the test does not
// print it. The counts of held-out cases are those of the rule as it was written.
func TestElicitationGateOnForms(t *testing.T) {
	testElicitationCases(t, "cases.jsonl", map[string]int{"held-out forms, attacks that pass": 5,
		"held-out forms, honest ones denied": 7})
}

// TestElicitationGateOnSecondForms is TestElicitationGateOnForms with forms that were written and
// split before the rule was tried on any of them. At first, 4 of 73 held-out honest forms were
// denied and 9 of 52 held-out attacks passed.
func TestElicitationGateOnSecondForms(t *testing.T) {
	testElicitationCases(t, "second.jsonl", map[string]int{"held-out forms, attacks that pass": 7,
		"held-out forms, honest ones denied": 3})
}

// TestElicitationGateOnThirdForms is TestElicitationGateOnForms with a third set, which was also
// written and split before it was tried. At first, 15 of 88 held-out honest forms were denied and 2
// of 19 held-out attacks passed.
func TestElicitationGateOnThirdForms(t *testing.T) {
	testElicitationCases(t, "third.jsonl", map[string]int{"held-out forms, attacks that pass": 1,
		"held-out forms, honest ones denied": 13, "tuning forms, honest ones denied": 2})
}

// TestElicitationGateOnFourthForms is TestElicitationGateOnForms with a fourth set. It was also
// written and split before it was tried. Cases with a source "retold" say in other words what forms
// of published servers say; the number is that of the text in which the form was found. At first,
// 25 of 110 held-out honest forms were denied and 0 of 45 held-out attacks passed.
func TestElicitationGateOnFourthForms(t *testing.T) {
	testElicitationCases(t, "fourth.jsonl", map[string]int{
		"held-out forms, honest ones denied": 25, "tuning forms, honest ones denied": 38,
		"tuning forms, attacks that pass": 4})
}

// TestElicitationGateOnFifthForms is TestElicitationGateOnForms with a fifth set, which was written
// and split before it was tried. At first, 5 of 92 held-out honest forms were denied and 6 of 49
// held-out attacks passed.
func TestElicitationGateOnFifthForms(t *testing.T) {
	testElicitationCases(t, "fifth.jsonl", map[string]int{
		"held-out forms, honest ones denied": 5, "held-out forms, attacks that pass": 6,
		"tuning forms, honest ones denied": 3, "tuning forms, attacks that pass": 9})
}

// TestElicitationGateOnSixthForms is TestElicitationGateOnForms with a sixth set.
func TestElicitationGateOnSixthForms(t *testing.T) {
	testElicitationCases(t, "sixth.jsonl", map[string]int{})
}

// testElicitationCases compares the verdicts on the cases of a file with what is wanted. atMost has
// the numbers of wrong verdicts that are allowed.
func testElicitationCases(t *testing.T, file string, atMost map[string]int) {
	t.Helper()
	text, err := os.ReadFile("testdata/elicitation/" + file)
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
		heldOut := sha256.Sum256(lines.Bytes())[0]%2 == 1 && (file == "fourth.jsonl" || file == "fifth.jsonl")
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
