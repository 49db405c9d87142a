package mcp

import (
	"crypto/sha256"
	"strconv"
)

// Kind is what a message is on the wire. The zero Kind is no message.
type Kind uint8

const (
	Request      Kind = iota + 1 // has an id and a method
	Notification                 // has a method and no id
	Response                     // has an id and a result
	Error                        // has an error, and an id unless the peer could not read one
)

// String is the word that the audit log, policies and plugins use: request, notification, response,
// error.
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	case Error:
		return "error"
	}
	return "none"
}

// Direction is where a message goes on the whole way from client to server, whichever hop it is on.
type Direction uint8

const (
	ToServer Direction = iota + 1
	ToClient
)

// String is to_server or to_client.
func (d Direction) String() string {
	switch d {
	case ToServer:
		return "to_server"
	case ToClient:
		return "to_client"
	}
	return "none"
}

// ID is the raw JSON text of a JSON-RPC id (or of a progress token): `1`, `"1"`,
// `9007199254740993`. It is compared and echoed as text, never as a number. The empty ID is an
// absent one.
type ID string

// Message is one JSON-RPC message: the bytes that came in, an index over them, and what Gatekit
// knows of it.
//
// The bytes never change. Edit and WithID answer a new Message that shares what it can. The
// exported fields are set by the boundary (downstream, upstream, proxy) before the message is
// judged and are read-only afterwards; a Message may then be read by many goroutines.
//
// The body of a message is its params (request, notification), result (response) or error object
// (error). Every JSON pointer (RFC 6901) in this project is relative to the body: "/name" of a
// tools/call, "/tools/0/name" of its list.
type Message struct {
	Kind      Kind
	Direction Direction
	Session   string // the client's session (legacy) or connection (modern); never a credential
	Principal string // on whose behalf; "" is the one anonymous local user
	Exchange  string // the same for a request and for all that is sent because of it
	Method    string // on an answer: the method of the request that it answers
	Server    string // configured name of the server it comes from or goes to; "" until routed
	// clean name of the tool or prompt, URI of the resource, ref of the completion, id of the task
	Name    string
	Request *Message // on an answer: the request that it answers, as it was judged; else nil

	// CarriesInput marks a message of a server or client that carries its reverse requests (or the
	// answers to them) inside: a result with inputRequests, a request with inputResponses or
	// requestState. Its peer adapter sets it.
	CarriesInput bool

	// NameWithheld marks a request whose name or method is not for the record, though it passes: a
	// stage found something there. Its answers' records leave both out. The pipeline sets it.
	NameWithheld bool

	raw  []byte
	id   ID   // what the message goes by; differs from the id in raw after WithID
	idAt span // the id in raw; empty, at the place for one, when there is none
	body span // params, result or error in raw; empty when there is none

	digest *[sha256.Size]byte // of the body; nil when it was not asked for
	index
}

// index is where the members of the body and of its _meta are in raw: the first maxKept of each,
// since a hostile message may have a million.
type index struct {
	top, meta kept
}

const maxKept = 32

// span is a stretch of raw. Messages are held under 2 GiB, so that an index stays small.
type span struct{ from, to int32 }

func (s span) of(b []byte) []byte { return b[s.from:s.to:s.to] }
func (s span) empty() bool        { return s.from == s.to }

// first is the byte of b that s begins with, 0 when s is empty.
func (s span) first(b []byte) byte {
	if s.empty() {
		return 0
	}
	return b[s.from]
}

// member is a name and its value. The name is without its quotes; escaped says that it holds a
// backslash.
type member struct {
	name, value span
	escaped     bool
}

// ID is the id that the message goes by on this hop.
func (m *Message) ID() ID { return m.id }

// WithID is the message under another id; nothing is copied until it is appended. A notification
// has none and stays as it is.
func (m *Message) WithID(id ID) *Message {
	if m.Kind == Notification {
		return m
	}
	c := *m
	c.id = id
	return &c
}

// Append appends the whole message, id in place, to dst. It is what is written to the wire.
func (m *Message) Append(dst []byte) []byte {
	before, id, after := m.parts()
	dst = append(dst, m.raw[:before]...)
	dst = append(dst, id...)
	return append(dst, m.raw[after:]...)
}

// Parts is what Append appends without its being copied: to write it is all that they may be used
// for.
func (m *Message) Parts() [][]byte {
	before, id, after := m.parts()
	if before == len(m.raw) {
		return [][]byte{m.raw}
	}
	return [][]byte{m.raw[:before], []byte(id), m.raw[after:]}
}

// Size is the length of what Append appends.
func (m *Message) Size() int {
	before, id, after := m.parts()
	return before + len(id) + len(m.raw) - after
}

// parts says what is written instead of raw[before:after] to put the id in place.
func (m *Message) parts() (before int, id ID, after int) {
	old := m.idAt.of(m.raw)
	before, after = int(m.idAt.from), int(m.idAt.to)
	switch {
	case string(old) == string(m.id):
		return len(m.raw), "", len(m.raw)
	case len(old) == 0:
		return before, `"id":` + m.id + `,`, after
	case m.id == "":
		return before, "null", after
	}
	return before, m.id, after
}

// Body is the raw params, result or error object; nil when absent, and for params that are null.
// The caller must not change it.
func (m *Message) Body() []byte {
	if first := m.body.first(m.raw); first == 0 || first == 'n' && m.Kind != Response {
		return nil
	}
	return m.body.of(m.raw)
}

// Digest is the SHA-256 of Body.
func (m *Message) Digest() [sha256.Size]byte {
	if m.digest != nil {
		return *m.digest
	}
	return sha256.Sum256(m.Body())
}

// WithDigest is m with its digest at hand, also under other ids: for one that is sent again and
// again.
func (m *Message) WithDigest() *Message {
	c := *m
	sum := m.Digest()
	c.digest = &sum
	return &c
}

// ErrorCode is the code of an Error message; 0 when it is none or not an integer.
func (m *Message) ErrorCode() int {
	if m.Kind != Error {
		return 0
	}
	raw, _ := m.Get("/code")
	code, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0
	}
	return code
}
