package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/config"
	"gatekit/policies"
)

// TestCheckNamesRulesThatReadEmptyState loads rules that read members of the input. With the
// configuration of this test, these members are always empty.
func TestCheckNamesRulesThatReadEmptyState(t *testing.T) {
	const reads = `package gatekit.t
deny contains "no" if input.principal.subject == "bob"
hide contains "x" if "l" in input.session.labels
note contains f.type if some f in input.findings
`
	for name, c := range map[string]struct {
		more    string
		plugins []config.Plugin
		want    []string
	}{
		"no plugin and no label rule": {"", nil, []string{"input.principal is always empty",
			"input.findings is always empty", "input.session.labels is always empty"}},
		"a label rule": {`label contains "l"`, nil, []string{"input.principal is always empty",
			"input.findings is always empty"}},
		"a plugin": {"", make([]config.Plugin, 1),
			[]string{"input.principal is always empty"}},
		"authentication": {`label contains "l"`, make([]config.Plugin, 1), nil},
	} {
		file := filepath.Join(t.TempDir(), "t.rego")
		if err := os.WriteFile(file, []byte(reads+c.more), 0o600); err != nil {
			t.Fatal(err)
		}
		stage, err := policies.Load(policies.Options{Files: []string{file}})
		if err != nil {
			t.Fatal(err)
		}
		cfg := &config.Config{Plugins: c.plugins}
		if name == "authentication" {
			cfg.Listen.Auth = &config.Auth{}
		}
		got := emptyState(cfg, stage)
		if len(got) != len(c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], c.want[i]) || !strings.Contains(got[i], "read by t: ") {
				t.Errorf("%s: got %q, want %q and the name of the rule", name, got[i], c.want[i])
			}
		}
	}
}
