package pipeline

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"gatekit/core/mcp"
)

// maxListed bounds the names that are remembered because servers listed them.
const maxListed = 10_000

// listedNames are the names in servers' lists that went on to clients: they may be told whoever says them. The zero listedNames is empty and ready.
type listedNames struct {
	mu    sync.RWMutex
	names map[string]bool // by server and name
}

func (l *listedNames) has(server, name string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.names[server+"\x00"+name]
}

// learn takes in the names of a list that the stages have judged, in which they found what the steps say.
func (l *listedNames) learn(m *mcp.Message, steps []Step) {
	method, _ := mcp.Lookup(m.Method)
	if m.Kind != mcp.Response || method.ItemsAt == "" || method.ItemName == "" {
		return
	}
	m.Items(method.ItemsAt, func(i int, raw []byte) bool {
		name, ok := mcp.NewNotification("", raw).Text(method.ItemName)
		if !ok || found(steps, method.ItemsAt+"/"+strconv.Itoa(i)+method.ItemName) {
			return true
		}
		key := m.Server + "\x00" + name
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.names == nil {
			l.names = make(map[string]bool)
		}
		if l.names[key] || len(l.names) < maxListed {
			l.names[key] = true
		}
		return len(l.names) < maxListed
	})
}

// found says whether a step found something at the pointer, or in what holds it or is in it. What was found at no place in particular is not counted.
func found(steps []Step, at string) bool {
	for _, s := range steps {
		for _, f := range s.Findings {
			if f.Pointer == at || f.Pointer != "" && strings.HasPrefix(at, f.Pointer+"/") || strings.HasPrefix(f.Pointer, at+"/") {
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
	method, _ := mcp.Lookup(m.Method)
	at := method.NameAt
	if method.Route == mcp.ByRef {
		at = "/ref"
	}
	return at != "" && found(steps, at)
}

// foundInMethod says whether a step found something at no place of the body where the method is none that is known: so it says that it is in that.
func foundInMethod(m *mcp.Message, steps []Step) bool {
	return madeUp(m.Method) && slices.ContainsFunc(steps, func(s Step) bool {
		return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Pointer == "" })
	})
}

func madeUp(method string) bool {
	_, known := mcp.Lookup(method)
	return !known
}

// unnamed is m, marked so that the records of its answers do not name what it is about.
func unnamed(m *mcp.Message) *mcp.Message {
	c := *m
	c.Veiled = true
	return &c
}

// names says whether m's Name is one that a server has listed, or the configuration has given or taken.
func (p *Pipeline) names(m *mcp.Message) bool {
	if p.listed.has(m.Server, m.Name) {
		return true
	}
	return slices.ContainsFunc(p.layers, func(l *layer) bool {
		names := l.of(m.Method)
		_, own := names.known[m.Name]
		_, known := names.own[m.Name]
		return own || known
	})
}

// veils says which of the names in o are not for the record: nobody judged them, or something was found there.
func (p *Pipeline) veils(o *Outcome) (name, method bool) {
	m := o.Before
	if !p.judges { // nobody looks for anything in the rest of the message either
		return false, false
	}
	of := m.Veiled || m.Request != nil && m.Request.Veiled
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
		c.Name, o.Veiled = "", append(o.Veiled, m.Name)
	}
	if method {
		c.Method, o.Veiled = "", append(o.Veiled, m.Method)
	}
	if o.After == m { // it moves with its name; only the record has it without
		o.After = &c
	}
	o.Before = &c
	return o
}

// quote leaves out of the Reason, which is an error's message of Gatekit's own, what it quotes, and has the rest of the error kept in no body: who asks for something is told what there is not,
// but nobody has judged it.
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
			o.Veiled = append(o.Veiled, o.Reason)
			break
		}
		text = text[len(quoted):]
		switch what, _ := strconv.Unquote(quoted); what {
		case "", m.Server, mcp.MetaVersion, mcp.MetaCapabilities, mcp.MetaClientInfo, mcp.MetaLogLevel:
			b.WriteString(quoted)
		default:
			b.WriteString("…")
			o.Veiled = append(o.Veiled, what)
		}
	}
	o.Reason = b.String() + text
	if data, ok := m.Get("/data"); ok {
		o.Veiled = append(o.Veiled, string(data))
	}
}
