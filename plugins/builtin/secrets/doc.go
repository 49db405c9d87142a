// Package secrets is the built-in plugin that finds credentials in messages, in both directions,
// and redacts them.
//
// # Promises
//
//   - Every string, number and member name of a body is searched: arguments, results, errors,
//     notifications, lists, prompts, instructions, and the requests of servers with their answers.
//     The names of methods that the specification does not define are searched, too. Base64 (in one
//     piece, in lines, in data: URLs) and percent-encoding are decoded and searched, three levels
//     deep.
//   - Only the secret itself is redacted: the text that the group of a rule matches, not the whole
//     match. A private key is redacted from BEGIN to END, or to the end of the text. Within
//     percent-encoding, only the part with the secret is redacted, but base64 is redacted as a
//     whole.
//   - The name of a member is read together with its value: {"api_key": "8f3k…"} and
//     {"name": "API_KEY", "value": "8f3k…"} are detected like the text api_key="8f3k…". Members are
//     also read in texts: in JSON, YAML, .env files, properties, INI files, XML, PHP and commands
//     (textmembers.go).
//   - If a secret is found in one place, all copies of it in the message are redacted: in other
//     texts and members, in names of members, in escapes of JSON and HTML, and in base64 and
//     percent-encoding (copies.go). A password that could be an ordinary word ("postgres") is
//     redacted only where a rule finds it.
//   - The words of a name decide whether its value can be a secret. A value beside nextPageToken,
//     cacheKey, tokenCount or publicKey is not taken for one because of its name (names.go). A
//     cursor is redacted only if it holds a token of a known form, so page 2 can be fetched.
//   - A value that a server sent to a session as a cursor, an id or a handle, in a member, may go
//     back to this server under any name, unless it has the form of a known token. The plugin
//     remembers hashes of the latest values only (handles.go), and forgets them when it ends. It
//     does not remember values in definitions: Gatekit keeps the verdicts on definitions, so the
//     plugin does not see them in each session.
//   - The same secret has the same placeholder, [secret:RULE:8 digits], as long as the stage runs.
//     The digits are an HMAC with a random key that is not stored.
//   - With the option restore, the placeholder of a secret that a server sent has 26 digits
//     (128 bits), and differs for each principal, session and server. It stands for the exact text
//     that it replaces. The verdict names this text, so that Gatekit can restore it in the
//     arguments of a tool (restore.go). Secrets in definitions and instructions, and secrets
//     that look like paths, URLs, options or commands, are never restored.
//   - No reason and no finding holds a secret. If the name of a member is a secret, the finding's
//     pointer contains a placeholder instead.
//   - A message with a secret that cannot be redacted is denied. A secret cannot be redacted in the
//     name or URI that routes a request, in the name of a method, or in more than 100 member names.
//     A message with more than 512 KiB of different secrets is denied, too.
//   - A message is denied if it is not searched completely before its context ends. The time is
//     linear in the size of the message, whatever the message contains.
//
// The plugin protects against token exposure (MCP01) and context over-sharing (MCP10) of the OWASP
// MCP Top 10. It follows recommendation 4 of the NSA's guidance of May 2026: secrets in results,
// errors and logs must not reach the model. It also keeps secrets out of arguments to servers that
// should not have them. docs/threats.md lists the threats and the tests.
//
// # Limits
//
// The plugin does not find a secret that is split, reversed, in hexadecimal, in UTF-16, compressed,
// or within base64 that does not decode to text. Nor does it find a secret that is spread over
// several strings, such as the lines of a PEM file in an array, or a password in prose ("my
// password is …"). A password of letters alone without quotes is found only in settings, not in
// programs, where it may be a variable. A password beside its name is not redacted in a definition
// of a tool, a prompt or a resource, because it is an example there. A secret whose form no rule
// knows is found only by the option entropy. An attacker who wants to hide a secret can do so: the
// plugin is one layer of several, against secrets that leak.
//
// A password that an elicitation asks for is redacted in the answer, and a key that a tool needs is
// redacted in the call. To prevent that, add the tool and the pointer to the option allow.
//
// # Options
//
//	action      redact (default), block, audit
//	key         the key of the placeholders' HMAC; with the same key, placeholders are the same
//	            after a restart and on all replicas; default: a random key
//	directions  to_server, to_client; default: both
//	decode      search in base64 and percent-encoding; default: true
//	rules       enable, disable: lists of ids ("*" disables all)
//	            add: rules of your own, {id, regex, keywords, secretGroup, entropy}
//	entropy     enabled (false), min_length (20), threshold (4.2 bits a character)
//	allow       findings to ignore, by rule, sha256, value, server, method, tool, pointer
//	restore     off (default), same-server, entitled: which tools get a redacted secret back
//	restore_for how long (1h); restore_tools: the entitled tools, as SERVER/TOOL
//
// schema.json describes each option. The rules come from two files. gitleaks.toml is the unchanged
// file of gitleaks v8.30.1 (MIT, LICENSE.gitleaks). rules.toml holds our own rules, and our changes
// to those of gitleaks. The rule "named-secret" is in code: it detects passwords by the name before
// them, because they are too short or too simple for a rule about values. Some
// rules of gitleaks are off by default: hashicorp-tf-password, and those for the ids of clients and
// users, which are public. rules.toml has the reasons.
//
// # Figures
//
// These figures are measured on the 6,710 fixtures of gitleaks, each as the text of a result. 6,368
// fixtures are positives, which contain a secret. 342 are near misses, which resemble the secret of
// a rule but contain none of that rule. "Found" counts the positives in which any rule detects the
// secret. "Wrong" counts the near misses that are detected as the secret that they resemble. 31
// near misses contain a secret of another rule and are not counted as wrong; gitleaks detects 30 of
// these, too.
//
//	class                        positives  found  recall  near misses  wrong  precision
//	name = value (101 rules)          2839   2839    1.00           56      0       1.00
//	known forms                       3110   3110    1.00          209      0       1.00
//	JWT                                353    353    1.00            1      0       1.00
//	generic-api-key                     63     63    1.00           74      0       1.00
//	PEM                                  3      3    1.00            2      0       1.00
//	all                               6368   6368    1.00          342      0       1.00
//
//	go test -run 'Recall' -v ./plugins/builtin/secrets
//
// The fixtures were generated from the rules. So the figures show that the matcher follows the
// rules. They do not show that the rules are good: of the secrets that other people planted,
// gitleaks' rules find about two thirds. The detector of gitleaks finds 6,343 of the 6,368
// positives under the rule's own name. The plugin redacts everything that the detector finds in the
// 6,710 texts. The program in testdata/oracle prints what the detector finds. The program is a
// module of its own and not part of the tests.
//
// The next figures are measured on generated messages. The values and the names were split into two
// halves by a seed before the plugin was tuned. The figures are those of the half that was not used
// for tuning, with intervals of 95 %. "Before" is version ae8ba136 of the plugin, on the same
// messages. The forms of the tokens are those in the services' documentation or in public rules.
//
//	what                                                   before            now
//	tokens without a name, 136 forms      510 of 952     951 of 952 (0.994 to 1.000)
//	benign names whose values are taken   105 of 139       1 of 139 (0.001 to 0.040)
//	secret names whose values are found     76 of 76       76 of 76 (0.952 to 1.000)
//	cursors changed, as members and in
//	text, also JWT and base64 of JSON                      0 of 648 (0.000 to 0.006)
//	passwords as members                  112 of 112     112 of 112 (0.967 to 1.000)
//	passwords in .env, YAML, JSON, XML,
//	PHP, in text, of each                   0 to 2 of 112  112 of 112 (0.967 to 1.000)
//	passwords in properties                 0 of 112     109 of 112 (0.924 to 0.991)
//	passwords in code and commands          0 of 112     112 of 112 (0.967 to 1.000)
//	copies of a secret, in each of twelve
//	places and encodings                   10 to 20 of 67  120 of 120 (0.969 to 1.000)
//
//	go test -run 'Tokens|Names|Cursors|Passwords|Copy' -v ./plugins/builtin/secrets
//
// The next figures are measured on the held-out half of the corpus of published servers, whose
// texts were not read. Secrets were planted in 400 READMEs and 400 other files: every copy is
// removed in 400 of 400 of both (0.990 to 1.000), before in 133 and 135. Without planted secrets,
// none of 2,865 definitions is changed. In 10 of 600 READMEs something is redacted, before in 8; in
// 4 of 4,925 paragraphs of other files, before in 3. In the tuning half, most of these are
// passwords in examples, and one is a key that a published package contains.
//
//	SECRETS_CORPUS=…/heldout go test -run 'FalseAlarms|Planted' -v ./plugins/builtin/secrets
//
// The next figures are measured on texts without secrets. Each detection was checked by hand. The
// detections in the READMEs are examples of tokens and passwords, a badge's token, and a GPG
// fingerprint. The detections in the code are examples, including a private key, and names with
// digits. Go's code is net/http, crypto/tls, go/types and encoding/json.
//
//	text                                                             flagged         share
//	164 tools and instructions of 14 published servers                     0           0 %
//	Go's documentation, 3,066 paragraphs                                   0           0 %
//	READMEs of npm packages, 18,020 paragraphs                            16        0.09 %
//	READMEs of Go modules, 4,834 paragraphs                                0           0 %
//	Go's code, 14,517 paragraphs                                          11        0.08 %
//
//	go test -run 'Ordinary|ToolDefinitions' -v ./plugins/builtin/secrets
//
// Time, on two shared cores of an AMD EPYC, the best of five runs:
//
//	                       1 KiB     64 KiB      1 MiB
//	prose                 5.6 µs     0.29 ms              230 MB/s
//	code                  4.0 µs     0.32 ms     4.7 ms   223 MB/s
//	many small members     16 µs     0.89 ms      14 ms    73 MB/s
//
// Hostile texts of 64 KiB take longer: 150 ms with a secret in every 20 bytes, 3.1 ms with names
// that have no values, and 1.9 ms with beginnings of secrets that have no end.
//
//	go test -run xxx -bench Inspect -benchmem ./plugins/builtin/secrets
//
// A message with a secret takes about twice as long, because it is searched for copies.
//
// Making a stage takes 20 ms and 6 to 7 MiB of resident memory.
//
// # Why gitleaks' packages are not used
//
// The detector of gitleaks runs at about 1 MB/s on messages of 64 KiB. With RE2 in WebAssembly, it
// runs at 25 to 50 MB/s and needs 20 MiB of memory. Both were measured before the plugin was
// written. The detector returns the place of the match and not that of the secret. A text can
// switch it off by containing "gitleaks:allow". To read one TOML file, gitleaks' config package
// imports 22 modules and viper, which has global state. The valuable part is the TOML file. A new
// version of the file is used without changes, and the tests show its effect.
//
// # Why it is fast
//
// One pass over a text (wordfinder.go) finds the words with which secrets, or the names before
// secrets, begin. At most places of the text, the pass only tests a bit, which a hash of three
// bytes selects. prefix.go derives the words from the regexes, together with the sets of bytes with
// which a match can begin. A regex for "name = value" is split (assignment.go), so that the name,
// the operator and the beginning of the value are checked before the regex is
// tried. In a text of 64 KiB, a few windows of some hundred bytes remain. The regex is matched
// against these windows, and the other conditions of its rule are checked: group, entropy, allow
// lists. Regexes are compiled when they are first needed.
//
// # Why some rules are wider than gitleaks'
//
// gitleaks searches files. A message may hold JSON within a string, so quotes may be escaped. It
// may hold URLs, logs and prose, so a secret of a known form may be followed by punctuation. Rules
// that gitleaks limits to certain file names (kubernetes-secret-yaml and others) apply to all
// texts, since messages have no file names.
package secrets
