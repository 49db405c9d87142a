package query_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
)

func stats(t testing.TB, file string, f query.Filter) (s query.Stats) {
	t.Helper()
	for c, err := range query.Calls(t.Context(), &audit.Reader{File: file}, &f, query.Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		s.Add(c)
	}
	return s
}

// nameCounts returns the name of each group and the number of its calls.
func nameCounts(counts []*query.CallCounts) (names []string) {
	for _, n := range counts {
		names = append(names, fmt.Sprintf("%s %d", n.Name, n.All))
	}
	return names
}

func TestStats(t *testing.T) {
	s := stats(t, writeLog(t, `
		+0s -/- - - - - - start: version 1
		+0s s1/1 to_server request tools/list files - pass
		+0s s1/1 to_server request tools/list github - pass
		+1ms s1/1 to_client response tools/list files - hide: 1 [tools]
		+2ms s1/1 to_client response tools/list github - pass
		+2ms s1/1 to_client response tools/list - - answer
		+1s s1/2 to_server request tools/call files read pass
		+1002ms s1/2 to_client response tools/call files read pass
		+2s s1/3 to_server request tools/call files read pass
		+4s s1/3 to_client error tools/call files read pass
		+5s s2/1 to_server request tools/call files rm deny: tools/readonly: no; other.rule: no [policy]
		+6s s2/2 to_server request tools/call files rm ask: needs approval: tools/pay: it costs [policy]
		+7s s2/3 to_server request tools/call github search deny: it is hidden [tools]
		+8s s2/4 to_server request tools/call github slow pass
		+9s s2/4 to_client request sampling/createMessage github - deny: tools/readonly: no [policy]
		+9s s2/4 to_client notification notifications/progress github - deny: loud [injection]
		+10s s2/4 to_server notification notifications/cancelled github - pass
		+11s s2/5 to_server request tools/call github slow pass
		+12s s2/6 to_client error tools/call - - answer: no such server
		+13s -/- - - - github - lost`), query.Filter{})
	if want := (query.CallCounts{All: 9, Refused: 3, Modified: 1, Failed: 2, Cancelled: 1,
		Open: 1}); !equal(s.Calls, want) {
		t.Errorf("calls: got %+v, want %+v", s.Calls, want)
	}
	if want := (query.CallCounts{All: 1, Refused: 1}); !equal(s.ServerRequests, want) {
		t.Errorf("server requests: got %+v, want %+v", s.ServerRequests, want)
	}
	for group, gotAndWant := range map[string][2][]string{
		"servers": {nameCounts(s.Servers()), {"files 5", "github 4"}},
		"tools": {nameCounts(s.Tools()), {"files read 2", "files rm 2", "github slow 2",
			"github search 1"}},
		"principals": {nameCounts(s.Principals()), {"s2 6", "s1 3"}},
	} {
		if got, want := gotAndWant[0], gotAndWant[1]; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", group, got, want)
		}
	}
	want := []query.DenialCount{{query.DenialSource{Stage: "policy", Rule: "tools/readonly"}, 2},
		{query.DenialSource{Stage: "injection"}, 1}, {query.DenialSource{Stage: "policy",
			Rule: "tools/pay"}, 1},
		{query.DenialSource{Stage: "tools"}, 1}}
	if got := s.Denials(); !slices.Equal(got, want) {
		t.Errorf("denials: %v, want %v", got, want)
	}
	if want := map[string]int{"start": 1, "lost": 1}; !reflect.DeepEqual(s.Events, want) {
		t.Errorf("events: got %v, want %v", s.Events, want)
	}
	if len(s.Slowest) != 4 || s.Slowest[0].FirstSeq != 9 ||
		s.Slowest[0].Duration != 2*time.Second ||
		s.Slowest[3].FirstSeq != 19 {
		t.Errorf("got %d slowest calls, the first is %q; want 4, the first of record 9 and the "+
			"last of record 19", len(s.Slowest), formatCall(s.Slowest[0]))
	}
	if !s.Since.Equal(startTime) || !s.Until.Equal(startTime.Add(13*time.Second)) {
		t.Errorf("the calls are from %s to %s, want %s and 13 s later", s.Since, s.Until,
			startTime)
	}
}

// equal reports whether counts are equal, apart from names and latencies.
func equal(got, want query.CallCounts) bool {
	return got.All == want.All && got.Refused == want.Refused && got.Modified == want.Modified &&
		got.Failed == want.Failed && got.Cancelled == want.Cancelled && got.Open == want.Open
}

func TestLatencyIsAccurateToOnePercent(t *testing.T) {
	var s query.Stats
	for i := range 1000 {
		s.Add(&query.Call{Start: startTime, Kind: "request", Status: query.StatusAnswered,
			Duration: time.Duration(i+1) * 100 * time.Microsecond})
	}
	// the duration of a cancelled call is not counted
	s.Add(&query.Call{Start: startTime, Kind: "request", Status: query.StatusCancelled,
		Duration: time.Hour})
	for percent, want := range map[float64]time.Duration{50: 50 * time.Millisecond,
		95: 95 * time.Millisecond, 99: 99 * time.Millisecond} {
		if got := s.Calls.Latency(percent); got < want*99/100 || got > want*101/100 {
			t.Errorf("p%g is %s, want %s ± 1 %%", percent, got, want)
		}
	}
	if got := new(query.CallCounts).Latency(50); got != 0 {
		t.Errorf("p50 without calls is %s, want 0", got)
	}
	s = query.Stats{}
	s.Add(&query.Call{Start: startTime, Kind: "request", Status: query.StatusAnswered,
		Duration: 30 * time.Hour})
	if got := s.Calls.Latency(50); got < 59*time.Minute || got > 61*time.Minute {
		t.Errorf("p50 of a call of 30 hours is %s, want an hour", got)
	}
}

func TestStatsAreBounded(t *testing.T) {
	var s query.Stats
	for i := range 2000 {
		name := fmt.Sprint("x", i)
		s.Add(&query.Call{Start: startTime, Kind: "request", Status: query.StatusAnswered,
			Duration: time.Duration(i) * time.Millisecond, Session: name, Servers: []string{name},
			Method: "tools/call", Name: name})
		s.Add(&query.Call{Start: startTime, Kind: "event", Action: name})
		s.Add(&query.Call{Start: startTime, Kind: "request", Action: "deny",
			Status:   query.StatusRefused,
			Reason:   name + ": no",
			Decision: &audit.Record{Steps: []audit.Step{{Stage: "policy", Action: "deny"}}}})
	}
	for group, n := range map[string]int{"servers": len(s.Servers()), "tools": len(s.Tools()),
		"principals": len(s.Principals()), "rules": len(s.Denials())} {
		if n != 501 {
			t.Errorf("got %d %s, want 501", n, group)
		}
	}
	if first := s.Servers()[0]; first.Name != query.Others || first.All != 1500 {
		t.Errorf("the most called server is %s with %d calls, want %s with 1500", first.Name,
			first.All, query.Others)
	}
	if len(s.Events) != 500 || len(s.Slowest) != 10 ||
		s.Slowest[0].Duration != 1999*time.Millisecond ||
		!strings.HasPrefix(s.Denials()[0].Stage, "(others") {
		t.Errorf("got %d events, %d slowest calls, and most denials by %v; want 500, 10 and %s",
			len(s.Events), len(s.Slowest), s.Denials()[0], query.Others)
	}
}
