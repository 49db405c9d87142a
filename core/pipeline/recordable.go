package pipeline

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"gatekit/core/mcp"
)

const (
	maxListedNames = 10_000 // names that servers listed
	// names of calls that passed are added only below this count: clients can invent as many as
	// they like
	maxCalledNames = 5_000
	maxNameBytes   = 1 << 10 // of one name
)

// RecordableNames are names that may be recorded in any message, inspected or not. A name is
// recordable if a server has listed it, in a list that passed or from which the name was hidden, or
// if a call of the name passed all stages. Successive pipelines share them. The zero
// RecordableNames is empty and ready, and safe for many goroutines.
type RecordableNames struct {
	mu       sync.RWMutex
	byServer map[string]map[string]bool // by server
	count    int
}

func (n *RecordableNames) has(server, name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byServer[server][name]
}

// add adds a name while there are fewer than limit.
func (n *RecordableNames) add(server, name string, limit int) {
	if name == "" || len(name) > maxNameBytes || server == "" || n.has(server, name) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count >= limit || n.byServer[server][name] {
		return
	}
	if n.byServer[server] == nil {
		if n.byServer == nil {
			n.byServer = make(map[string]map[string]bool)
		}
		n.byServer[server] = make(map[string]bool)
	}
	n.byServer[server][strings.Clone(name)] = true
	n.count++
}

// addList adds the names of an inspected list, except those in which a step found something. If
// only is not empty, other names are not added.
func (n *RecordableNames) addList(m *mcp.Message, steps []Step, only ...string) {
	method, _ := mcp.LookupMethod(m.Method)
	if m.Kind != mcp.Response || method.ItemsPointer == "" || method.ItemNamePointer == "" {
		return
	}
	m.Items(method.ItemsPointer, func(i int, raw []byte) bool {
		name, ok := mcp.NewNotification("", raw).Text(method.ItemNamePointer)
		if ok && (len(only) == 0 || slices.Contains(only, name)) && !hasFinding(steps,
			method.ItemsPointer+"/"+strconv.Itoa(i)+method.ItemNamePointer) {
			n.add(m.Server, name, maxListedNames)
		}
		return true
	})
}

// hasFinding reports whether a step found something at the pointer, above it or below it. Findings
// without a pointer do not count.
func hasFinding(steps []Step, at string) bool {
	for _, s := range steps {
		for _, f := range s.Findings {
			if f.Pointer == at || f.Pointer != "" && strings.HasPrefix(at, f.Pointer+"/") ||
				strings.HasPrefix(f.Pointer, at+"/") {
				return true
			}
		}
	}
	return false
}

// hasFindingInName reports whether a step found something where m's Name is taken from.
func hasFindingInName(m *mcp.Message, steps []Step) bool {
	if m.Kind != mcp.Request && m.Kind != mcp.Notification {
		return false
	}
	method, _ := mcp.LookupMethod(m.Method)
	at := method.NamePointer
	if method.Route == mcp.RouteByReference {
		at = "/ref"
	}
	return at != "" && hasFinding(steps, at)
}

// hasFindingInMethod reports whether the method is unknown and a step has a finding without a
// pointer. Such a finding lies outside of the body, perhaps in the method.
func hasFindingInMethod(m *mcp.Message, steps []Step) bool {
	return isUnknownMethod(m.Method) && slices.ContainsFunc(steps, func(s Step) bool {
		return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Pointer == "" })
	})
}

func isUnknownMethod(method string) bool {
	_, known := mcp.LookupMethod(method)
	return !known
}

// withNameWithheld returns m with a mark: the records of its answers leave out its name.
func withNameWithheld(m *mcp.Message) *mcp.Message {
	c := *m
	c.NameWithheld = true
	return &c
}

// isRecordableName reports whether a server has listed m's Name, or the configuration contains it.
func (p *Pipeline) isRecordableName(m *mcp.Message) bool {
	if p.options.RecordableNames.has(m.Server, m.Name) {
		return true
	}
	return slices.ContainsFunc(p.layers, func(l *renameLayer) bool {
		names := l.namesFor(m.Method)
		_, isServerName := names.clientName[m.Name]
		_, isClientName := names.serverName[m.Name]
		return isServerName || isClientName
	})
}

// mustWithhold reports which names of o must not be recorded: not all stages inspected them, or a
// stage found something in them.
func (p *Pipeline) mustWithhold(o *Outcome) (name, method bool) {
	m := o.Before
	if !p.hasStages { // nothing is searched for in the rest of the message either
		return false, false
	}
	marked := m.NameWithheld || m.Request != nil && m.Request.NameWithheld
	name = m.Name != "" && (marked || hasFindingInName(m, o.Steps) ||
		!o.fullyInspected && !p.isRecordableName(m))
	method = m.Method != "" && isUnknownMethod(m.Method) &&
		(marked || hasFindingInMethod(m, o.Steps) || !o.fullyInspected)
	return name, method
}

// withhold returns o for the record, without the names that must not be recorded.
func (p *Pipeline) withhold(o Outcome) Outcome {
	m := o.Before
	name, method := p.mustWithhold(&o)
	if !name && !method {
		return o
	}
	c := *m
	if name {
		c.Name, o.Withheld = "", append(o.Withheld, m.Name)
	}
	if method {
		c.Method, o.Withheld = "", append(o.Withheld, m.Method)
	}
	if o.After == m { // only the record lacks the name, not the forwarded message
		o.After = &c
	}
	o.Before = &c
	return o
}

// withholdQuotes removes quoted texts from the Reason, which is the message of Gatekit's own error
// m, and withholds the error's data. The error may quote a name that a client asked for and no
// stage inspected.
func (o *Outcome) withholdQuotes(m *mcp.Message) {
	var b strings.Builder
	text := o.Reason
	for {
		from := strings.IndexByte(text, '"')
		if from < 0 {
			break
		}
		b.WriteString(text[:from])
		text = text[from:]
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			text = "…"
			o.Withheld = append(o.Withheld, o.Reason)
			break
		}
		text = text[len(quoted):]
		switch unquoted, _ := strconv.Unquote(quoted); unquoted {
		case "", m.Server, mcp.MetaProtocolVersion, mcp.MetaCapabilities, mcp.MetaClientInfo,
			mcp.MetaLogLevel:
			b.WriteString(quoted)
		default:
			b.WriteString("…")
			o.Withheld = append(o.Withheld, unquoted)
		}
	}
	o.Reason = b.String() + text
	if data, ok := m.Get("/data"); ok {
		o.Withheld = append(o.Withheld, string(data))
	}
}
