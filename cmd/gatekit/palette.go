package main

import (
	"io"
	"os"
)

// palette colours words for a terminal. The zero palette adds no colours.
type palette struct{ enabled bool }

// paletteFor returns the palette for an output. The palette has colours only if the output is a
// terminal that can show colours, and if NO_COLOR is empty or not set (https://no-color.org).
func paletteFor(out io.Writer) palette {
	if checked, ok := out.(*checkedOutput); ok {
		out = checked.w
	}
	f, ok := out.(*os.File)
	return palette{ok && isTerminal(f) && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""}
}

func (p palette) good(text string) string  { return p.paint("32", text) } // green
func (p palette) bad(text string) string   { return p.paint("31", text) } // red
func (p palette) acted(text string) string { return p.paint("33", text) } // yellow: modify, …

// plain returns text in the default colour of the terminal. It adds as many bytes as the methods
// for other colours, so that a tabwriter aligns the texts.
func (p palette) plain(text string) string { return p.paint("39", text) }

func (p palette) paint(code, text string) string {
	if !p.enabled {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
