// Package mcp holds the protocol's words: messages as raw bytes with an index, the strict parser,
// the splice editor, the table of methods, the catalogue of places that carry a name, eras and
// error codes.
//
// It promises:
//
//   - What Parse accepts, every peer reads alike where it matters. No name stands twice in an
//     object, at any depth, however it is escaped; no name of the envelope or at the first level of
//     a body can be taken for one that matters by a reader that ignores case, trims or stops at
//     NUL; all is UTF-8.
//   - What is not edited leaves as it came, byte for byte: blanks, order, spelling of numbers and
//     strings, unknown members.
//   - What is edited is as valid as what was parsed, and differs in the given places only.
//   - Everything is bounded: bytes, depth, number of values. Time is linear in the bytes (n log n
//     for the names of one object).
//
// A message comes in as bytes. Parse reads them once, keeps them, and keeps where the id, the body,
// its members and those of its _meta are. The boundary fills in what it knows: session, server,
// method of an answer. Get, Text, Items and Members read from the bytes; Edit and Rewrite splice
// and answer a new Message; WithID changes the id when the message is written. Append writes it.
//
// # Why a scanner of our own
//
// The design names jsontext for the strict pass. It says whether bytes are strict JSON, in 29 µs
// for 64 KiB of text and 0.9 ms for a list of 765 KB (go test -bench 'Parse|JSONText' ./core/mcp,
// two quiet cores). Where the members are, how many values there are, which names can be taken for
// others and in which of them a lone surrogate stands (below) takes a second pass over the same
// bytes. The scanner here does all of it in one, in 19 µs and 0.8 ms, and its limits hold while it
// reads. jsontext stays the judge: tests hold the scanner against it byte by byte and by fuzzing,
// beside the files of the JSON test suite. Strings are decoded and encoded by it.
//
// # Why lone surrogates pass
//
// A server in JavaScript that cuts a text in the middle of an emoji sends "\ud83d". RFC 8259 allows
// it, peers read it, and refusing the message would break servers that work. The bytes pass as they
// are. But two such names can be equal for one reader (both are U+FFFD) and not for another, so
// names with one are refused, and Text does not answer for a value that is not text: who compares
// names then has no name rather than another. Who scans content must not stop there, and take the
// raw value.
//
// # Why some names are refused
//
// {"name":"safe","Name":"evil"} is one thing to a reader that compares names and another to one
// that ignores case (encoding/json, System.Text.Json, many more). Being exact ourselves is not
// enough, since the bytes go on to such readers. Names inside arguments, schemas and structured
// content are the server's own and pass in any case.
//
// # Why an error says whose id it is
//
// A bad request is answered under its id, or its client waits for ever. A bad answer must not be
// answered: its id may be that of an unrelated call on the other side. So ParseError holds the id
// as ID or as Answers, and as neither when the bytes end before they tell.
package mcp
