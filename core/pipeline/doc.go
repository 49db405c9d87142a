// Package pipeline decides whether a message may be forwarded. Every stage that wants the message
// inspects it, the outcome is recorded, and only then the message becomes a Passed. The code that
// writes to clients and servers takes nothing else, and no other package can make a Passed. So the
// compiler proves that no message bypasses the stages or the record.
//
// Pass asks the stages in their order. Each stage sees the message with the changes of the stages
// before it. Then it records the outcome, and returns the message. Every failure on this way
// denies:
//
//   - The first denial ends the inspection. It overrides earlier edits and a stage's answer.
//   - An invalid verdict denies: the zero Verdict, an unknown Action, a verdict that contradicts
//     itself, an edit that cannot be made or would change the receiver, an Answer to a message that
//     is no request. [StageConfig.SkipOnError] makes no difference: the stage did decide, but
//     Gatekit cannot do what it decided.
//   - A stage that fails, panics or exceeds its time denies. With SkipOnError the message goes on
//     to the next stage. Edits of other stages are kept either way.
//   - A message that could not be recorded is not forwarded.
//
// A stage may Ask for a human's approval, which ends the inspection, too. Once a human has
// approved, the caller passes the message again with [WithApproval], from the first stage on.
// Stages learn from [PriorFindingsFrom] what the stages before them found.
//
// A stage's Answer is inspected and recorded like a response of the server. Otherwise a stage's
// content could reach a client without inspection.
//
// The files, in reading order: stage.go, wants.go, verdict.go, outcome.go and passed.go (types);
// pipeline.go, inspect.go, priorfindings.go, changedplaces.go and denied.go (inspection);
// approval.go, renames.go and recordable.go (approvals, client names, withheld names).
//
// # Why a goroutine for each inspection
//
// A stage that ignores its context must not delay the message beyond its time. A running call
// cannot be stopped, so it is abandoned, and a late verdict is dropped. At most 64 abandoned calls
// are left running for each stage; beyond that the stage counts as failed without being asked,
// until some of them return. All callers share this bound for as long as the stage exists: a stage
// that hangs is a fault of the installation, and memory that grows with each message would harm
// all clients.
//
// # Why a rename is no edit
//
// Edits may not change the receiver of a message, so that a stage cannot turn a harmless call into
// a harmful one. And a stage that edited names in a list would leave later stages with one name in
// the list and another in the call. So a stage that renames declares its names when the pipeline is
// made ([StageConfig.Renames]), and the pipeline applies them. A request gets the server's name
// before the first stage sees it, and a list gets the clients' names after the last stage has seen
// it. All stages and the record know an item by the server's name, in lists and in calls.
// Only the body of a request as received, and of a list as forwarded, has the clients' names. The
// creator of the pipeline decides which stages may rename.
//
// A request for a renamed item by its old name is denied. No item hides another: [Renames.Validate]
// refuses ambiguous names. If a server's name of a listed item is also the clients' name of another
// item, the first is removed from the list: a request by that name reaches the other. Where several
// stages rename, the client names of one stage are the server names of the next. These rules hold
// for each stage.
//
// # Why some stages are asked together
//
// Asking a stage in another process takes longer than most stages take. Neighbouring stages of one
// process are asked with one call ([StageGroup]), and each sees the message with the changes of the
// stages before it ([InspectInOrder]). Their verdicts are then checked, applied and recorded one by
// one, as if each had been asked alone.
//
// # Why a name may be missing in a record
//
// A record contains names, and a peer may put anything into a name. So an [Outcome] has a name in
// two cases only. Either every stage that wants the message inspected it, no stage failed, and no
// [Finding] points to the name. Or a server has listed the name in a list that passed. The same
// holds for a method that is not in the protocol: there, a finding without a pointer counts as one
// that points to the method. Otherwise the text is in [Outcome.Withheld]; a recorder may keep keyed
// hashes of it. Names that Gatekit's own errors quote are withheld, too, since no stage inspected
// them. A pipeline without stages withholds nothing, since it searches for nothing in messages.
//
// # Why all stages see a message without a known server or method
//
// Wants selects by method and server. A message without a server (it goes to several), or with an
// unknown method, could be one that a stage guards. To ask one stage too many is safe.
package pipeline
