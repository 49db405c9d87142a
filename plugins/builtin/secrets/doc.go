// Package secrets is the built-in plugin that finds credentials in messages, in both directions,
// and takes them out.
//
// # Promises
//
//   - Every string, number and member's name of a body is looked at: arguments, results, errors,
//     notifications, lists, prompts, instructions, what servers ask of clients and what those
//     answer. So are the names of methods that nobody knows. Base64 (in one piece, in lines, in
//     data: URLs) and percent-encoding are looked into, three levels deep.
//   - What goes is the secret and no more: the rule's group, not its match; of a private key all
//     from BEGIN to END, or to where the text ends; of what is percent-encoded the part; of what is
//     base64 the whole run.
//   - The name of a member says what its value is: {"api_key": "8f3k…"} is found as api_key="8f3k…"
//     is, also in {"name": "API_KEY", "value": "8f3k…"}.
//   - The same secret has the same placeholder, [secret:RULE:8 digits], for as long as the stage
//     lives. The digits are an HMAC under a random key that nobody keeps.
//   - No secret is in a reason or a finding, nor in the pointer of one whose member's name is a
//     secret.
//   - What cannot be taken out is denied: the name or URI that says where a request goes, the name
//     of a method, more than 100 names of members. So is a message that is not looked through
//     before its context ends; time is linear in the message, whatever it holds.
//
// It is against OWASP MCP01 and MCP10 and NSA recommendation 4 (secrets in results, errors and logs
// reach the model; B9 in the project's threat table), and against secrets in arguments to servers
// that ought not to have them (B8).
//
// # What it does not see
//
// A secret in pieces, reversed, in hexadecimal, in UTF-16, compressed, or in base64 of what is no
// text; one that is spread over several strings, such as the lines of a PEM file in an array;
// passwords in prose ("my password is …"); what has a form that no rule knows, but for the option
// entropy. Whoever wants to hide a secret from it can. It is for those that leak, and one layer of
// several.
//
// A password that an elicitation asks for is taken out of the answer, too, and a key that a tool
// wants as an argument out of the call: where that is intended, allow it by tool and pointer.
//
// # Options
//
//	action      redact (default), block, audit
//	key         of the placeholders, so that restarts and replicas agree on them; default a random one
//	directions  to_server, to_client; default both
//	decode      look into base64 and percent-encoding; default true
//	rules       enable, disable: ids ("*" disables all); add: own ones {id, regex, keywords, secretGroup, entropy}
//	entropy     enabled (default false), min_length (20), threshold (4.2 bits a character)
//	allow       findings that are none, by any of rule, sha256, value, server, method, tool, pointer
//
// schema.json says more of each. The rules are those of gitleaks.toml, which is gitleaks' own file
// (v8.30.1, MIT, LICENSE.gitleaks) as it is, and of rules.toml, which also says what we do
// otherwise; and "named-secret", for passwords that are too short or too plain for a rule about
// values. hashicorp-tf-password is off by default.
//
// # Figures
//
// On gitleaks' 6,710 fixtures, 6,368 with a secret and 342 that nearly have one, each as the text
// of a result. Found is under whichever rule's name; wrong is a near miss that is taken for the
// secret that it nearly is. 31 near misses hold what is a secret by another rule, and are counted
// as neither; gitleaks says the same of 30 of these.
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
// The fixtures were made from the rules, so that this says that the matcher is faithful, not that
// the rules are good: on secrets planted by others gitleaks' rules find about two thirds. gitleaks'
// own detector finds 6,343 of the 6,368 under the rule's name; all that it finds in any of the
// 6,710 is taken out here. That was measured by testdata/oracle, which is a module of its own and
// not part of the tests.
//
// On texts that hold no secrets. All that was taken for one was looked at: in the READMEs examples
// of tokens and of passwords in URLs, a badge's token and a GPG fingerprint; in the code examples,
// a private key among them, and names with digits.
//
//	text                                                             flagged         share
//	164 tools and instructions of 14 published servers                     0           0 %
//	Go's documentation, 3,066 paragraphs                                   1        0.03 %
//	READMEs of npm packages, 16,753 paragraphs                            15        0.09 %
//	READMEs of Go modules, 7,836 paragraphs                                1        0.01 %
//	this project's documents, 458 paragraphs                               0           0 %
//	Go's code (net/http, crypto/tls, go/types, encoding/json), 14,517     12        0.08 %
//
//	go test -run 'Ordinary|ToolDefinitions' -v ./plugins/builtin/secrets
//
// Time, on two cores of an AMD EPYC that others used, too (the best of five):
//
//	                       1 KiB     64 KiB      1 MiB
//	prose                 7.2 µs     0.41 ms              159 MB/s
//	code                  8.3 µs     0.45 ms     7.1 ms   148 MB/s
//	many small members     16 µs     0.99 ms      15 ms    70 MB/s
//
// Of hostile texts of 64 KiB, one with a secret in every 20 bytes takes 170 ms; names without
// values take 3.1 ms, beginnings without ends 2.3 ms.
//
//	go test -run xxx -bench Inspect -benchmem ./plugins/builtin/secrets
//
// A stage takes 20 ms to make, and 6 to 7 MiB of resident memory.
//
// # Why not gitleaks' packages
//
// Its detector runs at about 1 MB/s on messages of 64 KiB (at 25 to 50 with RE2 in WebAssembly, for
// 20 MiB of memory; both were measured for the project before), tells where a match is and not
// where the secret is, and can be told by the text itself to look away ("gitleaks:allow"). Its
// config package brings viper, with global state, and 22 modules, to read one TOML file. The file
// is what is worth having. A new version of it goes in as it is: the tests tell what it changes.
//
// # How it is fast
//
// One pass of an automaton over a text (keywords.go) finds the words that some secret begins with
// or is named by. They are read out of the regular expressions (shape.go), with the sets of bytes
// that each match begins with; an expression "name = value" is taken apart, so that the name, the
// operator and the beginning of the value are checked before the expression is asked. What remains
// is a few windows of some hundred bytes in a text of 64 KiB, and these the expression itself
// judges, with all that belongs to its rule: group, entropy, allow-lists. Expressions are compiled
// when they are needed first.
//
// # Why some rules are wider than gitleaks'
//
// gitleaks looks at files. In messages the same is found in JSON within a string, so that quotes
// may be escaped; in URLs, logs and prose, so that a secret of a known form may be followed by
// punctuation. What is limited to names of files there (kubernetes-secret-yaml and others) applies
// to all texts here, since messages have none.
package secrets
