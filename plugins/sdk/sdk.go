package sdk

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Plugin is what an author offers: a stage, and what has to be known to run it. Its name is how a
// configuration calls it.
type Plugin struct {
	Name    string // a-z, 0-9 and "-", first a letter
	Version string
	Doc     string // one line: what it does

	// Wants says which messages its stages are asked about; the others cost nothing. A stage that
	// is a [StageWithWants] says it itself.
	Wants pipeline.Wants
	// Needs says what of a message its stages read. What is not needed is not sent.
	Needs Needs
	// Schema is the JSON Schema (2020-12) of its configuration, an object; nil when it has none. A
	// configuration was held against it before New gets it.
	Schema []byte
	// New makes a stage of a configuration: a JSON object, "{}" when there is none. An error says
	// what is wrong with it, and where. A stage that is an io.Closer is closed when it is no longer
	// used.
	New func(config []byte) (Stage, error)
	// Stateful says that its stages remember messages, so that they may judge the same one
	// otherwise the next time. All others are pure.
	Stateful bool
	// SelfTest is a message that a stage of this configuration does something about, so that
	// `gatekit check` can show that it does; nil when there is none.
	SelfTest func(config []byte) *SelfTest
}

// Stage judges messages, as the pipeline's stages do: see [pipeline.Stage]. It may be asked from
// many goroutines at once.
type Stage = pipeline.Stage

// Verdict is what a stage decides. The zero Verdict denies.
type Verdict = pipeline.Verdict

// StageWithWants is a stage that wants to see other messages than its plugin says: because of its
// configuration.
type StageWithWants interface{ Wants() pipeline.Wants }

// StageWithNeeds is a stage that reads other parts of messages than its plugin says: because of its
// configuration.
type StageWithNeeds interface{ Needs() Needs }

// StageWithRenames is a stage that gives tools and prompts other names, because of its
// configuration: see [pipeline.Renames]. They hold for the servers that its plugin is configured
// for, and for as long as the stage does. All stages, it too, see the servers' own names.
type StageWithRenames interface{ Renames() pipeline.Renames }

// Needs are the parts of a message that cost something to send. Kind, direction, method, server,
// name, principal, session and exchange always come.
type Needs struct {
	Body    bool // the message's params, result or error
	Request bool // of an answer: the params of the request that it answers
}

// SelfTest is a message and what is to become of it.
type SelfTest struct {
	Description string       // that is planted in it: "an AWS key in a tool's arguments"
	Message     *mcp.Message // with its Server and Name
	Action      pipeline.Action
}

// StageFunc makes a Stage of a function.
type StageFunc func(ctx context.Context, m *mcp.Message) (Verdict, error)

// Inspect implements Stage.
func (f StageFunc) Inspect(ctx context.Context, m *mcp.Message) (Verdict, error) {
	return f(ctx, m)
}

// Allow lets a message pass as it is.
func Allow() Verdict { return Verdict{Action: pipeline.Allow} }

// Deny refuses a message. The reason is for the audit log.
func Deny(reason string, findings ...pipeline.Finding) Verdict {
	return Verdict{Action: pipeline.Deny, Reason: reason, Findings: findings}
}

// Modify lets a message pass with edits; without any, it is Allow.
func Modify(reason string, edits []mcp.Edit, findings ...pipeline.Finding) Verdict {
	if len(edits) == 0 {
		return Verdict{Action: pipeline.Allow, Reason: reason, Findings: findings}
	}
	return Verdict{Action: pipeline.Modify, Reason: reason, Edits: edits, Findings: findings}
}
