package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// config is the configuration as it is written; schema.json describes it.
type config struct {
	Fields         []string `json:"fields"`
	MaxParamLength int      `json:"max_param_length"`
}

// known are the fields that there are, in the order of the defaults.
var known = []string{"server", "tool", "arguments", "size", "duration", "record", "time"}

const mostCharacters = 10000

// newStage makes a stage of a configuration.
func newStage(text []byte) (*stage, error) {
	c := config{MaxParamLength: 200}
	if err := json.Unmarshal(text, &c, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if c.Fields == nil {
		c.Fields = slices.DeleteFunc(slices.Clone(known), func(f string) bool {
			return f == "arguments"
		})
	}
	var faults []error
	if len(c.Fields) == 0 {
		faults = append(faults, errors.New("fields: nothing to say: leave it out for the "+
			"defaults, or take the plugin out"))
	}
	for i, f := range c.Fields {
		switch {
		case !slices.Contains(known, f):
			faults = append(faults, fmt.Errorf("fields[%d]: %q is none: take %s", i, f,
				strings.Join(known, ", ")))
		case slices.Index(c.Fields, f) < i:
			faults = append(faults, fmt.Errorf("fields[%d]: %q is said above", i, f))
		}
	}
	if c.MaxParamLength < 1 || c.MaxParamLength > mostCharacters {
		faults = append(faults, fmt.Errorf(
			`max_param_length: %d is not from 1 to %d: to show no arguments leave "arguments" out of fields`, c.MaxParamLength, mostCharacters))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &stage{fields: c.Fields, most: c.MaxParamLength}, nil
}
