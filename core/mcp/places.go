package mcp

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
