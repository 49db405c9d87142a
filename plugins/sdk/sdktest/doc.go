// Package sdktest is the test suite that every stage must pass. It tests the properties of a stage
// on which the host and the policies rely.
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
//   - ordinary messages: the stage forwards the messages that clients and servers send every day,
//     changed or unchanged. The suite has ordinary messages of every method.
//   - samples: the stage acts on the samples of the test and on the message of the self-test. It
//     denies, changes or answers them, or returns a finding or label.
//   - no content in reasons and findings: reasons, labels and types of findings hold no part of a
//     message. The pointer of a finding names a place that exists.
//   - untouched bytes: the edits of a stage keep all other bytes, such as unknown members, white
//     space, and the spelling of numbers and strings.
//   - no mutation: Inspect does not change the message.
//   - deterministic: a stage returns the same verdict when the same message comes again. A second
//     stage with the same configuration takes the same decision. The suite does not check this for
//     a plugin that is Stateful.
//   - reuse: a stage with [sdk.Reuse] returns the same verdict on a definition for another session
//     and, unless it compares lists, for another principal. Definitions make no difference for its
//     verdicts on other messages.
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
// The suite does not test whether a stage finds what it should find, stores messages, or uses the
// network. Your users' messages may differ from the ordinary messages. Pass some of your users'
// messages as samples.
//
// sdktest.go runs the checks, checks.go and reuse.go have them, and messages.go has the messages.
package sdktest
