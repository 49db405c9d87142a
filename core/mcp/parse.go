package mcp

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"sync"
)

// Limits bound what Parse accepts. The zero value is the default of each.
type Limits struct {
	Bytes  int // whole message; default 16 MiB
	Depth  int // nesting of arrays and objects; default 200
	Tokens int // JSON values and names in one message; default 1,000,000
	Batch  int // messages in a batch; default 100
}

func (l Limits) orDefault() Limits {
	set := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	set(&l.Bytes, 16<<20)
	set(&l.Depth, 200)
	set(&l.Tokens, 1_000_000)
	set(&l.Batch, 100)
	l.Bytes = min(l.Bytes, math.MaxInt32)
	return l
}

// Parse reads exactly one JSON-RPC 2.0 message, strictly, with the default limits. It keeps b: the
// caller must not change it afterwards. The error is a *ParseError.
func Parse(b []byte) (*Message, error) { return Limits{}.Parse(b) }

// Parse is the only parser of protocol bytes in the project.
func (l Limits) Parse(b []byte) (*Message, error) {
	s := scanners.Get().(*scanner)
	defer s.free()
	s.b, s.limits = b, l.orDefault()
	f := s.whole()
	if f == nil {
		f = s.first
	}
	if f == nil {
		f = s.invalid()
	}
	if f != nil {
		return nil, s.refuse(f)
	}
	return s.message(), nil
}

// scanners are those not in use, for their buffers.
var scanners = sync.Pool{New: func() any { return new(scanner) }}

// free puts s back without anything that it has read. Buffers that one large message needed are not
// kept.
func (s *scanner) free() {
	const keep = 64
	if cap(s.names) > keep {
		s.names = nil
	}
	clear(s.names[:cap(s.names)])
	*s = scanner{names: s.names[:0], index: index{s.top[:0], s.meta[:0]}}
	scanners.Put(s)
}

// whole reads all of b: one object and blanks.
func (s *scanner) whole() *fault {
	if len(s.b) > s.limits.Bytes {
		return &fault{CodeParseError, s.limits.Bytes,
			"longer than " + strconv.Itoa(s.limits.Bytes) + " bytes"}
	}
	if bytes.HasPrefix(s.b, []byte("\uFEFF")) {
		return s.syntax(0, "a byte order mark")
	}
	s.blank()
	start := s.i
	if f := s.value(top); f != nil {
		return f
	}
	if s.blank(); s.i < len(s.b) {
		return s.syntax(s.i, "more after the message")
	}
	if s.b[start] != '{' {
		return &fault{CodeInvalidRequest, start, "not an object"}
	}
	return nil
}

// saw says whether a member's name was read, its value perhaps not.
func (s *scanner) saw(at int) bool { return !s.envelope[at].name.empty() }

// has says whether the envelope has the member, and its raw value.
func (s *scanner) has(at int) ([]byte, bool) {
	m := s.envelope[at]
	return m.value.of(s.b), !m.value.empty()
}

// invalid says what makes an object no JSON-RPC message.
func (s *scanner) invalid() *fault {
	wrong := func(at int, reason string) *fault {
		return &fault{CodeInvalidRequest, max(int(s.envelope[at].name.from)-1, 0), reason}
	}
	if version, _ := s.has(atJSONRPC); !same(version, "2.0") {
		return wrong(atJSONRPC, `jsonrpc is not "2.0"`)
	}
	id, hasID := s.has(atID)
	method, hasMethod := s.has(atMethod)
	args, hasParams := s.has(atParams)
	_, hasResult := s.has(atResult)
	failure, hasError := s.has(atError)
	switch {
	case hasMethod && (hasResult || hasError):
		return wrong(atMethod, "both a request and an answer")
	case hasResult && hasError:
		return wrong(atError, "both a result and an error")
	case hasMethod:
		if name, ok := text(method); !ok || name == "" {
			return wrong(atMethod, "method is not a name")
		}
		if hasID && !isID(id) {
			return wrong(atID, "id is neither a string nor an integer")
		}
		if hasParams && args[0] != '{' && args[0] != 'n' {
			return wrong(atParams, "params is not an object")
		}
	case hasResult || hasError:
		if hasParams {
			return wrong(atParams, "params in an answer")
		}
		if !isID(id) && !(hasError && (!hasID || string(id) == "null")) {
			return wrong(atID, "id is neither a string nor an integer")
		}
		if hasError && failure[0] != '{' {
			return wrong(atError, "error is not an object")
		}
	default:
		return wrong(atMethod, "neither a method nor a result nor an error")
	}
	return nil
}

