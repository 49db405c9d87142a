package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a spot in a file. The zero Place is none.
type Position struct {
	File      string // as it was named to Load
	Line, Col int    // from 1; 0 when unknown. Columns are counted in characters
}

func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Error is one mistake in the file.
type Error struct {
	Position Position
	Message  string
}

func (e *Error) Error() string {
	if e.Position == (Position{}) {
		return e.Message // of a configuration that is no file's
	}
	return e.Position.String() + ": " + e.Message
}

// Errors are all mistakes that were found, in the order of the file. It is the error of Load when
// the file could be read.
type Errors []*Error

// Error is one mistake a line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (es Errors) sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Position.Line, b.Position.Line), cmp.Compare(a.Position.Col, b.Position.Col))
	})
}
