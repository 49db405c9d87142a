// Package library is the rules that come with Gatekit: each a folder with the rule in Rego, its
// tests, and the schema of its settings. They are used by name, `[policy] rules`, and set by
// `[policy.config."category/name"]`.
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

// CheckSettings holds settings against a rule's schema, as a plugin's are: an option that is not known, of
// another type, or no pattern where it has to be one, is named. The error joins all faults, each of
// which begins with the option: `rules[0].pattern: is not a valid RE2 pattern: missing closing )`.
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
	return sdk.Plugin{Name: rule, Schema: schema}.CheckWithFormats(b, sdk.Format{Name: "RE2 pattern",
		Check: checkRE2}, sdk.Format{Name: "pattern", Check: checkGlob},
		sdk.Format{Name: "argument", Check: checkArgument})
}

// checkArgument wants a name, or a pointer, in which * stands for any characters.
func checkArgument(argument string) error {
	if strings.HasPrefix(argument, "/") {
		return checkGlob(argument)
	}
	return nil
}

// checkRE2 wants a pattern that compiles, alone and within the group that the rules put it in:
// `\Qa` would swallow its end.
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

// checkGlob wants a pattern that glob.match takes; the rules match some in small letters.
func checkGlob(pattern string) error {
	for _, p := range []string{pattern, strings.ToLower(pattern)} {
		if _, err := glob.Compile(p); err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "glob: "))
		}
	}
	return nil
}
