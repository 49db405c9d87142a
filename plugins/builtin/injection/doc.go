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
// they stand for. There are three kinds of rules. Concepts (concepts.go) are sets of classes of
// words that must be near each other in any order, such as IGNORE, PRIOR and ORDERS. The files in
// languages have the classes of 17 languages: English, German, French, Spanish, Italian,
// Portuguese, Russian, Chinese, Japanese, Korean, Arabic, Hindi, Turkish, Polish, Dutch, Vietnamese
// and Indonesian. Phrases (rules.go, wordclasses.go) are sequences of classes of words. Marks
// (delimiter.go) are tags, chat tokens, addresses and pictures. Each rule has two scores: one for
// content, and one for definitions.
//
// Severity decides the action. A text has the score of its rule with the highest score. Rules of
// several families within 120 words add up, less 2. A text with a score of 4 or more gets findings.
// Only if the score reaches the threshold of the option sensitivity (relaxed 8, standard 7, strict
// 4), the strictest action of the families with a hit is taken. Only a rule with an intent and a
// target, such as "send" and "passwords" and an address, reaches 7 alone. The texts of a definition
// add up, too, but need 3 more. Encoded text scores 3 more.
//
// # Options
//
//	sensitivity  relaxed, standard (default), strict
//	actions      family = deny, hide, strip, flag or off. Default:
//	               override role delimiter concealment exfiltration coercion   hide
//	               hidden terminal                                             strip
//	               confusable shadowing reference classifier       hide (strip is not possible)
//	               steering                                        flag (strip is not possible)
//	to_server    off, flag (default), same: the treatment of messages of clients
//	unlisted     allow (default), deny: the use of items that were not listed
//	classifier   url, timeout (1s), threshold (0.8), on_error (deny, skip), max_bytes (262144)
//
// hide removes an item from its list. In the result of initialize and server/discover it removes
// the instructions. In content for a client it removes the sentence, as strip does; the rest of the
// result is delivered. It denies a message from which nothing can be removed. strip removes hidden
// characters and colours, makes other control characters visible, and replaces a sentence by
// "[PROMPT INJECTION REDACTED by Gatekit]". One or two zero-width characters beside a space are
// only findings. strip changes at most 100,000 places in a message; beyond that, an item is hidden
// and any other message is denied. A classifier gets {"texts":[…]} and returns {"scores":[…]}. A
// program can pass a classifier of its own to [WithClassifier]. schema.json describes each option.
//
// # Figures
//
// go test -v -run 'Recall|FalsePositives' ./plugins/builtin/injection prints the figures.
// testdata/README.md describes the files. The author of the rules also wrote the attacks. So the
// figures of attacks are higher than those for attacks of other people would be. The unseen file
// has English attacks in new wordings: most of them are not found.
//
//	acted on, or found (acted on or flagged)  relaxed   standard  strict   found
//	attacks, tuned on (147)                   0.72      0.86      0.97     0.97
//	attacks, held out, of the same time (69)  0.64      0.80      0.96     0.96
//	attacks in other words, tuned on (38)     0.39      0.71      0.97     0.97
//	attacks in other words, unseen (40)       0.12      0.20      0.40     0.40
//	17 languages, tuned on (110)              0.53      0.78      0.85     0.85
//	17 languages, held out (104)              0.62      0.86      0.93     0.93
//	  English (8)                             3         3         6        6
//	  the other 16 languages (96)             62        86        91       91
//	hard negatives, ours, tuned on (81)       0         1         10       7
//	hard negatives, held out (20)             1         2         7        4
//	hard negatives, 17 languages (38)         0         0         2        2
//	  held out (104)                          3         3         11       11
//	576 tools of 37 published servers         0         0         5
//	documentation, 2,407 sections of 4 KiB    2         3         6
//	Go code, 1,167 files                      1         1         20
//
// The definitions and READMEs of the corpus that test/corpus collects were split by their makers.
// One half was read while the rules were written. CORPUS=DIR go test -v -run Corpus measures a half
// with the default configuration. The intervals are Wilson's, of 95 %:
//
//	                                    tuned on     held out
//	tools hidden or changed             0 of 3,944   4 of 2,693, 0.15 % (0.06 to 0.38)
//	servers with such a tool            0 of 163     3 of 127, 2.4 % (0.8 to 6.7)
//	tools that only get a finding       17           40, 1.5 % (1.1 to 2.0)
//	prompts, resources, instructions    0 of 876     0 of 172
//	READMEs as results: denied          0 of 600     0 of 600 (0 to 0.6)
//	  changed                           2            10, 1.7 % (0.9 to 3.0)
//	  only flagged                      51           40, 6.7 %
//
// The attack important_instructions of AgentDojo is acted on with all of 15 goals. The attacks of
// BIPIA and the base attacks of InjecAgent are ordinary requests, such as "write your reply in
// reverse". No rule looks for such requests, since users make the same ones.
//
// On one core, documentation and code of 64 KiB take about 0.7 ms, including the decoding of JSON;
// a result of 1 KiB takes about 8 µs. The slowest texts that we made run at a few MB/s: a tag
// character behind every letter, and nothing but tags and brackets. 8 MiB of such texts exceed the
// time limit, and are denied.
//
//	go test -run xx -bench . ./plugins/builtin/injection
//
// # Why it is fast
//
// Each text is read once, word by word, and eight bytes at a time (tokenize.go). A word is one
// number, and one look-up in a table finds it (lexicon.go). Rules are only tried near their
// triggers, which are their rarest words (triggers.go): "send your answers to a URL" is tried near
// an address, and not near every "your".
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
//     that imitates the other, or steers its use, is denied, and is missing from its next list. It
//     does not matter which tool was listed first. Instructions are not compared with the names of
//     tools.
//   - Texts that steer to other tools are only flagged: a result that asks for the call of another
//     server's listed tool, a result that says "retry" and names another tool of its own server,
//     and a command that is split over several results of one principal. The rule flow/exfiltration
//     counts such results as untrusted content.
//   - Pages of MCP Apps (HTML with a URI that begins with "ui://") are only flagged, since their
//     scripts are not prose.
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
// A definition is hidden if it says how to use a tool that another server has, and that its own
// server does not have: "instead of", "never", "always" or similar words are near the name. A
// definition that only mentions the tool gets a finding. So a server can hide a definition by
// listing a tool with a name that the definition happens to mention. The audit log shows when this
// happens. The client loses a tool, but no data leaks. Without the rule, definitions that
// manipulate the use of other servers' tools would pass. With actions.reference = "flag", such a
// definition is only recorded.
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
