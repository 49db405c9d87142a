// Package pii is the built-in plugin "pii": it finds personal data in what messages say, and
// blocks, redacts or records it.
//
// # What it promises
//
//   - Every string, number and member's name of every body is looked at, of requests, results,
//     errors and notifications, in both directions, whatever their size. So is text in base64 and
//     percent-encoding.
//   - What is found is right in itself: its checksum, its length, its range, its country's
//     numbering plan. Where that is little, a word near it must say what it is.
//   - redact changes what was found and nothing else. The same value has the same placeholder,
//     however it is spelt, so that a model can still tell one person from another.
//   - Of what was found, only the kind and the place are recorded.
//   - Block beats redact: a message with something to block is refused whatever else is in it.
//
// # Threats
//
// Sensitive data in results and arguments: SAFE-MCP's exfiltration techniques as far as they carry
// such data in clear or in one of the encodings above, MCP01 and MCP10 of OWASP's list, point (1)
// and (4) (outgoing DLP, output filtering) of the NSA's recommendations of May 2026.
//
// # What it does not see
//
// Names, addresses of houses, dates of birth, and whatever has no form of its own. Data that is
// spelt out ("john at corp dot io"), spread over several texts, compressed, encrypted, or in
// images. Who wants to get a number past this plugin can; it is there for data that lies in texts
// because nobody thought of it. Phone numbers are those that the numbering plans allow, as of the
// metadata of the library. The method of a message and the protocol's own texts (cursors, progress
// tokens, ids of requests and tasks, requestState) are not looked at: whoever made them must get
// them back.
//
// What says where a request goes (the name of a tool, the URI of a resource) cannot be redacted; a
// request with personal data there is refused, with the place as the reason. URIs in lists and
// results are redacted like all text, and can then not be read: give "email" the action audit where
// resources go by addresses.
//
// # What is found
//
//	email        with international names; not at names reserved for examples (example.com, .test), not in user:password@ of a URL, not git@host:path
//	card         issuer's range, length and Luhn, with any separators or none; lengths that are rare for the issuer need a word such as "card"
//	iban         the form of the country's accounts and the checksum, with spaces or hyphens; in small letters with spaces only near a word such as "iban"
//	phone        with + anywhere; without, in the form of a country of locales, or near a word such as "phone"
//	ip           IPv4, IPv6 in all forms; not private, loopback, link-local, documentation and other reserved ones; not what looks like the version of something
//	national_id  us-ssn, gb-nino, gb-nhs, ca-sin, de-steuer-id, fr-nir, es-dni, es-nie, it-codice-fiscale, nl-bsn, pl-pesel, se-personnummer, be-national-number, br-cpf, in-aadhaar
//
// Spaces, hyphens, digits and letters that only look different (no-break and full-width ones,
// digits of other scripts) are the same, and what is not seen (zero-width characters) is not there.
// A JSON number counts however it is written (4.111111111111111e15) and becomes a string when it is
// redacted.
//
// # Why words decide
//
// One of ten numbers passes Luhn, one of eleven the sums of the NHS and the BSN, and nothing in a
// US number is a checksum. What is right by chance that often is reported only where a word near it
// (48 bytes before, the name of the JSON member, 24 bytes behind) says so, or where the
// configuration names the country and the number is grouped as people there do. The nearest word
// wins: "order 2125550123" is no phone number, "order 7, phone 2125550123" is one. A card's number
// in one run of digits is none behind a word such as "order" or "tracking"; in groups it is one.
// The words are of English, German, French, Spanish, Italian, Portuguese, Dutch, Polish and
// Swedish; see words.go.
//
// # Why placeholders are random
//
// A hash of a card number is the card number for who can count to 10^16, so it is an HMAC with a
// key that a stage makes when it starts and tells nobody. Replicas that must agree share the option
// key. Six hexadecimal digits are short for a model and enough to tell apart what one conversation
// holds: among 500 values two have the same with a chance of less than one in a hundred.
//
// # Options
//
//	action       redact; block or audit
//	replace      placeholder ([card:3f2a91]); mask (**** **** **** 1111)
//	key          random; a secret of 16 bytes or more that makes the placeholders
//	locales      none; countries whose phones are found without + and whose national ids are looked for, all when there are none
//	directions   to_client and to_server
//	decode       true; base64 and percent-encoding
//	allow        none; values that are not reported
//	email        {enabled, action, replace, examples: false, exclude: domains, addresses, local parts}
//	card, iban, phone  {enabled, action, replace}
//	ip           {enabled, action, replace, private: false}
//	national_id  {enabled, action, replace, ids: all of the locales}
//
// # Figures
//
// Texts made with a fixed seed, 2000 values of each kind and 12000 hard negatives (orders, hashes,
// UUIDs, times, versions, prices, ISBNs, coordinates, code, random numbers in the same form); found
// is what was taken out whole, and with nothing but it. They were made by who wrote the words, so
// expect less of the texts of others:
//
//	                             recall  precision
//	card                          1.000      0.985
//	iban                          1.000      1.000
//	email                         1.000      1.000
//	ip                            0.996      1.000
//	phone                         0.675      0.996   as it comes: those without + and without a word are not found
//	phone, with a word            0.998      0.998   as it comes
//	phone                         0.998      0.903   locales US, GB, DE, FR, ES, IT; what is wrong there are random numbers that could be dialled
//	national ids, with a word     1.000      0.996   as it comes
//	national ids, without         0.409      0.989   as it comes
//	national ids, without         0.799      0.968   all thirteen locales
//
//	go test ./plugins/builtin/pii -run TestFigures -v
//
// False alarms, as it comes and with all locales: none in what three published servers say about
// themselves (testdata/servers.json: 36 tools, prompts, resources, instructions); 0 of 458
// paragraphs of this project's own documents, 0 of 1674 of Go's doc folder, 1 of 1173 of Go's
// Markdown, 8 of 2991 of the code with its comments in net, 2 of 1858 of that in cmd/go: real
// addresses, and one number of a section.
//
//	go test ./plugins/builtin/pii -run 'Published|Documentation' -v
//
// Speed, on two shared cores of an EPYC, best of several: 1 KiB of ordinary text 9 to 21 µs, 64 KiB
// 0.31 ms, 1 MiB 4.9 ms; with decode = false 6 µs, 0.27 ms, 4.4 ms. A phone number that the library
// is asked about takes some 20 µs; beyond 10,000 in one message, what looks like one counts as one.
// The worst of some thirty hostile texts of 1 MiB took half a second.
//
//	go test ./plugins/builtin/pii -run xxx -bench Inspect
package pii
