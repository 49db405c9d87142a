// Package pipeline decides whether a message may be forwarded. Every stage that wants the message
// inspects it, and the outcome is recorded. Only then does the pipeline return the message as a
// Passed. The code that writes to clients and servers accepts only a Passed, and no other package
// can make one. So the compiler proves that no message bypasses the stages or the record.
//
// Pass asks the stages in their order. Each stage sees the message with the changes of the stages
// before it. Then Pass records the outcome and returns the message. Every failure denies the
// message:
//
//   - The first denial ends the inspection. It overrides earlier edits and a stage's answer.
//   - An invalid verdict denies the message: the zero Verdict, an unknown Action, a verdict that
//     contradicts itself, an edit that cannot be made or would change the receiver, and an Answer
//     to a message that is not a request. [StageConfig.SkipOnError] makes no difference here, since
//     the stage did return a verdict.
//   - A stage that fails, panics or exceeds its time limit denies the message. If SkipOnError is
//     set, the pipeline instead asks the next stage, and keeps the edits of the other stages.
//   - A message that could not be recorded is not forwarded.
//   - An item that a stage with KeepHidden hid from a list cannot be used until that stage shows it
//     in a list again ([HiddenItems]), even if the stage itself allows the use.
//
// A stage may Ask for a human's approval, which also ends the inspection. When a human has
// approved, the caller calls Pass again with [WithApproval], and all stages inspect the message
// again. A stage calls [PriorFindingsFrom] to get the findings of the stages before it.
//
// Before the first stage, Pass removes keys from _meta that no peer may set
// ([mcp.RemoveTrustMeta]), so that neither a stage nor the receiver believes a forged key.
//
// Then Pass puts placeholders in the place of restored values that a server returns
// ([FindingReturned]).
//
// A stage's Answer is inspected and recorded like a response of the server. Otherwise a stage's
// content could reach a client without inspection.
//
// A denial, an edit or a hidden item may have no effect, because an operator has allowed it
// ([Allowances]). A failure and a final verdict cannot be allowed.
//
// An operator can stop messages (package stop). Pass denies a stopped message before the first
// stage, and again before it returns. Whoever writes a Passed calls [Passed.Begin] first, or
// [Pipeline.BeginWrite] for a translation of it, because a stop may have begun since.
//
// The files, in reading order: stage.go, wants.go, verdict.go, outcome.go and passed.go (types);
// pipeline.go, trustmeta.go, inspect.go, priorfindings.go, changedplaces.go and denied.go
// (inspection); allowances.go, approval.go, renames.go, hiddenitems.go, recordable.go and stops.go
// (allowances, approvals, client names, hidden items, withheld names, stops of an operator).
//
// # Why a goroutine for each inspection
//
// A stage that ignores its context must not delay the message beyond the stage's time limit. A
// running call cannot be stopped, so the pipeline abandons the call and ignores its late verdict.
// At most 64 abandoned calls of a stage may be running. While there are 64, the stage counts as
// failed and is not asked. The bound is for all clients together: otherwise a stage that hangs
// would take more memory with each message.
//
// A stage that returns as soon as its context ends ([StageConfig.ReturnsOnCancel]) is called in the
// goroutine of the message. The change to another goroutine and back took as long as the request to
// a plugin. A [QuickStage] is called there for the messages that it judges quickly.
//
// # Why a rename is no edit
//
// Edits may not change the receiver of a message, so that a stage cannot turn a harmless call into
// a harmful one. And a stage that edited names in a list would leave later stages with one name in
// the list and another in the call. So a stage that renames items declares their new names when the
// pipeline is made ([StageConfig.Renames]), and the pipeline applies the new names. It puts the
// server's name into a request before the first stage sees the request. It puts the clients' names
// into a list after the last stage has seen the list. So all stages and the record use the server's
// name of an item, in lists and in calls. Only the body of a received request and the body of a
// forwarded list have the clients' names. The code that makes the pipeline decides which stages may
// rename.
//
// A request for a renamed item by its old name is denied. [Renames.Validate] refuses ambiguous
// names. If the name of a listed item is the new name of another item, the listed item is removed,
// because a request by that name reaches the other item. If several stages rename, the client names
// of one stage are the server names of the next stage, and the rules above hold for each stage.
//
// # Why some stages are asked together
//
// A call to another process takes longer than the inspection itself in most stages. So neighbouring
// stages of one process are asked with one call ([StageGroup]). Each stage still sees the message
// with the changes of the stages before it ([InspectInOrder]). The pipeline then checks, applies
// and records their verdicts one by one, as if each stage had been asked alone.
//
// # Why a name may be missing in a record
//
// A record contains names, and a peer may put anything into a name. So an [Outcome] has a name only
// if no [Finding] points to the name, and one of two conditions holds. Either every stage that
// wants the message has inspected it and no stage has failed. Or the name is in [RecordableNames],
// for example because a server listed it. A method that is not in the protocol is treated like a
// name, but only the first condition counts for it. A finding without a pointer counts as a finding
// in that method. A name or method that the Outcome lacks is in [Outcome.Withheld], and a recorder
// may keep keyed hashes of it. Names that Gatekit's own errors quote are withheld too, since no
// stage inspected them. A pipeline without stages withholds nothing.
//
// # Why all stages see a message without a known server or method
//
// Wants selects messages by method and server. A message that goes to several servers has no
// server. An answer to an unknown request has no method. Any stage may be responsible for such a
// message, so all stages are asked, which is the safe choice.
package pipeline
