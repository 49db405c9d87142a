package sdk_test

import (
	"strings"
	"testing"

	"gatekit/plugins/sdk"
)

const schema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"additionalProperties": false,
	"required": ["rate"],
	"properties": {
		"rate": {"type": "integer", "minimum": 1, "maximum": 10},
		"action": {"enum": ["deny", "redact"]},
		"within": {"type": "string", "pattern": "^[0-9]+s$"},
		"share": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
		"calls": {"type": "array", "maxItems": 2, "items": {
			"type": "object", "additionalProperties": false, "properties": {"rate": {"type": "integer"}, "burst": {"type": "integer"}}
		}},
		"form": {"oneOf": [{"type": "string"}, {"type": "integer"}]}
	}
}`

func TestCheckReportsEachMistake(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"valid", `{"rate":1,"action":"deny","within":"3s","calls":[{"rate":3}],"share":0.1,"form":"x"}`, ""},
		{"missing option", `{}`, `rate: is missing`},
		{"misspelt option", `{"rate":1,"acton":"deny"}`,
			`acton: unknown option, did you mean "action"?`},
		{"unknown option", `{"rate":1,"colour":1}`,
			`colour: unknown option; known options: action, calls, form, rate, share, within`},
		{"misspelt option in a list", `{"rate":1,"calls":[{},{"bursts":1}]}`,
			`calls[1].bursts: unknown option, did you mean "burst"?`},
		{"wrong type", `{"rate":"1"}`, `rate: must be an integer, not a string`},
		{"below the minimum", `{"rate":0}`, `rate: must be at least 1`},
		{"above the maximum", `{"rate":11}`, `rate: must be at most 10`},
		{"fraction above the maximum", `{"rate":1,"share":0.75}`, `share: must be at most 0.5`},
		{"not above the exclusive minimum", `{"rate":1,"share":0}`, `share: must be above 0`},
		{"not one of the enum", `{"rate":1,"action":"s3cret"}`,
			`action: must be one of "deny", "redact"`},
		{"does not match the pattern", `{"rate":1,"within":"s3cret"}`,
			`within: must match ^[0-9]+s$`},
		{"too many items", `{"rate":1,"calls":[{},{},{}]}`, `calls: must have at most 2 items`},
		{"none of the forms", `{"rate":1,"form":[]}`,
			`form: matches none of the allowed forms`},
		{"several mistakes, sorted", `{"rate":0,"action":1,"x":1}`,
			"action: must be one of \"deny\", \"redact\"\nrate: must be at least 1\nx: unknown " +
				"option"},
		{"array", `[]`, `not a JSON object`},
		{"null", `null`, `not a JSON object but null`},
		{"empty", ``, `not a JSON object`},
		{"duplicate option", `{"rate":1,"rate":2}`, `not a JSON object`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := sdk.Plugin{Name: "test", Schema: []byte(schema)}.Check([]byte(c.config))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got the error %q, want none", err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
				t.Errorf("got the error %v, want %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "s3cret"):
				t.Errorf("the error %q holds a value of the configuration", err)
			}
		})
	}
}

func TestPluginWithoutSchemaHasNoOptions(t *testing.T) {
	p := sdk.Plugin{Name: "test"}
	if err := p.Check([]byte(`{}`)); err != nil {
		t.Errorf("got the error %q, want none", err)
	}
	if err := p.Check([]byte(`{"x":1}`)); err == nil ||
		err.Error() != "x: unknown option; there are no options" {
		t.Errorf("got the error %v, want that x is an unknown option", err)
	}
}

// A schema comes from a plugin, so no schema may crash the host. {"$ref":"#"} overflows the stack
// of some validators.
func TestInvalidSchemaIsAnError(t *testing.T) {
	for _, c := range []struct{ name, schema, want string }{
		{"not JSON", `{`, "schema of plugin"},
		{"not a schema", `{"type":"colour"}`, "schema of plugin"},
		{"reference to a file", `{"$ref":"file:///etc/passwd"}`,
			"references to other documents are not allowed"},
		{"reference to a URL", `{"$ref":"http://127.0.0.1/x"}`,
			"references to other documents are not allowed"},
		{"reference to itself", `{"$ref":"#"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := sdk.Plugin{Name: "test", Schema: []byte(c.schema)}.Check([]byte(`{}`))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want one with %q", err, c.want)
			}
		})
	}
}
