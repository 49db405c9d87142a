package pipeline

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// maxChanged is how many places of one step are kept for the record.
const maxChanged = 32

// pointers are the places of edits, for the record; of too many, what holds them. A member that is
// taken out is named by what holds it: its name may be what had to go.
func pointers(edits []mcp.Edit) []string {
	var all []string
	for _, e := range edits {
		at := e.Pointer
		if e.Value == nil {
			at = holder(at)
		}
		all = append(all, at)
	}
	for all = once(all); len(all) > maxChanged; all = once(all) {
		for i := range all {
			all[i] = holder(all[i])
		}
	}
	return all
}

func holder(pointer string) string { return pointer[:max(0, strings.LastIndexByte(pointer, '/'))] }

// once are the places, sorted, each once.
func once(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// trimChanged cuts a place that a later step replaced as part of something larger to that: names in
// it may be gone from the message.
func trimChanged(steps []Step) {
	for i := range steps {
		for j, at := range steps[i].Changed {
			for _, later := range steps[i+1:] {
				for _, over := range later.Changed {
					if strings.HasPrefix(at, over+"/") {
						at = over
					}
				}
			}
			steps[i].Changed[j] = at
		}
		steps[i].Changed = slices.Compact(steps[i].Changed)
	}
}
