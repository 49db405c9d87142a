// Package format writes records of the audit log in other forms: as they are, as OCSF events, as
// rows of a table, and as text for people.
//
// # What it promises
//
// Every record is one line, whatever its names and reasons hold: a valid JSON object, a valid row,
// or text. What is no printable character (controls, line separators, marks that turn the direction
// of text) is written as an escape and cannot act on who looks at it, but for JSONL in a file.
// Nothing is in any form that is not in the record.
//
// # The forms
//
// [JSONL] is the line of the log itself, byte for byte, so that the hashes of what was exported can
// be verified. With bodies = "redacted" that is what somebody wrote, of which control characters
// above U+0080 and marks that turn text need no escape in JSON. So where a person looks at it
// (Options.Shown: a terminal, stderr) those are escapes, too: the same JSON, but not the same
// bytes.
//
// [OCSF] is the Open Cybersecurity Schema Framework, 1.5.0. A message is API Activity (6003) with
// the profile security_control, which says what was done with it: a denial is action_id 2,
// disposition_id 2, is_alert. There is one event a record: a Detection Finding (2004) for each
// denial beside it would make a SIEM count every denied call twice, and one in its place would take
// the call out of the history of calls. What is of no message (a start, a reload) is Application
// Lifecycle (6002). Metadata.uid is the SHA-256 of the line, which the record after it has as its
// prev; unmapped has what OCSF has no place for.
//
// [CSV] has the columns that the CSV of gatekit-python had, by the same names and in the same
// order, and after them what that one did not know. One of its columns, error_classification, is
// always empty: a record does not have it. Response_status is error, too, when the result of a tool
// says that it failed. Pipeline_outcome has the action, in the words of the log. Rows are quoted
// after RFC 4180 and end with CR LF. A value that a spreadsheet would take for a formula gets an
// apostrophe before it; one that is too long for a cell is cut.
//
// [Text] is for people: time, action, direction, server, method and name, reason, who decided, for
// whom.
package format

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gatekit/audit"
)

// Names of the forms, as configuration and commands have them.
const (
	JSONL = "jsonl"
	OCSF  = "ocsf"
	CSV   = "csv"
	Text  = "text"
)

// Names answers the names of all forms.
func Names() []string { return []string{JSONL, OCSF, CSV, Text} }

// Encoder is one form. It is safe for many goroutines.
type Encoder interface {
	// Header is the line that a file begins with, with its end; nil where there is none.
	Header() []byte
	// Append appends the line of a record, with its end.
	Append(b []byte, r *audit.Record) []byte
}

// Options are of all forms; a form looks at what concerns it.
type Options struct {
	Version string // of Gatekit, for OCSF; may be empty
	Colour  bool   // for Text: with the escapes of a terminal
	// for JSONL: to be looked at, so that what is not printable is an escape
	EscapeUnprintable bool

	// MaxBytes bounds a line, its end with it; 0 is no bound, and below 4,096 it may be exceeded.
	// The record of a longer one is made short: it is without bodies, values, findings and the
	// steps that decided nothing, and its texts are cut. With JSONL that is no line of the log any
	// more; a member "short" has the bytes and the SHA-256 of the line it stands for.
	MaxBytes int
}

// New answers the form of that name.
func New(name string, o Options) (Encoder, error) {
	var f Encoder
	switch name {
	case JSONL:
		f = native{shown: o.EscapeUnprintable}
	case OCSF:
		f = ocsf{version: o.Version}
	case CSV:
		f = table{}
	case Text:
		f = text{colour: o.Colour}
	default:
		return nil, fmt.Errorf("there is no form %q of records\nhint: there are %s", name,
			strings.Join(Names(), ", "))
	}
	if o.MaxBytes > 0 {
		f = bounded{f, o.MaxBytes}
	}
	return f, nil
}

// timeLayout is that of the log: UTC, to the microsecond.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Writer writes records in a form. It is not safe for many goroutines.
type Writer struct {
	out  io.Writer
	form Encoder
	line []byte
	head bool // was written, or is not wanted
}

// NewWriter answers a writer of that form. The header comes before the first record; a writer that
// continues a file with records in it has none.
func NewWriter(out io.Writer, form Encoder, continues bool) *Writer {
	return &Writer{out: out, form: form, head: continues}
}

// Write writes a record in one call of the writer's Write, after the header if that is due.
func (w *Writer) Write(r audit.Record) error {
	w.line = w.line[:0]
	if !w.head {
		w.line = append(w.line, w.form.Header()...)
	}
	w.line = w.form.Append(w.line, &r)
	_, err := w.out.Write(w.line)
	w.head = w.head || err == nil
	if cap(w.line) > 1<<20 { // one with a large body need not be kept
		w.line = nil
	}
	return err
}

// native is JSONL.
type native struct{ shown bool }

func (native) Header() []byte { return nil }

func (f native) Append(b []byte, r *audit.Record) []byte {
	if f.shown {
		return append(appendPlainJSON(b, r.Line), '\n')
	}
	return append(append(b, r.Line...), '\n')
}

// decided is the stage whose step made the action of the record; "" of what no stage did.
func decided(r *audit.Record) string {
	for _, s := range slices.Backward(r.Steps) {
		if s.Action == r.Action && s.Action != "pass" {
			return s.Stage
		}
	}
	return ""
}

// refused says whether the message did not move.
func refused(r *audit.Record) bool { return r.Action == "deny" || r.Action == "ask" }

// IsModified says whether what went on was not what came. Where the log keeps no hashes of bodies,
// what was done with the message says so.
func IsModified(r *audit.Record) bool {
	if r.Before == nil || r.After == nil {
		return false
	}
	return edits(r.Action) || r.Before.Size != r.After.Size || r.Before.SHA256 != r.After.SHA256 ||
		r.Before.HMAC != r.After.HMAC ||
		slices.ContainsFunc(r.Steps, func(s audit.Step) bool {
			return edits(s.Action) || len(s.Changed) > 0
		})
}

// edits says whether an action is a change of the message.
func edits(action string) bool { return action == "modify" || action == "hide" }
