// Package library contains the rules that come with Gatekit. Each rule is a folder with the rule in
// Rego, its tests, and the schema of its settings. In the configuration, `[policy] rules` enables
// rules by name, and `[policy.config."category/name"]` has the settings of a rule.
package library

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"gatekit/plugins/sdk"

	"github.com/gobwas/glob"
)

// FS contains the files rule.rego, rule_test.rego and schema.json of each rule, in the folder
// category/name.
//
//go:embed */*/rule.rego */*/rule_test.rego */*/schema.json
var FS embed.FS

// Names returns the names of the rules, sorted.
func Names() (names []string) {
	files, _ := fs.Glob(FS, "*/*/rule.rego") // the pattern is valid
	for _, f := range files {
		names = append(names, path.Dir(f))
	}
	slices.Sort(names)
	return names
}

// Title returns the title in a rule's metadata.
func Title(rule string) string {
	b, err := fs.ReadFile(FS, path.Join(rule, "rule.rego"))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(b), "# title: ")
	title, _, _ := strings.Cut(after, "\n")
	return title
}

// CheckSettings checks settings against a rule's schema. It reports unknown options, wrong types
// and invalid patterns. The error joins one error for each mistake. Each of these errors starts
// with the option: `rules[0].pattern: is not a valid RE2 pattern: missing closing )`.
func CheckSettings(rule string, settings map[string]any) error {
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
	return sdk.Plugin{Name: rule, Schema: schema}.CheckWithFormats(b,
		sdk.Format{Name: "RE2 pattern",
			Check: checkRE2}, sdk.Format{Name: "pattern", Check: checkGlob},
		sdk.Format{Name: "argument", Check: checkArgument})
}

// checkArgument checks the name of an argument, or a JSON pointer in which * stands for any
// characters.
func checkArgument(argument string) error {
	if strings.HasPrefix(argument, "/") {
		return checkGlob(argument)
	}
	return nil
}

// checkRE2 checks that a pattern compiles, both alone and inside a group, because the rules put
// patterns into a group. For example, `\Qa` would quote the end of this group.
func checkRE2(pattern string) error {
	for _, p := range []string{pattern, `\A(?:` + pattern + `)\z`} {
		if _, err := syntax.Parse(p, syntax.Perl); err != nil {
			if fault, ok := errors.AsType[*syntax.Error](err); ok {
				return errors.New(fault.Code.String())
			}
			return errors.New("the pattern does not compile")
		}
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return errors.New("the pattern does not compile")
	}
	return nil
}

// checkGlob checks that glob.match accepts a pattern, both unchanged and in lower case, because
// rules convert some patterns to lower case.
func checkGlob(pattern string) error {
	for _, p := range []string{pattern, strings.ToLower(pattern)} {
		if _, err := glob.Compile(p); err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "glob: "))
		}
	}
	return nil
}
