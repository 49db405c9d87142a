package format

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatekit/audit"
)

// maxCellBytes is the limit of a cell. Spreadsheets accept up to 32,767 characters.
const maxCellBytes = 32_000

// columns are the names of the columns: first the columns of the CSV that gatekit-python writes,
// then, from seq on, the columns that only Gatekit has.
var columns = []string{
	"timestamp", "event_type", "request_id", "server_name", "method", "tool", "pipeline_outcome",
	"security_evaluated", "modified", "reason", "duration_ms",
	"response_status", "error_code", "error_message", "error_classification",
	"seq", "session", "principal", "direction", "stage", "findings",
	"client",
}

// errorCodeColumn is the index of error_code. Its cells are not passed to escapeFormula, because
// they hold only numbers: a minus sign before a number does not start a formula.
const errorCodeColumn = 12

// Columns returns the names of the columns of [CSV].
func Columns() []string { return slices.Clone(columns) }

// csvEncoder encodes records as rows of a CSV table.
type csvEncoder struct{ replica string }

func (c csvEncoder) Header() []byte {
	if c.replica != "" {
		return appendRow(nil, append(Columns(), "replica"))
	}
	return appendRow(nil, columns)
}

func (c csvEncoder) Append(b []byte, r *audit.Record) []byte {
	var findings []string
	for _, s := range r.Steps {
		for _, f := range s.Findings {
			findings = append(findings, strings.TrimSuffix(f.Type+" "+f.Pointer, " "))
		}
	}
	row := []string{
		r.Time.UTC().Format(timeLayout),
		eventType(r),
		r.Exchange,
		r.Server,
		r.Method,
		r.Name,
		r.Action,
		strconv.FormatBool(len(r.Steps) > 0),
		strconv.FormatBool(IsModified(r)),
		r.Reason,
		formatMillis(r.Micros),
		responseStatus(r),
		errorCode(r),
		r.Error,
		"",
		strconv.FormatUint(r.Seq, 10),
		r.Session,
		r.Principal,
		r.Direction,
		decidingStage(r),
		strings.Join(findings, "; "),
		r.Client,
	}
	if c.replica != "" {
		row = append(row, c.replica)
	}
	return appendRow(b, row)
}

// eventType returns the value of event_type that gatekit-python would write for the message of the
// record, or EVENT if the record is not about a message.
func eventType(r *audit.Record) string {
	kind := strings.ToUpper(r.Kind)
	switch {
	case r.IsEvent():
		return "EVENT"
	case isDenied(r) && r.Kind != "notification":
		return "SECURITY_BLOCK"
	case IsModified(r):
		return kind + "_MODIFIED"
	}
	return kind
}

// responseStatus returns "success" or "error" for a response, and "" for any other record.
func responseStatus(r *audit.Record) string {
	switch {
	case r.Kind == "error", r.Failed, r.Kind == "response" && isDenied(r):
		return "error"
	case r.Kind == "response":
		return "success"
	}
	return ""
}

// errorCode returns the JSON-RPC error code, or "" if there is none.
func errorCode(r *audit.Record) string {
	if r.Code == 0 {
		return ""
	}
	return strconv.FormatInt(r.Code, 10)
}

// formatMillis returns a duration in milliseconds, or "" if the duration was not measured.
func formatMillis(micros int64) string {
	if micros == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(micros)/float64(time.Millisecond/time.Microsecond), 'f', 3,
		64)
}

// appendRow appends a row, with cells that are safe to open in a spreadsheet.
func appendRow(b []byte, cells []string) []byte {
	safe := make([]string, len(cells))
	for i, c := range cells {
		if safe[i] = truncate(Visible(c), maxCellBytes); i != errorCodeColumn {
			safe[i] = escapeFormula(safe[i])
		}
	}
	out := bytes.NewBuffer(b)
	w := csv.NewWriter(out)
	w.UseCRLF = true
	w.Write(safe) // cannot fail: the buffer accepts everything
	w.Flush()
	return out.Bytes()
}

// escapeFormula adds an apostrophe before a cell that a spreadsheet would evaluate as a formula.
// Some spreadsheets skip leading spaces, and some accept full-width signs.
func escapeFormula(cell string) string {
	if rest := strings.TrimLeft(cell, " \u00a0\u3000"); rest != "" &&
		strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(rest)[0]) {
		return "'" + cell
	}
	return cell
}
