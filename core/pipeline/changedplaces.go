package pipeline

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// maxChangedPlaces is the maximum number of changed places in the record of one step.
const maxChangedPlaces = 32

// changedPlaces returns the places that edits change, for the record. For a removed member it
// returns the parent, since the name of the member may be the reason for the removal. If there are
// too many places, changedPlaces returns their parents instead.
func changedPlaces(edits []mcp.Edit) []string {
	var all []string
	for _, e := range edits {
		at := e.Pointer
		if e.Value == nil {
			at = parentPointer(at)
		}
		all = append(all, at)
	}
	for all = sortedUnique(all); len(all) > maxChangedPlaces; all = sortedUnique(all) {
		for i := range all {
			all[i] = parentPointer(all[i])
		}
	}
	return all
}

func parentPointer(pointer string) string {
	return pointer[:max(0, strings.LastIndexByte(pointer, '/'))]
}

// sortedUnique sorts the places and removes duplicates.
func sortedUnique(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// trimChanged replaces a changed place by a place that contains it, if a later step changed the
// containing place. The names in the longer pointer may no longer be in the message.
func trimChanged(steps []Step) {
	for i := range steps {
		for j, at := range steps[i].Changed {
			for _, later := range steps[i+1:] {
				for _, outer := range later.Changed {
					if strings.HasPrefix(at, outer+"/") {
						at = outer
					}
				}
			}
			steps[i].Changed[j] = at
		}
		steps[i].Changed = slices.Compact(steps[i].Changed)
	}
}
