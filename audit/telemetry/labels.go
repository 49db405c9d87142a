package telemetry

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"gatekit/core/mcp"
)

// Attributes of the semantic conventions for MCP, and Gatekit's own.
const (
	keyMethod  = "mcp.method.name"
	keyVersion = "mcp.protocol.version"
	keyTool    = "gen_ai.tool.name"
	keyError   = "error.type"
	keyStatus  = "rpc.response.status_code"

	keyServer    = "gatekit.server"
	keyDirection = "gatekit.direction"
	keyKind      = "gatekit.kind"
	keyAction    = "gatekit.action"
	keyStage     = "gatekit.stage"
	keyRule      = "gatekit.rule"
	keyPlugin    = "gatekit.plugin"
	keyState     = "gatekit.state"
	keySink      = "gatekit.sink"
)

// other is what a label says of what is none of its known values.
const other = "_OTHER"

// operation is what is known of a request and its answer.
type operation struct{ method, server, tool, version, fault, code string }

func (o operation) attributes() []attribute.KeyValue {
	return given(keyMethod, o.method, keyServer, o.server, keyTool, o.tool, keyVersion, o.version,
		keyError, o.fault, keyStatus, o.code)
}

// decision is what is known of a record.
type decision struct{ method, server, tool, direction, kind, action string }

func (d decision) attributes() []attribute.KeyValue {
	return given(keyMethod, d.method, keyServer, d.server, keyTool, d.tool, keyDirection,
		d.direction, keyKind, d.kind, keyAction, d.action)
}

// denial is who refused.
type denial struct{ stage, rule string }

func (d denial) attributes() []attribute.KeyValue {
	return given(keyStage, d.stage, keyRule, d.rule)
}

// judgement is what a stage did.
type judgement struct{ stage, action string }

func (j judgement) attributes() []attribute.KeyValue {
	return given(keyStage, j.stage, keyAction, j.action)
}

// given are the attributes that have a value, of pairs of both.
func given(pairs ...string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, attribute.String(pairs[i], pairs[i+1]))
		}
	}
	return out
}

// labels keeps the sets that were made before: to make one costs more than to count.
type labels[K interface {
	comparable
	attributes() []attribute.KeyValue
}] struct {
	mu   sync.RWMutex
	made map[K]metric.MeasurementOption
}

func (l *labels[K]) of(k K) metric.MeasurementOption {
	l.mu.RLock()
	o, ok := l.made[k]
	l.mu.RUnlock()
	if ok {
		return o
	}
	o = metric.WithAttributeSet(attribute.NewSet(k.attributes()...))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil || len(l.made) >= maxSeries { // of stages that a reload took away, too
		l.made = map[K]metric.MeasurementOption{}
	}
	l.made[k] = o
	return o
}

// maxNames bounds the names that somebody else makes up and that are labels.
const maxNames = 256

// names are the first of those that were learned. All others are other.
type names struct {
	mu   sync.RWMutex
	seen map[string]string // as it came, as it is told
}

// known is a name as it is told.
func (n *names) known(name string) string {
	if name == "" {
		return ""
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if told, ok := n.seen[name]; ok {
		return told
	}
	return other
}

// learn takes in a name that may be told, while there is room.
func (n *names) learn(name string) {
	if name == "" || len(name) > maxText || n.known(name) != other {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.seen) >= maxNames {
		return
	}
	if n.seen == nil {
		n.seen = map[string]string{}
	}
	n.seen[strings.Clone(name)] = text(name)
}

// first is known of a name that is learned as it comes: one that no client makes up.
func (n *names) first(name string) string {
	n.learn(name)
	return n.known(name)
}

// maxText bounds the bytes of a peer's text.
const maxText = 128

// text is a peer's text as it may be told: bounded, and with everything escaped that does not
// print.
func text(s string) string {
	if len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return strings.Clone(s) // not all of the message that it came in
	}
	s = s[:min(len(s), maxText)]
	for len(s) > 0 { // not half a character
		if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n != 1 {
			break
		}
		s = s[:len(s)-1]
	}
	quoted := strconv.QuoteToGraphic(s)
	return quoted[1 : len(quoted)-1]
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) }

// method is a method's name as a label.
func method(name string) string {
	if name == "" {
		return ""
	}
	if m, ok := mcp.LookupMethod(name); ok {
		return m.Name
	}
	return other
}

// revision is one of those that there are, as a label.
func revision(r string) string {
	if r == "" || mcp.EraOf(r) != 0 {
		return r
	}
	return other
}

// failed is what the conventions want to know of an answer to a method that is none, or says that
// it failed.
func (i *instruments) failed(method string, m *mcp.Message) (fault, code string) {
	switch {
	case m == nil:
		return "", ""
	case m.Kind == mcp.Error:
		code = i.codes.first(strconv.Itoa(m.ErrorCode()))
		return code, code
	case method != "tools/call":
		return "", ""
	}
	if raw, ok := m.Get("/isError"); ok && string(raw) == "true" {
		return "tool_error", ""
	}
	return "", ""
}

// rule is the policy that a reason begins with, "" where it begins with none.
func (i *instruments) rule(reason string) string {
	name, _, ok := strings.Cut(reason, ": ")
	if !ok || strings.ContainsFunc(name, func(r rune) bool {
		return r != '/' && r != '.' && r != '_' && r != '-' && !unicode.IsLetter(r) &&
			!unicode.IsDigit(r)
	}) {
		return ""
	}
	return i.rules.first(name)
}
