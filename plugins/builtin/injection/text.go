package injection

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan"
)

// defaultStage returns the stage with the default configuration.
var defaultStage = sync.OnceValues(func() (*stage, error) {
	s, err := newStage([]byte("{}"), nil)
	if err != nil {
		return nil, err
	}
	return s.(*stage), nil
})

// FindInDefinition returns the types of what the plugin finds in the texts of a definition with its
// default configuration, such as "override/ignore", sorted. definition is a JSON object, such as a
// tool. It returns an error if ctx ends before all texts were searched. Names are not compared with
// those of other items.
func FindInDefinition(ctx context.Context, definition []byte) ([]string, error) {
	s, err := defaultStage()
	if err != nil {
		return nil, err
	}
	words, release := s.newScratch()
	defer release()
	item := listedItem{inspection: inspection{stage: s, isDefinition: true, action: actionOff,
		scratch: words, bestHits: map[int]hit{}}}
	scan.Texts(mcp.NewNotification("", definition), func(t scan.Text) bool {
		item.inspectText(t)
		return ctx.Err() == nil
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("only part of the texts was searched: %w", context.Cause(ctx))
	}
	item.evaluatePooled()
	var types []string
	for _, f := range item.findings {
		types = append(types, f.Type)
	}
	slices.Sort(types)
	return slices.Compact(types), nil
}
