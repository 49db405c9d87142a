package sdk

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/shared"
	"gatekit/plugins/proto"
)

// SharedState tells a stage how it counts together with the same stage of other replicas.
type SharedState struct {
	// Replicas is by how many the stage divides its limits while the state is not available
	// (shared.ErrUnavailable). If it is 0, the stage denies what it cannot count.
	Replicas int
}

// StageWithSharedState is a stage that can count together with other replicas, see
// [Plugin].SharedState. UseSharedState is called before the first inspection, and only if Gatekit
// has such a state and gives it to the plugin. Then InspectShared is called instead of Inspect.
// Gatekit gives the state to its built-in plugins only.
type StageWithSharedState interface {
	UseSharedState(SharedState)
	// InspectShared is Inspect that also returns what the message changes in the state. Gatekit
	// makes the calls before the message moves on, also if the stage denies or fails.
	InspectShared(context.Context, *mcp.Message) (Verdict, Count, error)
}

// Count has the changes that a message makes in the state that replicas share. The names in it
// belong to the plugin: no other plugin has the same counts, whatever the kinds of the keys.
type Count struct {
	Calls StateCalls
	// Settle is needed with an admission. The verdict holds only if the admission is counted.
	// Otherwise Settle is called, with its result and error, before anything else is inspected on
	// the same connection. It takes back what the stage has counted itself, and returns the verdict
	// that holds instead, and a lease that Gatekit releases. The error matches ErrGivenUp if nobody
	// waits for the message any more. Settle must not keep the body of the message.
	Settle func(result shared.Admitted, err error) (Verdict, shared.Lease)
}

// StateCalls are calls of the state that replicas share; each of them may be left out.
type StateCalls = proto.StateCalls

// ErrGivenUp is the result of an admission of a message for which nobody waits any more. It may be
// counted or not.
var ErrGivenUp = proto.ErrGivenUp
