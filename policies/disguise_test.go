package policies

import (
	"slices"
	"strings"
	"testing"
)

// What a quick look finds nothing in has one reading, so that the long look finds nothing either.
func TestTheQuickLookMissesNothing(t *testing.T) {
	letters := []string{".", "..", "/", "a", " ", "-", "~", "$", "A:", "\\", "%2e", ";", "．", "file:"}
	var try func(text string, n int)
	try = func(text string, n int) {
		if !readOtherwise(text) {
			if mayBeDisguised(text) {
				t.Errorf("%q may be disguised", text)
			}
			if all := slices.DeleteFunc(others(text), func(o string) bool { return strings.TrimSpace(o) == strings.TrimSpace(text) }); len(all) > 0 {
				t.Errorf("%q can be read as %q", text, all)
			}
		}
		if why := disguised(text); why != "" && !mayBeDisguised(text) {
			t.Errorf("%q: %s", text, why)
		}
		if n > 0 {
			for _, l := range letters {
				try(text+l, n-1)
			}
		}
	}
	try("", 4)
}
