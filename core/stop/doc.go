// Package stop lets an operator stop the traffic of a running Gatekit: everything, or what belongs
// to one server, one principal or one session.
//
// A [Gate] holds the stops in force. The pipeline asks it twice about a message: before the first
// stage inspects the message, and again right before the message is written to its receiver.
// [Gate.Set] returns a channel that is closed when every write that began under the earlier stops
// has ended. So the record of a stop can be written after the last message that moved. A [Keeper]
// keeps the stops of a Gate in a file.
//
// # Why a gate that was never set refuses everything
//
// The zero Gate, a file that cannot be read, and a folder without its file all mean the same: the
// stops are not known. A stop that is forgotten lets an attack go on. A stop that nobody wanted
// costs one command.
//
// # Why writes are counted
//
// A check before a write is not enough. A goroutine may check, wait for the processor, and write
// after the stop was recorded. So each write is counted from its check to its end, under the stops
// that were in force at the check. The new stops begin a new count. The old count falls to zero
// when the last of the old writes has ended.
package stop
