package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const (
	maxString   = 1 << 10 // bytes of a name, reason or error; the rest is left out
	maxFindings = 100     // findings per step
	maxHidden   = 100     // names of hidden items per step
	maxStepIDs  = 200     // ids per step; the pipeline makes fewer

	timeFormat = "2006-01-02T15:04:05.000000Z" // always UTC
)

// entry is an encoded record without the members that place it in the chain: seq and prev.
type entry struct {
	time []byte // ,"time":"…"
	rest []byte // everything from the comma after prev to the closing brace
}

var entryPool = sync.Pool{New: func() any { return new(entry) }}

// release returns e to the pool, unless its buffer is large.
func (e *entry) release() {
	if cap(e.rest) <= 64<<10 {
		entryPool.Put(e)
	}
}

// encode encodes an outcome. It does all expensive work (escaping, hashing), so Record calls it
// before it takes a lock.
func (l *Log) encode(o pipeline.Outcome) *entry {
	e := entryPool.Get().(*entry)
	e.time = append(e.time[:0], `,"time":"`...)
	e.time = o.Time.UTC().AppendFormat(e.time, timeFormat)
	e.time = append(e.time, '"')

	b := e.rest[:0]
	// If the name is a URI, its user name, password and query are left out of the member "name". A
	// text that quotes the name must not reveal them either.
	quote := func(text string) string { return text }
	if m := o.Before; m != nil {
		name := nameWithoutSecrets(m.Name, l.valueHasher)
		if name != m.Name {
			quote = func(text string) string { return withoutSecrets(text, m.Name, name) }
		}
		b = appendMember(b, "session", m.Session)
		b = appendMember(b, "exchange", m.Exchange)
		b = appendMember(b, "principal", m.Principal.ID())
		b = appendMember(b, "client", m.Principal.Client())
		if m.Direction == mcp.ToServer {
			// Answers and notifications of servers have the exchange of a record that has these.
			b = appendMember(b, "authentication", string(m.Principal.Method()))
			b = appendMember(b, "scope", strings.Join(m.Principal.Scopes(), " "))
			b = appendMember(b, "via", m.Via)
		}
		if m.Direction != 0 {
			b = appendMember(b, "direction", m.Direction.String())
		}
		if m.Kind != 0 {
			b = appendMember(b, "kind", m.Kind.String())
		}
		b = appendMember(b, "method", m.Method)
		b = appendMember(b, "server", m.Server)
		b = appendMember(b, "name", name)
	}
	b = append(b, `,"action":`...)
	b = appendString(b, o.Action)
	b = appendMember(b, "reason", quote(o.Reason))
	b = l.appendSteps(b, o.Steps, quote)
	b = l.appendBodies(b, o)
	if l.bodies != BodiesNone {
		b = l.valueHasher.appendValues(b, cmp.Or(o.After, o.Before), o.Withheld)
	}
	b = appendStatus(b, cmp.Or(o.After, o.Before))
	b = appendMicros(b, o.Duration)
	if o.Err != nil {
		b = appendMember(b, "error", quote(o.Err.Error()))
	}
	e.rest = append(b, '}')
	return e
}

