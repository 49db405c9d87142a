package audit

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Record is one parsed line of the log. doc.go describes the members of a line. If the line
// does not have a member, the field of this member is zero.
type Record struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Prev      string    `json:"prev"`
	Session   string    `json:"session"`
	Exchange  string    `json:"exchange"`
	Principal string    `json:"principal"` // its ID; issuer#subject, if a token proved it
	Client    string    `json:"client"`    // OAuth client id of the principal's client
	// how the principal was authenticated, and the scopes of its token, separated by spaces; only
	// in records of messages to servers
	Authentication string `json:"authentication"`
	Scope          string `json:"scope"`
	Via            string `json:"via"`       // the replica that forwarded the client's message
	Direction      string `json:"direction"` // "to_server" or "to_client"
	// "request", "response", "error" or "notification"; "" if the record is about an event
	Kind   string `json:"kind"`
	Method string `json:"method"`
	Server string `json:"server"`
	Name   string `json:"name"`
	Action string `json:"action"`
	Reason string `json:"reason"`
	Steps  []Step `json:"steps"`
	Before *Body  `json:"before"`
	After  *Body  `json:"after"` // nil when the message was not forwarded
	// keyed hashes of the strings in a request's arguments, see ValueHasher
	Values []string `json:"values"`
	Code   int64    `json:"code"`   // JSON-RPC error code
	Failed bool     `json:"failed"` // a tool's result has isError: true
	Micros int64    `json:"micros"`
	Error  string   `json:"error"`
	// the first and the last seq of a range: the records that were removed (action "prune"), or the
	// records that had no checkpoint (action "recovered")
	From    uint64 `json:"from"`
	Through uint64 `json:"through"`
	// the logs of replicas, only with the action "roster"
	Roster []RosterEntry `json:"roster"`

	Line []byte `json:"-"` // the line in the log, without its line feed
}

// Step is the action of one stage, with its reason and findings.
type Step struct {
	Stage    string    `json:"stage"`
	Action   string    `json:"action"`
	Reason   string    `json:"reason"`
	Micros   int64     `json:"micros"`
	Findings []Finding `json:"findings"`
	// JSON pointers to the places of the body that the stage changed
	Changed []string `json:"changed"`
	// The items that the stage removed from a list, by the server's names, at most 100. "…" stands
	// for a name in which the stage found something.
	Hidden []string `json:"hidden"`
	// The ids of the denial or of the edits of the stage, with which gatekit allow allows them.
	IDs []string `json:"ids"`
	// The ids of the items in Hidden, in the same order; "" for an item without an id.
	HiddenIDs []string `json:"hidden_ids"`
	// The ids of what the stage did without effect, because an operator has allowed it.
	Allowed []string `json:"allowed"`
}

// Finding is the type and the place of something that a stage found. A finding never contains the
// content itself.
type Finding struct {
	Type    string `json:"type"`
	Pointer string `json:"pointer"`
}

// Body describes the body of a message.
type Body struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// keyed hash; replaces sha256 when the body was denied or changed
	HMAC string         `json:"hmac"`
	Body jsontext.Value `json:"body"` // the body itself, only with bodies = "redacted"
}

// IsEvent reports whether the record is about an event (a start, a reload, a lost plugin) and not
// about a message.
func (r *Record) IsEvent() bool { return r.Kind == "" }

// ParseRecord parses a line of the log. The Record refers to the line, which must not change.
// Unknown members are ignored, so that the log of a newer Gatekit can be read. A line with a
// duplicate member, or without seq, time or action, is an error.
func ParseRecord(line []byte) (Record, error) {
	r := Record{Line: line}
	if !utf8.Valid(line) {
		return Record{}, errors.New("not an audit record: not UTF-8")
	}
	// a body may have lone surrogates, as core/mcp explains
	if err := json.Unmarshal(line, &r, jsontext.AllowInvalidUTF8(true)); err != nil {
		return Record{}, fmt.Errorf("not an audit record: %w", err)
	}
	if r.Seq == 0 || r.Action == "" || r.Time.IsZero() {
		return Record{}, errors.New("not an audit record: seq, time or action is missing")
	}
	return r, nil
}

