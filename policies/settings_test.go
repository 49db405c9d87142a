package policies_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"gatekit/policies"
	"gatekit/policies/library"
)

// loadWithSettings loads a rule with settings, which are JSON, and returns the error.
func loadWithSettings(t *testing.T, rule, settings string) error {
	t.Helper()
	var config map[string]any
	if err := json.Unmarshal([]byte(settings), &config); err != nil {
		t.Fatal(err)
	}
	_, err := policies.Load(policies.Options{Rules: []string{rule},
		Config: map[string]map[string]any{rule: config}})
	return err
}

func TestInvalidPatternFailsAtLoad(t *testing.T) {
	for _, c := range []struct{ rule, settings, want string }{
		{"tools/arguments", `{"rules":[{"argument":"a"},{"argument":"b","pattern":"("}]}`,
			`rules[1].pattern: is not a valid RE2 pattern: missing closing )`},
		{"tools/arguments", `{"rules":[{"argument":"a","pattern":"a(?=b)"}]}`,
			`rules[0].pattern: is not a valid RE2 pattern: invalid or unsupported Perl syntax`},
		// This pattern is valid alone, but not inside the group into which the rule puts it.
		{"tools/arguments", `{"rules":[{"argument":"a","pattern":"\\Qa"}]}`,
			`rules[0].pattern: is not a valid RE2 pattern: missing closing )`},
		{"tools/arguments", `{"rules":[{"argument":"/a/[","pattern":"a"}]}`,
			`rules[0].argument: is not a valid argument: `},
		{"tools/arguments", `{"rules":[{"argument":"a","tools":["{x"]}]}`,
			`rules[0].tools[0]: is not a valid pattern: `},
		{"tools/arguments", `{"rules":[{"argument":"a","hosts":["a","*.[b"]}]}`,
			`rules[0].hosts[1]: is not a valid pattern: `},
		{"resources/redact", `{"rules":[{"uris":["*"],"pattern":"[z-a]","with":""}]}`,
			`rules[0].pattern: is not a valid RE2 pattern: invalid character class range`},
		{"resources/redact", `{"rules":[{"uris":["a\\"],"pattern":"a","with":""}]}`,
			`rules[0].uris[0]: is not a valid pattern: `},
		{"tools/allowlist", `{"servers":{"box":["a","["]}}`,
			`servers.box[1]: is not a valid pattern: `},
		{"roots/traversal", `{"arguments":[{"argument":"files[]"}]}`,
			`arguments[0].argument: is not a valid pattern: `},
	} {
		err := loadWithSettings(t, c.rule, c.settings)
		setting, ok := errors.AsType[*policies.SettingsError](err)
		if !ok || setting.Rule != c.rule || !strings.HasPrefix(setting.Err.Error(), c.want) {
			t.Errorf("%s %s: error %v, want a *SettingsError with %s", c.rule, c.settings, err,
				c.want)
		}
	}
	for _, c := range []struct{ rule, settings string }{
		{"tools/arguments", `{"rules":[{"argument":"files[]","pattern":"(?i)[a-z]{1,3}|\\Qa\\E","tools":["{a,b}*"]},{"argument":"/a/*/[bc]"}]}`},
		{"elicitation/gate", `{"except":["a["]}`}, // a name, not a pattern
	} {
		if err := loadWithSettings(t, c.rule, c.settings); err != nil {
			t.Errorf("%s %s: error %v, want none", c.rule, c.settings, err)
		}
	}
}

// TestAllErrorsInSettingsAreReported checks that the error has every error in the settings, each on
// its own line.
func TestAllErrorsInSettingsAreReported(t *testing.T) {
	_, err := policies.Load(policies.Options{Rules: []string{"tools/allowlist", "limits/rate"},
		Config: map[string]map[string]any{
			"tools/allowlist": {"tools": []any{"[", 3}, "tool": 1},
			"limits/rate":     {"per_session": -1},
		}})
	for _, want := range []string{
		`policy.config."tools/allowlist": tool: unknown option, did you mean "tools"?`,
		`policy.config."tools/allowlist": tools[0]: is not a valid pattern: `,
		`policy.config."tools/allowlist": tools[1]: must be a string, not a number`,
		`policy.config."limits/rate": per_session: must be at least 0`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %s:\n%v", want, err)
		}
	}
}

// TestEveryPatternSettingIsChecked checks that each setting that is a pattern has a format in the
// schema. The pattern is then checked when the rule is loaded. Otherwise an invalid pattern would
// fail only with the first message.
func TestEveryPatternSettingIsChecked(t *testing.T) {
	for _, rule := range library.Names() {
		b, err := fs.ReadFile(library.FS, path.Join(rule, "schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		var schema any
		if err := json.Unmarshal(b, &schema); err != nil {
			t.Fatal(err)
		}
		var walk func(at string, v any, described string)
		walk = func(at string, v any, described string) {
			switch v := v.(type) {
			case map[string]any:
				if d, ok := v["description"].(string); ok {
					described = d
				}
				if v["type"] == "string" && v["format"] == nil &&
					strings.Contains(strings.ToLower(described), "pattern") {
					t.Errorf("%s: %s: the description %q mentions a pattern, but the schema has "+
						"no format", rule, at, described)
				}
				for k, sub := range v {
					walk(at+"/"+k, sub, described)
				}
			case []any:
				for i, sub := range v {
					walk(fmt.Sprintf("%s/%d", at, i), sub, described)
				}
			}
		}
		walk("", schema, "")
	}
}
