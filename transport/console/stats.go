package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"gatekit/audit/query"
)

// Stats has the figures of "gatekit audit stats".
type Stats interface {
	// Stats returns the figures of the calls that a filter selects. Filter is an expression as for
	// Traffic.Calls. The caller must not change them.
	Stats(ctx context.Context, filter string) (*StatsReport, error)
}

// StatsReport has the figures, and the words of the filter for people.
type StatsReport struct {
	*query.Stats
	Timeline Timeline
	Words    []string
	Failures []string // logs that cannot be read, and are counted in part at most
}

// Bounds of the page.
const (
	maxStatsRows = 20 // of a table
	maxStatsBars = 12 // of a plot
)

// defaultStatsFilter is the filter of the page without a filter in the URL.
const defaultStatsFilter = "--since 24h"

// StatsPage returns the page with the figures.
func StatsPage(s Stats) Page {
	return Page{Name: "stats", Title: "Stats",
		Data: func(ctx context.Context, r Request) (any, error) {
			filter := cmp.Or(r.Query.Get("filter"), defaultStatsFilter)
			report, err := s.Stats(ctx, filter)
			if err != nil {
				return nil, err
			}
			return viewStats(filter, report), nil
		},
	}
}

// statsView is the data of the template.
type statsView struct {
	*StatsReport
	Filter     string
	IsDefault  bool
	IsEmpty    bool
	IsFleet    bool // several logs
	Timeline   plot
	Steps      []timeStep
	Groups     []statsGroup
	Denials    []query.DenialCount
	Unenforced []query.UnenforcedCount
	Slowest    []slowCall
	Events     []eventCount
	More       map[string]int // rows that were left out, by table
}

// statsGroup is a table of calls by server, tool or principal.
type statsGroup struct {
	ID, Title string
	Rows      []statsRow
	More      int
	Calls     *plot // nil for none
	Latency   *plot
}

// timeStep is a row of the table beside the plot of the calls by time.
type timeStep struct {
	Start time.Time
	Bucket
}

type statsRow struct {
	*query.CallCounts
	P50, P95, P99 time.Duration
}

type slowCall struct {
	Seq                     uint64
	Replica                 string
	Took                    time.Duration
	Server, Subject, Caller string
}

// Ref returns the name of the first record.
func (c slowCall) Ref() string { return refOf(c.Replica, c.Seq) }

type eventCount struct {
	Name  string
	Count int
}

func viewStats(filter string, report *StatsReport) statsView {
	v := statsView{StatsReport: report, Filter: filter, IsDefault: filter == defaultStatsFilter,
		IsEmpty: report.Since.IsZero(), More: map[string]int{}}
	if v.IsEmpty {
		return v
	}
	v.Timeline = plotTimeline(&report.Timeline)
	for i, b := range report.Timeline.Buckets {
		v.Steps = append(v.Steps, timeStep{report.Timeline.Start.Add(time.Duration(i) *
			report.Timeline.Width), b})
	}
	all, fromServers := report.Calls, report.ServerRequests
	all.Name, fromServers.Name = "from clients", "from servers"
	sums := []*query.CallCounts{&all}
	if fromServers.All > 0 {
		sums = append(sums, &fromServers)
	}
	v.Groups = []statsGroup{groupOf("calls", "Calls", sums, false),
		groupOf("servers", "Servers", report.Servers(), true),
		groupOf("tools", "Tools", report.Tools(), true),
		groupOf("principals", "Principals", report.Principals(), false)}
	if replicas := report.Replicas(); len(replicas) > 0 {
		v.Groups = append(v.Groups, groupOf("replicas", "Replicas", replicas, false))
		v.IsFleet = true
	}
	v.Denials = cutRows(v.More, "denials", report.Denials())
	v.Unenforced = cutRows(v.More, "unenforced", report.Unenforced())
	for _, c := range report.Slowest {
		v.Slowest = append(v.Slowest, slowCall{Seq: c.FirstSeq, Replica: c.Replica,
			Took: c.Duration, Server: strings.Join(c.Servers, ", "), Subject: subjectOf(c),
			Caller: c.Caller()})
	}
	var events []eventCount
	for _, name := range slices.Sorted(maps.Keys(report.Events)) {
		events = append(events, eventCount{name, report.Events[name]})
	}
	v.Events = cutRows(v.More, "events", events)
	return v
}

// cutRows returns the first rows, and notes how many it left out.
func cutRows[T any](more map[string]int, table string, rows []T) []T {
	more[table] = max(0, len(rows)-maxStatsRows)
	return rows[:min(len(rows), maxStatsRows)]
}

func groupOf(id, title string, all []*query.CallCounts, plots bool) statsGroup {
	g := statsGroup{ID: id, Title: title, More: max(0, len(all)-maxStatsRows)}
	for _, n := range all[:min(len(all), maxStatsRows)] {
		g.Rows = append(g.Rows, statsRow{n, n.Latency(50), n.Latency(95), n.Latency(99)})
	}
	if plots && len(all) > 0 {
		shown := g.Rows[:min(len(g.Rows), maxStatsBars)]
		calls, latency := plotCalls(title, shown), plotLatency(title, shown)
		g.Calls, g.Latency = &calls, &latency
	}
	return g
}

// Timeline counts calls by time, in at most maxBuckets buckets of equal width. Its zero value is
// empty. Calls must be added roughly in the order of their starts: an earlier call counts in the
// first bucket.
type Timeline struct {
	Start   time.Time // of the first bucket
	Width   time.Duration
	Buckets []Bucket
}

// Bucket counts the calls of one time.
type Bucket struct{ Calls, Refused, Failed int }

const maxBuckets = 60

// Add counts a call of a client. Other calls, events and notifications are left out, as in
// query.Stats.Calls.
func (t *Timeline) Add(c *query.Call) {
	if c.Kind == "event" || c.Kind == "notification" || c.FromServer {
		return
	}
	if t.Width == 0 {
		t.Width, t.Start = time.Minute, c.Start.Truncate(time.Minute)
	}
	at := max(0, c.Start.Sub(t.Start)/t.Width)
	for at >= maxBuckets {
		t.widen()
		at = c.Start.Sub(t.Start) / t.Width
	}
	for int(at) >= len(t.Buckets) {
		t.Buckets = append(t.Buckets, Bucket{})
	}
	b := &t.Buckets[at]
	b.Calls++
	switch c.Status {
	case query.StatusRefused:
		b.Refused++
	case query.StatusError, query.StatusToolFailed:
		b.Failed++
	}
}

// widen doubles the width of the buckets.
func (t *Timeline) widen() {
	merged := make([]Bucket, 0, maxBuckets)
	for i, b := range t.Buckets {
		if i%2 == 0 {
			merged = append(merged, b)
			continue
		}
		last := &merged[len(merged)-1]
		last.Calls += b.Calls
		last.Refused += b.Refused
		last.Failed += b.Failed
	}
	t.Buckets, t.Width = merged, 2*t.Width
}
