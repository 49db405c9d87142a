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
