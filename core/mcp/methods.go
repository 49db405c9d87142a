package mcp

// Revisions of the protocol that Gatekit speaks, oldest first. They are dates and compare as strings.
const (
	Rev20241105 = "2024-11-05"
	Rev20250326 = "2025-03-26"
	Rev20250618 = "2025-06-18"
	Rev20251125 = "2025-11-25"
	Rev20260728 = "2026-07-28"
)

// Era is which of the two designs a revision belongs to. Only core/downstream and core/upstream may branch on one.
type Era uint8

const (
	Legacy Era = iota + 1 // initialize, sessions, live reverse requests
	Modern                // stateless, server/discover, input_required
)

// Error codes of JSON-RPC, of the specification (protocol.md 5), and Gatekit's own.
const (
	CodeParseError         = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeResourceNotFound   = -32002 // to 2025-11-25
	CodeURLElicitation     = -32042 // 2025-11-25
	CodeHeaderMismatch     = -32020 // 2026-07-28
	CodeMissingCapability  = -32021 // 2026-07-28
	CodeUnsupportedVersion = -32022 // 2026-07-28
	CodeRejected           = -1     // a sampling request was rejected
	CodeDenied             = -31000 // refused by policy
)

// MetaPrefix is the reserved prefix of the modern protocol's keys in _meta; the keys follow.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo   = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel     = "io.modelcontextprotocol/logLevel"
	MetaServerInfo   = "io.modelcontextprotocol/serverInfo"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
	MetaRelatedTask  = "io.modelcontextprotocol/related-task"
)

// Route is how a client's message finds its servers (protocol.md 2).
type Route uint8

const (
	Local      Route = iota + 1 // answered or consumed by the hop that got it: ping
	Broadcast                   // to all servers; answers merged: lists, initialize, server/discover, logging/setLevel
	ByName                      // params name: tools/call, prompts/get
	ByURI                       // params uri
	ByRef                       // params ref: completion/complete
	ByTask                      // params taskId
	Listen                      // subscriptions/listen: broadcast, filter split by owner
	ByExchange                  // cancelled, progress: goes where the request went that it speaks of
)

// Method is one row of the specification's table of methods (protocol.md 1.1-1.3).
type Method struct {
	Name        string
	Kind        Kind
	From        Direction // ToServer: clients send it; ToClient: servers do; 0: both
	First, Last string    // revisions that have it, inclusive; Last "" is still there
	Capability  string    // top-level server (client, for reverse requests) capability that gates it; "" none
	Route       Route     // for what clients send
	NameAt      string    // pointer of the name, URI or task id in its params; "" none
	ItemsAt     string    // pointer of the list in its result: "/tools"; "" when it is no list
	ItemName    string    // within an item of that list: "/name", "/uri", "/uriTemplate", "/taskId"
}

// Lookup finds a method of any revision.
func Lookup(name string) (Method, bool) { panic("seam") }

// In says whether the method exists in the revision.
func (m Method) In(revision string) bool { panic("seam") }

// What a place of the rewrite catalogue holds.
type Token uint8

const (
	ToolName Token = iota + 1
	PromptName
	URI
	URITemplate
	TaskID
	ElicitationID
	Logger
)

// Place is one row of the rewrite catalogue (protocol.md 1.4) that holds a name: which messages, where, which way.
// In At "*" stands for every element of an array or member of an object, and a last segment "@content" for every content block at that place (one
// object, or an array; tool_result blocks are walked into): the uri of a resource_link, the resource.uri of an embedded resource.
type Place struct {
	Row    int // in protocol.md 1.4
	Method string
	Kind   Kind
	To     Direction // ToClient: the prefix is added; ToServer: it is taken off
	At     string
	Token  Token
}

// Places is the catalogue for one message, in order.
func Places(method string, kind Kind, to Direction) []Place { panic("seam") }

// Rewrite applies f to every name that the catalogue lists in m and answers m with those that f changed (ok true) spliced in.
// The Message itself comes back when nothing changed. Item and content types unknown to the catalogue are left alone.
// An error from f ends it.
func Rewrite(m *Message, f func(p Place, value string) (string, error)) (*Message, error) {
	panic("seam")
}
