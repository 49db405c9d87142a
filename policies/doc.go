// Package policies is where a security team says in Rego what may happen (Open Policy Agent, Rego
// v1): a stage of the pipeline, after the plugins.
//
// # What it promises
//
//   - All packages below data.gatekit are asked about each message, with one input, whose fields
//     are the same for every revision of the protocol (input.schema.json). What their sets deny,
//     ask, hide, redact, set, label and note hold is united: deny beats ask beats the others; where
//     redact and set name one place, it is redacted.
//   - A runtime error, a time-out, an element of another type than the rule's: denied. A field of
//     the input that does not exist, a rule that is no set, a rule of the library that is set
//     wrongly: an error when it is loaded, with its file and line.
//   - List and use share one decision: what a rule hides from a list cannot be called, read, got,
//     completed, subscribed to, told of, or reached by a task of it. The rules that hide are asked
//     about the use, too, with the list that would hold it: the definition as it was listed in the
//     session, or only its name where it was not. Where they read more of it than its name, what
//     was not listed is refused. A hidden resource is so however its URI is spelled, but as another
//     that was listed. A hidden template hides itself alone: what is made of it is judged as the
//     resource that it is.
//   - Policies cannot reach out: no network, no environment, no files. The one exception is
//     gatekit.path.fault, which follows the symbolic links of a path within the roots, and says
//     only whether they lead out of them.
//   - What no rule reads of a message is not even parsed: a cost that does not grow with it.
//   - A bundle is OPA's (`opa build`): Rego and JSON or YAML in a .tar.gz, bounded, and read as
//     files are. Where keys are configured, it is refused unless it is signed with one of them.
//     Package service gets bundles from a bundle server.
//
// # Beside the traffic
//
// RunTests runs the tests of policies, compiled as policies are. A Case is a message that was
// recorded or written down; Judge says what would become of it, and Explain which rule at which
// line says so, and what it read. Both go through the same evaluation and the same pipeline as a
// message that is on its way; only who gave what is found by asking once more, traced.
//
// # Why the input is built from what is read
//
// Rego's values are trees of pointers, and to build one of 64 KiB takes longer than to evaluate
// fifty rules. Which fields the rules read can be seen in them when they are compiled; a rule that
// takes the input as a whole, or a member by a name that it computes, gets all of it there.
//
// Nor is every rule asked about every message: which methods, kinds, servers and names the bodies
// of a rule speak of can be seen in them, too. Rules that cannot say anything of a message are left
// out, with what they would read. Where rules tell more kinds of messages apart than are kept, all
// are asked.
//
// # Why a memory beside the messages
//
// A rule about a call needs the definition of the tool, the roots of the client, and what happened
// before. The stage sees all of that pass, and remembers what it let pass, by session and within
// bounds. It is not the servers' word at the time of the call: what a plugin took out of a list is
// so here, too. What a client says of itself beyond 4 KiB, and roots beyond 64 KiB, are as if it
// had not said them: input.session.client and input.roots are undefined, and a rule that needs them
// has to refuse then, as roots/traversal does. No stage is told that a session has ended: sessions
// are forgotten for newer ones, the quietest first, and the largest first when all take too much.
package policies
