// Package scan is for stages that look at what messages say: every text in a message's body, also
// where it is encoded, and the edits that take parts of it out.
//
// # Promises
//
//   - Each string, number and member's name of the body is seen, once, decoded from JSON (Texts).
//   - What is base64 (either alphabet, in one piece or in lines, also behind a data: URL or in a
//     path) or percent-encoded in it is seen decoded, too, up to three encodings in each other
//     (Decoded). Time and memory are linear in the text: no run is decoded more than a few times,
//     and base64 only shrinks.
//   - Redact changes what was cut out and nothing else. What was found in an encoded text is cut
//     out of the text with its encoding. It answers an error rather than edits for more than 100
//     names: each costs a look at the whole message.
//
// # What is not seen
//
// Base64 of what is no text (an archive, UTF-16, anything compressed), runs of fewer than 16
// characters, hexadecimal, other encodings, and a fourth encoding in the third.
package scan
