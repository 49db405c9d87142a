package main

import (
	"io"
	"os"
)

// palette colours words for a terminal. The zero palette leaves them as they are.
type palette struct{ enabled bool }

// paletteFor returns the palette for an output. It has colours only when the output is a terminal
// that shows them, and NO_COLOR is empty or not set (https://no-color.org).
func paletteFor(out io.Writer) palette {
	f, ok := out.(*os.File)
	return palette{ok && isTerminal(f) && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""}
}

func (p palette) good(text string) string { return p.paint("32", text) } // green
func (p palette) bad(text string) string  { return p.paint("31", text) } // red

func (p palette) paint(code, text string) string {
	if !p.enabled {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