// ParseSummary is a faster ParseRecord, for callers that scan many lines. It leaves Prev, Steps,
// Before, After, Values, From, Through and Roster zero, and does not check that the rest of the
// line is valid JSON. If the line does not have the form that this package writes, ParseSummary
// calls ParseRecord. The Record refers to the line, which must not change.
func ParseSummary(line []byte) (Record, error) {
	r := Record{Line: line}
	p := summaryParser{rest: line}
	var seq, timestamp string
	ok := p.consume(`{"seq":`) && p.readUntil(&seq, ',') &&
		p.consume(`"time":"`) && p.readUntil(&timestamp, '"') &&
		p.consume(`,"prev":"`) && p.readUntil(nil, '"')
	for _, m := range []struct {
		name  string
		value *string
	}{
		{`,"session":"`, &r.Session}, {`,"exchange":"`, &r.Exchange},
		{`,"principal":"`, &r.Principal}, {`,"client":"`, &r.Client},
		{`,"authentication":"`, &r.Authentication}, {`,"scope":"`, &r.Scope},
		{`,"via":"`, &r.Via},
		{`,"direction":"`, &r.Direction},
		{`,"kind":"`, &r.Kind}, {`,"method":"`, &r.Method}, {`,"server":"`, &r.Server},
		{`,"name":"`, &r.Name}, {`,"action":"`, &r.Action}, {`,"reason":"`, &r.Reason},
	} {
		if ok && p.consume(m.name) {
			ok = p.readString(m.value)
		}
	}
	var err, timeErr error
	r.Seq, err = strconv.ParseUint(seq, 10, 64)
	r.Time, timeErr = time.Parse(time.RFC3339Nano, timestamp)
	if !ok || err != nil || timeErr != nil || r.Seq == 0 || r.Action == "" {
		return ParseRecord(line)
	}
	p.parseTail(&r)
	return r, nil
}

// summaryParser holds the part of a line that is not parsed yet.
type summaryParser struct{ rest []byte }

// consume removes text from the beginning of rest, and reports whether text was there.
func (p *summaryParser) consume(text string) bool {
	if len(p.rest) < len(text) || string(p.rest[:len(text)]) != text {
		return false
	}
	p.rest = p.rest[len(text):]
	return true
}

// readUntil removes the text up to and including the next byte c from rest. It stores the text
// before that byte in s, unless s is nil. It reports whether rest contained the byte.
func (p *summaryParser) readUntil(s *string, c byte) bool {
	end := bytes.IndexByte(p.rest, c)
	if end < 0 {
		return false
	}
	if s != nil {
		*s = string(p.rest[:end])
	}
	p.rest = p.rest[end+1:]
	return true
}

// readString removes the rest of a JSON string, with its closing quote, from rest. It stores the
// decoded string in s, and reports whether the string was valid.
func (p *summaryParser) readString(s *string) bool {
	end := bytes.IndexByte(p.rest, '"')
	if end < 0 {
		return false
	}
	if bytes.IndexByte(p.rest[:end], '\\') < 0 {
		return p.readUntil(s, '"')
	}
	for end = 0; end < len(p.rest) && p.rest[end] != '"'; end++ {
		if p.rest[end] == '\\' {
			end++
		}
	}
	if end >= len(p.rest) {
		return false
	}
	text, err := jsontext.AppendUnquote(nil, "\""+string(p.rest[:end+1]))
	*s, p.rest = string(text), p.rest[end+1:]
	return err == nil
}

// parseTail parses error, micros, failed and code, backwards from the end of the line. Steps and
// bodies may have members of these names, too, but never directly before the closing brace.
func (p *summaryParser) parseTail(r *Record) {
	rest := bytes.TrimSuffix(p.rest, []byte("}"))
	const name = `,"error":"`
	if i := bytes.LastIndex(rest, []byte(name)); i >= 0 {
		last := summaryParser{rest: rest[i+len(name):]}
		if text := ""; last.readString(&text) && len(last.rest) == 0 {
			r.Error, rest = text, rest[:i]
		}
	}
	r.Micros, rest = cutLastNumber(rest, `,"micros":`)
	rest, r.Failed = bytes.CutSuffix(rest, []byte(`,"failed":true`))
	r.Code, _ = cutLastNumber(rest, `,"code":`)
}

// cutLastNumber returns the value of the member called name, if b ends with that member and the
// value is a number. before is b without the member.
func cutLastNumber(b []byte, name string) (n int64, before []byte) {
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
