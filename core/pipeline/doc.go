// Package pipeline is the one way across. A message that is to reach a client or a server is judged
// by every stage that wants it, recorded, and only then becomes a Passed, which is all that the
// code that writes will take. Nothing outside this package can make one, so the compiler proves
// that nothing goes round the stages or the record.
//
// A message goes through Pass like this: the stages are asked one after another, in their order,
// and each sees what the former made of the message; then the outcome is recorded; then it may
// move. Whatever goes wrong on this way denies:
//
//   - The first denial ends it. A denial beats every change, and an answer, made before it.
//   - A verdict that is not understood denies: the zero Verdict, an unknown Action, a verdict that
//     contradicts itself, an edit that cannot be made or that would send the message elsewhere, an
//     Answer to something that is no request. [StageConfig.SkipOnError] does not soften this: such
//     a stage wanted something, and it is not known what.
//   - A stage that fails, panics, or gives no verdict in time denies, unless Skip says that the
//     message then goes on without it. What other stages changed is kept either way.
//   - A message that could not be recorded does not move.
//
// A stage that Asks for a human's approval ends it, too: whoever can reach one judges the message
// once more with [WithApproval], from the first stage on. What the stages before one found in the
// message is told to it by [PriorFindingsFrom].
//
// A stage's Answer is judged and recorded as the response that it is: no content reaches a client
// unseen because a stage, and not the server, had it.
//
// # Why a goroutine for each question
//
// A stage that ignores its context must not hold the message beyond its time. Nobody can stop a
// running call, so it is left to itself and its verdict, should it ever come, is dropped. At most
// 64 such calls are left running for each stage; beyond that the stage counts as failed without
// being asked, until some of them return. The bound is for a stage's whole life, whoever's messages
// they were: a stage that hangs is a fault of the installation, and memory that grows with each
// message would take everybody down with it.
//
// # Why a rename is no edit
//
// Edits may not say where a message goes, so that a stage cannot make a harmless call a harmful
// one. And a stage that changed a list would leave the stages after it with one name in the list
// and another in the call. So a stage that renames says its names once, when the pipeline is made
// (Named.Renames), and the pipeline gives them at its edge: a request gets the server's own name
// before the first stage sees it, a list the clients' names after the last one did. All stages,
// those before it too, and the record know an item by the server's own name, in lists and calls
// alike; only the body of a request as it came, and of a list as it goes, has the others. Whoever
// makes the pipeline decides who may rename.
//
// What is asked for by its old name is refused. No item shadows another: Renames.Validate refuses
// names that could not be told apart, and an item that the server lists under a given name is taken
// out of the list, since who asks for that name gets the other one. Where several stages rename,
// their names lie upon each other like layers, the last stage's outermost, and each layer holds
// this for itself.
//
// # Why some stages are asked together
//
// To ask a stage in another process takes longer than most stages take. Those of one process that
// stand beside each other are asked in one question ([StageGroup]), each about what those before it
// made of the message, as [InspectInOrder] does it there; here their verdicts are weighed, applied
// and recorded one by one, as if each had been asked alone.
//
// # Why a name may be missing in a record
//
// A record holds names, and a peer may put anything into one. So a name, or a method that the
// protocol does not have, is in an [Outcome] when all stages that want the message were asked about
// it, none failed, and none has a [Finding] whose pointer is there (for a method, one without a
// pointer); or when a server has listed it, in a list that passed. Otherwise it is in
// [Outcome.Veiled], of which a recorder may keep keyed hashes. What an error of Gatekit's own
// quotes nobody has judged. A pipeline without stages leaves nothing out: nobody looks for anything
// in its messages.
//
// # Why a message of no known server or method is shown to all
//
// Wants names methods and servers. What has no server yet (it goes to several), or answers an
// unknown method, could be what a stage guards; a stage too many is asked rather than one too few.
package pipeline
