// Package format encodes records of the audit log: as the lines of the log, as OCSF events, as rows
// of a table, or as text for people.
//
// # Guarantees
//
// Every record is one line: a valid JSON object, a valid row, or text. No name or reason in the
// record can change that. Unprintable characters (controls, line separators, bidirectional marks)
// are escaped, so that they cannot affect a terminal. The only exception is JSONL in a file. No
// format contains anything that is not in the record.
//
// # Formats
//
// [JSONL] is the line of the log, byte for byte, so that its hash can be verified after an export.
// With bodies = "redacted", a line contains text of clients and servers. In this text, JSON allows
// some unprintable characters without an escape: control characters from U+0080 on, and
// bidirectional marks. For a terminal or stderr, Options.EscapeUnprintable escapes them, too. The
// line is then the same JSON, but not the same bytes.
//
// [OCSF] is the Open Cybersecurity Schema Framework, 1.5.0. A record about a message is an event of
// the class API Activity (6003). Its profile security_control has the action: a denial has
// action_id 2 and is_alert. Its disposition_id is 2, or 27 if the denial is due to a failure. There
// is one event per record. With an additional Detection Finding (2004) for each denial, a SIEM
// would count denied calls twice. With a Detection Finding instead of the API Activity, a denied
// call would be missing in the history of calls. A record without a message (a start, a reload) is
// an event of the class Application Lifecycle (6002). Metadata.uid is the SHA-256 of the line,
// which is prev in the next record. Members without a place in OCSF are in unmapped.
//
// [CSV] has the columns of gatekit-python's CSV, with the same names and in the same order,
// followed by new columns. The column error_classification is always empty, because a record has no
// such member. The column response_status is "error" also for a tool's result with isError: true.
// The column pipeline_outcome has the action as it is named in the log. Rows are quoted as in RFC
// 4180 and end with CR LF. A value that a spreadsheet would take for a formula gets a leading
// apostrophe. A value that is too long for a cell is cut.
//
// [Text] is for people: time, action, direction, server, method and name, reason, deciding stage,
// principal.
//
// # Reading order
//
// format.go; visible.go and short.go; csv.go, ocsf.go and text.go.
package format

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gatekit/audit"
)

// Names of the formats, as in configuration and commands.
const (
	JSONL = "jsonl"
	OCSF  = "ocsf"
	CSV   = "csv"
	Text  = "text"
)

// Names returns the names of all formats.
func Names() []string { return []string{JSONL, OCSF, CSV, Text} }

// Encoder encodes records in one format. It is safe for concurrent use.
type Encoder interface {
	// Header returns the first line of a file, with its line end, or nil if the format has none.
	Header() []byte
	// Append appends the line of a record, with its line end.
	Append(b []byte, r *audit.Record) []byte
}

// Options configure an encoder. Each format uses the options that concern it.
type Options struct {
	Version string // Gatekit's version, for OCSF; may be empty
	Colour  bool   // Text: with escape sequences for colours
	// Replica is the name of the replica in whose log the records are. CSV then has one more column
	// "replica", OCSF has it in unmapped, and Text before the number of the record. JSONL, which is
	// the unchanged line, does not have it. "" if one log is exported.
	Replica string
	// JSONL: escape unprintable characters
	EscapeUnprintable bool

	// MaxBytes bounds a line, with its line end. 0 is no bound; a bound below 4,096 may be
	// exceeded. A record with a longer line is shortened: it loses its bodies, values and findings,
	// and all steps but the deciding step, and its texts are cut. In JSONL, a member "short" then
	// has the size and the SHA-256 of the full line.
	MaxBytes int
}

// New returns the encoder of a format.
func New(name string, o Options) (Encoder, error) {
	var f Encoder
	switch name {
	case JSONL:
		f = jsonlEncoder{escape: o.EscapeUnprintable}
	case OCSF:
		f = ocsfEncoder{version: o.Version, replica: o.Replica}
	case CSV:
		f = csvEncoder{replica: o.Replica}
	case Text:
		f = textEncoder{colour: o.Colour, replica: o.Replica}
	default:
		return nil, fmt.Errorf("unknown format %q\nhint: use one of %s", name,
			strings.Join(Names(), ", "))
	}
	if o.MaxBytes > 0 {
		f = boundedEncoder{f, o.MaxBytes}
	}
	return f, nil
}

// timeLayout is the layout of times in the log: UTC, in microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Writer writes records in one format. It is not safe for concurrent use.
type Writer struct {
	out        io.Writer
	form       Encoder
	line       []byte
	headerDone bool // the header was written, or is not wanted
}

// NewWriter returns a writer of records. It writes the header before the first record, unless
// hasRecords is true because out already has records.
func NewWriter(out io.Writer, form Encoder, hasRecords bool) *Writer {
	return &Writer{out: out, form: form, headerDone: hasRecords}
}

// Write writes a record in one call of the underlying Write. The first record comes with the
// header.
func (w *Writer) Write(r audit.Record) error {
	w.line = w.line[:0]
	if !w.headerDone {
		w.line = append(w.line, w.form.Header()...)
	}
	w.line = w.form.Append(w.line, &r)
	_, err := w.out.Write(w.line)
	w.headerDone = w.headerDone || err == nil
	if cap(w.line) > 1<<20 { // do not keep the buffer of a large body
		w.line = nil
	}
	return err
}

// jsonlEncoder encodes JSONL.
type jsonlEncoder struct{ escape bool }

func (jsonlEncoder) Header() []byte { return nil }

func (f jsonlEncoder) Append(b []byte, r *audit.Record) []byte {
	if f.escape {
		return append(appendVisibleJSON(b, r.Line), '\n')
	}
	return append(append(b, r.Line...), '\n')
}

// decidingStage returns the stage whose step has the record's action, or "" if none does.
func decidingStage(r *audit.Record) string {
	for _, s := range slices.Backward(r.Steps) {
		if s.Action == r.Action && s.Action != "pass" {
			return s.Stage
		}
	}
	return ""
}

// isDenied reports whether the message was not forwarded.
func isDenied(r *audit.Record) bool { return r.Action == "deny" || r.Action == "ask" }

// IsModified reports whether the forwarded message differs from the original. If the record has no
// hashes of the bodies, the sizes and the actions decide.
func IsModified(r *audit.Record) bool {
	if r.Before == nil || r.After == nil {
		return false
	}
	return isModifying(r.Action) || r.Before.Size != r.After.Size ||
		r.Before.SHA256 != r.After.SHA256 ||
		r.Before.HMAC != r.After.HMAC ||
		slices.ContainsFunc(r.Steps, func(s audit.Step) bool {
			return isModifying(s.Action) || len(s.Changed) > 0
		})
}

// isModifying reports whether an action changes the message.
func isModifying(action string) bool { return action == "modify" || action == "hide" }
