package pii

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestZZ(t *testing.T) {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(topicsByWord)) {
		fmt.Fprintln(h, k, uint32(topicsByWord[k]))
	}
	fmt.Fprintf(h, "%v", ibanFormats)
	t.Logf("SUM %x", h.Sum(nil))
}
