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
// Technical documents are mostly in English, and use the words of attacks for other purposes: an
// option overrides the user's default, a job runs silently or without notifying users, and a client
// sends its token to an address. In English, such words alone only get a finding, and less in
// definitions. A statement, such as "agents forget earlier instructions" or "you can ignore the
// instructions above", scores half.
//
// A text without a finding of a rule is read by a linear classifier (wording.go). It adds up the
// weights of words, of classes of words, such as AI and SEND, and of pairs of these, in parts of 40
// words. wording.txt has the weights. The finding is wording/like-an-attack. Honest texts get it,
// too, so it is only recorded by default. Messages of clients and pages of MCP Apps are not
// classified.
//
// # Options
//
//	sensitivity  relaxed, standard (default), strict
//	actions      family = deny, hide, strip, flag or off. Default:
//	               override role delimiter concealment exfiltration coercion   hide
//	               hidden terminal                                             strip
//	               confusable shadowing reference classifier       hide (strip is not possible)
//	               steering wording                                flag (strip is not possible)
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
// figures of attacks are higher than those for attacks of other people would be. The three unseen
// files have English attacks in new wordings. The author read the first two afterwards, and changed
// rules to find more of them. Before, standard acted on 8 of the first 40 and on 6 of the 52.
//
//	acted on, or found (acted on or flagged)  relaxed   standard  strict   found
//	attacks, tuned on (147)                   0.73      0.90      0.99     0.99
//	attacks of the same time (69)             0.59      0.84      0.99     0.99
//	attacks in other words (38)               0.39      0.76      0.97     0.97
//	first unseen attacks, tuned on (40)       0.25      0.60      0.78     0.78
//	second unseen attacks, tuned on (52)      0.23      0.75      0.83     0.83
//	third unseen attacks, held out (40)       0.03      0.23      0.47     0.80
//	in own words, 14 languages, tuned on (148) 0.00     0.01      0.03     0.57
//	in own words, 14 languages, held out (105) 0.10     0.13      0.30     0.66
//	17 languages, tuned on (110)              0.53      0.80      0.92     0.92
//	17 languages, held out (104)              0.62      0.88      0.94     0.94
//	  English (8)                             3         5         7        7
//	  the other 16 languages (96)             62        86        91       91
//	hard negatives, ours, tuned on (81)       0         0         10       6
//	hard negatives, held out (20)             0         0         7        4
//	hard negatives, 17 languages (38)         0         0         2        2
//	  held out (104)                          2         2         11       11
//	576 tools of 37 published servers         0         0         4
//	documentation, 2,407 sections of 4 KiB    2         3         7
//	Go code, 1,167 files                      0         0         17
//
// The two files in own words have the figures of the rules and of the classifier. Of the 105, it
// and the rules find 69, 66 % (56 to 74); the rules alone find 31. Of the 40 in English they find
// 17, of the 65 in 13 other languages 52. Of the third unseen attacks they find 32 of 40, 80 % (65
// to 90); the rules alone find 19. The other rows of the column "found" were measured before the
// classifier. One author wrote both files in own words and saw the first figures of the held-out
// one before the second half of the training texts was written, so it is an upper bound.
//
// The classifier also finds honest texts. On half of the unseen packages and the held-out half of
// the READMEs: findings at 27 of 2,018 tools, 1.3 % (0.9 to 1.9), with rules alone 7; and at 70 of
// 869 READMEs, 8.1 % (6.4 to 10.1), with rules alone 38. No tool was hidden. Its first version had
// findings at 141 tools. Since then, words that no honest training text has are left out. Of 59
// honest texts that look like attacks in own words, 11 get a finding.
//
// The definitions and READMEs of the corpus that test/corpus collects are split by their makers.
// One half was read while the rules were written. The unseen packages of test/corpus/unseen.tsv
// have makers that are in neither half. CORPUS=DIR go test -v -run Corpus measures a half with the
// default configuration. The intervals are Wilson's, of 95 %:
//
//	                                    tuned on     unseen
//	tools hidden or changed             0 of 3,944   0 of 3,199 (0 to 0.12 %)
//	servers with such a tool            0 of 163     0 of 128 (0 to 2.9 %)
//	tools that only get a finding       14           16, 0.5 % (0.3 to 0.8)
//	prompts, resources, instructions    0 of 876     0 of 522 (0 to 0.7 %)
//	READMEs as results: denied          0 of 600     0 of 535 (0 to 0.7 %)
//	  with a sentence removed           0            0 (0 to 0.7 %)
//	  with hidden characters removed    2            2
//	  only flagged                      39           33, 6.2 %
//
// At the first measurement, 2 of the 3,199 unseen tools were hidden, at 2 servers, 1.6 % (0.4 to
// 5.5). The rules about payments and about hiding from the user were lowered after that. The report
// names the rules of a hit, and no text was read. The rules of the version before hide 3 of these
// tools, at 3 servers, and remove sentences of 7 of the READMEs. The rules were also tuned on texts
// about computers that are not about models: 202,815 descriptions in specifications of cloud APIs,
// 20,245 manual pages and 4,900 documents of libraries. They now act on 0, 1 and 1 of these.
//
// The attack important_instructions of AgentDojo, and the enhanced attacks of InjecAgent, are acted
// on with all of 15 goals of ours. The base attacks of InjecAgent are the goals alone: relaxed and
// standard act on 0 of 15 (0 to 20 %), strict on 2. The attacks of BIPIA are ordinary requests,
// too, such as "write your reply in reverse"; 0 of 125 were acted on. No rule looks for such
// requests, since users make the same ones.
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
