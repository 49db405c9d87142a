// Package mcp implements the messages of the Model Context Protocol. A message is its raw bytes
// with an index. The package has the strict parser, the editor that splices bytes, the table of
// methods, the catalogue of places that hold a name, the protocol eras and the error codes.
//
// It promises:
//
//   - Gatekit and all peers find the same protocol members in an accepted message. No object, at
//     any depth, has two members with the same name, even if the names are escaped differently, or
//     if a parser replaces lone surrogates in them. No member of the envelope, or of the first
//     level of a body, has a name that only a careless parser would take for a name of the
//     protocol. A careless parser ignores case, trims white space, or stops at NUL. All bytes are
//     UTF-8.
//   - Bytes that are not edited are forwarded unchanged. That includes white space, the order of
//     members, the spelling of numbers and strings, and unknown members.
//   - An edited message is valid too, and differs from the parsed message only in the edited
//     places.
//   - The bytes, the depth and the number of values of a message are bounded. Parsing takes time
//     linear in the bytes, and n log n for the n names of one object.
//
// Parse reads the bytes of a message once and keeps them. It indexes the id, the body, the members
// of the body and the members of its _meta. The adapter that received the bytes sets the exported
// fields, such as the session, the server, and the method of an answer. Get, Text, Items and
// Members read from the bytes. Edit and RewriteNames splice bytes and return a new Message. WithID
// returns a Message that is written with another id. Append writes a message.
//
// The files, in reading order: message.go, construct.go, methods.go, headers.go and loglevel.go
// (the types and tables); parse.go, scanner.go, confusable.go, embedded.go and errors.go (bytes to
// messages); surrogatenames.go (names with lone surrogates); traverse.go, read.go, leaves.go and
// canonical.go (reading); splice.go and edit.go (changing); nameplaces.go, rewritenames.go and
// headerannotations.go (names and headers).
//
// # Why a scanner of our own
//
// The module github.com/go-json-experiment/json has a strict scanner, jsontext. It reports whether
// bytes are strict JSON. That takes 29 µs for 64 KiB of text and 0.9 ms for a list of 765 KB (go
// test -bench 'Parse|JSONText' ./core/mcp, two quiet cores). A second pass over the same bytes
// would be needed to index the members, to count the values, and to find names that look alike or
// have lone surrogates (see below). The scanner here does all of it in one pass, in 19 µs and
// 0.8 ms, and enforces its limits while it reads. jsontext is the reference for tests: a test that
// tries every byte value and a fuzz test compare the scanner with jsontext. Another test reads the
// files of the JSON test suite. jsontext also decodes and encodes strings.
//
// # Why lone surrogates pass
//
// A server in JavaScript that cuts a text in the middle of an emoji sends "\ud83d". RFC 8259 allows
// that text, and peers read it. To refuse the message would break servers that work, so its bytes
// are forwarded unchanged. Text returns no string for a value with a lone surrogate, so code that
// compares names never sees a wrong name. Code that scans content must read the raw value in that
// case.
//
// The name of a member may have a lone surrogate too. Peers in JavaScript and Python keep it. OPA
// and other parsers in Go read it as U+FFFD, some parsers read "?", and some leave it out. With
// {"\ud83d":1,"\ud83e":2}, a policy would see only the second member, and a server would see both.
// So such a name is refused if one of these replacements makes it equal to another name of the
// object, or to a name of the protocol. It is also refused in the envelope, in the first level of a
// body, in _meta, inputRequests and inputResponses, because there the names belong to the protocol,
// or Gatekit writes them again. In all other places it is accepted. Members and JSON pointers have
// U+FFFD for each lone surrogate in it.
//
// # Why some names are refused
//
// {"name":"safe","Name":"evil"} means "safe" to a parser that compares names exactly, and may mean
// "evil" to a parser that ignores case (encoding/json, System.Text.Json and many more). If only
// Gatekit compared names exactly, the peer that gets the bytes could still read "evil". Names
// inside arguments, schemas and structured content belong to the server and are accepted in any
// spelling.
//
// # Why a parse error has two fields for the id
//
// An invalid request needs an error with the id of the request. Without the error, the client would
// wait for ever. An invalid answer must not be answered: its id may be that of an unrelated call on
// the other side. So ParseError has the id of a request in RequestID and the id of an answer in
// ResponseID. Both are empty when the bytes end before the kind is known.
package mcp
