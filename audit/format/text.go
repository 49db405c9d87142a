package format

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"gatekit/audit"
)

// textEncoder encodes records as lines for people:
//
//	2026-11-21 11:00:00.123Z #17   deny       to_server  files  tools/call a: no [tools/readonly]
type textEncoder struct {
	colour  bool
	replica string
}

func (textEncoder) Header() []byte { return nil }

func (t textEncoder) Append(b []byte, r *audit.Record) []byte {
	b = r.Time.UTC().AppendFormat(b, "2006-01-02 15:04:05.000Z")
	if t.replica != "" {
		b = fmt.Appendf(b, " #%s:%-4d ", Visible(t.replica), r.Seq)
	} else {
		b = fmt.Appendf(b, " #%-4d ", r.Seq)
	}
	start := len(b)
	b = appendVisible(b, r.Action)
	width := len(b) - start
	if colour := actionColour(r); t.colour && colour != "" {
		word := string(b[start:])
		b = append(append(append(b[:start], colour...), word...), "\x1b[0m"...)
	}
	for ; width < len("recovered"); width++ {
		b = append(b, ' ')
	}
	if !r.IsEvent() {
		b = fmt.Appendf(b, "  %-9s", Visible(r.Direction))
	}
	if r.Server != "" {
		b = append(b, "  "...)
		b = appendVisible(b, r.Server)
	}
	if message := messageText(r); message != "" {
		b = append(b, "  "...)
		b = appendVisible(b, message)
	}
	if reason := cmp.Or(r.Reason, r.Error); reason != "" {
		if r.IsEvent() {
			b = append(b, ' ')
		} else {
			b = append(b, ':')
		}
		b = append(b, ' ')
		b = appendVisible(b, reason)
	}
	if r.Reason != "" && r.Error != "" {
		b = append(b, ": "...)
		b = appendVisible(b, r.Error)
	}
	if stage := decidingStage(r); stage != "" {
		b = append(b, " ["...)
		b = appendVisible(b, stage)
		b = append(b, ']')
	}
	if caller := cmp.Or(r.Principal, r.Session); caller != "" {
		b = append(b, "  "...)
		b = appendVisible(b, caller)
	}
	if r.Micros > 0 {
		b = append(b, "  "...)
		b = append(b, (time.Duration(r.Micros) * time.Microsecond).String()...)
	}
	return append(bytes.TrimRight(b, " "), '\n')
}

// messageText returns the method and the name of the message. For an answer it adds whether it is a
// response or an error, and what the error was.
func messageText(r *audit.Record) string {
	s := r.Method
	if r.Name != "" {
		s += " " + r.Name
	}
	if r.Kind == "response" || r.Kind == "error" {
		s += " → " + r.Kind
	}
	if r.Failed {
		s += " (failed)"
	}
	if r.Code != 0 {
		s += fmt.Sprintf(" (code %d)", r.Code)
	}
	return s
}

// actionColour returns the escape sequence of the action's colour.
func actionColour(r *audit.Record) string {
	switch {
	case r.Action == "deny" || r.Error != "":
		return "\x1b[31m"
	case r.Action == "ask":
		return "\x1b[35m"
	case r.IsEvent():
		return "\x1b[36m"
	case r.Action == "pass":
		return "\x1b[32m"
	}
	return "\x1b[33m"
}
