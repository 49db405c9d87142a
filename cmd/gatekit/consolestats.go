package main

import (
	"context"
	"sync"
	"time"

	"gatekit/audit/query"
	"gatekit/transport/console"
)

// statsAge is the time for which figures are shown again while the log has no new record: --since
// 24h moves.
const statsAge = 30 * time.Second

// consoleStats implements console.Stats with the figures of gatekit audit stats.
type consoleStats struct {
	file      string        // of the audit log
	committed func() uint64 // seq of the last record that may be read

	mu      sync.Mutex // held while the log is read
	filter  string     // of last
	through uint64     // the last record of the log when last was read
	at      time.Time  // when it was read
	last    *console.StatsReport
}

// Stats implements console.Stats. It reads the log for one viewer at a time.
func (s *consoleStats) Stats(ctx context.Context, expression string) (*console.StatsReport,
	error) {
	filter, words, err := parseFilter(expression)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	through := s.committed()
	if s.last != nil && s.filter == expression && s.through == through &&
		time.Since(s.at) < statsAge {
		return s.last, nil
	}
	report := &console.StatsReport{Stats: &query.Stats{}, Words: words}
	for call, err := range mergedCalls(ctx, []auditLog{{file: s.file}}, filter, query.Options{}) {
		if err != nil {
			return nil, err
		}
		report.Add(call)
		report.Timeline.Add(call)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.filter, s.through, s.at, s.last = expression, through, time.Now(), report
	return report, nil
}
