package query

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	maxGroups  = 500 // of one kind that are told apart
	maxSlowest = 10
)

// Others stands for the servers, tools, principals and rules beyond the 500 that are told apart.
const Others = "(others)"

// Stats are what there was of calls. Its memory is bounded. The zero value is ready; it is not safe
// for many goroutines.
type Stats struct {
	Since, Until   time.Time  // when the first call began, and the last ended
	Calls          CallCounts // of clients
	ServerRequests CallCounts // of servers
	Events         map[string]int
	Slowest        []*Call // at most ten that were answered, the slowest first

	servers, tools, principals map[string]*CallCounts
	denials                    map[DenialSource]int
}

// CallCounts is how many calls there were, and what became of them.
type CallCounts struct {
	Name     string // of what it counts for: a server, "server tool", a principal
	All      int
	Refused  int
	Modified int // modified, or with items hidden
	// answered with an error, or with the result of a tool that says that it has failed
	Failed    int
	Cancelled int
	Open      int

	took *hdrhistogram.Histogram
}

// DenialSource is what refused something: a stage, and where that is the policies, which of them.
// The stage "gatekit" is Gatekit itself.
type DenialSource struct{ Stage, Rule string }

// DenialCount is how many times a rule refused.
type DenialCount struct {
	DenialSource
	Count int
}

// Add counts a call.
func (s *Stats) Add(c *Call) {
	if s.Since.IsZero() || c.Start.Before(s.Since) {
		s.Since = c.Start
	}
	if end := c.Start.Add(c.Duration); end.After(s.Until) {
		s.Until = end
	}
	switch c.Action {
	case "deny", "ask", "reject":
		s.denied(ruleOf(c))
	}
	switch {
	case c.Kind == "event":
		if s.Events == nil {
			s.Events = map[string]int{}
		}
		if _, known := s.Events[c.Action]; known || len(s.Events) < maxGroups {
			s.Events[c.Action]++
		}
		return
	case c.Kind == "notification":
		return
	case c.FromServer:
		s.ServerRequests.add(c)
		return
	}
	s.Calls.add(c)
	for _, name := range c.Servers {
		group(&s.servers, name).add(c)
	}
	if c.Method == "tools/call" && c.Name != "" {
		group(&s.tools, strings.Join(c.Servers, ",")+" "+c.Name).add(c)
	}
	group(&s.principals, c.Caller()).add(c)
	if c.answered() {
		at, _ := slices.BinarySearchFunc(s.Slowest, c, func(a, b *Call) int {
			return cmp.Compare(b.Duration, a.Duration)
		})
		if at < maxSlowest {
			s.Slowest = slices.Insert(s.Slowest, at, c)
			s.Slowest = s.Slowest[:min(len(s.Slowest), maxSlowest)]
		}
	}
}

func (s *Stats) denied(by DenialSource) {
	if s.denials == nil {
		s.denials = map[DenialSource]int{}
	}
	if _, known := s.denials[by]; !known && len(s.denials) >= maxGroups {
		by = DenialSource{Stage: Others}
	}
	s.denials[by]++
}

func group(m *map[string]*CallCounts, name string) *CallCounts {
	if *m == nil {
		*m = map[string]*CallCounts{}
	}
	if (*m)[name] == nil && len(*m) >= maxGroups {
		name = Others
	}
	if (*m)[name] == nil {
		(*m)[name] = &CallCounts{Name: name}
	}
	return (*m)[name]
}

// Servers answers the counts of each server, the most called first. A list that several were asked
// for counts for each.
func (s *Stats) Servers() []*CallCounts { return sorted(s.servers) }

// Tools answers the counts of each tool.
func (s *Stats) Tools() []*CallCounts { return sorted(s.tools) }

// Principals answers the counts of each principal, and of each session of one who is not known.
func (s *Stats) Principals() []*CallCounts { return sorted(s.principals) }

func sorted(m map[string]*CallCounts) []*CallCounts {
	return slices.SortedFunc(maps.Values(m), func(a, b *CallCounts) int {
		return cmp.Or(cmp.Compare(b.All, a.All), cmp.Compare(a.Name, b.Name))
	})
}

// Denials answers how many times each rule refused: requests, answers, questions and notifications.
func (s *Stats) Denials() (all []DenialCount) {
	for by, times := range s.denials {
		all = append(all, DenialCount{by, times})
	}
	slices.SortFunc(all, func(a, b DenialCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Stage, b.Stage),
			cmp.Compare(a.DenialSource.Rule, b.DenialSource.Rule))
	})
	return all
}

// longest is what more than that counts as.
const longest = time.Hour

func (n *CallCounts) add(c *Call) {
	n.All++
	switch c.Status {
	case StatusRefused:
		n.Refused++
	case StatusError, StatusToolFailed:
		n.Failed++
	case StatusCancelled:
		n.Cancelled++
	case StatusOpen:
		n.Open++
	}
	if c.Action == "modify" || c.Action == "hide" {
		n.Modified++
	}
	if c.answered() {
		if n.took == nil {
			n.took = hdrhistogram.New(1, longest.Microseconds(), 2)
		}
		// within its bounds it cannot fail
		n.took.RecordValue(min(max(c.Duration.Microseconds(), 1), longest.Microseconds()))
	}
}

// Latency answers how long that many percent of the calls that were answered took at most, to 1 %;
// 0 when there are none. What took more than an hour counts as one.
func (n *CallCounts) Latency(percent float64) time.Duration {
	if n.took == nil {
		return 0
	}
	return time.Duration(n.took.ValueAtQuantile(percent)) * time.Microsecond
}

// ruleOf is what refused the call. A reason of the policies begins with the rule; of several rules
// the first counts.
func ruleOf(c *Call) DenialSource {
	r := DenialSource{Stage: cmp.Or(c.DecidingStage(), "gatekit")}
	switch {
	case c.Decision != nil && c.Decision.Error != "":
		r.Rule = "(failed)"
	case r.Stage == "policy":
		reason := strings.TrimPrefix(c.Reason, "needs approval: ")
		if rule, _, ok := strings.Cut(reason, ": "); ok && !strings.Contains(rule, " ") {
			r.Rule = rule
		}
	}
	return r
}
