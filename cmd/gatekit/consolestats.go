package main

import (
	"context"
	"fmt"
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
	source func() (statsSource, error)

	mu      sync.Mutex // held while the log is read
	filter  string     // of last
	through string     // statsSource.through when last was read
	at      time.Time  // when it was read
	last    *console.StatsReport
}

// statsSource has the logs that are counted.
type statsSource struct {
	logs     []auditLog
	through  string // changes when a log gets records
	failures []string
}

// statsOf returns the source of one log.
func statsOf(file string, committed func() uint64) func() (statsSource, error) {
	return func() (statsSource, error) {
		return statsSource{logs: []auditLog{{file: file}}, through: fmt.Sprint(committed())}, nil
	}
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
	source, err := s.source()
	if err != nil {
		return nil, err
	}
	if s.last != nil && s.filter == expression && s.through == source.through &&
		time.Since(s.at) < statsAge {
		return s.last, nil
	}
	report := &console.StatsReport{Stats: &query.Stats{}, Words: words,
		Failures: source.failures}
	for call, err := range mergedCalls(ctx, source.logs, filter, query.Options{}) {
		if err != nil && len(source.logs) == 1 {
			return nil, err
		}
		if err != nil { // only one log ends, and its error names it
			report.Failures = append(report.Failures, err.Error())
			continue
		}
		report.Add(call)
		report.Timeline.Add(call)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.filter, s.through, s.at, s.last = expression, source.through, time.Now(), report
	return report, nil
}
