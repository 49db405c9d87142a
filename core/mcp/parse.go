package mcp

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"sync"
)

// Limits bound the messages that Parse accepts. A field that is 0 or negative has its default.
type Limits struct {
	Bytes  int // whole message; default 16 MiB
	Depth  int // nesting of arrays and objects; default 200
	Tokens int // JSON values and names in one message; default 1,000,000
	Batch  int // messages in a batch; default 100
}

func (l Limits) withDefaults() Limits {
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

// Parse parses exactly one JSON-RPC 2.0 message, strictly, with the default limits. The message
// keeps b, so the caller must not change b afterwards. The error is a *ParseError.
func Parse(b []byte) (*Message, error) { return Limits{}.Parse(b) }

// Parse parses one message within the limits, as the function Parse does. No other code of the
// project parses protocol bytes.
func (l Limits) Parse(b []byte) (*Message, error) {
	s := scannerPool.Get().(*scanner)
	defer s.release()
	s.input, s.limits = b, l.withDefaults()
	f := s.scanMessage()
	if f == nil {
		f = s.firstFault
	}
	if f == nil {
		f = s.checkEnvelope()
	}
	if f != nil {
		return nil, s.parseError(f)
	}
	return s.message(), nil
}

// scannerPool keeps unused scanners, so that their buffers are used again.
var scannerPool = sync.Pool{New: func() any { return new(scanner) }}

// release clears s and returns it to the pool. Buffers that grew for one large message are dropped.
func (s *scanner) release() {
	const keep = 64
	if cap(s.names) > keep {
		s.names = nil
	}
	clear(s.names[:cap(s.names)])
	*s = scanner{names: s.names[:0], index: index{s.bodyMembers[:0], s.metaMembers[:0]}}
	scannerPool.Put(s)
}

// scanMessage reads the whole input, which must be one object with optional white space around it.
func (s *scanner) scanMessage() *fault {
	if len(s.input) > s.limits.Bytes {
		return &fault{CodeParseError, s.limits.Bytes,
			"longer than " + strconv.Itoa(s.limits.Bytes) + " bytes"}
	}
	if bytes.HasPrefix(s.input, []byte("\uFEFF")) {
		return s.syntax(0, "a byte order mark")
	}
	s.skipBlanks()
	start := s.pos
	if f := s.scanValue(levelEnvelope); f != nil {
		return f
	}
	if s.skipBlanks(); s.pos < len(s.input) {
		return s.syntax(s.pos, "more after the message")
	}
	if s.input[start] != '{' {
		return &fault{CodeInvalidRequest, start, "not an object"}
	}
	return nil
}

// hasMember reports whether the name of this member of the envelope was read. Its value may be
// missing.
func (s *scanner) hasMember(at int) bool { return !s.envelope[at].name.isEmpty() }

// memberValue returns the raw value of this member of the envelope, and whether the value was read.
func (s *scanner) memberValue(at int) ([]byte, bool) {
	m := s.envelope[at]
	return m.value.bytes(s.input), !m.value.isEmpty()
}

// checkEnvelope returns the reason why the object is not a JSON-RPC message, or nil.
func (s *scanner) checkEnvelope() *fault {
	wrong := func(at int, reason string) *fault {
		return &fault{CodeInvalidRequest, max(int(s.envelope[at].name.from)-1, 0), reason}
	}
	if version, _ := s.memberValue(memberJSONRPC); !isString(version, "2.0") {
		return wrong(memberJSONRPC, `jsonrpc is not "2.0"`)
	}
	id, hasID := s.memberValue(memberID)
	method, hasMethod := s.memberValue(memberMethod)
	args, hasParams := s.memberValue(memberParams)
	_, hasResult := s.memberValue(memberResult)
	failure, hasError := s.memberValue(memberError)
	switch {
	case hasMethod && (hasResult || hasError):
		return wrong(memberMethod, "both a request and an answer")
	case hasResult && hasError:
		return wrong(memberError, "both a result and an error")
	case hasMethod:
		if name, ok := decodeString(method); !ok || name == "" {
			return wrong(memberMethod, "method is not a name")
		}
		if hasID && !isID(id) {
			return wrong(memberID, "id is neither a string nor an integer")
		}
		if hasParams && args[0] != '{' && args[0] != 'n' {
			return wrong(memberParams, "params is not an object")
		}
	case hasResult || hasError:
		if hasParams {
			return wrong(memberParams, "params in an answer")
		}
		if !isID(id) && !(hasError && (!hasID || string(id) == "null")) {
			return wrong(memberID, "id is neither a string nor an integer")
		}
		if hasError && failure[0] != '{' {
			return wrong(memberError, "error is not an object")
		}
	default:
		return wrong(memberMethod, "neither a method nor a result nor an error")
	}
	return nil
}

// isID reports whether the raw value may be an id: a string or an integer of any size.
func isID(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	return raw[0] == '"' || (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9') &&
		!bytes.ContainsAny(raw, ".eE")
}

// message returns the message that was read. The caller has called checkEnvelope, which found no
// fault.
func (s *scanner) message() *Message {
	m := &Message{raw: s.input}
	id, hasID := s.memberValue(memberID)
	m.idSpan = s.envelope[memberID].value
	if hasID && string(id) != "null" {
		m.id = ID(id)
	}
	if !hasID {
		after := int32(bytes.IndexByte(s.input, '{') + 1)
		m.idSpan = span{after, after}
	}
	if method, ok := s.memberValue(memberMethod); ok {
		m.Kind = Notification
		if hasID {
			m.Kind = Request
		}
		m.Method, _ = methodName(method)
		m.bodySpan = s.envelope[memberParams].value
	} else if _, ok := s.memberValue(memberResult); ok {
		m.Kind = Response
		m.bodySpan = s.envelope[memberResult].value
	} else {
		m.Kind = Error
		m.bodySpan = s.envelope[memberError].value
	}
	both := slices.Concat(s.bodyMembers, s.metaMembers)
	m.bodyMembers, m.metaMembers = both[:len(s.bodyMembers):len(s.bodyMembers)],
		both[len(s.bodyMembers):]
	return m
}

// parseError turns a fault into a ParseError. An id is set only when the other members show whether
// the message is a request or an answer.
func (s *scanner) parseError(f *fault) *ParseError {
	e := &ParseError{Code: f.code, Offset: int64(f.at), Pointer: pointerTo(s.input, f.at),
		Reason: f.reason}
	id, ok := s.memberValue(memberID)
	if !ok || !isID(id) || s.idCount > 1 {
		return e
	}
	switch {
	case s.hasMember(memberResult) || s.hasMember(memberError):
		if !s.hasMember(memberMethod) {
			e.ResponseID = ID(id)
		}
	case s.hasMember(memberMethod) || s.hasMember(memberParams) || f.code == CodeInvalidRequest:
		e.RequestID = ID(id)
	}
	return e
}

// IsBatch reports whether b begins like an array: its first byte after white space is "[".
func IsBatch(b []byte) bool {
	i := skipBlanks(b, 0)
	return i < len(b) && b[i] == '['
}

// ParseBatch parses a JSON array of messages (2025-03-26 only). For an element that is not a
// message, msgs is nil at its index, and errs has the *ParseError. err reports a fault of the array
// as a whole: it is not an array, is empty or too long, is not JSON, or uses an id twice.
func (l Limits) ParseBatch(b []byte) (msgs []*Message, errs []error, err error) {
	s := scanner{input: b, limits: l.withDefaults()}
	spans, f := s.scanBatch()
	if f != nil {
		return nil, nil, s.parseError(f)
	}
	ids := make(map[ID]bool)
	for i, at := range spans {
		m, err := l.Parse(at.bytes(b))
		if e, ok := err.(*ParseError); ok {
			e.Offset += int64(at.from)
			e.Pointer = "/" + strconv.Itoa(i) + e.Pointer
		}
		if m != nil && m.Kind == Request {
			if ids[m.id] {
				return nil, nil, s.parseError(&fault{CodeInvalidRequest, int(at.from),
					"id used twice in a batch"})
			}
			ids[m.id] = true
		}
		msgs, errs = append(msgs, m), append(errs, err)
	}
	return msgs, errs, nil
}

// scanBatch reads an array and returns the spans of its elements.
func (s *scanner) scanBatch() (elements []span, f *fault) {
	if len(s.input) > s.limits.Bytes {
		return nil, &fault{CodeParseError, s.limits.Bytes,
			"longer than " + strconv.Itoa(s.limits.Bytes) + " bytes"}
	}
	s.skipBlanks()
	if !s.nextIs('[') {
		return nil, &fault{CodeInvalidRequest, s.pos, "not an array"}
	}
	s.pos++
	s.skipBlanks()
	if s.nextIs(']') {
		return nil, &fault{CodeInvalidRequest, s.pos, "an empty batch"}
	}
	for {
		start := s.pos
		if f := s.scanValue(levelOther); f != nil {
			return nil, f
		}
		elements = append(elements, span{int32(start), int32(s.pos)})
		if len(elements) > s.limits.Batch {
			return nil, &fault{CodeInvalidRequest, start,
				"more than " + strconv.Itoa(s.limits.Batch) + " messages in a batch"}
		}
		s.skipBlanks()
		if !s.nextIs(',') {
			break
		}
		s.pos++
		s.skipBlanks()
	}
	if !s.nextIs(']') {
		return nil, s.syntax(s.pos, "a comma or ] expected")
	}
	s.pos++
	if s.skipBlanks(); s.pos < len(s.input) {
		return nil, s.syntax(s.pos, "more after the batch")
	}
	return elements, nil
}
