package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/audit"
	"gatekit/core/atomicfile"
	"gatekit/core/regularfile"
)

// State is the state of one witness.
type State struct {
	Name    string    `json:"name"`           // of its key
	Size    int64     `json:"size"`           // records that it has cosigned; 0 for none
	Time    time.Time `json:"time,omitzero"`  // of its newest cosignature
	Failing time.Time `json:"since,omitzero"` // since when it fails or refuses; zero if it does not
	// why it fails or refuses; "" if it does not
	Error string `json:"error,omitzero"`
	// the witness has seen another history of the log
	Refused bool `json:"refused,omitzero"`
}

// maxState bounds the file with the states, in bytes.
const maxState = 1 << 20

func stateFile(file string) string { return filepath.Join(file+".tree", "witnesses") }

// States returns the states of the witnesses of a log, as the last process that wrote the log has
// saved them. A log without witnesses has none.
func States(file string) (all []State, err error) {
	b, err := regularfile.Read(stateFile(file), maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the states of the witnesses %s: %w\nhint: remove the file; "+
			"Gatekit writes it again", stateFile(file), err)
	}
	return all, nil
}

func saveStates(file string, all []State) error {
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return atomicfile.WriteUnsynced(stateFile(file), append(b, '\n'))
}

// merge adds a cosignature to the cosigned checkpoints, and removes the older one of the same
// witness.
func merge(all []*audit.CosignedCheckpoint, c *audit.Checkpoint,
	s *audit.Cosignature) []*audit.CosignedCheckpoint {
	var kept []*audit.CosignedCheckpoint
	to := &audit.CosignedCheckpoint{Checkpoint: c}
	for _, old := range all {
		if string(old.Note) == string(c.Note) {
			to = old
		}
		var others []audit.Cosignature
		for _, o := range old.Cosignatures {
			if !o.Witness.Equal(s.Witness) {
				others = append(others, o)
			}
		}
		if old.Cosignatures = others; len(others) > 0 && old != to {
			kept = append(kept, old)
		}
	}
	to.Cosignatures = append(to.Cosignatures, *s)
	return append(kept, to)
}
