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

// maxCell bounds a cell, in bytes: a spreadsheet takes 32,767 characters.
const maxCell = 32_000

// columns are those of gatekit-python, then ours.
var columns = []string{
	"timestamp", "event_type", "request_id", "server_name", "method", "tool", "pipeline_outcome",
	"security_evaluated", "modified", "reason", "duration_ms",
	"response_status", "error_code", "error_message", "error_classification",
	"seq", "session", "principal", "direction", "stage", "findings",
}

// codeColumn is that of error_code, a number of ours: its minus begins no formula.
const codeColumn = 12

// Columns answers the names of the columns of [CSV].
func Columns() []string { return slices.Clone(columns) }

// table is CSV.
type table struct{}

func (table) Header() []byte { return appendRow(nil, columns) }

func (table) Append(b []byte, r *audit.Record) []byte {
	var findings []string
	for _, s := range r.Steps {
		for _, f := range s.Findings {
			findings = append(findings, strings.TrimSuffix(f.Type+" "+f.Pointer, " "))
		}
	}
	return appendRow(b, []string{
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
		duration(r.Micros),
		responseStatus(r),
		errorCode(r),
		r.Error,
		"",
		strconv.FormatUint(r.Seq, 10),
		r.Session,
		r.Principal,
		r.Direction,
		decided(r),
		strings.Join(findings, "; "),
	})
}

// eventType is in the words of gatekit-python; EVENT is of what is no message.
func eventType(r *audit.Record) string {
	kind := strings.ToUpper(r.Kind)
	switch {
	case r.IsEvent():
		return "EVENT"
	case refused(r) && r.Kind != "notification":
		return "SECURITY_BLOCK"
	case IsModified(r):
		return kind + "_MODIFIED"
	}
	return kind
}

func responseStatus(r *audit.Record) string {
	switch {
	case r.Kind == "error", r.Failed, r.Kind == "response" && refused(r):
		return "error"
	case r.Kind == "response":
		return "success"
	}
	return ""
}

// errorCode is "" of what is no error.
func errorCode(r *audit.Record) string {
	if r.Code == 0 {
		return ""
	}
	return strconv.FormatInt(r.Code, 10)
}

// duration is in milliseconds; "" when it was not measured.
func duration(micros int64) string {
	if micros == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(micros)/float64(time.Millisecond/time.Microsecond), 'f', 3,
		64)
}

func appendRow(b []byte, cells []string) []byte {
	safe := make([]string, len(cells))
	for i, c := range cells {
		if safe[i] = beginning(Visible(c), maxCell); i != codeColumn {
			safe[i] = guarded(safe[i])
		}
	}
	out := bytes.NewBuffer(b)
	w := csv.NewWriter(out)
	w.UseCRLF = true
	w.Write(safe) // neither a buffer nor a comma can fail
	w.Flush()
	return out.Bytes()
}

// guarded is a value that no spreadsheet takes for a formula. Some look behind blanks, and some
// take the wide forms of the signs for the signs.
func guarded(cell string) string {
	if rest := strings.TrimLeft(cell, " \u00a0\u3000"); rest != "" &&
		strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(rest)[0]) {
		return "'" + cell
	}
	return cell
}
