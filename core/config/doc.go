// Package config reads gatekit.toml.
//
// Load returns a Config with checked values, or an error with all mistakes in the file. Each
// mistake has its position:
//
//	gatekit.toml:3:1: unknown key "comand" in [server.files], did you mean "command"?
//	gatekit.toml:9:1: server.github.timeout must be a duration such as "60s", not an integer
//
// Watch reports changes of the file's contents. A file that is written again with the same
// contents has not changed.
//
// # Guarantees
//
//   - A key that is absent has the default of gatekit.toml.example. A test compares the defaults of
//     this package with those of the example.
//   - Nothing is guessed. An unknown key, a wrong type, a value out of range or a reference to a
//     name that does not exist is an error. So is a substitution that leaves a key empty. No
//     environment variable overrides a key.
//   - ${env:NAME} and ${file:PATH} are replaced in every string, once, when the file is read. $${
//     stands for the text ${. Errors quote the file as it is written, and a Config prints itself
//     without the replacements. NewMask removes the replacements from other texts, such as logs,
//     except those that Config.Substituted leaves out.
//   - Paths are absolute. A relative path starts at the folder of the file. A command without a
//     slash is looked up in PATH when it is run.
//
// # Why there is a scanner beside the TOML parser
//
// BurntSushi/toml checks the document and decodes the values. It reports the position of a syntax
// error but not the position of a key. Its decoder also stops at the first wrong type, which hides
// the other mistakes. So this package decodes the values into maps. A small scanner then records
// the position of each key in the valid document. The values and positions are matched with the
// struct tags of Config. A fuzz test compares the scanner with the parser's list of keys.
//
// # Why reading goes on after a syntax error
//
// A line with a syntax error is blanked, and the rest is parsed again. If the line is a header, its
// whole section is blanked. So one missing quote does not hide five other mistakes. After that,
// most absent keys are not reported, since the blanked line may have set the key.
package config
