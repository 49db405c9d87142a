// Package injection is the built-in plugin "injection": it looks for text that is written for the
// model and against its user, in everything that servers send.
//
// # What it promises
//
//   - Every string, and every member's name, of every list, result, error, notification, reverse
//     request and server's instructions is read, once as it stands and once without what is not
//     seen; what is written in it as base64, percent-encoding, hexadecimal, character references,
//     Unicode tags or variation selectors is read, too.
//   - List and call share one decision: what is hidden in a list is refused when it is used, by the
//     same principal, whatever way it is named (a call, a prompt, a resource, a URI that only a
//     hidden template makes, a subscription, a completion). It may be used again when its
//     definition is harmless again.
//   - What was stripped is gone: also where it was encoded. What was not found stays byte for byte.
//   - Names are never rewritten: a tool, prompt or resource whose name or URI would have to be is
//     hidden.
//   - Nothing of a message is in a reason or a finding: they are names of families and rules, and
//     pointers.
//   - What it remembers is bounded, and does not cross from one principal to another. A list with
//     more names than can be remembered is refused.
//
// # Threats
//
// Of security.md: B1 and B3 (poisoned tools, in any part of a definition), B4 (names that look like
// another server's), B5 (hidden text), B6 (terminal escapes), B7 (indirect injection), and the half
// of A15 that is in messages.
//
// # How texts are scored
//
// A text is read as words, in lower case, without accents; letters that look like Latin ones,
// digits for letters and letters set apart by spaces are taken for what they stand for. Rules are
// phrases of classes of words (rules.go, lexicon.go: English, German, French, Spanish, Italian,
// Portuguese, Russian, Chinese and Japanese) and marks (marks.go). Each has a score in content and
// one in definitions, where commands to the model have less of an excuse. The scores of different
// rules within 120 words add up, in a definition those of all its texts; what is encoded counts
// more. From 4 on there are findings; from the sensitivity's threshold on (relaxed 10, standard 7,
// strict 4) the strictest action of the families that took part is taken.
//
// # Options
//
//	sensitivity  relaxed | standard | strict                    standard
//	actions      {family = deny | hide | strip | flag | off}
//	               override role delimiter concealment exfiltration coercion   hide
//	               hidden terminal                                             strip
//	               confusable shadowing reference classifier                   hide (they know no strip)
//	to_server    off | flag | same: what clients send           flag
//	unlisted     allow | deny: the use of what was never listed allow
//	classifier   url, timeout (1s), threshold (0.8), on_error (deny | skip), max_bytes (262144)
//
// hide takes an item out of its list. Of a server's own words at the beginning, the instructions
// are taken out; any other message is refused. strip takes hidden characters and colours out, makes
// other control characters visible, and puts "[PROMPT INJECTION REDACTED by Gatekit]" in the place
// of a sentence. A classifier gets {"texts":[…]} and answers {"scores":[…]}; programs that build
// plugins give one of their own to [WithClassifier].
//
// # What was measured
//
// go test -v -run 'Recall|FalsePositives' ./plugins/builtin/injection prints this;
// testdata/README.md says what the files are. All attacks are ours, in 13 styles, made from what
// has been published about such attacks. The author of the rules wrote them, too, so only the last
// file says what to expect of words that nobody here thought of before: a third.
//
//	something was done about                  relaxed    standard   strict
//	attacks, tuned on (147)                   0.84       0.96       0.99
//	attacks, held out, of the same time (69)  0.88       0.94       0.99
//	  tool poisoning, instructions (14)       14         14         14
//	  indirect: web, mail, issue, code (16)   15         15         16
//	  jailbreak (10)                           9         10         10
//	  delimiter (6)                            3          5          6
//	  exfiltration (5)                         3          4          5
//	  multilingual (8)                         8          8          8
//	  encoded (5), hidden (5)                  4, 5       4, 5       4, 5
//	attacks in other words, tuned on (38)     0.66       0.89       0.97
//	attacks in other words, unseen (40)       0.12       0.28       0.53
//	  tool poisoning, instructions (8)         1          2          4
//	  indirect (12)                            1          1          7
//	  jailbreak (7)                            1          2          2
//	  delimiter, exfiltration (7)              0          3          5
//	  multilingual (6)                         2          3          3
//	hard negatives, ours, tuned on (81)       1          1          20
//	hard negatives, held out (20)             1          3          11
//	576 tools of 37 published servers         2 (0.4 %)  3 (0.5 %)  14 (2.4 %)
//	their instructions                        0          0          1
//	documentation, 2,382 sections of 4 KiB    2          3 (0.1 %)  12 (0.5 %)
//	documentation, 52 whole files             1          2          5
//	Go code, 1,167 files                      3         10 (0.9 %)  56 (4.8 %)
//
// The documents are Go's and the project's; the two that are refused whole, and the three sections,
// list attacks.
//
// Speed: go test -run xx -bench . ./plugins/builtin/injection. On two cores that five others were
// busy on: 1 KiB 13 to 20 µs, 64 KiB of documentation and code 1.0 to 1.2 ms, 1 MiB 17 ms (about 60
// MB/s, with the decoding of JSON). The worst texts that we made (a tag character behind every
// letter, nothing but tags and brackets) run at 2 to 3 MB/s: 8 MiB of them are refused because the
// time is over.
//
// # What it does not see
//
//   - Attacks in words of their own, in other languages, or that rely on context alone: a poisoned
//     description that only says "the account number is 42" is a fact to a rule. This plugin is one
//     layer; what a session may do with what it has read is a policy's business.
//   - Attacks that speak of attacks: in standard and relaxed, content with two words or more such
//     as "attacker" or "injection" around a phrase scores half, with four a quarter, and a phrase
//     in quotation marks beside one of them nothing. Documentation could not be read otherwise.
//     strict makes no such allowance, and strings of JSON are no quotations.
//   - A definition that was not listed since the process began, to this principal: set unlisted =
//     "deny" to refuse its use. Of the principals, the 256 heard last are remembered.
//   - Other servers' tools that have not been listed yet. Order does not matter for later use: when
//     they are listed, the one that looks like them, or speaks of them, is refused from then on,
//     and is missing from its next list. A server's instructions are not held against tools' names.
//   - Pictures, sound, and what is compressed or encrypted.
//
// # Why a name's owner is not who came first
//
// Lists are asked of all servers at once. Of two tools whose names look alike, the one that has
// more to hide (letters beyond ASCII, digits and capitals for letters, "rn" for "m") is taken for
// the impostor, whichever is listed first; where neither has, both are findings. Equal names are
// findings only: Gatekit's prefix tells them apart.
//
// # Why a server can make another's tool disappear
//
// A definition that speaks of a tool that its own server does not have, and another has, is hidden.
// So a server that lists a tool of a name that another's definition happens to use takes that
// definition out. That is seen in the audit, costs a tool, and leaks nothing; the other way round
// it would be the attack itself. actions.reference = "flag" only records it.
//
// # Why what clients send is only flagged
//
// An argument may hold any text a user works on, this package included, and it was written on the
// client's side of the trust boundary. to_server = "same" treats it like a server's words, for
// servers that are agents themselves.
//
// The table of confusable characters is made of Unicode's confusables.txt 17.0 (its licence is in
// the file) by go test -run TestTable -update.
package injection
