// Package valkey keeps the state that replicas share in Valkey, or in Redis from version 7.0 on. It
// implements shared.Store.
//
// Each method is one Lua script, and so one round trip and one atomic step. Names and values pass
// through a shared.Ring: the server sees HMACs and encrypted values.
//
// # How a loss is noticed
//
// One key has the epoch: a random id that the first replica writes, and a number that every change
// of a value increases. Each script compares both with what the replica knows. If the id is another
// one, or the number is smaller than one that the replica has seen, the server has lost something:
// it was emptied, started without its data, restored from a backup, or a copy took over that did
// not have the last changes. The replica that notices it begins a new epoch, which says when
// something was lost. All others notice the new id with their next call. A replica that starts
// knows what its last process knew, if that was kept ([Options]), so that a loss is noticed also if
// no replica ran meanwhile.
//
// # What the server must be
//
// [Open] refuses a server that would lose or forget something by its own configuration: one that
// removes keys when its memory is full, one that has fewer copies than are demanded, one that
// writes no append-only file if the state must survive a restart, and one with keys on several
// nodes (cluster mode), which no epoch can cover. [Store.Check] checks the same again, because the
// server can change.
//
// # Why a write waits for copies on a connection of its own
//
// WAIT blocks its connection until the copies have what was written on it. Other calls share a few
// connections, and must not wait behind it.
//
// # Why nothing is sent again
//
// A script that got no answer may have run. A second run would count twice, or find that the first
// one has taken the value. So each error is an error of the call.
package valkey
