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

// Check checks a configuration against the plugin's schema. The host does the same before it calls
// New. The error has a line for each mistake. Each line begins with the option: `calls[0].rte:
// unknown option, did you mean "rate"?`. The error holds no values of the configuration, because
// they may be secret.
func (p Plugin) Check(config []byte) error { return p.CheckWithFormats(config) }

// Format is a format that a schema can demand of a string. JSON Schema has further formats.
type Format struct {
	Name string
	// Check returns an error for an invalid string. The error must not repeat the string, because
	// the string may be secret.
	Check func(string) error
}

// CheckWithFormats is like Check, and also checks the formats that the schema demands of strings.
// It knows the given formats and the formats of JSON Schema, and ignores all others.
func (p Plugin) CheckWithFormats(config []byte, formats ...Format) error {
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
	c.UseLoader(noLoader{})
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
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if options == nil {
		return errors.New("not a JSON object but null")
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(options); errors.As(err, &invalid) {
		return validationErrors(invalid, doc)
	} else if err != nil {
		return err
	}
	return nil
}

// schemaURL is the name of the plugin's schema within the validator.
const schemaURL = "gatekit:config"

// noLoader refuses to load the documents that a schema refers to, so that checking a configuration
// never reads files or calls servers.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the schema refers to %s: references to other documents are not allowed",
		url)
}

// validationErrors returns an error with one line for each cause in e, sorted by option.
func validationErrors(e *jsonschema.ValidationError, doc any) error {
	var lines []string
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.OneOf, *kind.AnyOf, *kind.Not:
			// Return one line, not a line for each form that does not match.
			lines = append(lines, optionError(e.InstanceLocation,
				"matches none of the allowed forms"))
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

// describe returns the lines about one cause.
func describe(e *jsonschema.ValidationError, doc any) (lines []string) {
	path := e.InstanceLocation
	say := func(format string, a ...any) []string {
		return []string{optionError(path, fmt.Sprintf(format, a...))}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		known := propertiesAt(doc, e.SchemaURL)
		for _, name := range k.Properties {
			lines = append(lines, optionError(append(slices.Clone(path), name),
				"unknown option"+suggestion(name, known)))
		}
		return lines
	case *kind.Required:
		for _, name := range k.Missing {
			lines = append(lines, optionError(append(slices.Clone(path), name), "is missing"))
		}
		return lines
	case *kind.Type:
		return say("must be %s, not %s", strings.Join(withArticles(k.Want), " or "),
			withArticles([]string{k.Got})[0])
	case *kind.Enum:
		return say("must be one of %s", strings.Join(asJSON(k.Want), ", "))
	case *kind.Const:
		return say("must be %s", asJSON([]any{k.Want})[0])
	case *kind.Minimum:
		return say("must be at least %s", formatNumber(k.Want))
	case *kind.Maximum:
		return say("must be at most %s", formatNumber(k.Want))
	case *kind.ExclusiveMinimum:
		return say("must be above %s", formatNumber(k.Want))
	case *kind.ExclusiveMaximum:
		return say("must be below %s", formatNumber(k.Want))
	case *kind.MinLength:
		return say("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return say("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return say("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return say("must have at most %d items", k.Want)
	case *kind.UniqueItems:
		return say("must not have equal items, but items %d and %d are", k.Duplicates[0],
			k.Duplicates[1])
	case *kind.Pattern:
		return say("must match %s", k.Want)
	case *kind.Format:
		return say("is not a valid %s: %v", k.Want, k.Err)
	case *kind.Dependency:
		return say("the option %s needs %s", k.Prop, strings.Join(k.Missing, ", "))
	}
	return say("violates %q of the schema", strings.Join(e.ErrorKind.KeywordPath(), "/"))
}

// optionError returns a line about the option at path, as in `calls[0].rate: is missing`.
func optionError(path []string, problem string) string {
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
		return "the configuration " + problem
	}
	return b.String() + ": " + problem
}

// propertiesAt returns the names of the properties that the schema at url describes.
func propertiesAt(doc any, url string) []string {
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

// suggestion returns the text that follows "unknown option" in an error: the most similar known
// option, or all known options.
func suggestion(name string, known []string) string {
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
		return "; there are no options"
	}
	return "; known options: " + strings.Join(known, ", ")
}

// withArticles returns JSON types with their articles, as in "an integer".
func withArticles(types []string) []string {
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

// asJSON returns each value as JSON.
func asJSON(values []any) []string {
	var texts []string
	for _, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			b = fmt.Append(nil, v)
		}
		texts = append(texts, string(b))
	}
	return texts
}

// formatNumber returns r as a decimal number.
func formatNumber(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(6), "0")
}
