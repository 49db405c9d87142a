package pipeline

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// maxChangedPlaces bounds the changed places that are recorded for one step.
const maxChangedPlaces = 32

// changedPlaces returns the places of edits, for the record. A removed member counts as its parent,
// since its name may be the reason for the removal. Too many places are replaced by their parents.
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

// sortedUnique returns the places sorted, each once.
func sortedUnique(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// trimChanged replaces a place by a larger place around it, if a later step changed the larger one:
// the names in the pointer of the smaller may be gone from the message.
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
