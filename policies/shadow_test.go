package policies_test

import (
	"os"
	"path/filepath"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
)

// TestShadowModeRecordsWhatItWouldDo checks that every message passes unchanged in shadow mode. The
// recorded action is the action that enforced policies would take, with the prefix "would_".
func TestShadowModeRecordsWhatItWouldDo(t *testing.T) {
	list := func(method, items string) *mcp.Message {
		return answered(sent(mcp.NewRequest("1", method, nil), mcp.ToServer, ""), items)
	}
	const rego = `
deny contains "no" if { input.method == "tools/call"; input.name == "denied"; input.kind == "request" }
ask contains {"reason": "sure?"} if { input.method == "tools/call"; input.name == "asked"; input.kind == "request" }
set contains {"path": "/arguments/a", "value": 1} if { input.method == "tools/call"; input.name == "set" }
redact contains {"pattern": "k[0-9]", "with": "K"} if { input.method == "tools/call"; input.name == "redacted" }
hide contains item.name if { input.method == "tools/list"; some item in input.items; item.name == "hidden" }
deny contains count(input.name) if { input.method == "tools/call"; input.name == "broken" }
note contains "noted"
`
	for name, c := range map[string]struct {
		m              *mcp.Message
		action, reason string
	}{
		"deny":           {called("denied", `{}`), "would_deny", "t: no"},
		"ask":            {called("asked", `{}`), "would_ask", "needs approval: t: sure?"},
		"set":            {called("set", `{}`), "would_modify", "t"},
		"redact":         {called("redacted", `{"a":"k1"}`), "would_modify", "t"},
		"redact nothing": {called("redacted", `{"a":"j1"}`), "pass", ""},
		"hide from a list": {list("tools/list", `{"tools":[{"name":"hidden"},{"name":"x"}]}`),
			"would_hide", "t"},
		"hide nothing": {list("tools/list", `{"tools":[{"name":"x"}]}`), "pass", ""},
		"use of a hidden tool": {called("hidden", `{}`), "would_deny",
			"t: the tool is hidden from this client"},
		"an element of the wrong type": {called("broken", `{}`), "would_deny",
			`t: deny contains an element of type number, want reasons, or objects with a "reason"`},
		"nothing": {called("x", `{}`), "pass", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for metadata, shadow := range map[string]bool{
				"# METADATA\n# custom:\n#   mode: shadow\n": false, "": true} {
				file := filepath.Join(t.TempDir(), "t.rego")
				if err := os.WriteFile(file, []byte(metadata+"package gatekit.t\n"+rego),
					0o600); err != nil {
					t.Fatal(err)
				}
				s, err := policies.Load(policies.Options{Files: []string{file}, Shadow: shadow})
				if err != nil {
					t.Fatal(err)
				}
				j := &journal{}
				p, err := pipeline.New(j, pipeline.Options{}, pipeline.StageConfig{Name: "policy",
					Stage: s}).Pass(t.Context(), c.m)
				if err != nil || string(p.Message().Body()) != string(c.m.Body()) {
					t.Fatalf("the message does not pass unchanged: %v", err)
				}
				if j.last.Action != c.action || c.action != "pass" && j.last.Reason != c.reason ||
					j.last.Steps[0].Action != c.action {
					t.Errorf("recorded %s, %q, want %s, %q", j.last.Action, j.last.Reason, c.action,
						c.reason)
				}
			}
		})
	}
}

// The effects of a rule on a URI and on its canonical spelling are recorded together.
func TestShadowModeRecordsEffectsOnAllSpellings(t *testing.T) {
	for rego, want := range map[string]string{
		`deny contains input.name`:                          "t: FILE:///a; t: file:///a",
		`deny contains "one" if input.name == "FILE:///a"`:  "t: one",
		`deny contains "two" if input.name == "file:///a"`:  "t: two",
		`deny contains "none" if input.name == "file:///A"`: "",
	} {
		s, err := policies.Load(policies.Options{Files: loaded(t, rego).Files(), Shadow: true})
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Inspect(t.Context(), reading("FILE:///a"))
		if got := ""; err != nil || (v.Would == nil) != (want == "") ||
			v.Would != nil && v.Would.Reason != want {
			if v.Would != nil {
				got = v.Would.Reason
			}
			t.Errorf("%s: would deny because of %q, error %v; want %q", rego, got, err, want)
		}
	}
}

// Only the metadata of the package select shadow mode.
func TestMetadataOfRuleDoNotSelectShadowMode(t *testing.T) {
	s := loaded(t, "# METADATA\n# scope: rule\n# custom:\n#   mode: shadow\ndeny contains \"no\"\n")
	if got := verdictOf(t, s, called("x", `{}`)); got != "denied: t: no" {
		t.Errorf("got %s, want denied: t: no", got)
	}
}
