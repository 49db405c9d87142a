package injection

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestZZ(t *testing.T) {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(wordClasses)) {
		fmt.Fprintln(h, k, strings.Fields(wordClasses[k]))
	}
	fmt.Fprintf(h, "%v", phrases)
	t.Logf("SUM %x", h.Sum(nil))
}
