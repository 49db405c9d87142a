// Package config reads gatekit.toml.
//
// Load returns a Config of checked values, or every mistake in the file at once, each with its
// position:
//
//	gatekit.toml:3:1: unknown key "comand" in [server.files], did you mean "command"?
//	gatekit.toml:9:1: server.github.timeout must be a duration such as "60s", not an integer
//
// Watch reports changes of the file's contents. A file that is written again with the same
// contents has not changed.
//
// # Guarantees
//
//   - A key that is absent has the default of gatekit.toml.example. A test compares the two.
//   - Nothing is guessed. An unknown key, a wrong type, a value out of range or a reference to a
//     name that does not exist is an error. No environment variable overrides a key.
//   - ${env:NAME} and ${file:PATH} are replaced in every string, once, when the file is read; $${
//     is the text ${. Errors and logs never contain the replacements: errors quote the file as it
//     is written, and a Config prints itself without them.
//   - Paths are absolute. A relative path starts at the folder of the file. A command without a
//     slash is looked up in PATH when it is run.
//
// # Why there is a scanner beside the TOML parser
//
// BurntSushi/toml checks the document and decodes the values. It reports the position of a syntax
// error but not the position of a key, and a decoder that stops at the first wrong type hides the
// other mistakes. So the values are decoded into maps, a small scanner notes the position of each
// key of the document, which is valid by then, and both are compared with the struct tags of
// Config. A fuzz test compares the scanner with the parser's list of keys.
//
// # Why reading goes on after a syntax error
//
// A line with a syntax error is blanked, with its section when it is a header, and the rest is
// parsed again. So one missing quote does not hide five other mistakes. After that, an absent key
// is not reported: the blanked line may have set it.
package config
