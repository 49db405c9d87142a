package audit

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Record is a line of the log, read. Its fields are those that doc.go names; what the line leaves out is zero.
type Record struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Prev      string    `json:"prev"`
	Session   string    `json:"session"`
	Exchange  string    `json:"exchange"`
	Principal string    `json:"principal"`
	Direction string    `json:"direction"` // to_server, to_client
	Kind      string    `json:"kind"`      // request, response, error, notification; "" of what is no message
	Method    string    `json:"method"`
	Server    string    `json:"server"`
	Name      string    `json:"name"`
	Action    string    `json:"action"`
	Reason    string    `json:"reason"`
	Steps     []Step    `json:"steps"`
	Before    *Body     `json:"before"`
	After     *Body     `json:"after"` // nil when nothing went on
	Micros    int64     `json:"micros"`
	Error     string    `json:"error"`
	Through   uint64    `json:"through"` // of a "prune": the number of the last record that goes

	Line []byte `json:"-"` // as it is in the log, without its line feed
}

// Step is what one stage did.
type Step struct {
	Stage    string    `json:"stage"`
	Action   string    `json:"action"`
	Reason   string    `json:"reason"`
	Micros   int64     `json:"micros"`
	Findings []Finding `json:"findings"`
	Changed  []string  `json:"changed"` // JSON pointers to where it changed the body
}

// Finding is what a stage found, and where: never the content itself.
type Finding struct {
	Type    string `json:"type"`
	Pointer string `json:"pointer"`
}

// Body is what is kept of a message's body.
type Body struct {
	Size   int64          `json:"size"`
	SHA256 string         `json:"sha256"`
	Body   jsontext.Value `json:"body"` // with bodies = "redacted" alone
}

// Event says that the record is of no message: a start, a reload, a plugin that was lost.
func (r *Record) Event() bool { return r.Kind == "" }

// ParseRecord reads a line of the log. Members that it does not know are left alone, so that a log of a newer Gatekit can be read. Names that are there twice, and what is no
// record, are errors. It keeps line.
func ParseRecord(line []byte) (Record, error) {
	r := Record{Line: line}
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, fmt.Errorf("it is no record: %w", err)
	}
	if r.Seq == 0 || r.Action == "" || r.Time.IsZero() {
		return Record{}, errors.New("it is no record: seq, time or action is missing")
	}
	return r, nil
}
