package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a position in a file. The zero value means no position.
type Position struct {
	File      string // the path as given to Load
	Line, Col int    // counted from 1, Col in characters; 0 when unknown
}

// String returns the position as file:line:column, without the parts that are unknown.
func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Error is one mistake in the configuration.
type Error struct {
	Position Position // the zero Position when the mistake is not in the file
	Message  string   // without the position
}

// Error returns the position and the message.
func (e *Error) Error() string {
	if e.Position == (Position{}) {
		return e.Message
	}
	return e.Position.String() + ": " + e.Message
}

// Errors holds all mistakes of a configuration, in the order of the file. Load returns Errors if it
// could read the file and found mistakes.
type Errors []*Error

// Error returns the mistakes, one on each line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (es Errors) sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Position.Line, b.Position.Line),
			cmp.Compare(a.Position.Col, b.Position.Col))
	})
}
