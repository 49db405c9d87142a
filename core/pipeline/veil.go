package pipeline

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"gatekit/core/mcp"
)

const (
	maxListed = 10_000 // names that are remembered because servers listed them
	// ... and of those because they were let pass: a client can make up as many as it likes
	maxCalled = 5_000
	maxTold   = 1 << 10 // bytes of one
)

// RecordableNames are those that may be told in a record whoever says them: servers have listed
// them, in a list that went on to a client or from which they were hidden by name, or all stages
// let them pass. Pipelines that follow one another share them. The zero Names is empty and ready,
// and safe for many goroutines.
type RecordableNames struct {
	mu    sync.RWMutex
	known map[string]map[string]bool // by server
	count int
}

func (n *RecordableNames) has(server, name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known[server][name]
}

// learn takes in a name while there are fewer than limit.
func (n *RecordableNames) learn(server, name string, limit int) {
	if name == "" || len(name) > maxTold || server == "" || n.has(server, name) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count >= limit || n.known[server][name] {
		return
	}
	if n.known[server] == nil {
		if n.known == nil {
			n.known = make(map[string]map[string]bool)
		}
		n.known[server] = make(map[string]bool)
	}
	n.known[server][strings.Clone(name)] = true
	n.count++
}

// list takes in the names of a list that stages have judged, in which they found what the steps
// say; with only, those of these.
func (n *RecordableNames) list(m *mcp.Message, steps []Step, only ...string) {
	method, _ := mcp.LookupMethod(m.Method)
	if m.Kind != mcp.Response || method.ItemsPointer == "" || method.ItemNamePointer == "" {
		return
	}
	m.Items(method.ItemsPointer, func(i int, raw []byte) bool {
		name, ok := mcp.NewNotification("", raw).Text(method.ItemNamePointer)
		if ok && (len(only) == 0 || slices.Contains(only, name)) && !found(steps,
			method.ItemsPointer+"/"+strconv.Itoa(i)+method.ItemNamePointer) {
			n.learn(m.Server, name, maxListed)
		}
		return true
	})
}

// found says whether a step found something at the pointer, or in what holds it or is in it. What
// was found at no place in particular is not counted.
func found(steps []Step, at string) bool {
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

// foundInName says whether a step found something in what m's Name is taken from.
func foundInName(m *mcp.Message, steps []Step) bool {
	if m.Kind != mcp.Request && m.Kind != mcp.Notification {
		return false
	}
	method, _ := mcp.LookupMethod(m.Method)
	at := method.NamePointer
	if method.Route == mcp.RouteByReference {
		at = "/ref"
	}
	return at != "" && found(steps, at)
}

// foundInMethod says whether a step found something at no place of the body where the method is
// none that is known: so it says that it is in that.
func foundInMethod(m *mcp.Message, steps []Step) bool {
	return madeUp(m.Method) && slices.ContainsFunc(steps, func(s Step) bool {
		return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Pointer == "" })
	})
}

func madeUp(method string) bool {
	_, known := mcp.LookupMethod(method)
	return !known
}

// unnamed is m, marked so that the records of its answers do not name what it is about.
func unnamed(m *mcp.Message) *mcp.Message {
	c := *m
	c.NameWithheld = true
	return &c
}

// names says whether m's Name is one that a server has listed, or the configuration has given or
// taken.
func (p *Pipeline) names(m *mcp.Message) bool {
	if p.options.RecordableNames.has(m.Server, m.Name) {
		return true
	}
	return slices.ContainsFunc(p.layers, func(l *layer) bool {
		names := l.of(m.Method)
		_, own := names.known[m.Name]
		_, known := names.own[m.Name]
		return own || known
	})
}

// veils says which of the names in o are not for the record: nobody judged them, or something was
// found there.
func (p *Pipeline) veils(o *Outcome) (name, method bool) {
	m := o.Before
	if !p.judges { // nobody looks for anything in the rest of the message either
		return false, false
	}
	of := m.NameWithheld || m.Request != nil && m.Request.NameWithheld
	name = m.Name != "" && (of || foundInName(m, o.Steps) || !o.judged && !p.names(m))
	method = m.Method != "" && madeUp(m.Method) && (of || foundInMethod(m, o.Steps) || !o.judged)
	return name, method
}

// veil is o for the record, without the words of a peer that are not for it.
func (p *Pipeline) veil(o Outcome) Outcome {
	m := o.Before
	name, method := p.veils(&o)
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
	if o.After == m { // it moves with its name; only the record has it without
		o.After = &c
	}
	o.Before = &c
	return o
}

// quote leaves out of the Reason, which is an error's message of Gatekit's own, what it quotes, and
// has the rest of the error kept in no body: who asks for something is told what there is not, but
// nobody has judged it.
func (o *Outcome) quote(m *mcp.Message) {
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
		switch what, _ := strconv.Unquote(quoted); what {
		case "", m.Server, mcp.MetaProtocolVersion, mcp.MetaCapabilities, mcp.MetaClientInfo,
			mcp.MetaLogLevel:
			b.WriteString(quoted)
		default:
			b.WriteString("…")
			o.Withheld = append(o.Withheld, what)
		}
	}
	o.Reason = b.String() + text
	if data, ok := m.Get("/data"); ok {
		o.Withheld = append(o.Withheld, string(data))
	}
}
