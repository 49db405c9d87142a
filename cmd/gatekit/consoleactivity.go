package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
)

// Bounds of the part of the log that the pages Servers, Tools and Policies count.
const (
	activityPeriod  = 24 * time.Hour
	activityRecords = 100_000          // newest records
	activityAge     = 10 * time.Second // for so long, a count is shown again
	activityNames   = 5_000            // tools, and servers, with details
)

// activity holds figures about the newest part of the log.
type activity struct {
	stats   query.Stats
	since   time.Time // of the period
	first   uint64    // seq of the first record that was read
	cut     bool      // older records of the period were not read
	tools   map[toolKey]*toolActivity
	servers map[string]*serverActivity
}

type toolKey struct{ server, name string }

// toolActivity holds the figures of one tool.
type toolActivity struct {
	calls, refused int
	last           lastRefusal
	hiddenBy       []string // stages
}

// lastRefusal is the last refusal of a call of a tool.
type lastRefusal struct {
	seq    uint64 // 0 for none
	time   time.Time
	stage  string
	reason string
}

// serverActivity holds the figures of one server.
type serverActivity struct{ calls, refused, failed, restarts, lost int }

// activityReader reads the activity, and keeps it for a while. Nothing is read while nobody asks.
type activityReader struct {
	file      string        // of the audit log
	committed func() uint64 // seq of the last record that may be read

	mu      sync.Mutex // held while the log is read
	at      time.Time
	through uint64
	last    *activity
}

// read returns the activity. Callers must not change it.
func (r *activityReader) read(ctx context.Context) (*activity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	through := r.committed()
	if r.last != nil && (through == r.through || time.Since(r.at) < activityAge) {
		return r.last, nil
	}
	a := &activity{since: time.Now().Add(-activityPeriod), first: 1,
		tools: map[toolKey]*toolActivity{}, servers: map[string]*serverActivity{}}
	if through > activityRecords {
		a.first = through - activityRecords
		a.cut = isWithin(ctx, r.file, a.first, a.since)
	}
	log := &audit.Reader{File: r.file, From: a.first, Seek: true}
	for c, err := range query.Calls(ctx, log, &query.Filter{Since: a.since}, query.Options{}) {
		if err != nil {
			return nil, err
		}
		if c.FirstSeq <= through { // a failed write may remove the others
			a.add(c)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.last, r.at, r.through = a, time.Now(), through
	return a, nil
}

// isWithin reports whether a record was written at or after a time.
func isWithin(ctx context.Context, file string, seq uint64, since time.Time) bool {
	for line, err := range (&audit.Reader{File: file, From: seq, Seek: true}).Lines(ctx) {
		if err != nil {
			return true // the next read reports the error
		}
		record, err := audit.ParseSummary(line)
		return err != nil || !record.Time.Before(since)
	}
	return false
}

func (a *activity) add(c *query.Call) {
	a.stats.Add(c)
	for _, name := range c.Servers {
		s := a.servers[name]
		if s == nil && len(a.servers) < activityNames {
			s = &serverActivity{}
			a.servers[name] = s
		}
		if s != nil {
			s.add(c)
		}
	}
	if len(c.Servers) != 1 {
		return
	}
	server := c.Servers[0]
	switch {
	case c.Method == "tools/call" && c.Name != "" && !c.FromServer:
		t := a.tool(server, c.Name)
		if t == nil {
			return
		}
		t.calls++
		if c.Status == query.StatusRefused {
			t.refused++
			if c.FirstSeq > t.last.seq {
				t.last = lastRefusal{c.FirstSeq, c.Start, c.DecidingStage(), c.Reason}
			}
		}
	case c.Method == "tools/list" && c.Decision != nil:
		for _, step := range c.Decision.Steps {
			for _, name := range step.Hidden {
				t := a.tool(server, name)
				if t != nil && name != "…" && !slices.Contains(t.hiddenBy, step.Stage) {
					t.hiddenBy = append(t.hiddenBy, step.Stage)
				}
			}
		}
	}
}

// tool returns the activity of a tool, or nil if there are too many.
func (a *activity) tool(server, name string) *toolActivity {
	key := toolKey{server, name}
	t := a.tools[key]
	if t == nil && len(a.tools) < activityNames {
		t = &toolActivity{}
		a.tools[key] = t
	}
	return t
}

func (s *serverActivity) add(c *query.Call) {
	switch {
	case c.Kind == "event":
		switch c.Action {
		case "restarted":
			s.restarts++
		case "lost":
			s.lost++
		}
	case c.Kind == "request" && !c.FromServer:
		s.calls++
		switch c.Status {
		case query.StatusRefused:
			s.refused++
		case query.StatusError, query.StatusToolFailed:
			s.failed++
		}
	}
}
