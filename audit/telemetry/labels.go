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

// Names of attributes. The names in the first group are from the semantic conventions for MCP. The
// names in the second group are Gatekit's own.
const (
	keyMethod  = "mcp.method.name"
	keyVersion = "mcp.protocol.version"
	keyTool    = "gen_ai.tool.name"
	keyError   = "error.type"
	keyStatus  = "rpc.response.status_code"

	keyServer    = "gatekit.server"
	keyCanary    = "gatekit.canary"
	keyDirection = "gatekit.direction"
	keyKind      = "gatekit.kind"
	keyAction    = "gatekit.action"
	keyStage     = "gatekit.stage"
	keyRule      = "gatekit.rule"
	keyPlugin    = "gatekit.plugin"
	keyState     = "gatekit.state"
	keySink      = "gatekit.sink"
	keyWitness   = "gatekit.witness"
	keyLimit     = "gatekit.limit"

	keyConfiguration = "gatekit.configuration"
	keyPolicies      = "gatekit.policies"
	keyReplica       = "gatekit.replica"
)

// other is the label for every value that is not in the bounded set.
const other = "_OTHER"

// operation holds the labels of a request's duration.
type operation struct{ method, server, tool, version, errorType, statusCode string }

func (o operation) attributes() []attribute.KeyValue {
	return stringAttributes(keyMethod, o.method, keyServer, o.server, keyTool, o.tool, keyVersion,
		o.version,
		keyError, o.errorType, keyStatus, o.statusCode)
}

// decision holds the labels of a record.
type decision struct{ method, server, tool, direction, kind, action string }

func (d decision) attributes() []attribute.KeyValue {
	return stringAttributes(keyMethod, d.method, keyServer, d.server, keyTool, d.tool, keyDirection,
		d.direction, keyKind, d.kind, keyAction, d.action)
}

// denial holds the labels of a denied message: the stage and rule that denied it.
type denial struct{ stage, rule string }

func (d denial) attributes() []attribute.KeyValue {
	return stringAttributes(keyStage, d.stage, keyRule, d.rule)
}

// hidden holds the labels of items that a stage has hidden.
type hidden struct{ method, server, stage string }

func (h hidden) attributes() []attribute.KeyValue {
	return stringAttributes(keyMethod, h.method, keyServer, h.server, keyStage, h.stage)
}

// canaryFound holds the labels of a planted value in a message.
type canaryFound struct{ canary, direction string }

func (c canaryFound) attributes() []attribute.KeyValue {
	return stringAttributes(keyCanary, c.canary, keyDirection, c.direction)
}

// stageResult holds the labels of a stage's duration.
type stageResult struct{ stage, action string }

func (s stageResult) attributes() []attribute.KeyValue {
	return stringAttributes(keyStage, s.stage, keyAction, s.action)
}

// stringAttributes returns the attributes of the pairs (key, value) whose value is not empty.
func stringAttributes(pairs ...string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, attribute.String(pairs[i], pairs[i+1]))
		}
	}
	return out
}

// attributeSets caches attribute sets, because making a set is slower than counting.
type attributeSets[K interface {
	comparable
	attributes() []attribute.KeyValue
}] struct {
	mu   sync.RWMutex
	sets map[K]metric.MeasurementOption
}

func (l *attributeSets[K]) option(k K) metric.MeasurementOption {
	l.mu.RLock()
	o, ok := l.sets[k]
	l.mu.RUnlock()
	if ok {
		return o
	}
	o = metric.WithAttributeSet(attribute.NewSet(k.attributes()...))
	l.mu.Lock()
	defer l.mu.Unlock()
	// a full cache is emptied: some sets belong to stages that a reload has removed
	if l.sets == nil || len(l.sets) >= maxSeries {
		l.sets = map[K]metric.MeasurementOption{}
	}
	l.sets[k] = o
	return o
}

// maxNames is the maximal number of names in a nameSet, because peers may invent any number.
const maxNames = 256

// nameSet holds the first maxNames names that are added. The label of every name that is not in the
// set is "_OTHER".
type nameSet struct {
	mu     sync.RWMutex
	labels map[string]string // by name
}

// label returns the label of a name.
func (n *nameSet) label(name string) string {
	if name == "" {
		return ""
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if label, ok := n.labels[name]; ok {
		return label
	}
	return other
}

// add adds a name, unless the set is full or the name is too long.
func (n *nameSet) add(name string) {
	if name == "" || len(name) > maxText || n.label(name) != other {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.labels) >= maxNames {
		return
	}
	if n.labels == nil {
		n.labels = map[string]string{}
	}
	n.labels[strings.Clone(name)] = printable(name)
}

// addAndLabel adds a name, which must not come from a client, and returns its label.
func (n *nameSet) addAndLabel(name string) string {
	n.add(name)
	return n.label(name)
}

// maxText bounds a peer's text, in bytes.
const maxText = 128

// printable cuts a peer's text to maxText bytes, and escapes unprintable characters.
func printable(s string) string {
	if len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, isUnprintable) {
		return strings.Clone(s) // do not keep the whole message in memory
	}
	s = s[:min(len(s), maxText)]
	for len(s) > 0 { // cut at a character
		if r, n := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || n != 1 {
			break
		}
		s = s[:len(s)-1]
	}
	quoted := strconv.QuoteToGraphic(s)
	return quoted[1 : len(quoted)-1]
}

func isUnprintable(r rune) bool { return !unicode.IsGraphic(r) }

// methodLabel returns the label of a method.
func methodLabel(name string) string {
	if name == "" {
		return ""
	}
	if m, ok := mcp.LookupMethod(name); ok {
		return m.Name
	}
	return other
}

// revisionLabel returns the label of a protocol revision.
func revisionLabel(r string) string {
	if r == "" || mcp.EraOf(r) != 0 {
		return r
	}
	return other
}

// errorOf returns the values of error.type and rpc.response.status_code for a response. The
// semantic conventions define both.
func (i *instruments) errorOf(method string, m *mcp.Message) (fault, code string) {
	switch {
	case m == nil:
		return "", ""
	case m.Kind == mcp.Error:
		code = i.codes.addAndLabel(strconv.Itoa(m.ErrorCode()))
		return code, code
	case method != "tools/call":
		return "", ""
	}
	if raw, ok := m.Get("/isError"); ok && string(raw) == "true" {
		return "tool_error", ""
	}
	return "", ""
}

// ruleLabel returns the label of the rule whose name the reason begins with. If the reason does not
// begin with the name of a rule, ruleLabel returns "".
func (i *instruments) ruleLabel(reason string) string {
	name, _, ok := strings.Cut(reason, ": ")
	if !ok || strings.ContainsFunc(name, func(r rune) bool {
		return r != '/' && r != '.' && r != '_' && r != '-' && !unicode.IsLetter(r) &&
			!unicode.IsDigit(r)
	}) {
		return ""
	}
	return i.rules.addAndLabel(name)
}
