package pipeline

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"gatekit/core/mcp"
)

const (
	// A name is added only while the set has fewer names than this: maxListedNames for a name that
	// a server listed, maxCalledNames for a name from a request that passed, since clients can
	// invent names.
	maxListedNames = 10_000
	maxCalledNames = 5_000
	maxNameBytes   = 1 << 10 // of one name
)

// RecordableNames is a set of names that may be recorded even if not all stages inspected the
// message. A name is added when a server lists it in a list that passes, or in a list from which a
// stage hides it. It is also added when a request with the name passes all stages. After a reload,
// the new pipeline uses the same set. The zero RecordableNames is empty and ready. Many goroutines
// may use it.
type RecordableNames struct {
	mu       sync.RWMutex
	byServer map[string]map[string]bool // the names, by server
	count    int
}

func (n *RecordableNames) has(server, name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byServer[server][name]
}

// add adds a name if the set has fewer than limit names.
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

// addList adds the names in the inspected list m, except names in which a step found something. If
// selected is not empty, addList adds only names that are in selected.
func (n *RecordableNames) addList(m *mcp.Message, steps []Step, selected ...string) {
	method, _ := mcp.LookupMethod(m.Method)
	if m.Kind != mcp.Response || method.ItemsPointer == "" || method.ItemNamePointer == "" {
		return
	}
	isSelected := make(map[string]bool, len(selected))
	for _, name := range selected {
		isSelected[name] = true
	}
	found := findingsOf(steps...)
	var names []string
	m.ItemTexts(method.ItemsPointer, method.ItemNamePointer, func(i int, _ []byte, name string,
		ok bool) bool {
		if ok && (len(selected) == 0 || isSelected[name]) && (len(found.at) == 0 || !found.cover(
			method.ItemsPointer+"/"+strconv.Itoa(i)+method.ItemNamePointer)) {
			names = append(names, name)
		}
		return true
	})
	for _, name := range n.unknown(m.Server, names) {
		n.add(m.Server, name, maxListedNames)
	}
}

// unknown returns the names that are not in the set. It changes the slice.
func (n *RecordableNames) unknown(server string, names []string) []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	known := n.byServer[server]
	return slices.DeleteFunc(names, func(name string) bool { return known[name] })
}

// findingPlaces are the places of findings. Findings without a pointer have no place.
type findingPlaces struct {
	at    map[string]bool // the pointers of the findings
	above map[string]bool // the pointers of all values that contain one of these places
}

// findingsOf returns the places of the findings of all steps.
func findingsOf(steps ...Step) (p findingPlaces) {
	for _, s := range steps {
		for _, f := range s.Findings {
			if f.Pointer == "" {
				continue
			}
			if p.at == nil {
				p.at, p.above = make(map[string]bool), make(map[string]bool)
			}
			p.at[f.Pointer] = true
			for above := parentPointer(f.Pointer); above != "" && !p.above[above]; {
				p.above[above] = true
				above = parentPointer(above)
			}
		}
	}
	return p
}

// cover reports whether a finding is at pointer, above pointer or below pointer.
func (p findingPlaces) cover(pointer string) bool {
	if len(p.at) == 0 {
		return false
	}
	if p.above[pointer] {
		return true
	}
	for ; pointer != ""; pointer = parentPointer(pointer) {
		if p.at[pointer] {
			return true
		}
	}
	return false
}

// hasFindingInName reports whether a step has a finding in the value from which m.Name was taken.
func hasFindingInName(m *mcp.Message, steps []Step) bool {
	if m.Kind != mcp.Request && m.Kind != mcp.Notification {
		return false
	}
	method, _ := mcp.LookupMethod(m.Method)
	at := method.NamePointer
	if method.Route == mcp.RouteByReference {
		at = "/ref"
	}
	return at != "" && findingsOf(steps...).cover(at)
}

// hasFindingInMethod reports whether the method of m is unknown and a step has a finding without a
// pointer. Such a finding is outside of the body, perhaps in the method.
func hasFindingInMethod(m *mcp.Message, steps []Step) bool {
	return isUnknownMethod(m.Method) && slices.ContainsFunc(steps, func(s Step) bool {
		return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Pointer == "" })
	})
}

func isUnknownMethod(method string) bool {
	_, known := mcp.LookupMethod(method)
	return !known
}

// withNameWithheld returns a copy of m with NameWithheld set, so that the records of the answers to
// m lack the name.
func withNameWithheld(m *mcp.Message) *mcp.Message {
	c := *m
	c.NameWithheld = true
	return &c
}

// isRecordableName reports whether m.Name is in the RecordableNames or in the renames of the
// configuration.
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

// mustWithhold reports whether the name of o.Before must not be recorded, and whether its method
// must not be recorded. Both depend on whether all stages inspected the message, and on whether a
// stage found something in the name or method. See "Why a name may be missing in a record".
func (p *Pipeline) mustWithhold(o *Outcome) (name, method bool) {
	m := o.Before
	if !p.hasStages { // a pipeline without stages withholds nothing
		return false, false
	}
	marked := m.NameWithheld || m.Request != nil && m.Request.NameWithheld
	name = m.Name != "" && (marked || hasFindingInName(m, o.Steps) ||
		!o.fullyInspected && !p.isRecordableName(m))
	method = m.Method != "" && isUnknownMethod(m.Method) &&
		(marked || hasFindingInMethod(m, o.Steps) || !o.fullyInspected)
	return name, method
}

// withhold returns o without the name or method that must not be recorded.
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
	if o.After == m { // o is only recorded: m, which is forwarded, keeps its name
		o.After = &c
	}
	o.Before = &c
	return o
}

// withholdQuotes removes quoted texts from o.Reason. m is an error that Gatekit made, and o.Reason
// is its message. withholdQuotes adds the quoted texts and the data of m to o.Withheld. The error
// may quote a name that a client asked for and that no stage inspected.
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
