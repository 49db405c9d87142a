// Package config reads gatekit.toml.
//
// Load answers a Config of plain, checked fields, or every mistake in the file at once, each at its
// place:
//
//	gatekit.toml:3:1: unknown key "comand" in [server.files], did you mean "command"?
//	gatekit.toml:9:1: server.github.timeout must be a duration such as "60s", not an integer
//
// Watch tells of changes and keeps quiet about files that were written but not changed.
//
// # What it promises
//
//   - What is not in the file has the default of gatekit.toml.example, which a test holds against
//     this package.
//   - Nothing is guessed: an unknown key, a wrong type, a value out of range or a name that refers
//     to nothing is an error, never ignored. There is no other way to set anything: no environment
//     variable overrides a key.
//   - ${env:NAME} and ${file:PATH} are replaced in every string, once, when the file is read; $${
//     is the text ${. What they stand for is in no error and no log: errors quote the file as it is
//     written, and Config prints itself without it.
//   - Paths are absolute, resolved against the folder of the file; a command without a slash is
//     looked up in PATH later.
//
// # Why there is a scanner beside the TOML parser
//
// BurntSushi/toml checks the document and makes the values; it tells where a syntax error is, but
// not where a key is, and a decoder that stops at the first wrong type hides the others. So the
// values are decoded into maps, a small scanner notes where each key of the (by then valid)
// document stands, and the two are walked together against the struct tags of Config. A fuzz test
// holds the scanner against the parser's own list of keys.
//
// # Why reading goes on after a syntax error
//
// A line that is no TOML is taken out (with its section when it is a header) and the rest is read
// again, so that one missing quote does not hide the five other mistakes. What the missing line may
// have said is then not complained of.
package config
