// Package pins implements the lock file gatekit.lock. The file holds all definitions that the
// operator approved: how each server is started, its instructions, and its tools, prompts, resource
// templates and resources. The package reads and writes the file, computes the digest of a
// definition, and compares the definitions of a running server with the approved ones. Guard does
// this for the messages of a running Gatekit.
//
// It promises:
//
//   - A lock that is read is whole and consistent. A file that is cut off, edited by hand, in a
//     merge conflict or of a newer version is an error with its line, never an empty lock.
//   - Writing is deterministic: equal locks have equal bytes, on every machine and on every day.
//   - The digest formula of version 1 never changes. A test compares digests with constants.
//   - Two definitions have the same digest if and only if Compare finds no change.
//   - Nothing is ignored. Every difference has a class, and the class decides what happens.
//
// The files, in reading order: value.go (JSON as a tree), item.go (definitions and their digests),
// schema.go (which place in a definition has which meaning), hole.go (texts that vary), compare.go
// (changes and their classes), server.go (a server's definitions), learn.go (finding the texts that
// vary), lock.go (the file), guard.go (the stage that holds back what a lock does not approve).
//
// # Why the file holds definitions and not only digests
//
// Without the approved text there is no diff to review, and nothing to forward in place of a
// changed text.
//
// # Why the digest does not cover the bytes
//
// The order of members and of the elements of some arrays has no meaning, and neither has an
// annotation that is written out as its default. Servers change both between releases. A digest of
// the bytes would report these as changes, and operators would learn to approve without reading.
// Numbers are compared as they are spelt, so integers beyond 2^53 are never rounded.
//
// # Why holes have no wildcards
//
// Some servers name today's date or their own folder in a description. A hole accepts only texts
// of a closed form, such as a date, or a path without blanks of at most 64 characters. The text
// around the hole must be equal. So an attacker cannot write a sentence into a hole.
package pins
