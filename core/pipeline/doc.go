// Package pipeline is the one way across. A message that is to reach a client or a server is judged by every stage that wants it,
// recorded, and only then becomes a Passed, which is all that the code that writes will take. Nothing outside this package can make
// one, so the compiler proves that nothing goes round the stages or the record.
//
// A message goes through Pass like this: the stages are asked one after another, in their order, and each sees what the former made
// of the message; then the outcome is recorded; then it may move. Whatever goes wrong on this way denies:
//
//   - The first denial ends it. A denial beats every change, and an answer, made before it.
//   - A verdict that is not understood denies: the zero Verdict, an unknown Action, a verdict that contradicts itself, an edit that cannot be
//     made or that would send the message elsewhere, an Answer to something that is no request. [Named.Skip] does not soften this: such a stage
//     wanted something, and it is not known what.
//   - A stage that fails, panics, or gives no verdict in time denies, unless Skip says that the message then goes on without it. What other stages
//     changed is kept either way.
//   - A message that could not be recorded does not move.
//
// A stage's Answer is judged and recorded as the response that it is: no content reaches a client unseen because a stage, and not the
// server, had it.
//
// # Why a goroutine for each question
//
// A stage that ignores its context must not hold the message beyond its time. Nobody can stop a running call, so it is left to itself and its
// verdict, should it ever come, is dropped. At most 64 such calls are left running for each stage; beyond that the stage counts as failed without
// being asked, until some of them return. The bound is for a stage's whole life, whoever's messages they were: a stage
// that hangs is a fault of the installation, and memory that grows with each message would take everybody down with it.
//
// # Why a message of no known server or method is shown to all
//
// Wants names methods and servers. What has no server yet (it goes to several), or answers an unknown method, could be what a stage guards; a stage
// too many is asked rather than one too few.
package pipeline
