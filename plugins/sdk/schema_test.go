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

func TestAConfigurationIsHeldAgainstTheSchema(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"all is well", `{"rate":1,"action":"deny","within":"3s","calls":[{"rate":3}],"share":0.1,"form":"x"}`, ""},
		{"an option that is missing", `{}`, `rate: is missing`},
		{"a slip of the pen", `{"rate":1,"acton":"deny"}`,
			`acton: unknown option, did you mean "action"?`},
		{"an option that nobody knows", `{"rate":1,"colour":1}`,
			`colour: unknown option; known are action, calls, form, rate, share, within`},
		{"a slip of the pen, further down", `{"rate":1,"calls":[{},{"bursts":1}]}`,
			`calls[1].bursts: unknown option, did you mean "burst"?`},
		{"the wrong type", `{"rate":"1"}`, `rate: must be an integer, not a string`},
		{"below", `{"rate":0}`, `rate: must be at least 1`},
		{"above", `{"rate":11}`, `rate: must be at most 10`},
		{"a fraction", `{"rate":1,"share":0.75}`, `share: must be at most 0.5`},
		{"not above", `{"rate":1,"share":0}`, `share: must be above 0`},
		{"a word that is none of those", `{"rate":1,"action":"s3cret"}`,
			`action: must be one of "deny", "redact"`},
		{"a text of another form", `{"rate":1,"within":"s3cret"}`, `within: must match ^[0-9]+s$`},
		{"too many", `{"rate":1,"calls":[{},{},{}]}`, `calls: must have at most 2 items`},
		{"none of the forms", `{"rate":1,"form":[]}`,
			`form: has none of the forms that it may have`},
		{"all at once, in order", `{"rate":0,"action":1,"x":1}`,
			"action: must be one of \"deny\", \"redact\"\nrate: must be at least 1\nx: unknown " +
				"option"},
		{"no object", `[]`, `no JSON object`},
		{"null", `null`, `no JSON object: it is null`},
		{"nothing", ``, `no JSON object`},
		{"an option twice", `{"rate":1,"rate":2}`, `no JSON object`},
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

func TestAPluginWithoutASchemaHasNoOptions(t *testing.T) {
	p := sdk.Plugin{Name: "test"}
	if err := p.Check([]byte(`{}`)); err != nil {
		t.Errorf("got the error %q, want none", err)
	}
	if err := p.Check([]byte(`{"x":1}`)); err == nil ||
		err.Error() != "x: unknown option; there are none" {
		t.Errorf("got the error %v, want that x is unknown", err)
	}
}

// A schema comes from a plugin, and the host must survive all of them: {"$ref":"#"} overflows the
// stack of other validators.
func TestABadSchemaIsAnError(t *testing.T) {
	for _, c := range []struct{ name, schema, want string }{
		{"no JSON", `{`, "schema of plugin"},
		{"no schema", `{"type":"colour"}`, "schema of plugin"},
		{"one that reads files", `{"$ref":"file:///etc/passwd"}`, "a schema stands alone"},
		{"one that calls servers", `{"$ref":"http://127.0.0.1/x"}`, "a schema stands alone"},
		{"one that is itself", `{"$ref":"#"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := sdk.Plugin{Name: "test", Schema: []byte(c.schema)}.Check([]byte(`{}`))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want one with %q", err, c.want)
			}
		})
	}
}
