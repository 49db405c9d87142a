package mcp

import (
	"bytes"
	"fmt"
	"strings"

	"gatekit/core/display"
)

// ParseError describes why bytes are not a message.
type ParseError struct {
	Code      int // CodeParseError or CodeInvalidRequest
	RequestID ID  // id of an invalid request, which the caller must answer with an error; may be ""
	// id of an invalid answer; nothing is sent back, and the call with that id has failed
	ResponseID ID
	Offset     int64  // byte offset of the fault
	Pointer    string // JSON pointer from the top of the message, "" at the top
	Reason     string // lower case, no full stop
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("not a valid message: %s%s (byte %d)", e.Reason, inPointer(e.Pointer),
		e.Offset)
}

// inPointer returns the place of a fault, for an error. It returns "" for the whole message.
func inPointer(pointer string) string {
	if pointer == "" {
		return ""
	}
	return " in " + pointer
}

// fault is a ParseError without its pointer and ids.
type fault struct {
	code   int
	at     int
	reason string
}

// quoteName returns a name of the message, quoted and clipped, for an error.
func quoteName(name []byte) string { return display.Quote(string(name), 64) }

// pointerTo returns the JSON pointer of the value or name at the given offset. The bytes before
// offset must be the valid beginning of a JSON text.
func pointerTo(b []byte, offset int) string {
	type frame struct {
		array bool
		index int
		name  []byte
	}
	var open []frame
	// named means that the name of the current member of the innermost object has been read
	named := false
	for i := 0; i <= offset && i < len(b); i++ {
		last := len(open) - 1
		switch c := b[i]; {
		case c == '{' || c == '[':
			if i < offset {
				open = append(open, frame{array: c == '['})
				named = false
			}
		case (c == '}' || c == ']') && last >= 0 && i < offset:
			open = open[:last]
			named = true
		case c == ',' && last >= 0 && i < offset:
			open[last].index++
			open[last].name = nil
			named = false
		case c == '"':
			end := skipString(b, i)
			if last >= 0 && !open[last].array && !named {
				open[last].name = bytes.TrimSuffix(b[i+1:end], []byte{'"'})
				named = true
			}
			i = end - 1
		}
	}
	var p strings.Builder
	for _, f := range open {
		if f.array {
			fmt.Fprintf(&p, "/%d", f.index)
		} else if f.name != nil {
			name := f.name
			if s, ok := decodeUnquoted(name); ok {
				name = []byte(s)
			}
			if len(name) > 64 {
				name = append(name[:64:64], "…"...)
			}
			p.WriteByte('/')
			p.WriteString(EscapePointer(strings.ToValidUTF8(string(name), "\uFFFD")))
		}
	}
	return p.String()
}
