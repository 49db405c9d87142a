package policies

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// digest returns the digest of the sources; see [Stage.Digest].
func (s *sources) digest(o Options) (string, error) {
	var texts [][]byte
	for _, text := range s.texts {
		sum := sha256.Sum256(text)
		texts = append(texts, sum[:])
	}
	slices.SortFunc(texts, bytes.Compare)
	data, err := json.Marshal(s.data) // Marshal sorts the members
	if err != nil {
		return "", fmt.Errorf("the data: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%t %d %d\n", o.Shadow, len(texts), len(data))
	if o.LabelsByPrincipal {
		fmt.Fprintln(h, "labels by principal")
	}
	for _, t := range texts {
		h.Write(t)
	}
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)), nil
}
