package mcp

import (
	"crypto/sha256"
	"strconv"
)

// Kind is the JSON-RPC kind of a message. The zero Kind is not valid.
type Kind uint8

const (
	Request      Kind = iota + 1 // has an id and a method
	Notification                 // has a method and no id
	Response                     // has an id and a result
	Error                        // has an error, and an id unless the peer could not read one
)

// String returns the kind as audit records, policies and plugins spell it: request, notification,
// response, error.
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

// Direction is where a message ends up: at a server or at a client. It is the same on every hop.
type Direction uint8

const (
	ToServer Direction = iota + 1
	ToClient
)

// String returns to_server or to_client.
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
// `9007199254740993`. IDs are compared and echoed as text, never as numbers. The empty ID stands
// for an absent one.
type ID string

// Message is one JSON-RPC message: the received bytes, an index over them, and what Gatekit knows
// of the message.
//
// The bytes never change. Edit and WithID return a new Message that shares what it can. The adapter
// that received the message (downstream, upstream, proxy) sets the exported fields before the
// stages see it. They are read-only afterwards, and many goroutines may then read a Message.
//
// The body of a message is its params (request, notification), result (response) or error object
// (error). Every JSON pointer (RFC 6901) in this project is relative to the body: "/name" of a
// tools/call, "/tools/0/name" of its list.
type Message struct {
	Kind      Kind
	Direction Direction
	Session   string // the client's session (legacy) or connection (modern); never a credential
	Principal string // the caller on whose behalf it is sent; "" is the one anonymous local user
	Exchange  string // the same for a request and everything sent because of it
	Method    string // in an answer: the method of the request that it answers
	Server    string // configured name of the server it comes from or goes to; "" until routed
	// clean name of the tool or prompt, URI of the resource, ref of the completion, id of the task
	Name    string
	Request *Message // in an answer: the request, as the stages saw it; else nil

	// CarriesInput marks a message that carries input requests of the server, or the client's
	// answers to them: a result with inputRequests, a request with inputResponses or requestState.
	// The adapter of the peer's revision sets it.
	CarriesInput bool

	// NameWithheld marks a request that passed although a stage found something in its name or
	// method. The records of the request and its answers leave both out. The pipeline sets it.
	NameWithheld bool

	raw      []byte
	id       ID   // as written on this hop; differs from the id in raw after WithID
	idSpan   span // the id in raw; without one, the empty span where an id would be inserted
	bodySpan span // params, result or error in raw; empty when absent

	digest *[sha256.Size]byte // of the body; nil until WithDigest
	index
}

// index locates the members of the body and of its _meta in raw: the first maxIndexed of each,
// since a hostile message may have a million.
type index struct {
	bodyMembers, metaMembers memberList
}

const maxIndexed = 32

// span is a range of raw. Messages are smaller than 2 GiB, so int32 keeps an index small.
type span struct{ from, to int32 }

func (s span) bytes(b []byte) []byte { return b[s.from:s.to:s.to] }
func (s span) isEmpty() bool         { return s.from == s.to }

// firstByte returns the byte of b at which s begins, or 0 when s is empty.
func (s span) firstByte(b []byte) byte {
	if s.isEmpty() {
		return 0
	}
	return b[s.from]
}

// member locates a member's name and value. The name is without its quotes; escaped reports that it
// contains a backslash.
type member struct {
	name, value span
	escaped     bool
}

// ID returns the id of the message on this hop.
func (m *Message) ID() ID { return m.id }

// WithID returns the message under another id. Nothing is copied until the message is appended. A
// notification has no id and is returned as it is.
func (m *Message) WithID(id ID) *Message {
	if m.Kind == Notification {
		return m
	}
	c := *m
	c.id = id
	return &c
}

// Append appends the whole message, with its id, to dst, as it is written to a connection.
func (m *Message) Append(dst []byte) []byte {
	before, id, after := m.idReplacement()
	dst = append(dst, m.raw[:before]...)
	dst = append(dst, id...)
	return append(dst, m.raw[after:]...)
}

// Parts returns the bytes that Append appends, without copying them. The caller must not change
// them.
func (m *Message) Parts() [][]byte {
	before, id, after := m.idReplacement()
	if before == len(m.raw) {
		return [][]byte{m.raw}
	}
	return [][]byte{m.raw[:before], []byte(id), m.raw[after:]}
}

// Size returns the number of bytes that Append appends.
func (m *Message) Size() int {
	before, id, after := m.idReplacement()
	return before + len(id) + len(m.raw) - after
}

// idReplacement returns the text that replaces raw[before:after] so that the id is in place.
func (m *Message) idReplacement() (before int, id ID, after int) {
	old := m.idSpan.bytes(m.raw)
	before, after = int(m.idSpan.from), int(m.idSpan.to)
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

// Body returns the raw params, result or error object; nil when absent, and for params that are
// null. The caller must not change it.
func (m *Message) Body() []byte {
	if first := m.bodySpan.firstByte(m.raw); first == 0 || first == 'n' && m.Kind != Response {
		return nil
	}
	return m.bodySpan.bytes(m.raw)
}

// Digest returns the SHA-256 of Body.
func (m *Message) Digest() [sha256.Size]byte {
	if m.digest != nil {
		return *m.digest
	}
	return sha256.Sum256(m.Body())
}

// WithDigest returns m with its digest computed once, for a message that is sent many times. The
// digest stays valid when WithID changes the id.
func (m *Message) WithDigest() *Message {
	c := *m
	sum := m.Digest()
	c.digest = &sum
	return &c
}

// ErrorCode returns the code of an Error message, or 0 for other messages and for a code that is
// not an integer.
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
