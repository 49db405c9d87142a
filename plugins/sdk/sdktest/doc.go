// Package sdktest is the test suite that every stage must pass. It tests what the host, and the
// policies that run after the plugins, rely on.
//
//	func TestPlugin(t *testing.T) {
//		sdktest.Run(t, Plugin(), `{"action":"deny"}`, anArgumentWithAKey)
//	}
//
// Run the tests with -race: Inspect is called from many goroutines at once, and only the race
// detector finds a missing lock.
//
// # What it tests
//
//   - description: the plugin has a name, a version, a description of one line, and a schema. The
//     schema describes each option, accepts the configuration, and rejects an unknown option.
//   - ordinary messages: messages of every method that clients and servers send every day are
//     forwarded, changed or unchanged.
//   - samples: the stage acts on the samples of the test and on the message of the self-test. It
//     denies, changes or answers them, or returns a finding or label.
//   - no content: reasons, labels and types of findings hold no part of a message. The pointer of a
//     finding names a place that exists.
//   - untouched bytes: an edit keeps every other byte: unknown members, the spelling of numbers and
//     strings, white space.
//   - no mutation: Inspect does not change the message.
//   - deterministic: the same message gets the same verdict, and the same decision from another
//     stage. A plugin that is Stateful is not tested for this.
//   - unusual messages: any JSON gets a verdict, with no error, panic or time-out. The messages
//     have 5 MiB, deep nesting, empty names, lone surrogates, numbers out of range, or no body.
//   - cancellation: Inspect returns when its context has ended, even with a message of 5 MiB.
//   - concurrency: a stage returns the same verdicts from many goroutines as from one.
//   - self-test: the stage takes the action that the plugin's self-test expects.
//
// The stage gets what the host would send to it: only messages that it wants, without a body or
// request that the plugin does not need.
//
// # What it does not test
//
// The suite does not test whether a stage finds what it should find, keeps a message somewhere, or
// uses the network. Your users' messages may differ from the ordinary ones: pass samples of them.
//
// sdktest.go runs the checks, checks.go has them, and messages.go has the messages.
package sdktest
