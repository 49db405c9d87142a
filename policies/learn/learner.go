package learn

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/policies"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Bounds of a learner.
const (
	maxServers = 256
	maxNames   = 4096    // tools, prompts and resources of one server
	maxPending = 100_000 // requests without an answer
	maxRates   = 100_000 // sessions whose rate is measured
	maxRate    = 100_000 // calls of one session within a minute
)

// learner collects what honest requests have in common.
type learner struct {
	seed    seed
	servers map[string]*serverUse
	count   int
	all     evidence
}

// serverUse is how one server is used.
type serverUse struct {
	evidence
	groups  map[string]bool
	names   map[string]map[string]*nameUse // by method and name
	asks    map[string]*evidence           // what the server asked of clients, by method
	rates   map[string]*rate               // by principal and session
	highest extreme                        // calls of tools within a minute of one session
}

// nameUse is how one tool, prompt or resource is used.
type nameUse struct {
	evidence
	groups    map[string]*evidence
	arguments shape
	bodies    int // requests whose arguments are known
}

// rate counts the calls of one session in the last minute.
type rate struct {
	times []time.Time
	from  int // index of the first one within the minute
}

func newLearner() *learner {
	return &learner{seed: seed{maphash.MakeSeed(), new(int)}, servers: map[string]*serverUse{}}
}

// groupOf returns the group of the principal of a case.
func groupOf(c *policies.Case) string {
	p := c.Message.Principal
	method := string(p.Method())
	if p.Issuer() == "" {
		return method
	}
	return method + " " + p.Issuer()
}

// learnedMethods are the methods of requests whose names are learned, with the member of the policy
// that has them.
var learnedMethods = map[string]string{"tools/call": "tools", "prompts/get": "prompts",
	"resources/read": "resources"}

// add learns from an honest request.
func (l *learner) add(c *policies.Case) {
	m := c.Message
	u := l.servers[m.Server]
	if u == nil {
		if len(l.servers) >= maxServers {
			return
		}
		u = &serverUse{groups: map[string]bool{}, names: map[string]map[string]*nameUse{},
			asks: map[string]*evidence{}, rates: map[string]*rate{}}
		l.servers[m.Server] = u
	}
	l.count++
	l.all.add(l.seed, c)
	if m.Direction == mcp.ToClient {
		if u.asks[m.Method] == nil {
			u.asks[m.Method] = &evidence{}
		}
		u.asks[m.Method].add(l.seed, c)
		return
	}
	u.add(l.seed, c)
	u.groups[groupOf(c)] = true
	if learnedMethods[m.Method] == "" {
		return
	}
	if m.Method == "tools/call" {
		u.countRate(l.seed, c)
	}
	names := u.names[m.Method]
	if names == nil {
		names = map[string]*nameUse{}
		u.names[m.Method] = names
	}
	n := names[m.Name]
	if n == nil {
		if len(names) >= maxNames {
			return
		}
		n = &nameUse{groups: map[string]*evidence{}}
		names[m.Name] = n
	}
	n.add(l.seed, c)
	group := groupOf(c)
	if n.groups[group] == nil {
		n.groups[group] = &evidence{}
	}
	n.groups[group].add(l.seed, c)
	if c.BodyMissing || m.Method == "resources/read" {
		return
	}
	raw, ok := m.Get("/arguments")
	arguments := map[string]any{}
	if ok {
		arguments = parseArguments(raw)
	}
	if arguments != nil {
		n.bodies++
		n.arguments.add(l.seed, c, arguments, 0)
	}
}

// countRate counts a call in its session, and keeps the largest number of calls within a minute.
func (u *serverUse) countRate(sd seed, c *policies.Case) {
	key := c.Message.Principal.ID() + "\x00" + c.Message.Session
	r := u.rates[key]
	if r == nil {
		if len(u.rates) >= maxRates {
			clear(u.rates)
		}
		r = &rate{}
		u.rates[key] = r
	}
	if len(r.times)-r.from < maxRate {
		r.times = append(r.times, c.Time)
	}
	for r.from < len(r.times) && c.Time.Sub(r.times[r.from]) >= time.Minute {
		r.from++
	}
	if r.from > len(r.times)/2 {
		r.times, r.from = slices.Delete(r.times, 0, r.from), 0
	}
	u.highest.add(float64(len(r.times)-r.from), sd.principal(c))
}

// ownActions are the actions of messages that Gatekit itself sent or answered. They show no work of
// a client or a server.
var ownActions = []string{"own", "answer", "park", "cancelled", "drop"}

// honestRequests calls f with each request that passed, whose result did too, and in which no stage
// found anything or changed what was there. A request that the server answered with an error is
// left out: somebody may only have tried whether a tool exists. The order is that of the answers.
// Requests of servers need no answer.
func honestRequests(source Source, f func(*policies.Case) error) (flagged int, err error) {
	type key struct{ principal, session, exchange, server, method string }
	// the oldest requests without an answer are forgotten; the error is about a size of 0
	pending, _ := simplelru.NewLRU[key, *policies.Case](maxPending, nil)
	err = source(func(c *policies.Case) error {
		if c.IsEvent {
			return nil
		}
		m := c.Message
		k := key{m.Principal.ID(), m.Session, c.Exchange(), m.Server, m.Method}
		clean := (c.Action == "pass" || c.Action == "modify" && c.OnlyAddedTo()) &&
			len(c.Findings) == 0 && cmp.Or(c.RecordedAction, "pass") == "pass"
		switch {
		case m.Server == "", slices.Contains(ownActions, c.Action):
			return nil
		case m.Kind == mcp.Request && m.Direction == mcp.ToClient:
			if clean {
				return f(c)
			}
			flagged++
		case m.Kind == mcp.Request:
			if !clean {
				flagged++
				pending.Remove(k)
				return nil
			}
			pending.Remove(k)
			pending.Add(k, c)
		case (m.Kind == mcp.Response || m.Kind == mcp.Error) && m.Direction == mcp.ToClient:
			request, _ := pending.Peek(k)
			pending.Remove(k)
			switch {
			case request == nil, clean && m.Kind == mcp.Error:
			case clean:
				return f(request)
			default:
				flagged++
			}
		}
		return nil
	})
	return flagged, err
}
