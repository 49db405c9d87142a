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
	maxGroups  = 500 // entries in each map of Stats, not counting Others
	maxSlowest = 10
)

// Others is the group of all servers, tools, principals or rules after the first 500.
const Others = "(others)"

// Stats are statistics of calls, in bounded memory. The zero value is ready to use. Stats are not
// safe for concurrent use.
type Stats struct {
	Since, Until   time.Time  // start of the first call, end of the last
	Calls          CallCounts // calls of clients
	ServerRequests CallCounts // requests of servers to clients
	Events         map[string]int
	Slowest        []*Call // the ten slowest answered calls, slowest first

	servers, tools, principals, replicas map[string]*CallCounts
	denials                              map[DenialSource]int
	unenforced                           map[UnenforcedSource]int
}

// CallCounts counts calls by their results.
type CallCounts struct {
	Name     string // the group: a server, "SERVER TOOL", or a principal
	All      int
	Refused  int
	Modified int // including lists with hidden items
	// with a JSON-RPC error, or a tool's result with isError: true
	Failed    int
	Cancelled int
	Open      int

	latencies *hdrhistogram.Histogram
}

// DenialSource names the stage that denied a message and, for policies, the rule. Gatekit itself is
// the stage "gatekit".
type DenialSource struct{ Stage, Rule string }

// DenialCount is the number of calls that one source denied or rejected, or for which it demanded
// an approval.
type DenialCount struct {
	DenialSource
	Count int
}

// UnenforcedSource names an action that was not taken, such as would_deny, and the stage and rule
// that would have taken it if they were enforced.
type UnenforcedSource struct {
	Action string
	DenialSource
}

// UnenforcedCount is the number of calls that passed although one source would have acted.
type UnenforcedCount struct {
	UnenforcedSource
	Count int
}

// Unenforced returns how often stages and rules that are not enforced would have acted, the most
// frequent first.
func (s *Stats) Unenforced() (all []UnenforcedCount) {
	for source, count := range s.unenforced {
		all = append(all, UnenforcedCount{source, count})
	}
	slices.SortFunc(all, func(a, b UnenforcedCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Action, b.Action),
			cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

func (s *Stats) countUnenforced(source UnenforcedSource) {
	if s.unenforced == nil {
		s.unenforced = map[UnenforcedSource]int{}
	}
	if _, known := s.unenforced[source]; !known && len(s.unenforced) >= maxGroups {
		source = UnenforcedSource{source.Action, DenialSource{Stage: Others}}
	}
	s.unenforced[source]++
}

// Add counts a call. It keeps c if c is among the slowest.
func (s *Stats) Add(c *Call) {
	if s.Since.IsZero() || c.Start.Before(s.Since) {
		s.Since = c.Start
	}
	if end := c.Start.Add(c.Duration); end.After(s.Until) {
		s.Until = end
	}
	switch {
	case c.Action == "deny", c.Action == "ask", c.Action == "reject":
		s.countDenial(denialSourceOf(c))
	case strings.HasPrefix(c.Action, "would_"):
		s.countUnenforced(UnenforcedSource{c.Action, denialSourceOf(c)})
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
		countsOf(&s.servers, name).add(c)
	}
	if c.Method == "tools/call" && c.Name != "" {
		countsOf(&s.tools, strings.Join(c.Servers, ",")+" "+c.Name).add(c)
	}
	countsOf(&s.principals, c.Caller()).add(c)
	if c.Replica != "" {
		countsOf(&s.replicas, c.Replica).add(c)
	}
	if c.isAnswered() {
		index, _ := slices.BinarySearchFunc(s.Slowest, c, func(a, b *Call) int {
			return cmp.Compare(b.Duration, a.Duration)
		})
		if index < maxSlowest {
			s.Slowest = slices.Insert(s.Slowest, index, c)
			s.Slowest = s.Slowest[:min(len(s.Slowest), maxSlowest)]
		}
	}
}

func (s *Stats) countDenial(source DenialSource) {
	if s.denials == nil {
		s.denials = map[DenialSource]int{}
	}
	if _, known := s.denials[source]; !known && len(s.denials) >= maxGroups {
		source = DenialSource{Stage: Others}
	}
	s.denials[source]++
}

// countsOf returns the counts of the group with the name, or of Others if m is full.
func countsOf(m *map[string]*CallCounts, name string) *CallCounts {
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

// Servers returns the counts of each server, the most called first. A list request to several
// servers counts for each of them.
func (s *Stats) Servers() []*CallCounts { return sortedCounts(s.servers) }

// Tools returns the counts of each tool, the most called first.
func (s *Stats) Tools() []*CallCounts { return sortedCounts(s.tools) }

// Principals returns the counts of each principal, the most active first. A session without a known
// principal counts as a principal.
func (s *Stats) Principals() []*CallCounts { return sortedCounts(s.principals) }

// Replicas returns the counts of each replica, the most active first. It returns nothing if the
// calls have no replica.
func (s *Stats) Replicas() []*CallCounts { return sortedCounts(s.replicas) }

func sortedCounts(m map[string]*CallCounts) []*CallCounts {
	return slices.SortedFunc(maps.Values(m), func(a, b *CallCounts) int {
		return cmp.Or(cmp.Compare(b.All, a.All), cmp.Compare(a.Name, b.Name))
	})
}

// Denials returns the denials by source, the most frequent first.
func (s *Stats) Denials() (all []DenialCount) {
	for source, count := range s.denials {
		all = append(all, DenialCount{source, count})
	}
	slices.SortFunc(all, func(a, b DenialCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Stage, b.Stage),
			cmp.Compare(a.DenialSource.Rule, b.DenialSource.Rule))
	})
	return all
}

// maxDuration is the longest duration in latencies; longer durations count as maxDuration.
const maxDuration = time.Hour

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
	if c.isAnswered() {
		if n.latencies == nil {
			n.latencies = hdrhistogram.New(1, maxDuration.Microseconds(), 2)
		}
		// cannot fail within the bounds
		n.latencies.RecordValue(min(max(c.Duration.Microseconds(), 1), maxDuration.Microseconds()))
	}
}

// Latency returns the latency of the answered calls at a percentile, accurate to 1 %. It returns 0
// if there are no answered calls. Durations over an hour count as an hour.
func (n *CallCounts) Latency(percent float64) time.Duration {
	if n.latencies == nil {
		return 0
	}
	return time.Duration(n.latencies.ValueAtQuantile(percent)) * time.Microsecond
}

// denialSourceOf returns the stage that denied the call. If the policies denied it, denialSourceOf
// also returns the rule: the reason begins with the name of the first rule that denied.
func denialSourceOf(c *Call) DenialSource {
	source := DenialSource{Stage: cmp.Or(c.DecidingStage(), "gatekit")}
	switch {
	case c.Decision != nil && c.Decision.Error != "":
		source.Rule = "(failed)"
	case source.Stage == "policy":
		reason := strings.TrimPrefix(c.Reason, "needs approval: ")
		rule, _, ok := strings.Cut(reason, ": ")
		// the reason of would_modify may have only the names of rules: "RULE; RULE"
		if !ok && strings.HasPrefix(c.Action, "would_") {
			rule, _, _ = strings.Cut(reason, ";")
			ok = rule != ""
		}
		if ok && !strings.Contains(rule, " ") {
			source.Rule = rule
		}
	}
	return source
}
