// Package mcp holds the protocol's words: messages as raw bytes with an index, the strict parser, the splice editor, the
// table of methods, the catalogue of places that carry a name, eras and error codes.
package mcp
