package sdk

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Plugin describes a plugin and makes its stages. A configuration refers to the plugin by Name.
type Plugin struct {
	Name    string // a-z, 0-9 and "-"; begins with a letter
	Version string
	Doc     string // what the plugin does, in one line

	// Wants selects the messages that the plugin's stages inspect. Other messages are not sent to
	// the plugin. A stage can replace this selection, see [StageWithWants].
	Wants pipeline.Wants
	// Needs are the parts of a message that the stages read. Other parts are not sent.
	Needs Needs
	// Schema is the JSON Schema (2020-12) of the configuration, which is an object; nil if the
	// plugin takes no configuration. A configuration is checked before New gets it.
	Schema []byte
	// New makes a stage from a configuration: a JSON object, "{}" if the user wrote none. The error
	// must name the wrong option and say what is wrong with it. A stage that implements io.Closer
	// is closed when it is no longer used.
	New func(config []byte) (Stage, error)
	// Stateful is set if a stage remembers messages, so that it may return another verdict when the
	// same message comes again.
	Stateful bool
	// SharedState is set if stages implement StageWithSharedState. A stage then counts together
	// with the same stage of other replicas, if Gatekit lets it.
	SharedState bool
	// SelfTest returns a message on which a stage with this configuration must act. `gatekit check`
	// runs the self-test. SelfTest may be nil, and may return nil.
	SelfTest func(config []byte) *SelfTest
}

// Stage inspects messages; see [pipeline.Stage]. Inspect may be called from many goroutines at
// once.
type Stage = pipeline.Stage

// Verdict is a stage's decision. The zero Verdict denies.
type Verdict = pipeline.Verdict

// StageWithWants is a stage whose configuration decides which messages it inspects. The stage's
// Wants replace the plugin's Wants.
type StageWithWants interface{ Wants() pipeline.Wants }

// StageWithNeeds is a stage whose configuration decides which parts of a message it reads. The
// stage's Needs replace the plugin's Needs.
type StageWithNeeds interface{ Needs() Needs }

// StageWithRenames is a stage that gives tools and prompts other names, see [pipeline.Renames]. The
// names apply to the servers that the plugin's configuration lists, as long as the stage is in use.
// Every stage, including the stage that renames, sees the servers' own names.
type StageWithRenames interface{ Renames() pipeline.Renames }

// StageWithRestore is a stage whose redacted values Gatekit restores, see [pipeline.Restore]. The
// stage names these values in [Verdict].Redacted. Restore returns nil if the configuration does not
// want that.
type StageWithRestore interface{ Restore() *pipeline.Restore }

// StageWithReuse is a stage whose verdicts on definitions Gatekit may keep. Then Gatekit does not
// ask the stage again about the same definitions of a server. Reuse returns nil if the
// configuration does not allow that.
type StageWithReuse interface{ Reuse() *Reuse }

// Reuse is the promise that Gatekit may keep the verdicts of a stage on definitions
// ([mcp.HasDefinitions]). The verdict on a definition depends only on the configuration, the
// method, the server and the body, and a definition has no effect on other verdicts. Package
// sdktest tests the promise.
type Reuse struct {
	// Principals is 0 for most stages. A stage that compares a list with the earlier lists of the
	// same method and principal, or remembers lists for other messages, returns for how many
	// principals it remembers them. It forgets the principal first that it was asked about longest
	// ago.
	Principals int
}

// Needs are the parts of a message that are sent only to stages that need them, because sending
// them takes time. Kind, direction, method, server, name, principal, session and exchange need not
// be listed.
type Needs struct {
	Body    bool // params, result or error
	Request bool // for a response or error: the params of its request
}

// SelfTest is a message, and the action that a stage must take on it.
type SelfTest struct {
	// Description says what the message contains, such as "an AWS key in a tool's arguments".
	Description string
	Message     *mcp.Message    // Server and Name must be set
	Action      pipeline.Action // the action that the stage must take
}

// StageFunc is a function that implements Stage.
type StageFunc func(ctx context.Context, m *mcp.Message) (Verdict, error)

// Inspect implements Stage.
func (f StageFunc) Inspect(ctx context.Context, m *mcp.Message) (Verdict, error) {
	return f(ctx, m)
}

// Allow returns a verdict that forwards the message unchanged.
func Allow() Verdict { return Verdict{Action: pipeline.Allow} }

// Deny returns a verdict that denies the message. The reason is for the audit log.
func Deny(reason string, findings ...pipeline.Finding) Verdict {
	return Verdict{Action: pipeline.Deny, Reason: reason, Findings: findings}
}

// Modify returns a verdict that forwards the message with edits. Without edits the action is Allow.
func Modify(reason string, edits []mcp.Edit, findings ...pipeline.Finding) Verdict {
	if len(edits) == 0 {
		return Verdict{Action: pipeline.Allow, Reason: reason, Findings: findings}
	}
	return Verdict{Action: pipeline.Modify, Reason: reason, Edits: edits, Findings: findings}
}
