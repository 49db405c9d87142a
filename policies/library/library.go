// Package library is the rules that come with Gatekit: each a folder with the rule in Rego, its tests, and the schema of its settings. They are used by name, `[policy] rules`, and
// set by `[policy.config."category/name"]`.
package library

import (
	"embed"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"

	"gatekit/plugins/sdk"
)

// FS holds category/name/rule.rego, rule_test.rego and schema.json.
//
//go:embed */*/rule.rego */*/rule_test.rego */*/schema.json
var FS embed.FS

// Names answers the rules, sorted.
func Names() (names []string) {
	files, _ := fs.Glob(FS, "*/*/rule.rego") // the pattern is good
	for _, f := range files {
		names = append(names, path.Dir(f))
	}
	slices.Sort(names)
	return names
}

// Title is what a rule says of itself in a line: the title in its metadata.
func Title(rule string) string {
	b, err := fs.ReadFile(FS, path.Join(rule, "rule.rego"))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(b), "# title: ")
	title, _, _ := strings.Cut(after, "\n")
	return title
}

// Check holds settings against a rule's schema, as a plugin's are: an option that is not known, or of another type, is named.
func Check(rule string, settings map[string]any) error {
	schema, err := fs.ReadFile(FS, path.Join(rule, "schema.json"))
	if err != nil {
		return err
	}
	if settings == nil {
		settings = map[string]any{}
	}
	b, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return sdk.Plugin{Name: rule, Schema: schema}.Check(b)
}
