package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/policies"
)

// With ReuseDecisions, a stage decides every case as without, also if rules read the state of the
// session, the time or a random number.
func TestReusedDecisionsAreTheSame(t *testing.T) {
	for name, rego := range map[string]string{
		"the arguments":  `deny contains "no" if input.params.arguments.n == 1`,
		"the answer":     `deny contains "no" if input.result.n == 2`,
		"the request":    `redact contains {"path": "/n", "with": "x"} if input.request.arguments.n == 1`,
		"earlier calls":  `deny contains "too many" if input.session.calls[""] > 3`,
		"calls a minute": `deny contains "too fast" if input.session.minute[""] > 2`,
		"a label": "label contains \"seen\" if input.params.arguments.n == 1\n" +
			`deny contains "seen" if "seen" in input.session.labels`,
		"the time": `deny contains "late" if input.time > "2026-11-01T00:00:20Z"`,
		"the clock": "deny contains \"late\" if time.now_ns() > " +
			fmt.Sprint(time.Date(2026, 11, 1, 0, 0, 20, 0, time.UTC).UnixNano()),
		"the clock in a helper": "late if time.now_ns() > " +
			fmt.Sprint(time.Date(2026, 11, 1, 0, 0, 20, 0, time.UTC).UnixNano()) +
			"\ndeny contains \"late\" if late",
		"the principal": `deny contains "not you" if input.principal.subject == "ann"`,
		"an error":      `deny contains input.params.arguments.n if input.params.arguments.n == 1`,
		"the definition": "deny contains \"writes\" if not input.item.annotations.readOnlyHint\n" +
			`hide contains i.name if { some i in input.items; i.title == "h" }`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "t.rego")
			if err := os.WriteFile(file, []byte("package gatekit.t\n\n"+rego+"\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
			var got [2][]string
			for i, reuse := range []bool{false, true} {
				s, err := policies.Load(policies.Options{Files: []string{file},
					ReuseDecisions: reuse})
				if err != nil {
					t.Fatal(err)
				}
				var matcher policies.RequestMatcher
				for _, line := range cachedCases() {
					c, err := policies.ParseCase([]byte(line))
					if err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					matcher.Add(c)
					o := s.Evaluate(t.Context(), c)
					got[i] = append(got[i], fmt.Sprint(o.Action, " ", o.Reason, " ", o.Err))
				}
			}
			passed := true
			for i := range got[0] {
				passed = passed && strings.HasPrefix(got[0][i], "pass")
				if got[1][i] != got[0][i] {
					t.Errorf("message %d: got %q with reused decisions, want %q", i, got[1][i],
						got[0][i])
				}
			}
			if passed {
				t.Error("the rule had no effect, so the test shows nothing")
			}
		})
	}
}

// cachedCases returns calls and answers of two principals in which inputs are repeated. Between
// them, the definition of the tool changes.
func cachedCases() (lines []string) {
	for i := range 40 {
		at := fmt.Sprintf("2026-11-01T00:00:%02dZ", i)
		principal := []string{"ann", "bob"}[i/2%2]
		head := fmt.Sprintf(`"session":"s%d","principal":{"subject":%q},"server":"x",`+
			`"time":%q,`, i/20, principal, at)
		if i%10 == 0 {
			lines = append(lines, fmt.Sprintf(`{%s"method":"tools/list","result":{"tools":[`+
				`{"name":"t","title":%q,"annotations":{"readOnlyHint":%v}}]}}`, head,
				[]string{"h", "g"}[i/10%2], i/10%2 == 1))
		}
		lines = append(lines, fmt.Sprintf(`{%s"method":"tools/call","params":{"name":"t",`+
			`"arguments":{"n":%d}}}`, head, i%3),
			fmt.Sprintf(`{%s"method":"tools/call","name":"t","result":{"n":%d},`+
				`"request":{"name":"t","arguments":{"n":%d}}}`, head, i%4, i%3))
	}
	return lines
}
