// Package injection is the built-in plugin "injection". It finds prompt injection, which is text
// that instructs the model against its user, in everything that servers send.
//
// # Promises
//
//   - Every string and every member name is read, once as it stands and once without invisible
//     characters. This holds for lists, results, errors, notifications, instructions, and requests
//     of servers. Text in base64, percent-encoding, hexadecimal, character references, Unicode tags
//     or variation selectors is decoded and read, too.
//   - Lists and uses agree. An item that is hidden in a list is denied when the same principal uses
//     it: by a call, a prompt, a resource, a skill, a file of a hidden skill, a URI that only a
//     hidden template matches, a subscription or a completion. Other spellings of a URI make no
//     difference. Once its definition is harmless again, the item may be used.
//   - The action strip removes encoded text, too. It leaves all other bytes of a message unchanged.
//   - Names are never rewritten: an item with a dangerous name or URI is hidden.
//   - Reasons and findings hold no content of a message. They hold names of families and rules, and
//     pointers.
//   - The memory of lists is bounded, and the lists of one principal do not affect another. A list
//     with more names than can be remembered is denied.
//
// # Threats
//
// The plugin protects against poisoned tools, in any part of a definition; names that look like the
// names of another server's tools; hidden text; terminal escapes; indirect injection in results;
// and the parts of multi-step attacks that are in messages. docs/threats.md lists the threats and
// the tests.
//
// # How texts are scored
//
// A text is read as words, in lower case and without accents. Letters that look like Latin letters,
// digits in the place of letters, and letters with spaces between them are read as the words that
// they stand for. Rules are phrases of classes of words (rules.go, wordclasses.go: English, German,
// French, Spanish, Italian, Portuguese, Russian, Chinese and Japanese) and marks (delimiter.go).
// Each phrase and each mark has two scores: one for content, and one for definitions. In a
// definition, a command to the model is more suspicious.
//
// The scores of different rules within 120 words add up. In a definition, the scores of all its
// texts add up. Encoded text scores more. A text with a score of 4 or more gets findings. If the
// score reaches the threshold of the option sensitivity (relaxed 10, standard 7, strict 4), the
// strictest action of the families with a hit is taken.
//
// # Options
//
//	sensitivity  relaxed, standard (default), strict
//	actions      family = deny, hide, strip, flag or off. Default:
//	               override role delimiter concealment exfiltration coercion   hide
//	               hidden terminal                                             strip
//	               confusable shadowing reference classifier       hide (strip is not possible)
//	to_server    off, flag (default), same: the treatment of messages of clients
//	unlisted     allow (default), deny: the use of items that were not listed
//	classifier   url, timeout (1s), threshold (0.8), on_error (deny, skip), max_bytes (262144)
//
// hide removes an item from its list. In the result of initialize and server/discover it removes
// the instructions; any other message is denied. strip removes hidden characters and colours, makes
// other control characters visible, and replaces a sentence by "[PROMPT INJECTION REDACTED by
// Gatekit]". strip changes at most 100,000 places in a message; beyond that, hide is used. A
// classifier gets {"texts":[…]} and returns {"scores":[…]}. A program can pass a classifier of its
// own to [WithClassifier]. schema.json describes each option.
//
// # Figures
//
// go test -v -run 'Recall|FalsePositives' ./plugins/builtin/injection prints the figures.
// testdata/README.md describes the files. All attacks are ours, in 13 styles, after publications
// about such attacks. The author of the rules also wrote the attacks. So only the unseen file shows
// how many attacks in new wordings the rules find: 28 % with the sensitivity standard.
//
//	acted on                                 relaxed    standard   strict
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
// The documents are Go's and the project's. With standard, two whole documents and three sections
// are denied, because they contain lists of attacks.
//
// Speed was measured on two cores that had other work, too. Documentation and code take 13 to 20 µs
// (1 KiB), 1.0 to 1.2 ms (64 KiB) or 17 ms (1 MiB), including the decoding of JSON. This is about
// 60 MB/s. The slowest texts that we made run at 2 to 3 MB/s: a tag character behind every letter,
// and nothing but tags and brackets. 8 MiB of such texts exceed the time limit, and are denied.
//
//	go test -run xx -bench . ./plugins/builtin/injection
//
// # Limits
//
//   - Attacks in new wordings, in other languages, or that rely on context alone. A rule cannot
//     tell a poisoned description that only says "the account number is 42" from a fact. The plugin
//     is one layer; policies limit what a session may do after it has read a text.
//   - Attacks among words about attacks, such as "attacker" or "injection". In standard and
//     relaxed, a phrase in content scores half if two or more such words are nearby, and a quarter
//     if there are four. A phrase in quotation marks near such a word, or a word such as "example",
//     scores nothing. Otherwise documentation about attacks could not be read. With strict, all
//     phrases keep their scores. Strings of JSON do not count as quotations.
//   - Definitions that were not listed to this principal since the process started: set unlisted =
//     "deny" to deny their use. Only the 256 principals with the most recent lists are remembered.
//   - Tools of other servers that have not been listed yet. When both tools are listed, the tool
//     that imitates or mentions the other is denied, and is missing from its next list. It does not
//     matter which tool was listed first. Instructions are not compared with the names of tools.
//   - Pictures, sound, and compressed or encrypted data.
//
// # Why the first tool of a name is not its owner
//
// Lists are requested from all servers at once. Of two tools whose names look alike, the one with
// more disguising characters (letters beyond ASCII, digits and capitals for letters, "rn" for "m")
// is the impostor, whichever is listed first. If both names are equally disguised, the tools
// only get findings. Equal names are findings only, too: Gatekit's prefix tells them apart.
//
// # Why a server can make another's tool disappear
//
// A definition is hidden if it mentions a tool that another server has, and that its own server
// does not have. So a server can hide a definition by listing a tool with a name that the
// definition happens to mention. The audit log shows when this happens. The client loses a tool,
// but no data leaks. Without the rule, definitions that manipulate the use of other servers' tools
// would pass. With actions.reference = "flag", such a definition is only recorded.
//
// # Why messages of clients are only flagged
//
// An argument may hold any text that a user works on, this package included. The text was written
// on the client's side of the trust boundary. to_server = "same" treats it like a server's text,
// for servers that are agents themselves.
//
// go test -run TestTable -update makes the table of confusable characters from Unicode's
// confusables.txt 17.0, whose licence is in the file.
package injection
