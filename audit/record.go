package audit

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Record is a line of the log, read. Its fields are those that doc.go names; what the line leaves
// out is zero.
type Record struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Prev      string    `json:"prev"`
	Session   string    `json:"session"`
	Exchange  string    `json:"exchange"`
	Principal string    `json:"principal"`
	Direction string    `json:"direction"` // to_server, to_client
	// request, response, error, notification; "" of what is no message
	Kind   string `json:"kind"`
	Method string `json:"method"`
	Server string `json:"server"`
	Name   string `json:"name"`
	Action string `json:"action"`
	Reason string `json:"reason"`
	Steps  []Step `json:"steps"`
	Before *Body  `json:"before"`
	After  *Body  `json:"after"` // nil when nothing went on
	// keyed hashes of the texts in a request's arguments, see Values
	Values []string `json:"values"`
	Code   int64    `json:"code"`   // of an error
	Failed bool     `json:"failed"` // the result of a tool says isError
	Micros int64    `json:"micros"`
	Error  string   `json:"error"`
	// of a "prune" the number of the first record that goes, of a "recovered" that of the first
	// that had no checkpoint
	From    uint64 `json:"from"`
	Through uint64 `json:"through"` // and of the last

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
	HMAC   string         `json:"hmac"` // in its place, of a body that did not go on as it came
	Body   jsontext.Value `json:"body"` // with bodies = "redacted" alone
}

// IsEvent says that the record is of no message: a start, a reload, a plugin that was lost.
func (r *Record) IsEvent() bool { return r.Kind == "" }

// ParseRecord reads a line of the log. Members that it does not know are left alone, so that a log
// of a newer Gatekit can be read. Names that are there twice, and what is no record, are errors. It
// keeps line.
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

// ParseSummary reads of a line what a look at many of them needs, at a fraction of the time of
// ParseRecord: all but Prev, Steps, Before, After, Values, From and Through, which are zero.
// Whether the line is JSON to its end is not looked at. A line that was not written as this package
// writes it goes to ParseRecord. It keeps line.
func ParseSummary(line []byte) (Record, error) {
	r := Record{Line: line}
	g := glance{rest: line}
	var seq, at string
	ok := g.skip(`{"seq":`) && g.until(&seq, ',') && g.skip(`"time":"`) && g.until(&at, '"') &&
		g.skip(`,"prev":"`) && g.until(nil, '"')
	for _, m := range []struct {
		name  string
		value *string
	}{
		{`,"session":"`, &r.Session}, {`,"exchange":"`, &r.Exchange}, {`,"principal":"`,
			&r.Principal}, {`,"direction":"`, &r.Direction}, {`,"kind":"`, &r.Kind},
		{`,"method":"`, &r.Method}, {`,"server":"`, &r.Server}, {`,"name":"`, &r.Name},
		{`,"action":"`, &r.Action}, {`,"reason":"`, &r.Reason},
	} {
		if ok && g.skip(m.name) {
			ok = g.text(m.value)
		}
	}
	var err, timeErr error
	r.Seq, err = strconv.ParseUint(seq, 10, 64)
	r.Time, timeErr = time.Parse(time.RFC3339Nano, at)
	if !ok || err != nil || timeErr != nil || r.Seq == 0 || r.Action == "" {
		return ParseRecord(line)
	}
	g.end(&r)
	return r, nil
}

// glance is what is still to be read of a line.
type glance struct{ rest []byte }

// skip skips a text that is next.
func (g *glance) skip(text string) bool {
	if len(g.rest) < len(text) || string(g.rest[:len(text)]) != text {
		return false
	}
	g.rest = g.rest[len(text):]
	return true
}

// until takes what is before the next c, and skips that.
func (g *glance) until(s *string, c byte) bool {
	end := bytes.IndexByte(g.rest, c)
	if end < 0 {
		return false
	}
	if s != nil {
		*s = string(g.rest[:end])
	}
	g.rest = g.rest[end+1:]
	return true
}

// text takes the rest of a string and its quote.
func (g *glance) text(s *string) bool {
	end := bytes.IndexByte(g.rest, '"')
	if end < 0 {
		return false
	}
	if bytes.IndexByte(g.rest[:end], '\\') < 0 {
		return g.until(s, '"')
	}
	for end = 0; end < len(g.rest) && g.rest[end] != '"'; end++ {
		if g.rest[end] == '\\' {
			end++
		}
	}
	if end >= len(g.rest) {
		return false
	}
	text, err := jsontext.AppendUnquote(nil, "\""+string(g.rest[:end+1]))
	*s, g.rest = string(text), g.rest[end+1:]
	return err == nil
}

// end takes the last members. Their names stand in steps and bodies, too, but what follows those is
// not the end of the line.
func (g *glance) end(r *Record) {
	rest := bytes.TrimSuffix(g.rest, []byte("}"))
	const name = `,"error":"`
	if i := bytes.LastIndex(rest, []byte(name)); i >= 0 {
		last := glance{rest: rest[i+len(name):]}
		if fault := ""; last.text(&fault) && len(last.rest) == 0 {
			r.Error, rest = fault, rest[:i]
		}
	}
	r.Micros, rest = lastNumber(rest, `,"micros":`)
	rest, r.Failed = bytes.CutSuffix(rest, []byte(`,"failed":true`))
	r.Code, _ = lastNumber(rest, `,"code":`)
}

// lastNumber takes the number at the end of b, if it has that name.
func lastNumber(b []byte, name string) (n int64, before []byte) {
	i := bytes.LastIndex(b, []byte(name))
	if i < 0 {
		return 0, b
	}
	n, err := strconv.ParseInt(string(b[i+len(name):]), 10, 64)
	if err != nil {
		return 0, b
	}
	return n, b[:i]
}
