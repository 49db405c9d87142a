package mcp

import (
	"crypto/sha256"
	"strconv"

	"gatekit/core/identity"
)

// Kind is the JSON-RPC kind of a message. The zero Kind is not valid.
type Kind uint8

const (
	Request      Kind = iota + 1 // has an id and a method
	Notification                 // has a method and no id
	Response                     // has an id and a result
	Error                        // has an error, and an id if the peer could read the request's id
)

// String returns request, notification, response or error, as audit records, policies and plugins
// spell the kind.
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

// Direction is the final receiver of a message: a server or a client. It is the same on both sides
// of Gatekit.
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
// `9007199254740993`. IDs are compared and echoed as text, never as numbers. The empty ID means
// that there is no id.
type ID string

// Message is one JSON-RPC message: its received bytes, an index of the bytes, and fields that
// Gatekit sets.
//
// The bytes never change. Edit and WithID return a new Message, which may share memory with the old
// one. The adapter that received the message (downstream, upstream, proxy) sets the exported fields
// before the stages see the message. After that nobody changes the fields, and many goroutines may
// read the Message.
//
// The body of a message is its params (request, notification), result (response) or error object
// (error). Every JSON pointer (RFC 6901) in this project is relative to the body: "/name" is the
// tool's name in a tools/call, and "/tools/0/name" is the first tool's name in the result of
// tools/list.
type Message struct {
	Kind      Kind
	Direction Direction
	Session   string // the client's session (legacy) or connection (modern); never a credential
	// the user for whom the message is sent, as authenticated with the client's request that the
	// message belongs to; nil for the local user
	Principal *identity.Principal
	Via       string // in a client's request: the replica that forwarded it; "" for none
	Exchange  string // id that a request shares with all messages sent because of the request
	Method    string // in an answer: the method of the request that it answers
	Server    string // configured name of the sending or receiving server; "" until routed
	// name of the tool or prompt, URI of the resource, ref of the completion, or id of the task,
	// without the server's prefix
	Name    string
	Request *Message // in an answer: the request, as the stages saw it; else nil

	// CarriesInput marks a message that carries input requests of the server, or the client's
	// answers to them. Such a message is a result with inputRequests, or a request with
	// inputResponses or requestState. The adapter of the peer's revision sets the field.
	CarriesInput bool

	// Own marks a message about Gatekit's own tool of a server, with which a user logs in: the list
	// that has only this tool, a call of it, or its result. No server gets or sends such a message.
	// The proxy sets the field.
	Own bool

	// NameWithheld marks a request that passed although a stage found something in its name or
	// method. The records of the request and of its answers lack the name. They also lack the
	// method if the protocol does not define it. The pipeline sets the field.
	NameWithheld bool

	raw      []byte
	id       ID   // id to write; WithID sets it, and raw keeps the received id
	idSpan   span // the id in raw; if raw has no id, the empty span where an id would go
	bodySpan span // params, result or error in raw; empty when absent

	digest *[sha256.Size]byte // of the body; nil until WithDigest
	leaves *keptLeaves        // nil until WithLeaves; shared by the copies with the same body
	index
}

// index locates members of the body and of its _meta in raw. It has only the first maxIndexed
// members of each object, because a hostile message may have a million members.
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

// member locates a member's name, without its quotes, and its value. escaped is true if the name
// contains a backslash.
type member struct {
	name, value span
	escaped     bool
}

// ID returns the id with which the message is written.
func (m *Message) ID() ID { return m.id }

// WithID returns the message with another id. It does not copy the bytes. A notification has no id
// and is returned unchanged.
func (m *Message) WithID(id ID) *Message {
	if m.Kind == Notification {
		return m
	}
	c := *m
	c.id = id
	return &c
}

// Append appends the whole message to dst, with its current id.
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

// idReplacement returns the text that must replace raw[before:after], so that the message has its
// current id.
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

// Body returns the raw params, result or error object. It returns nil if the message has no body,
// or if its params are null. The caller must not change the bytes.
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

// WithDigest returns a copy of m that keeps its digest, so that Digest computes nothing. It is for
// messages that are sent many times. WithID keeps the digest.
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
