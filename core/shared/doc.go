// Package shared keeps the state that the replicas of Gatekit have in common: rates, open requests,
// labels and counts of calls, approvals, owners of tasks, tokens, stops. A [Store] holds it.
// [Memory] is the store of a single process, and needs nothing. Package transport/valkey has the
// store of several replicas. The suite in core/shared/sharedtest holds both to the same behaviour.
//
// # What a store promises
//
//   - Each method is atomic, also between replicas: it happens as a whole, or not at all, and every
//     later call of any replica sees it.
//   - Times are measured by the clock of the store. The clocks of the replicas do not matter.
//   - The store forgets nothing before its time is over. If there is no room, it refuses what is
//     new.
//   - No method waits longer than the timeout of the store, or the context.
//   - An error that matches [ErrUnavailable] says nothing about what happened: the call may have
//     been carried out, and its answer may be lost. The caller has to deny what depends on it, and
//     must not repeat a call that may not happen twice.
//   - An error that matches [ErrLost] means that the store has forgotten what it must not, all or a
//     part of it: somebody emptied it, it started without its data, or a copy took over that did
//     not have the last changes. The call changed nothing. The next call uses the store as it is
//     now. [Store.Lost] tells since when.
//
// # What others learn from a store
//
// A store outside of the process passes everything through a [Ring]: names become HMACs, and values
// are encrypted, both by the state key. Whoever can read the store learns how many things there
// are, how large they are, and which belong to one principal, and nothing else. A value that was
// changed or put in the place of another one is an error. Whoever can write to the store can still
// remove values, or put back older ones.
//
// # Why locks and watches are no methods
//
// A lock is a value that only one caller can create, so [Lock] needs only [Values.Swap]. A watch
// that learns of changes by messages does not notice when messages stop. [Watch] asks a few times
// per second instead, so it notices when it cannot learn of changes any more.
package shared
