package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// config is the configuration of the plugin; schema.json describes it.
type config struct {
	Fields         []string `json:"fields"`
	MaxParamLength int      `json:"max_param_length"`
}

// knownFields are the fields of a trace in their default order. All fields but arguments are on by
// default.
var knownFields = []string{"server", "tool", "arguments", "size", "duration", "record", "time"}

const (
	defaultParamLength = 200    // characters
	maxParamLength     = 10_000 // characters
)

// newStage returns a stage for a configuration. The error joins all mistakes.
func newStage(text []byte) (*stage, error) {
	c := config{MaxParamLength: defaultParamLength}
	if err := json.Unmarshal(text, &c, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if c.Fields == nil {
		c.Fields = slices.DeleteFunc(slices.Clone(knownFields), func(f string) bool {
			return f == "arguments"
		})
	}
	var errs []error
	if len(c.Fields) == 0 {
		errs = append(errs, errors.New("fields: is empty; remove the option for the defaults, or "+
			"remove the plugin"))
	}
	for i, f := range c.Fields {
		switch {
		case !slices.Contains(knownFields, f):
			errs = append(errs, fmt.Errorf("fields[%d]: unknown field %q; known fields: %s", i, f,
				strings.Join(knownFields, ", ")))
		case slices.Index(c.Fields, f) < i:
			errs = append(errs, fmt.Errorf("fields[%d]: %q is already in the list", i, f))
		}
	}
	if c.MaxParamLength < 1 || c.MaxParamLength > maxParamLength {
		errs = append(errs, fmt.Errorf("max_param_length: must be from 1 to %d, not %d; to hide "+
			`arguments, remove "arguments" from fields`, maxParamLength, c.MaxParamLength))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &stage{fields: c.Fields, maxArguments: c.MaxParamLength}, nil
}
