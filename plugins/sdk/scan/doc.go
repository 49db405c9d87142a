// Package scan is for stages that search messages. It finds every text in a message's body, also
// where the text is encoded, and makes the edits that redact parts of a text.
//
// # What it promises
//
//   - Texts yields each string, number and member name of the body once, decoded from JSON.
//   - Text.Decoded decodes base64 and percent-encoding in a text, up to three encodings inside each
//     other. The base64 may be of either alphabet, on one line or several, in a data: URL or in a
//     path. Time and memory are linear in the length of the text: no run is decoded more than a few
//     times, and decoded text is shorter than its encoding.
//   - Redact changes the given parts and nothing else. A part that was found in an encoded text is
//     replaced together with its encoding. Redact returns an error if it would have to change more
//     than 100 member names, because each name costs a pass over the whole message.
//
// # What it does not find
//
// The package does not find base64 of data that is not text (an archive, UTF-16, anything
// compressed), base64 of fewer than 16 characters, hexadecimal and other encodings, and a fourth
// encoding inside the third.
//
// text.go has the texts, decode.go decodes them, and redact.go makes edits.
package scan
