package builtin_test

import (
	"os"
	"strings"
	"testing"

	"gatekit/plugins/builtin"
	"gatekit/plugins/sdk/sdktest"
)

// configs holds a configuration for each plugin that rejects {}.
var configs = map[string]string{"tools": `{"tools":{"hide":["delete_*"]}}`}

func TestPluginSuite(t *testing.T) {
	for _, p := range builtin.All() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			config, ok := configs[p.Name]
			if !ok {
				config = `{}`
			}
			sdktest.Run(t, p, config)
		})
	}
}

func TestREADMEListsEachPlugin(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range builtin.All() {
		if row := "| [`" + p.Name + "`](plugins/builtin/" + p.Name + ") | " + p.Doc +
			" |\n"; !strings.Contains(string(readme), row) {
			t.Errorf("README.md has no row\n%s", row)
		}
	}
}

// The host refuses connections to the other plugins.
func TestOnlyTheClassifierNeedsNetwork(t *testing.T) {
	classifier := map[string]any{"classifier": map[string]any{"url": "http://localhost:9"}}
	for _, p := range builtin.All() {
		if builtin.NeedsNetwork(p.Name, map[string]any{}) {
			t.Errorf("%s needs network without a configuration", p.Name)
		}
		got, want := builtin.NeedsNetwork(p.Name, classifier), p.Name == "injection"
		if got != want {
			t.Errorf("%s with a classifier needs network: %v, want %v", p.Name, got, want)
		}
	}
}
