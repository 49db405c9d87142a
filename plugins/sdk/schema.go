package sdk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Check holds a configuration against the plugin's schema, as the host does before New gets it. The
// error is all that is wrong, a line each, and begins with the option: `calls[0].rte: unknown
// option, did you mean "rate"?`. It holds no values of the configuration, which may be secret.
func (p Plugin) Check(config []byte) error { return p.CheckFormats(config) }

// Format is a format that a schema can want of a string, beside those of JSON Schema. Check says
// what is wrong with one, and must not repeat it: the value may be secret.
type Format struct {
	Name  string
	Check func(string) error
}

// CheckFormats is Check, and holds strings against the formats that the schema wants of them, too:
// what is not among formats is JSON Schema's, or not checked.
func (p Plugin) CheckFormats(config []byte, formats ...Format) error {
	raw := p.Schema
	if raw == nil {
		raw = []byte(`{"additionalProperties":false}`)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("schema of plugin %q: %w", p.Name, err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nowhere{})
	if len(formats) > 0 {
		c.AssertFormat()
	}
	for _, f := range formats {
		c.RegisterFormat(&jsonschema.Format{Name: f.Name, Validate: func(v any) error {
			if s, ok := v.(string); ok {
				return f.Check(s)
			}
			return nil
		}})
	}
	if err := c.AddResource(schemaURL, doc); err != nil {
		return fmt.Errorf("schema of plugin %q: %w", p.Name, err)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return fmt.Errorf("schema of plugin %q: %w", p.Name, err)
	}

	var options map[string]any
	if err := json.Unmarshal(config, &options); err != nil {
		return fmt.Errorf("no JSON object: %w", err)
	}
	if options == nil {
		return errors.New("no JSON object: it is null")
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(options); errors.As(err, &invalid) {
		return faults(invalid, doc)
	} else if err != nil {
		return err
	}
	return nil
}

const schemaURL = "gatekit:config"

// nowhere is where schemas are loaded from that a schema refers to: a configuration is no reason to
// read files or call servers.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s: a schema stands alone", url)
}

// faults are the leaves of e, in the order of the options.
func faults(e *jsonschema.ValidationError, doc any) error {
	var lines []string
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.OneOf, *kind.AnyOf, *kind.Not:
			// what each of the forms misses says less than that none fits
			lines = append(lines, line(e.InstanceLocation,
				"has none of the forms that it may have"))
			return
		}
		if len(e.Causes) > 0 {
			for _, c := range e.Causes {
				walk(c)
			}
			return
		}
		lines = append(lines, describe(e, doc)...)
	}
	walk(e)
	slices.SortStableFunc(lines, cmp.Compare[string])
	lines = slices.Compact(lines)
	errs := make([]error, len(lines))
	for i, l := range lines {
		errs[i] = errors.New(l)
	}
	return errors.Join(errs...)
}

func describe(e *jsonschema.ValidationError, doc any) (lines []string) {
	at := e.InstanceLocation
	say := func(format string, a ...any) []string {
		return []string{line(at, fmt.Sprintf(format, a...))}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		known := optionsAt(doc, e.SchemaURL)
		for _, name := range k.Properties {
			lines = append(lines, line(append(slices.Clone(at), name),
				"unknown option"+suggest(name, known)))
		}
		return lines
	case *kind.Required:
		for _, name := range k.Missing {
			lines = append(lines, line(append(slices.Clone(at), name), "is missing"))
		}
		return lines
	case *kind.Type:
		return say("must be %s, not %s", strings.Join(articles(k.Want), " or "),
			articles([]string{k.Got})[0])
	case *kind.Enum:
		return say("must be one of %s", strings.Join(quoted(k.Want), ", "))
	case *kind.Const:
		return say("must be %s", quoted([]any{k.Want})[0])
	case *kind.Minimum:
		return say("must be at least %s", number(k.Want))
	case *kind.Maximum:
		return say("must be at most %s", number(k.Want))
	case *kind.ExclusiveMinimum:
		return say("must be above %s", number(k.Want))
	case *kind.ExclusiveMaximum:
		return say("must be below %s", number(k.Want))
	case *kind.MinLength:
		return say("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return say("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return say("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return say("must have at most %d items", k.Want)
	case *kind.UniqueItems:
		return say("must not have the same item twice: %d and %d are", k.Duplicates[0],
			k.Duplicates[1])
	case *kind.Pattern:
		return say("must match %s", k.Want)
	case *kind.Format:
		return say("is no %s: %v", k.Want, k.Err)
	case *kind.Dependency:
		return say("%s needs %s", k.Prop, strings.Join(k.Missing, ", "))
	}
	return say("breaks the schema's %q", strings.Join(e.ErrorKind.KeywordPath(), "/"))
}

// line is a fault of the option at a path, which is written as a Go expression would be.
func line(path []string, what string) string {
	var b strings.Builder
	for _, token := range path {
		if _, err := strconv.Atoi(token); err == nil {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	if b.Len() == 0 {
		return "the configuration " + what
	}
	return b.String() + ": " + what
}

// optionsAt are the properties that the schema at url has.
func optionsAt(doc any, url string) []string {
	_, pointer, _ := strings.Cut(url, "#")
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch v := doc.(type) {
		case map[string]any:
			doc = v[token]
		case []any:
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v) {
				doc = v[i]
			}
		}
	}
	schema, _ := doc.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

// suggest is the end of an error about an option that is none of those known.
func suggest(name string, known []string) string {
	best, distance := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf(", did you mean %q?", best)
	case len(known) == 0:
		return "; there are none"
	}
	return "; known are " + strings.Join(known, ", ")
}

func articles(types []string) []string {
	var words []string
	for _, t := range types {
		switch t {
		case "null":
		case "array", "integer", "object":
			t = "an " + t
		default:
			t = "a " + t
		}
		words = append(words, t)
	}
	return words
}

func quoted(values []any) []string {
	var words []string
	for _, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			b = fmt.Append(nil, v)
		}
		words = append(words, string(b))
	}
	return words
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(6), "0")
}
