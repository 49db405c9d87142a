//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gatekit/policies/library"
)

// policyVariants returns the baseline and the variants with policies. It writes the policy files to
// dir.
func policyVariants(dir string) ([]variant, error) {
	all := []variant{
		{name: baseline},
		{name: wrapDefaults, tables: rulesConfig(library.DefaultRules())},
		{name: "no body read", tables: rulesConfig(
			map[string]map[string]any{"limits/rate": {"per_minute": 100_000_000},
				"tools/allowlist": {"tools": []any{"*"}}})},
	}
	for _, set := range []struct{ name, condition string }{
		{"fifty, a tool each", `input.name == "delete_%[1]d"`},
		{"fifty, all tools", `input.name != "delete_%[1]d"`},
	} {
		files := filepath.Join(dir, strings.ReplaceAll(set.name, " ", ""))
		if err := os.MkdirAll(files, 0o700); err != nil {
			return nil, err
		}
		for i := range 50 {
			rego := fmt.Sprintf("package gatekit.team%[1]d\n\ndeny contains \"the path is of "+
				"another team\" if {\n\tinput.kind == \"request\"\n\tinput.method == "+
				"\"tools/call\"\n\t"+
				set.condition+
				"\n\tstartswith(input.params.arguments.path, \"/srv/team%[1]d/\")\n}\n", i)
			if err := os.WriteFile(filepath.Join(files, fmt.Sprintf("team%d.rego", i)),
				[]byte(rego), 0o600); err != nil {
				return nil, err
			}
		}
		all = append(all, variant{name: set.name, tables: fmt.Sprintf("[policy]\nfiles = [%q]\n",
			files)})
	}
	return all, nil
}

// wrapDefaults is the name of the variant with the default rules of gatekit wrap.
const wrapDefaults = "default"

// rulesConfig returns a configuration with library rules. settings holds the settings of each rule,
// by the rule's name.
func rulesConfig(settings map[string]map[string]any) string {
	var tables strings.Builder
	fmt.Fprintf(&tables, "[policy]\nrules = [%s]\n", quotedList(slices.Sorted(maps.Keys(settings))))
	for rule, options := range settings {
		fmt.Fprintf(&tables, "[policy.config.%q]\n", rule)
		for name, value := range options {
			if list, ok := value.([]any); ok {
				var texts []string
				for _, v := range list {
					texts = append(texts, fmt.Sprint(v))
				}
				value = "[" + quotedList(texts) + "]"
			}
			fmt.Fprintf(&tables, "%s = %v\n", name, value)
		}
	}
	return tables.String()
}

// quotedList returns the texts as TOML strings, separated by commas.
func quotedList(texts []string) string {
	var all []string
	for _, t := range texts {
		all = append(all, fmt.Sprintf("%q", t))
	}
	return strings.Join(all, ", ")
}

// measurePolicies compares Gatekit with and without policies.
func (p *plan) measurePolicies(s setup, out report) error {
	all, err := policyVariants(s.dir)
	if err != nil {
		return err
	}
	return p.measureVariants(s, all, out.policiesHeader, out.variantRows)
}
