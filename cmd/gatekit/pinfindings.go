package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pins"
	"gatekit/plugins/builtin/injection"
)

// findingsTimeout limits the search in all texts of one server.
const findingsTimeout = 10 * time.Second

// reviewedChange is a change with what the plugin injection finds in its new words.
type reviewedChange struct {
	pins.Change
	findings []string // types, such as "override/ignore"
}

// review searches the new words of the changes to live. It returns an error if it could not search
// all of them.
func review(ctx context.Context, changes []pins.Change,
	live *pins.Server) ([]reviewedChange, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, findingsTimeout,
		fmt.Errorf("not done within %s", findingsTimeout))
	defer cancel()
	reviewed := make([]reviewedChange, 0, len(changes))
	for _, c := range changes {
		found, err := findingsIn(ctx, c, live)
		if err != nil {
			return nil, fmt.Errorf("search the new words for injection: %w", err)
		}
		reviewed = append(reviewed, reviewedChange{c, found})
	}
	return reviewed, nil
}

// findingsIn returns what the plugin finds in the new words of one change: in these words alone, or
// in the whole new text and not in the approved one. A phrase may be new although each of its words
// is not, and words may only be dangerous in the sentence that they are in.
func findingsIn(ctx context.Context, c pins.Change, live *pins.Server) ([]string, error) {
	switch {
	case c.Kind == "" || c.Class == pins.Gone:
		return nil, nil
	case c.Class == pins.New:
		if i := live.Item(c.Kind, c.Name); i != nil {
			return injection.FindInDefinition(ctx, asObject(string(i.Definition())))
		}
		return nil, nil
	}
	var added strings.Builder
	for _, e := range diffWords(splitWords(c.Before), splitWords(c.After)) {
		added.WriteString(e.added + "\n")
	}
	alone, err := injection.FindInDefinition(ctx, asText(added.String()))
	if err != nil {
		return nil, err
	}
	before, err := injection.FindInDefinition(ctx, asObject(c.Before))
	if err != nil {
		return nil, err
	}
	after, err := injection.FindInDefinition(ctx, asObject(c.After))
	if err != nil {
		return nil, err
	}
	for _, f := range after {
		if !slices.Contains(before, f) {
			alone = append(alone, f)
		}
	}
	slices.Sort(alone)
	return slices.Compact(alone), nil
}

// asText returns a definition that has one text.
func asText(text string) []byte {
	return []byte(`{"description":` + string(mcp.Quote(strings.ToValidUTF8(text, "\ufffd"))) + `}`)
}

// asObject returns a definition that has a value as a change has it: JSON, or a plain text.
func asObject(value string) []byte {
	if v := pins.Canonical([]byte(value)); v != nil && v.Kind() != '"' {
		return []byte(`{"value":` + string(v) + `}`)
	}
	return asText(value)
}
