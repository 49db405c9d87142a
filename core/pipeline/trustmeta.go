package pipeline

import (
	"fmt"
	"strings"

	"gatekit/core/mcp"
)

// ownStage names the pipeline itself in records and denials.
const ownStage = "pipeline"

// removeTrustMeta removes from o.After the keys of _meta that no peer may set, before any stage
// sees the message. It adds a step for the record. A denial means that the keys cannot be removed.
func removeTrustMeta(o *Outcome) *DeniedError {
	edits, keys := mcp.RemoveTrustMeta(o.After)
	if len(edits) == 0 {
		return nil
	}
	edited, err := o.After.Edit(edits...)
	if err != nil {
		err = fmt.Errorf("remove the keys of _meta that no peer may set: %w", err)
		o.After, o.Action, o.Err, o.fullyInspected = nil, "deny", err, false
		return &DeniedError{Stage: ownStage, Action: "deny", Err: err}
	}
	o.After = edited
	o.Steps = append(o.Steps, Step{Stage: ownStage, Action: "modify",
		Reason:  "removed keys of _meta that no peer may set: " + strings.Join(keys, ", "),
		Changed: changedPlaces(edits)})
	return nil
}
