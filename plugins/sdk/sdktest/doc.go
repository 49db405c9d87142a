// Package sdktest is the suite that every stage must pass: what the host, and whoever writes a
// policy behind it, relies on without looking.
//
//	func TestPlugin(t *testing.T) {
//		sdktest.Run(t, Plugin(), `{"action":"deny"}`, anArgumentWithAKey)
//	}
//
// Run it with -race: that a stage may be asked from many goroutines at once is seen by the race
// detector, not by the suite.
//
// # What is held against a plugin
//
//   - description: it has a name, a version, a line of what it does, and a schema that describes
//     each option, accepts the configuration and refuses what it does not know.
//   - ordinary messages: what clients and servers send every day, of every method, either way,
//     passes, with changes or without.
//   - samples: the messages that the test gives, and the canary, are acted on: refused, changed,
//     answered or noted with a finding.
//   - no content: no part of a message stands in reasons, findings' types and labels; findings'
//     pointers exist.
//   - other bytes: what a change is not about keeps every byte: unknown members, spelling of
//     numbers and strings, blanks.
//   - no mutation: a message is as it was after it has been judged.
//   - pure: the same message gets the same verdict, and from another stage the same decision; not
//     asked of a plugin that says it is Stateful.
//   - odd messages: no error, no panic, no silence, whatever JSON comes: 5 MiB, 190 levels, empty
//     names, lone surrogates, numbers that no machine has, no body at all.
//   - time: a stage returns when its context has ended, also in the middle of 5 MiB.
//   - at once: one stage judges from many goroutines as it does from one.
//   - canary: what the plugin offers to show that it works does.
//
// A stage is given what the host would give it: only messages that it wants, without a body or a
// request where the plugin does not need them.
//
// # What it cannot see
//
// Whether a stage finds what it is to find, keeps a message somewhere, or talks to the network.
// Whether "ordinary" is what your users send: give samples.
package sdktest
