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
	RequestID ID  // the id for the error that answers an invalid request; "" if it is not known
	// the id of an invalid answer, which must not be answered; the call with that id has failed
	ResponseID ID
	Offset     int64  // byte offset of the fault
	Pointer    string // JSON pointer from the top of the message, "" at the top
	Reason     string // lower case, no full stop
}

func (e *ParseError) Error() string {
	where := ""
	if e.Pointer != "" {
		where = " in " + e.Pointer
	}
	return fmt.Sprintf("not a valid message: %s%s (byte %d)", e.Reason, where, e.Offset)
}

// fault is a ParseError without its pointer and ids.
type fault struct {
	code   int
	at     int
	reason string
}

// quoteName returns a name of the message, quoted and clipped, for an error.
func quoteName(name []byte) string { return display.Quote(string(name), 64) }

// pointerTo returns the JSON pointer of the value or name at the offset. The bytes before the
// offset are a valid beginning of JSON.
func pointerTo(b []byte, at int) string {
	type frame struct {
		array bool
		index int
		name  []byte
	}
	var open []frame
	named := false // a member's name has been read in the innermost object, and its value follows
	for i := 0; i <= at && i < len(b); i++ {
		last := len(open) - 1
		switch c := b[i]; {
		case c == '{' || c == '[':
			if i < at {
				open = append(open, frame{array: c == '['})
				named = false
			}
		case (c == '}' || c == ']') && last >= 0 && i < at:
			open = open[:last]
			named = true
		case c == ',' && last >= 0 && i < at:
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
