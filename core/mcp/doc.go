// Package mcp holds the Model Context Protocol as Gatekit reads it: messages as raw bytes with an
// index, the strict parser, the editor that splices bytes, the table of methods, the catalogue of
// places that hold a name, protocol eras and error codes.
//
// It promises:
//
//   - Gatekit and all peers read the protocol's members of an accepted message in the same way. No
//     object has two members of one name, at any depth, however the names are escaped. No member
//     of the envelope, or of the first level of a body, has a name that a careless parser would
//     take for a name of the protocol. A careless parser ignores case, trims white space, or stops
//     at NUL. All bytes are UTF-8.
//   - Bytes that are not edited are forwarded unchanged: white space, order, the spelling of
//     numbers and strings, unknown members.
//   - An edited message is as valid as the parsed one, and differs from it only in the edited
//     places.
//   - Everything is bounded: bytes, depth, number of values. Time is linear in the bytes (n log n
//     for the names of one object).
//
// A message comes in as bytes. Parse reads them once, keeps them, and indexes the id, the body, its
// members and those of its _meta. The adapter that received the bytes fills in what it knows:
// session, server, method of an answer. Get, Text, Items and Members read from the bytes. Edit and
// RewriteNames splice bytes and return a new Message; WithID changes the id when the message is
// written. Append writes it.
//
// The files, in reading order: message.go, construct.go, methods.go, headers.go and loglevel.go
// (the types and tables); parse.go, scanner.go, confusable.go, embedded.go and errors.go (bytes to
// messages); traverse.go, read.go, leaves.go and canonical.go (reading); splice.go, edit.go
// (changing); nameplaces.go, rewritenames.go and headerannotations.go (names and headers).
//
// # Why a scanner of our own
//
// The module github.com/go-json-experiment/json has a strict scanner, jsontext. It reports whether
// bytes are strict JSON, in 29 µs for 64 KiB of text and 0.9 ms for a list of 765 KB (go test
// -bench 'Parse|JSONText' ./core/mcp, two quiet cores). A second pass over the same bytes would be
// needed to index the members, count the values, and check the names for confusion and lone
// surrogates (below). The scanner here does all of it in one pass, in 19 µs and 0.8 ms, and
// enforces its limits while it reads. jsontext stays the reference: tests compare the scanner with
// it byte by byte and by fuzzing, beside the files of the JSON test suite. jsontext also decodes
// and encodes strings.
//
// # Why lone surrogates pass
//
// A server in JavaScript that cuts a text in the middle of an emoji sends "\ud83d". RFC 8259 allows
// it, peers read it, and refusing the message would break servers that work. The bytes are
// forwarded as they are. But names with a lone surrogate are refused: two of them can be equal for
// one parser, which reads both as U+FFFD, and different for another. Text returns no string for a
// value with a lone surrogate, so that code that compares names gets no name rather than a wrong
// one. Code that scans content must take the raw value then.
//
// # Why some names are refused
//
// {"name":"safe","Name":"evil"} means one thing to a reader that compares names exactly and another
// to one that ignores case (encoding/json, System.Text.Json, many more). Exact comparison in
// Gatekit is not enough, since the bytes go on to such readers. Names inside arguments, schemas and
// structured content belong to the server and are accepted in any spelling.
//
// # Why a parse error has two fields for the id
//
// An invalid request needs an error under its id, or its client waits for ever. An invalid answer
// must not be answered: its id may be that of an unrelated call on the other side. So ParseError
// has the id of a request in RequestID and the id of an answer in ResponseID. Both are empty when
// the bytes end before the kind is known.
package mcp
