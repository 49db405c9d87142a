package mcp

// Kind is what a message is on the wire. The zero Kind is no message.
type Kind uint8

const (
	Request      Kind = iota + 1 // has an id and a method
	Notification                 // has a method and no id
	Response                     // has an id and a result
	Error                        // has an error, and an id unless the peer could not read one
)

// String is the word that the audit log, policies and plugins use: request, notification, response, error.
func (k Kind) String() string { panic("seam") }

// Direction is where a message goes on the whole way from client to server, whichever hop it is on.
type Direction uint8

const (
	ToServer Direction = iota + 1
	ToClient
)

// String is to_server or to_client.
func (d Direction) String() string { panic("seam") }

// ID is the raw JSON text of a JSON-RPC id (or of a progress token): `1`, `"1"`, `9007199254740993`. It is
// compared and echoed as text, never as a number. The empty ID is an absent one.
type ID string

// Message is one JSON-RPC message: the bytes that came in, an index over them, and what Gatekit knows of it.
//
// The bytes never change. Edit and WithID answer a new Message that shares what it can. The exported fields are set by
// the boundary (downstream, upstream, proxy) before the message is judged and are read-only afterwards; a
// Message may then be read by many goroutines.
//
// The body of a message is its params (request, notification), result (response) or error object (error). Every JSON
// pointer (RFC 6901) in this project is relative to the body: "/name" of a tools/call, "/tools/0/name" of its list.
type Message struct {
	Kind      Kind
	To        Direction
	Session   string   // the client's session (legacy) or connection (modern); never a credential
	Principal string   // on whose behalf; "" is the one anonymous local user
	Exchange  string   // the same for a request and for all that is sent because of it
	Method    string   // on an answer: the method of the request that it answers
	Server    string   // configured name of the server it comes from or goes to; "" until routed
	Name      string   // clean name of the tool or prompt, URI of the resource, ref of the completion, id of the task
	Request   *Message // on an answer: the request that it answers, as it was judged; else nil

	// Folded marks a message of a server or client that carries its reverse requests (or the answers to them)
	// inside: a result with inputRequests, a request with inputResponses or requestState. Its peer adapter sets it.
	Folded bool

	raw []byte
	id  ID // overrides the id in raw when set by WithID
}

// Limits bound what Parse accepts. The zero value is the default of each.
type Limits struct {
	Bytes  int // whole message; default 16 MiB
	Depth  int // nesting of arrays and objects; default 200
	Tokens int // JSON values and names in one message; default 1,000,000
	Batch  int // messages in a batch; default 100
}

// Parse reads exactly one JSON-RPC 2.0 message, strictly, with the default limits. It keeps b: the caller must not
// change it afterwards. The error is a *ParseError.
func Parse(b []byte) (*Message, error) { return Limits{}.Parse(b) }

// Parse is the only parser of protocol bytes in the project.
func (l Limits) Parse(b []byte) (*Message, error) { panic("seam") }

// ParseBatch reads a JSON array of messages (2025-03-26 only). Each element that is no message is a *ParseError in
// errs at its index (msgs[i] is then nil); err is for the array itself: not an array, empty, too long, not JSON,
// an id used twice.
func (l Limits) ParseBatch(b []byte) (msgs []*Message, errs []error, err error) { panic("seam") }

// IsBatch says whether b's first byte, blanks apart, opens an array.
func IsBatch(b []byte) bool { panic("seam") }

// ParseError says why bytes are not a message.
type ParseError struct {
	Code    int    // CodeParseError or CodeInvalidRequest
	ID      ID     // the request's id where it could be read, so that the error can be addressed
	Offset  int64  // byte offset of the fault
	Pointer string // JSON pointer from the top of the message, "" at the top
	Reason  string // lower case, no full stop
}

func (e *ParseError) Error() string { panic("seam") }

// NewRequest, NewNotification, NewResponse and NewError make messages of Gatekit's own. params, result and data are valid
// JSON or nil (absent; a nil result is {}).
func NewRequest(id ID, method string, params []byte) *Message        { panic("seam") }
func NewNotification(method string, params []byte) *Message          { panic("seam") }
func NewResponse(id ID, result []byte) *Message                      { panic("seam") }
func NewError(id ID, code int, message string, data []byte) *Message { panic("seam") }

// ID is the id that the message goes by on this hop.
func (m *Message) ID() ID { panic("seam") }

// WithID is the message under another id; nothing is copied until it is appended.
func (m *Message) WithID(id ID) *Message { panic("seam") }

// Append appends the whole message, id in place, to dst. It is what is written to the wire.
func (m *Message) Append(dst []byte) []byte { panic("seam") }

// Size is the length of what Append appends.
func (m *Message) Size() int { panic("seam") }

// Body is the raw params, result or error object; nil when absent. The caller must not change it.
func (m *Message) Body() []byte { panic("seam") }

// Get is the raw value at pointer in the body.
func (m *Message) Get(pointer string) (raw []byte, ok bool) { panic("seam") }

// Text is the decoded string at pointer; ok is false when it is absent, no string, or holds a lone surrogate.
func (m *Message) Text(pointer string) (s string, ok bool) { panic("seam") }

// Len is the number of elements of the array at pointer, or -1 when there is no array.
func (m *Message) Len(pointer string) int { panic("seam") }

// Items calls yield for each element of the array at pointer, in order, with its index and raw bytes, until yield answers false.
func (m *Message) Items(pointer string, yield func(i int, raw []byte) bool) { panic("seam") }

// Members calls yield for each member of the object at pointer, in order, with its decoded name and raw value.
func (m *Message) Members(pointer string, yield func(name string, raw []byte) bool) { panic("seam") }

// ErrorCode is the code of an Error message; 0 when it is none or not an integer.
func (m *Message) ErrorCode() int { panic("seam") }

// Edit is one change of the body.
type Edit struct {
	Pointer string // where; "" is the whole body
	Value   []byte // valid JSON: replaces the value, or adds the member (its parent objects too where absent); nil removes
}

// Set replaces or adds; Remove takes away. Removing what is absent is no error.
func Set(pointer string, value []byte) Edit { return Edit{pointer, value} }
func Remove(pointer string) Edit            { return Edit{Pointer: pointer} }

// Edit answers a message in which only the given places differ: every other byte is kept. All pointers refer to the
// message as it is before the first edit; array indices do not shift. Overlapping edits, values that are not JSON and
// places that cannot exist (a member of a string, an index beyond the end) are errors, and m is unchanged.
// A removed element or member takes its comma with it.
func (m *Message) Edit(edits ...Edit) (*Message, error) { panic("seam") }

// Quote is s as a JSON string.
func Quote(s string) []byte { panic("seam") }
