package pii_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/plugins/builtin/pii"
)

func TestInvalidConfigurationsAreRejected(t *testing.T) {
	for _, c := range []struct {
		config string
		want   []string
	}{
		{`{"action":"drop"}`, []string{"action", `"drop"`, "block, redact or audit"}},
		{`{"card":{"action":"no"}}`, []string{"action of card", `"no"`}},
		{`{"replace":"x","email":{"replace":"y"}}`, []string{"replace of card", "replace of email",
			`"y"`, "placeholder or mask"}},
		{`{"acton":"block"}`, []string{"acton"}},
		{`{"card":{"lenght":1}}`, []string{"lenght"}},
		{`{"action":"block","action":"audit"}`, []string{"duplicate"}},
		{`{"locales":["UK"]}`, []string{"locales", `"UK"`, "GB"}},
		{`{"locales":["us"]}`, []string{"locales", `"us"`}},
		{`{"directions":["up"]}`, []string{"directions", `"up"`, "to_client or to_server"}},
		{`{"directions":[]}`, []string{"directions"}},
		{`{"key":"short"}`, []string{"key", "16"}},
		{`{"allow":["--"]}`, []string{"allow", `"--"`}},
		{`{"email":{"exclude":["acme"]}}`, []string{"email.exclude", `"acme"`, "acme.com"}},
		{`{"email":{"exclude":["@acme.com"]}}`, []string{"email.exclude"}},
		{`{"national_id":{"ids":["us-snn"]}}`, []string{"national_id.ids", `"us-snn"`, "us-ssn"}},
		{`{"email":{"enabled":false},"card":{"enabled":false},"iban":{"enabled":false},"phone":{"enabled":false},"ip":{"enabled":false},"national_id":{"enabled":false}}`, []string{"nothing is enabled"}},
		{`[]`, []string{"configuration"}},
		{``, []string{"configuration"}},
	} {
		s, err := pii.Plugin().New([]byte(c.config))
		if err == nil || s != nil {
			t.Errorf("%s: got no error, want an error with %q", c.config, c.want)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got error %q, want %q in it", c.config, err, part)
			}
		}
	}
}

func TestErrorsDoNotHoldTheKey(t *testing.T) {
	if _, err := pii.Plugin().New([]byte(`{"key":"hunter2"}`)); err == nil ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got the error %v, want an error without the key", err)
	}
}

// TestSchemaMatchesTheOptions checks that the schema describes each option and accepts no unknown
// option. It also checks that New accepts each option with its default.
func TestSchemaMatchesTheOptions(t *testing.T) {
	type schema struct {
		Description          string                    `json:"description"`
		Ref                  string                    `json:"$ref"`
		AdditionalProperties *bool                     `json:"additionalProperties"`
		Properties           map[string]jsontext.Value `json:"properties"`
		Default              jsontext.Value            `json:"default"`
		Defs                 map[string]jsontext.Value `json:"$defs"`
		Enum                 []jsontext.Value          `json:"enum"`
	}
	read := func(raw []byte) (s schema) {
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	root := read(pii.Plugin().Schema)
	var walk func(path []string, s schema)
	walk = func(path []string, s schema) {
		if s.Ref != "" {
			d := read(root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")])
			if s.Description == "" {
				s.Description = d.Description
			}
			s.Properties, s.AdditionalProperties, s.Default, s.Enum = d.Properties,
				d.AdditionalProperties, d.Default, d.Enum
		}
		if len(path) > 0 && s.Description == "" {
			t.Errorf("%v has no description", path)
		}
		if s.Properties != nil && (s.AdditionalProperties == nil || *s.AdditionalProperties) {
			t.Errorf("%v accepts unknown options", path)
		}
		for name, raw := range s.Properties {
			walk(append(path[:len(path):len(path)], name), read(raw))
		}
		value := s.Default
		if len(value) == 0 && len(s.Enum) > 0 {
			value = s.Enum[0]
		}
		if len(value) == 0 || len(path) == 0 {
			return
		}
		config := string(value)
		for i := len(path) - 1; i >= 0; i-- {
			config = `{"` + path[i] + `":` + config + `}`
		}
		if _, err := pii.Plugin().New([]byte(config)); err != nil {
			t.Errorf("New does not accept %s of the schema: %v", config, err)
		}
	}
	walk(nil, root)
}
