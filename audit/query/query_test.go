package query_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

var startTime = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// outcome parses an outcome in the notation of these tests. The notation has eight words, then
// optionally a reason and the deciding stage:
//
//	+250ms s1/1 to_server request tools/call files read pass: a reason [stage]
//
// The words are: time after startTime, session/exchange, direction, kind, method, server, name,
// action. An empty word is written as "-", as is an empty session or exchange. An exclamation mark
// after a tool's name means that the tool failed.
func outcome(t testing.TB, text string) pipeline.Outcome {
	t.Helper()
	head, reason, _ := strings.Cut(text, ": ")
	fields := strings.Fields(head)
	if len(fields) != 8 {
		t.Fatalf("%q has %d words, want 8", text, len(fields))
	}
	after, err := time.ParseDuration(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range fields {
		if fields[i] == "-" {
			fields[i] = ""
		}
	}
	fields[1] = strings.ReplaceAll(fields[1], "-", "")
	m := &mcp.Message{Method: fields[4], Server: fields[5], Name: fields[6]}
	m.Session, m.Exchange, _ = strings.Cut(fields[1], "/")
	m.Direction = map[string]mcp.Direction{"to_server": mcp.ToServer,
		"to_client": mcp.ToClient}[fields[2]]
	m.Kind = map[string]mcp.Kind{"request": mcp.Request, "response": mcp.Response,
		"error": mcp.Error, "notification": mcp.Notification}[fields[3]]
	reason, stage, hasStage := strings.Cut(strings.TrimSuffix(reason, "]"), " [")
	if toolName, ok := strings.CutSuffix(fields[6], "!"); ok { // the tool's result has isError
		m = mcp.NewResponse("1", []byte(`{"isError":true}`))
		m.Direction, m.Method, m.Server, m.Name = mcp.ToClient, fields[4], fields[5], toolName
		m.Session, m.Exchange, _ = strings.Cut(fields[1], "/")
	}
	o := pipeline.Outcome{Time: startTime.Add(after), Before: m, Action: fields[7], Reason: reason}
	if hasStage {
		o.Steps = []pipeline.Step{{Stage: "first", Action: "pass"},
			{Stage: stage, Action: fields[7],
				Reason: reason}}
		o.Duration = time.Millisecond
	}
	return o
}

// writeLog writes an audit log of records in the notation of outcome, and returns its file.
func writeLog(t testing.TB, records string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.TrimSpace(records)) {
		if _, err := l.Record(t.Context(), outcome(t, strings.TrimSpace(line))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// formatCall returns a call as one line.
func formatCall(c *query.Call) string {
	word := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	from := ""
	if c.FromServer {
		from = "← "
	}
	s := fmt.Sprintf("%d %s %s%s %s %s %s %s %s", c.FirstSeq, word(c.Session), from, word(c.Method),
		word(strings.Join(c.Servers, ",")), word(c.Name), word(c.Action), word(string(c.Status)),
		c.Duration)
	if c.Reason != "" {
		s += ": " + c.Reason
	}
	if c.DecidingStage() != "" {
		s += " [" + c.DecidingStage() + "]"
	}
	if c.Parked {
		s += " (parked)"
	}
	return s
}

// formatCalls returns the calls of a log that the filter selects, one line each.
func formatCalls(t testing.TB, file string, f query.Filter) (all []string) {
	t.Helper()
	for c, err := range query.Calls(t.Context(), &audit.Reader{File: file}, &f, query.Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, formatCall(c))
	}
	return all
}

func TestCallsJoinsRecords(t *testing.T) {
	for _, tt := range []struct{ name, records, want string }{
		{"a call that is answered", `
			+0s s/1 to_server request tools/call files read pass
			+5ms s/1 to_client response tools/call files read pass`,
			`1 s tools/call files read pass answered 5ms`},
		{"concurrent calls are returned in the order of their ends", `
			+0s s/1 to_server request tools/call files read pass
			+1ms s/2 to_server request tools/call files write pass
			+2ms s/2 to_client response tools/call files write pass
			+3ms s/1 to_client response tools/call files read pass`,
			`2 s tools/call files write pass answered 1ms
			1 s tools/call files read pass answered 3ms`},
		{"the same exchange in another session is another call", `
			+0s s/1 to_server request tools/call files read pass
			+1ms r/1 to_server request tools/call files read pass
			+2ms r/1 to_client response tools/call files read deny: no [policy]`,
			`2 r tools/call files read deny refused 2ms: no [policy]
			1 s tools/call files read pass - 0s`},
		{"a denied request has no response", `
			+0s s/1 to_server request tools/call files read deny: no [policy]`,
			`1 s tools/call files read deny refused 1ms: no [policy]`},
		{"a server withdraws its request, and the client's answer comes too late", `
			+0s s/1 to_server request tools/call files ask pass
			+1ms s/1 to_client request elicitation/create files - pass
			+2ms s/1 to_client notification notifications/cancelled files - pass
			+3ms s/1 to_client response tools/call files ask pass
			+4ms s to_client response - files - drop: answers no request in flight`,
			`2 s ← elicitation/create files - pass cancelled 1ms
			1 s tools/call files ask pass answered 3ms
			5 s - files - drop done 0s: answers no request in flight`},
		{"a call has the most severe action of its records: modify, not pass; deny, not modify", `
			+0s s/1 to_server request tools/call files read modify: took out a key [secrets]
			+1ms s/1 to_client response tools/call files read pass
			+2ms s/2 to_server request tools/call files read modify: took out a key [secrets]
			+3ms s/2 to_client response tools/call files read deny: no [policy]`,
			`1 s tools/call files read modify answered 1ms: took out a key [secrets]
			3 s tools/call files read deny refused 2ms: no [policy]`},
		{"an error of the server, and an error of Gatekit with its reason", `
			+0s s/1 to_server request tools/call files read pass
			+1ms s/1 to_client error tools/call files read pass
			+2ms s/2 to_client error tools/call - - answer: no such server`,
			`1 s tools/call files read pass error 1ms
			3 s tools/call - - answer error 0s: no such server`},
		{"a tool that failed", `
			+0s s/1 to_server request tools/call files read pass
			+1ms s/1 to_client response tools/call files read! pass`,
			`1 s tools/call files read pass failed 1ms`},
		{"a list of several servers and pages ends with the response to the client", `
			+0s s/1 to_server request tools/list a - pass
			+0s s/1 to_server request tools/list b - pass
			+1ms s/1 to_client response tools/list a - pass
			+2ms s/1 to_client response tools/list b - hide: 1 [tools]
			+2ms s/1 to_server request tools/list b - pass
			+4ms s/1 to_client response tools/list b - pass
			+5ms s/1 to_client response tools/list - - answer`,
			`1 s tools/list a,b - hide answered 5ms: 1 [tools]`},
		{"a list of the only server, whose names have no prefix, ends with the server's response", `
			+0s s/1 to_server request tools/list a - pass
			+1ms s/1 to_client response tools/list a - pass
			+2ms s/2 to_server request tools/call a read pass
			+3ms s/2 to_client response tools/call a read pass
			+300ms s/3 to_server request tools/call a read deny: no [policy]`,
			`3 s tools/call a read pass answered 1ms
			1 s tools/list a - pass answered 1ms
			5 s tools/call a read deny refused 1ms: no [policy]`},
		{"a server's request, and the parked call that it belongs to", `
			+0s s/1 to_server request tools/call old ask pass
			+1ms s/1 to_client request elicitation/create old - pass
			+2ms s/1 to_client response tools/call old - park: it waits
			+5s s/1 to_server request tools/call old - resume: it brings answers
			+5s s/1 to_server response elicitation/create old - pass
			+6s s/1 to_client response tools/call old ask pass`,
			`2 s ← elicitation/create old - pass answered 4.999s
			1 s tools/call old ask pass answered 6s (parked)`},
		{"a server's request whose response comes with the client's next request", `
			+0s s/1 to_server request tools/call new ask pass
			+1ms s/1 to_client request sampling/createMessage new - pass
			+2ms s/1 to_client response tools/call new ask pass
			+1s s/2 to_server request tools/call new ask pass
			+1s s/2 to_server response sampling/createMessage new - pass
			+2s s/2 to_client response tools/call new ask pass`,
			`1 s tools/call new ask pass answered 2ms
			2 s ← sampling/createMessage new - pass answered 999ms
			4 s tools/call new ask pass answered 1s`},
		{"equal server requests of two calls, answered in reverse order", `
			+0s s/1 to_client request roots/list old - pass
			+1ms s/2 to_client request roots/list old - pass
			+2ms s/2 to_server response roots/list old - pass
			+9ms s/1 to_server response roots/list old - pass`,
			`2 s ← roots/list old - pass answered 1ms
			1 s ← roots/list old - pass answered 9ms`},
		{"a denied server request", `
			+0s s/1 to_server request tools/call old ask pass
			+1ms s/1 to_client request sampling/createMessage old - deny: no [policy]
			+2ms s/1 to_client response tools/call old ask pass`,
			`2 s ← sampling/createMessage old - deny refused 1ms: no [policy]
			1 s tools/call old ask pass answered 2ms`},
		{"a call that the client's user approves", `
			+0s s/1 to_server request tools/call a pay ask: it costs [policy]
			+1ms s/1 to_client request elicitation/create a - answer
			+9s s/1 to_server response elicitation/create a - pass
			+9s s/1 to_server request tools/call a pay approve: by the client's user
			+9s s/1 to_server request tools/call a pay pass
			+10s s/1 to_client response tools/call a pay pass`,
			`2 s ← elicitation/create a - answer answered 8.999s
			1 s tools/call a pay approve answered 10s: by the client's user`},
		{"a call that needs gatekit approve ends, and its retry is another call", `
			+0s s/1 to_server request tools/call a pay ask: it costs [policy]
			+9s s/2 to_server request tools/call a pay approve: by gatekit approve
			+9s s/2 to_server request tools/call a pay pass
			+10s s/2 to_client response tools/call a pay pass`,
			`1 s tools/call a pay ask refused 1ms: it costs [policy]
			2 s tools/call a pay approve answered 1s: by gatekit approve`},
		{"a cancelled call, with a progress notification and a late response", `
			+0s s/1 to_server request tools/call a wait pass
			+1s s/1 to_client notification notifications/progress a - pass
			+2s s/1 to_server notification notifications/cancelled a - pass
			+2s s/1 to_client response tools/call a wait drop: it was cancelled`,
			`1 s tools/call a wait drop cancelled 2s: it was cancelled`},
		{"a call that timed out", `
			+0s s/1 to_server request tools/call a wait pass
			+2s s/1 to_server notification notifications/cancelled a - answer: timed out
			+2s s/1 to_client error tools/call - - answer: server "a" does not answer`,
			`1 s tools/call a wait pass error 2s: server "a" does not answer`},
		{"denied notifications are calls, and notifications that passed are not", `
			+0s s/1 to_server request tools/call a wait pass
			+1s s/1 to_client notification notifications/progress a - deny: no [policy]
			+1s s/1 to_client notification notifications/progress a - pass
			+1s s/- to_client notification notifications/tools/list_changed - - answer
			+2s s/1 to_client response tools/call a wait pass`,
			`2 s ← notifications/progress a - deny done 1ms: no [policy]
			1 s tools/call a wait pass answered 2s`},
		{"a start ends the open calls, and a response without a request is a call", `
			+0s s/1 to_server request tools/call a wait pass
			+1s -/- - - - - - start: version 1
			+2s s/1 to_client response tools/call a wait pass
			+3s s/- to_server - - - - connect: me 1`,
			`1 s tools/call a wait pass - 0s
			2 - - - - start done 0s: version 1
			3 s tools/call a wait pass answered 0s
			4 s - - - connect done 0s: me 1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			for line := range strings.Lines(tt.want) {
				want = append(want, strings.TrimSpace(line))
			}
			if got := formatCalls(t, writeLog(t, tt.records), query.Filter{}); !slices.Equal(got,
				want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want,
					"\n\t"))
			}
		})
	}
}

const sessionRecords = `
	+0s -/- - - - - - start: version 1
	+1s s1/1 to_server request tools/call files read pass
	+2s s1/1 to_client response tools/call files read modify: took out a key [secrets]
	+3s s1/2 to_server request tools/call github search deny: tools/readonly: no [policy]
	+4s s2/1 to_server request prompts/get github greet pass
	+5s s2/1 to_client notification notifications/progress github - pass
	+6s s2/1 to_client error prompts/get github greet pass
	+7s s2/2 to_server request tools/call github a"b\ pass
	+8s -/- - - - files - lost`

func TestFilterSelectsRecordsAndCalls(t *testing.T) {
	file := writeLog(t, sessionRecords)
	for _, tt := range []struct {
		name           string
		filter         query.Filter
		records, calls []uint64
	}{
		{"all", query.Filter{}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}, []uint64{1, 2, 4, 5, 9, 8}},
		{"a time range, which excludes Until", query.Filter{Since: startTime.Add(2 * time.Second),
			Until: startTime.Add(4 * time.Second)}, []uint64{3, 4}, []uint64{2, 4}},
		{"a session", query.Filter{Session: query.Patterns{"s1"}}, []uint64{2, 3, 4},
			[]uint64{2, 4}},
		{"an exchange of a session", query.Filter{Session: query.Patterns{"s2"},
			Exchange: query.Patterns{"1"}}, []uint64{5, 6, 7}, []uint64{5}},
		{"a server by a part of its name", query.Filter{Server: query.Patterns{"f*s", "nobody"}},
			[]uint64{2, 3, 9}, []uint64{2, 9}},
		{"a name with characters that JSON escapes", query.Filter{Name: query.Patterns{`a"b\`}},
			[]uint64{8},
			[]uint64{8}},
		{"names by patterns", query.Filter{Name: query.Patterns{"*ea*r*", "r*d*d", "*ee*"}},
			[]uint64{4, 5, 7}, []uint64{4, 5}},
		{"the action of a response", query.Filter{Action: query.Patterns{"modify"}}, []uint64{3},
			[]uint64{2}},
		{"a stage that changed or denied", query.Filter{Stage: query.Patterns{"secrets", "first"}},
			[]uint64{3},
			[]uint64{2}},
		{"a stage that allowed", query.Filter{Stage: query.Patterns{"first"},
			Action: query.Patterns{"pass"}}, []uint64{3, 4}, []uint64{2, 4}},
		{"a stage with an action that it did not take",
			query.Filter{Stage: query.Patterns{"secrets"},
				Action: query.Patterns{"deny"}}, nil, nil},
		{"errors", query.Filter{Kind: query.Patterns{"error"}}, []uint64{7}, []uint64{5}},
		{"events", query.Filter{Kind: query.Patterns{"event"}}, []uint64{1, 9}, []uint64{1, 9}},
		{"notifications", query.Filter{Kind: query.Patterns{"notification"}}, []uint64{6},
			[]uint64{6}},
		{"a method", query.Filter{Method: query.Patterns{"prompts/*"}}, []uint64{5, 7},
			[]uint64{5}},
		{"conditions that no single record meets", query.Filter{Server: query.Patterns{"files"},
			Action: query.Patterns{"deny"}}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var records, calls []uint64
			for r, err := range query.Records(t.Context(), &audit.Reader{File: file}, &tt.filter) {
				if err != nil {
					t.Fatal(err)
				}
				if !tt.filter.Match(&r) {
					t.Errorf("Records returned record %d, which Match does not select", r.Seq)
				}
				records = append(records, r.Seq)
			}
			for c, err := range query.Calls(t.Context(), &audit.Reader{File: file}, &tt.filter,
				query.Options{}) {
				if err != nil {
					t.Fatal(err)
				}
				calls = append(calls, c.FirstSeq)
			}
			if !slices.Equal(records, tt.records) || !slices.Equal(calls, tt.calls) {
				t.Errorf("records %d and calls %d, want %d and %d", records, calls, tt.records,
					tt.calls)
			}
		})
	}
}

func TestCallKeepsAtMost200Records(t *testing.T) {
	records := "+0s s/1 to_server request tools/call a wait pass\n" +
		strings.Repeat("+1s s/1 to_client notification notifications/progress a - pass\n", 250) +
		"+2s s/1 to_client response tools/call a wait deny: no [policy]"
	for c, err := range query.Calls(t.Context(), &audit.Reader{File: writeLog(t, records)},
		&query.Filter{}, query.Options{KeepRecords: true}) {
		if err != nil || len(c.Records) != 200 || c.OmittedRecords != 52 ||
			c.Records[199].Seq != 200 ||
			c.Action != "deny" || c.DecidingStage() != "policy" {
			t.Fatalf("kept %d records and omitted %d of the call %q, error %v; want 200 and 52, "+
				"and the action deny by the stage policy", len(c.Records), c.OmittedRecords,
				formatCall(c), err)
		}
	}
}

func TestOpenCallsAreBounded(t *testing.T) {
	var records strings.Builder
	for i := range 10_050 {
		fmt.Fprintf(&records, "+0s s/%d to_server request tools/call a wait pass\n", i+1)
	}
	records.WriteString("+1s s/1 to_client response tools/call a wait deny: no [policy]\n")
	got := formatCalls(t, writeLog(t, records.String()), query.Filter{})
	if len(got) != 10_051 || got[0] != "1 s tools/call a wait pass - 0s" || !slices.Contains(got,
		"10051 s tools/call a wait deny refused 1ms: no [policy]") {
		t.Errorf("got %d calls, the first is %q; want 10051, the first without an answer, and a "+
			"refused call for the late response", len(got), got[0])
	}
}

func TestCallsFollowsGrowingLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write := func(records ...string) {
		for _, r := range records {
			if _, err := l.Record(t.Context(), outcome(t, r)); err != nil {
				t.Error(err)
			}
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	write("+0s s/1 to_server request tools/call a read pass",
		"+0s s/2 to_server request tools/list a - pass")
	afterCall := []func(){
		// the call of tools/list stays open, because it may have further pages
		func() { write("+2s s/2 to_client response tools/list a - pass") },
		stop,
	}
	time.AfterFunc(30*time.Millisecond,
		func() { write("+1s s/1 to_client response tools/call a read pass") })
	var got []string
	for c, err := range query.Calls(ctx, &audit.Reader{File: file, Poll: 5 * time.Millisecond},
		&query.Filter{}, query.Options{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, formatCall(c))
		if len(afterCall) > 0 {
			afterCall[0]()
			afterCall = afterCall[1:]
		}
	}
	if want := []string{"1 s tools/call a read pass answered 1s",
		"2 s tools/list a - pass answered 2s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorHasPosition(t *testing.T) {
	file := writeLog(t, sessionRecords)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	lines[3] = strings.Replace(lines[3], `"deny"`, `"deny"x`, 1)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s:4: not an audit record", file)
	var all []error
	for _, err := range query.Calls(t.Context(), &audit.Reader{File: file}, &query.Filter{},
		query.Options{}) {
		all = append(all, err)
	}
	for _, err := range query.Records(t.Context(), &audit.Reader{File: file}, &query.Filter{}) {
		all = append(all, err)
	}
	if err := errors.Join(all...); err == nil || strings.Count(err.Error(), want) != 2 {
		t.Errorf("got %v, want %s from Calls and from Records", err, want)
	}
}
