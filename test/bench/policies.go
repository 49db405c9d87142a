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

// withPolicies are what is compared, plain first; dir is for their files.
func withPolicies(dir string) ([]stages, error) {
	all := []stages{
		{way: plain},
		{way: defaultRules, tables: ruled(library.DefaultRules())},
		{way: "no body read", tables: ruled(
			map[string]map[string]any{"limits/rate": {"per_minute": 100_000_000},
				"tools/allowlist": {"tools": []any{"*"}}})},
	}
	for _, set := range []struct{ way, name string }{{"fifty, of a tool each",
		`input.name == "delete_%[1]d"`}, {"fifty, of all tools", `input.name != "delete_%[1]d"`}} {
		files := filepath.Join(dir, strings.ReplaceAll(set.way, " ", ""))
		if err := os.MkdirAll(files, 0o700); err != nil {
			return nil, err
		}
		for i := range 50 {
			rego := fmt.Sprintf("package gatekit.team%[1]d\n\ndeny contains \"it is of another "+
				"team\" if {\n\tinput.kind == \"request\"\n\tinput.method == \"tools/call\"\n\t"+
				set.name+
				"\n\tstartswith(input.params.arguments.path, \"/srv/team%[1]d/\")\n}\n", i)
			if err := os.WriteFile(filepath.Join(files, fmt.Sprintf("team%d.rego", i)),
				[]byte(rego), 0o600); err != nil {
				return nil, err
			}
		}
		all = append(all, stages{way: set.way, tables: fmt.Sprintf("[policy]\nfiles = [%q]\n",
			files)})
	}
	return all, nil
}

// defaultRules are those of gatekit wrap.
const defaultRules = "default"

// ruled is the configuration of rules of the library.
func ruled(settings map[string]map[string]any) string {
	var tables strings.Builder
	fmt.Fprintf(&tables, "[policy]\nrules = [%s]\n", quoted(slices.Sorted(maps.Keys(settings))))
	for rule, options := range settings {
		fmt.Fprintf(&tables, "[policy.config.%q]\n", rule)
		for name, value := range options {
			if list, ok := value.([]any); ok {
				var texts []string
				for _, v := range list {
					texts = append(texts, fmt.Sprint(v))
				}
				value = "[" + quoted(texts) + "]"
			}
			fmt.Fprintf(&tables, "%s = %v\n", name, value)
		}
	}
	return tables.String()
}

func quoted(texts []string) string {
	var all []string
	for _, t := range texts {
		all = append(all, fmt.Sprintf("%q", t))
	}
	return strings.Join(all, ", ")
}

// measurePolicies compares Gatekit with policies with Gatekit without.
func (p *plan) measurePolicies(l lane, out report) error {
	all, err := withPolicies(l.dir)
	if err != nil {
		return err
	}
	return p.measureStages(l, all, out.policiesHead, out.stages)
}