// isID says whether the raw value may be an id: a string or an integer of any size.
func isID(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	return raw[0] == '"' || (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9') &&
		!bytes.ContainsAny(raw, ".eE")
}

// message is what invalid found no fault in.
func (s *scanner) message() *Message {
	m := &Message{raw: s.b}
	id, hasID := s.has(atID)
	m.idAt = s.envelope[atID].value
	if hasID && string(id) != "null" {
		m.id = ID(id)
	}
	if !hasID {
		after := int32(bytes.IndexByte(s.b, '{') + 1)
		m.idAt = span{after, after}
	}
	if method, ok := s.has(atMethod); ok {
		m.Kind = Notification
		if hasID {
			m.Kind = Request
		}
		m.Method, _ = known(method)
		m.body = s.envelope[atParams].value
	} else if _, ok := s.has(atResult); ok {
		m.Kind = Response
		m.body = s.envelope[atResult].value
	} else {
		m.Kind = Error
		m.body = s.envelope[atError].value
	}
	both := slices.Concat(s.top, s.meta)
	m.top, m.meta = both[:len(s.top):len(s.top)], both[len(s.top):]
	return m
}

// refuse makes the error of a fault. It says whose id was read only when the rest shows which kind
// of id it is.
func (s *scanner) refuse(f *fault) *ParseError {
	e := &ParseError{Code: f.code, Offset: int64(f.at), Pointer: locate(s.b, f.at),
		Reason: f.reason}
	id, ok := s.has(atID)
	if !ok || !isID(id) || s.ids > 1 {
		return e
	}
	switch {
	case s.saw(atResult) || s.saw(atError):
		if !s.saw(atMethod) {
			e.ResponseID = ID(id)
		}
	case s.saw(atMethod) || s.saw(atParams) || f.code == CodeInvalidRequest:
		e.RequestID = ID(id)
	}
	return e
}

// IsBatch says whether b's first byte, blanks apart, opens an array.
func IsBatch(b []byte) bool {
	i := blank(b, 0)
	return i < len(b) && b[i] == '['
}

// ParseBatch reads a JSON array of messages (2025-03-26 only). Each element that is no message is a
// *ParseError in errs at its index (msgs[i] is then nil); err is for the array itself: not an
// array, empty, too long, not JSON, an id used twice.
func (l Limits) ParseBatch(b []byte) (msgs []*Message, errs []error, err error) {
	s := scanner{b: b, limits: l.orDefault()}
	spans, f := s.batch()
	if f != nil {
		return nil, nil, s.refuse(f)
	}
	ids := make(map[ID]bool)
	for i, at := range spans {
		m, err := l.Parse(at.of(b))
		if e, ok := err.(*ParseError); ok {
			e.Offset += int64(at.from)
			e.Pointer = "/" + strconv.Itoa(i) + e.Pointer
		}
		if m != nil && m.Kind == Request {
			if ids[m.id] {
				return nil, nil, s.refuse(&fault{CodeInvalidRequest, int(at.from),
					"id used twice in a batch"})
			}
			ids[m.id] = true
		}
		msgs, errs = append(msgs, m), append(errs, err)
	}
	return msgs, errs, nil
}

// batch reads an array and answers where its elements are.
func (s *scanner) batch() (elements []span, f *fault) {
	if len(s.b) > s.limits.Bytes {
		return nil, &fault{CodeParseError, s.limits.Bytes,
			"longer than " + strconv.Itoa(s.limits.Bytes) + " bytes"}
	}
	s.blank()
	if !s.at('[') {
		return nil, &fault{CodeInvalidRequest, s.i, "not an array"}
	}
	s.i++
	s.blank()
	if s.at(']') {
		return nil, &fault{CodeInvalidRequest, s.i, "an empty batch"}
	}
	for {
		start := s.i
		if f := s.value(deep); f != nil {
			return nil, f
		}
		elements = append(elements, span{int32(start), int32(s.i)})
		if len(elements) > s.limits.Batch {
			return nil, &fault{CodeInvalidRequest, start,
				"more than " + strconv.Itoa(s.limits.Batch) + " messages in a batch"}
		}
		s.blank()
		if !s.at(',') {
			break
		}
		s.i++
		s.blank()
	}
	if !s.at(']') {
		return nil, s.syntax(s.i, "a comma or ] expected")
	}
	s.i++
	if s.blank(); s.i < len(s.b) {
		return nil, s.syntax(s.i, "more after the batch")
	}
	return elements, nil
}
