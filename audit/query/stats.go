package query

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	maxGroups  = 500 // of one kind; what is beyond is counted as Others
	maxSlowest = 10
)

// Others stands for the servers, principals and rules beyond those that are told apart.
const Others = "(others)"

// Stats counts calls. Its memory is bounded: latencies are kept to 1 %, and of each kind at most 500 are told apart. The zero value is ready.
type Stats struct {
	first, last time.Time
	all         Count
	events      map[string]int
	rules       map[Rule]int
	servers     map[string]*Count
	tools       map[string]*Count
	principals  map[string]*Count
	slowest     []*Call
}

// Count is what there was of calls.
type Count struct {
	Calls, Refused, Changed, Failed, Cancelled, Open int

	took *hdrhistogram.Histogram
}

// Rule is what refused something: a stage, and of the policies the rule.
type Rule struct{ Stage, Rule string }

// Add counts a call.
func (s *Stats) Add(c *Call) {
	if s.first.IsZero() || c.Began.Before(s.first) {
		s.first = c.Began
	}
	if end := c.Began.Add(c.Took); end.After(s.last) {
		s.last = end
	}
	if c.Action == "deny" || c.Action == "ask" || c.Action == "reject" {
		group(&s.rules, ruleOf(c), Rule{Stage: Others})
	}
	if c.Kind == "event" {
		group(&s.events, c.Action, Others)
	}
	if c.Kind != "request" {
		return
	}
	s.all.add(c)
	for _, name := range c.Servers {
		counted(&s.servers, name).add(c)
	}
	if c.Method == "tools/call" && c.Name != "" {
		counted(&s.tools, strings.Join(c.Servers, ",")+" "+c.Name).add(c)
	}
	counted(&s.principals, c.Who()).add(c)
	if c.End != Answered && c.End != Failed {
		return
	}
	at, _ := slices.BinarySearchFunc(s.slowest, c, func(a, b *Call) int { return cmp.Compare(b.Took, a.Took) })
	if at < maxSlowest {
		s.slowest = slices.Insert(s.slowest, at, c)
		s.slowest = s.slowest[:min(len(s.slowest), maxSlowest)]
	}
}

func group[K comparable](m *map[K]int, key, others K) {
	if *m == nil {
		*m = map[K]int{}
	}
	if _, known := (*m)[key]; !known && len(*m) >= maxGroups {
		key = others
	}
	(*m)[key]++
}

func counted(m *map[string]*Count, key string) *Count {
	if *m == nil {
		*m = map[string]*Count{}
	}
	if (*m)[key] == nil && len(*m) >= maxGroups {
		key = Others
	}
	if (*m)[key] == nil {
		(*m)[key] = &Count{}
	}
	return (*m)[key]
}

func (n *Count) add(c *Call) {
	n.Calls++
	switch c.End {
	case Refused:
		n.Refused++
	case Failed:
		n.Failed++
	case Cancelled:
		n.Cancelled++
	case Open:
		n.Open++
	}
	if c.Action == "modify" || c.Action == "hide" {
		n.Changed++
	}
	if c.End == Answered || c.End == Failed {
		if n.took == nil {
			n.took = hdrhistogram.New(1, time.Hour.Microseconds(), 2)
		}
		n.took.RecordValue(min(max(c.Took.Microseconds(), 1), time.Hour.Microseconds())) // within its bounds it cannot fail
	}
}

// Took answers what so many percent of the calls that were answered took at most; 0 when there are none. What took more than an hour counts as one.
func (n *Count) Took(percent float64) time.Duration {
	if n.took == nil {
		return 0
	}
	return time.Duration(n.took.ValueAtQuantile(percent)) * time.Microsecond
}

// ruleOf is what refused the call. A policy's reason begins with the rule; of several rules the first is taken.
func ruleOf(c *Call) Rule {
	r := Rule{Stage: c.Stage()}
	switch {
	case r.Stage == "":
		r.Stage = "gatekit"
	case c.Decision != nil && c.Decision.Error != "":
		r.Rule = "(failed)"
	case r.Stage == "policy":
		reason := strings.TrimPrefix(c.Reason, "a human has to approve: ")
		if rule, _, ok := strings.Cut(reason, ": "); ok && !strings.Contains(rule, " ") {
			r.Rule = rule
		}
	}
	return r
}
