// Package canary finds planted values, called canaries, in messages. A security team plants a
// canary, such as a key that opens nothing, in a file, a database or a prompt. Nobody has an honest
// reason to send it, so a message with it shows that planted data has been read or is leaving.
//
// # What it promises
//
//   - Stage looks at every string, number and member name in the body of a message, and at its
//     method and id. It names the canary and the place, and never returns a value.
//   - The recorder of a Stage also searches the messages that no stage inspects, and replaces each
//     text of a record that has a value.
//   - A value is found in upper or lower case, as a part of a longer text, in base64 of a longer
//     text (both alphabets, also on several lines), in hexadecimal, and in up to three layers of
//     percent-encoding and backslash escapes (JSON within a string).
//   - The time is linear in the length of a text, apart from texts that repeat parts of values. No
//     text is decoded more than three times.
//
// # What it does not find
//
// The package does not find a part of a value, a value that is split between messages or texts, and
// a value in another encoding: compressed, encrypted, reversed, or base64 of base64.
//
// # Why values are kept, and not their digests
//
// A digest can only be compared with a text whose beginning and end are known. A canary may be
// anywhere within a text and in several encodings, so the scan needs the value.
//
// scanner.go searches a text for many patterns, decode.go removes encodings, stage.go is the stage
// of the pipeline, and recorder.go its recorder.
package canary
