//go:build ignore

// Generate writes the schemas of this folder. README.md says how to run it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kinds are the kinds of objects that the chart makes: the file of their OpenAPI document, their
// definition in it, and the file of the schema.
var kinds = []struct{ document, definition, file string }{
	{"api/v1.json", "io.k8s.api.core.v1.ConfigMap", "configmap-v1.json"},
	{"api/v1.json", "io.k8s.api.core.v1.Service", "service-v1.json"},
	{"api/v1.json", "io.k8s.api.core.v1.ServiceAccount", "serviceaccount-v1.json"},
	{"apis/apps/v1.json", "io.k8s.api.apps.v1.StatefulSet", "statefulset-apps-v1.json"},
	{"apis/networking.k8s.io/v1.json", "io.k8s.api.networking.v1.NetworkPolicy",
		"networkpolicy-networking-v1.json"},
	{"apis/policy/v1.json", "io.k8s.api.policy.v1.PodDisruptionBudget",
		"poddisruptionbudget-policy-v1.json"},
}

const prefix = "#/components/schemas/"

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	for _, k := range kinds {
		b, err := os.ReadFile(filepath.Join(dir, k.document))
		if err != nil {
			return err
		}
		var document struct {
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(b, &document); err != nil {
			return fmt.Errorf("%s: %w", k.document, err)
		}
		definitions := map[string]any{}
		convert(map[string]any{"$ref": prefix + k.definition}, document.Components.Schemas,
			definitions)
		name := k.definition[strings.LastIndexByte(k.definition, '.')+1:]
		root := definitions[k.definition].(map[string]any)
		root["required"] = []string{"apiVersion", "kind", "metadata"}
		root["properties"].(map[string]any)["kind"] = map[string]any{"enum": []string{name}}
		out, err := json.Marshal(map[string]any{"definitions": definitions,
			"$schema": "http://json-schema.org/draft-07/schema#",
			"$ref":    "#/definitions/" + k.definition})
		if err == nil {
			err = os.WriteFile(k.file, append(out, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// convert returns a JSON schema for a part of an OpenAPI document, in which an unknown member is an
// error. It adds what the part refers to to definitions.
func convert(part any, schemas, definitions map[string]any) any {
	switch v := part.(type) {
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = convert(v[i], schemas, definitions)
		}
		return all
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			switch text, isText := value.(string); {
			case key == "$ref" && isText:
				name := strings.TrimPrefix(text, prefix)
				out[key] = "#/definitions/" + name
				if _, known := definitions[name]; !known {
					definitions[name] = nil // it may refer to itself
					definitions[name] = convert(schemas[name], schemas, definitions)
				}
			case key == "properties":
				members := map[string]any{}
				for member, schema := range value.(map[string]any) {
					members[member] = convert(schema, schemas, definitions)
				}
				out[key] = members
				out["additionalProperties"] = false
			case key == "description", key == "default", key == "format",
				strings.HasPrefix(key, "x-kubernetes-"):
			default:
				out[key] = convert(value, schemas, definitions)
			}
		}
		return out
	}
	return part
}