func (l *Log) appendSteps(b []byte, steps []pipeline.Step, quote func(string) string) []byte {
	if len(steps) == 0 {
		return b
	}
	b = append(b, `,"steps":[`...)
	for i, s := range steps {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"stage":`...)
		b = appendString(b, s.Stage)
		b = appendMember(b, "action", s.Action)
		b = appendMember(b, "reason", quote(s.Reason))
		b = appendMicros(b, s.Duration)
		b = appendFindings(b, s.Findings, quote)
		b = appendStrings(b, "changed", s.Changed)
		b = l.appendHidden(b, s.Hidden)
		b = appendStrings(b, "ids", s.IDs[:min(len(s.IDs), maxStepIDs)])
		b = appendStrings(b, "hidden_ids", s.HiddenIDs[:min(len(s.HiddenIDs), maxHidden)])
		b = appendStrings(b, "allowed", s.Allowed[:min(len(s.Allowed), maxStepIDs)])
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendFindings(b []byte, findings []pipeline.Finding,
	quote func(string) string) []byte {
	if len(findings) == 0 {
		return b
	}
	b = append(b, `,"findings":[`...)
	for i, f := range findings {
		if i > 0 {
			b = append(b, ',')
		}
		if i == maxFindings {
			b = append(b, `{"type":`...)
			b = appendString(b, "… and "+strconv.Itoa(len(findings)-i)+" more")
			b = append(b, '}')
			break
		}
		b = append(b, `{"type":`...)
		b = appendString(b, quote(f.Type)) // for a policy's note, Type is the note's text
		b = appendMember(b, "pointer", f.Pointer)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendHidden appends the names of the items that a stage removed from a list.
func (l *Log) appendHidden(b []byte, names []string) []byte {
	if len(names) == 0 {
		return b
	}
	shown := make([]string, 0, min(len(names), maxHidden)+1)
	for i, name := range names {
		switch {
		case i == maxHidden:
			return appendStrings(b, "hidden",
				append(shown, "… and "+strconv.Itoa(len(names)-i)+" more"))
		case name == "":
			name = "…" // a stage has found something in the name
		}
		shown = append(shown, nameWithoutSecrets(name, l.valueHasher))
	}
	return appendStrings(b, "hidden", shown)
}

// appendStrings appends ,"name":["value",…], or nothing if there are no values.
func appendStrings(b []byte, name string, values []string) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, `":[`...)
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, v)
	}
	return append(b, ']')
}

// appendStatus appends the member code if m is a JSON-RPC error. It appends the member failed if m
// is the result of a tool with isError: true.
func appendStatus(b []byte, m *mcp.Message) []byte {
	switch {
	case m == nil:
	case m.Kind == mcp.Error:
		b = append(b, `,"code":`...)
		b = strconv.AppendInt(b, int64(m.ErrorCode()), 10)
	case m.Kind == mcp.Response && m.Method == "tools/call":
		if failed, _ := m.Get("/isError"); string(failed) == "true" {
			b = append(b, `,"failed":true`...)
		}
	}
	return b
}

// appendBodies appends the members before and after. It hashes each distinct body once. A body that
// was denied or changed gets a keyed hash. From a plain hash, a reader of the log could find a
// removed secret by trying candidates.
func (l *Log) appendBodies(b []byte, o pipeline.Outcome) []byte {
	var before, after []byte
	if o.Before != nil {
		before = o.Before.Body()
	}
	if o.After != nil {
		after = o.After.Body()
	}
	omit := o.OmitBody || len(o.Withheld) > 0 // the body contains the withheld text
	unchanged := after != nil && !omit && (o.After == o.Before || bytes.Equal(before,
		after))
	var digest [sha256.Size]byte // of the body after the stages
	if after != nil && l.bodies != BodiesNone && !omit {
		digest = o.After.Digest()
	}
	if before != nil {
		b = appendSize(b, "before", before)
		switch {
		case l.bodies == BodiesNone:
		case unchanged:
			b = appendHash(b, "sha256", digest[:])
		default:
			sum := l.valueHasher.mac(before)
			b = appendHash(b, "hmac", sum[:])
		}
		b = append(b, '}')
	}
	if after != nil {
		b = appendSize(b, "after", after)
		switch {
		case l.bodies == BodiesNone:
		case omit:
			sum := l.valueHasher.mac(after)
			b = appendHash(b, "hmac", sum[:])
		default:
			b = appendHash(b, "sha256", digest[:])
		}
		if l.bodies == BodiesRedacted && !omit {
			b = append(b, `,"body":`...)
			b = appendOneLine(b, after)
		}
		b = append(b, '}')
	}
	return b
}

// appendSize appends the beginning of a body object with its size. The caller appends the rest and
// the closing brace.
func appendSize(b []byte, name string, body []byte) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, `":{"size":`...)
	return strconv.AppendInt(b, int64(len(body)), 10)
}

func appendHash(b []byte, name string, sum []byte) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, `":"`...)
	b = hex.AppendEncode(b, sum)
	return append(b, '"')
}

// appendOneLine appends JSON with its line breaks replaced by spaces. In valid JSON, line breaks
// are only between tokens.
func appendOneLine(b, body []byte) []byte {
	start := len(b)
	b = append(b, body...)
	for i := start; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return b
}

func appendMicros(b []byte, duration time.Duration) []byte {
	if duration < time.Microsecond {
		return b
	}
	b = append(b, `,"micros":`...)
	return strconv.AppendInt(b, duration.Microseconds(), 10)
}

// appendMember appends ,"name":"value", or nothing if the value is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendString(b, value)
}

// appendString appends s as a JSON string that is safe to display. Unprintable characters
// (controls, line separators, bidirectional marks) are escaped, and invalid UTF-8 is replaced. If s
// is longer than maxString, appendString appends only the beginning of s, and the length of s.
func appendString(b []byte, s string) []byte {
	length := len(s)
	if length > maxString {
		end := maxString
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	b = append(b, '"')
	unwritten := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if needsNoEscape[c] {
				i++
				continue
			}
			b = append(b, s[unwritten:i]...)
			b = appendEscaped(b, rune(c))
			i++
			unwritten = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !strconv.IsPrint(r) {
			b = append(b, s[unwritten:i]...)
			b = appendEscaped(b, r)
			unwritten = i + size
		}
		i += size
	}
	b = append(b, s[unwritten:]...)
	if len(s) < length {
		b = append(b, "… ("...)
		b = strconv.AppendInt(b, int64(length), 10)
		b = append(b, " bytes)"...)
	}
	return append(b, '"')
}

// needsNoEscape marks the ASCII characters that need no escape in a JSON string.
var needsNoEscape = func() (t [utf8.RuneSelf]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendEscaped appends a character as an escape sequence, or the replacement character as it is.
func appendEscaped(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r == utf8.RuneError:
		return append(b, "\ufffd"...)
	case r > 0xffff:
		r -= 0x10000
		return appendEscaped(appendEscaped(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
