package console_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/transport/console"
)

// fakeOperator has the data of all pages but the traffic.
type fakeOperator struct {
	call     *query.Call
	waiting  console.WaitingList
	servers  console.ServerList
	tools    console.ToolList
	pins     console.PinList
	policies console.PolicyList
	audit    console.AuditState
	stats    console.StatsReport
}

func (f *fakeOperator) Call(context.Context, uint64) (*query.Call, error) { return f.call, nil }

func (f *fakeOperator) Explain(context.Context, string) (string, error) {
	return "the reasons", nil
}

func (f *fakeOperator) Waiting(context.Context) (*console.WaitingList, error) {
	return &f.waiting, nil
}

func (f *fakeOperator) Count(context.Context) int { return len(f.waiting.Requests) }

func (f *fakeOperator) Approve(_ context.Context, id string, by console.Viewer) (string, error) {
	return "approved " + id + " by " + by.Session, nil
}

func (f *fakeOperator) Servers(context.Context) (*console.ServerList, error) {
	return &f.servers, nil
}

func (f *fakeOperator) Tools(context.Context, console.ToolFilter) (*console.ToolList, error) {
	return &f.tools, nil
}

func (f *fakeOperator) Pins(context.Context, string) (*console.PinList, error) {
	return &f.pins, nil
}

func (f *fakeOperator) Decide(_ context.Context, d console.PinDecision) (string, error) {
	return "decided " + d.Item + " by " + d.By.Session, nil
}

func (f *fakeOperator) Policies(context.Context) (*console.PolicyList, error) {
	return &f.policies, nil
}

func (f *fakeOperator) Source(context.Context, string) (string, error) {
	return "package x\ndeny := 1\n", nil
}

func (f *fakeOperator) Replay(_ context.Context, from, through uint64) (*console.ReplayResult,
	error) {
	return &console.ReplayResult{From: from, Through: through, Cut: true, Summary: "2 differ",
		Differences: []console.Difference{{Seq: 7, Text: "pass, now deny"}}, More: 1}, nil
}

func (f *fakeOperator) State(context.Context) (*console.AuditState, error) { return &f.audit, nil }

func (f *fakeOperator) Stats(context.Context, string) (*console.StatsReport, error) {
	if f.stats.Stats == nil {
		f.stats.Stats = &query.Stats{}
	}
	return &f.stats, nil
}

// fakeRecords has the call of a fakeOperator, whose Explain is that of the policies.
type fakeRecords struct{ *fakeOperator }

func (f fakeRecords) Explain(context.Context, *query.Call) ([]console.Explanation, error) {
	return []console.Explanation{{Seq: 4, Recorded: "pass", Now: "deny", Text: "the reasons"}}, nil
}

func (f fakeRecords) Prove(context.Context, uint64) (string, int64, error) {
	return "the proof", 9, nil
}

// get returns the text of a page, with its links and the names of its forms in brackets.
func (f *fakeOperator) get(t *testing.T, scope console.Scope, page string) string {
	t.Helper()
	c, err := console.New(console.Options{Scope: scope, Pages: []console.Page{
		console.RecordPage(fakeRecords{f}), console.WaitingPage(f), console.ServersPage(f),
		console.ToolsPage(f), console.PinsPage(f), console.PoliciesPage(f), console.AuditPage(f),
		console.StatsPage(f)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r := httptest.NewRequest("GET", "http://"+host+"/console/api/page/"+page, nil)
	name, value, _ := strings.Cut(login(t, c, scope), ": ")
	r.Header.Set(name, value)
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	var reply struct {
		Nodes []any
		Error string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || reply.Error != "" {
		t.Fatalf("%s: status %d, %v, error %q", page, w.Code, err, reply.Error)
	}
	var text strings.Builder
	writeText(&text, reply.Nodes)
	return strings.Join(strings.Fields(text.String()), " ")
}

func writeText(to *strings.Builder, nodes []any) {
	for _, n := range nodes {
		switch n := n.(type) {
		case string:
			to.WriteString(n)
		case []any:
			attributes, _ := n[1].(map[string]any)
			for _, name := range []string{"href", "data-href", "data-action", "value"} {
				if value, ok := attributes[name].(string); ok {
					value, _ = url.QueryUnescape(value)
					to.WriteString(" [" + value + "] ")
				}
			}
			writeText(to, n[2:])
			to.WriteString(" ")
		}
	}
}

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// full has something in each place of each page.
func full() *fakeOperator {
	denied := audit.Record{Seq: 4, Time: noon, Direction: "to_server", Kind: "request",
		Server: "box", Action: "deny", Reason: "no", Micros: 1500,
		Before: &audit.Body{Size: 120, Body: []byte(`{"a":1}`), SHA256: "abc"},
		Steps: []audit.Step{{Stage: "policy", Action: "deny", Reason: "rule: no", Findings: []audit.
			Finding{{Type: "aws-key", Pointer: "/a"}}, Hidden: []string{"secret_tool"}}}}
	f := &fakeOperator{
		call: &query.Call{Start: noon, FirstSeq: 4, Kind: "request", Method: "tools/call",
			Name: "echo", Servers: []string{"box"}, Status: query.StatusRefused, Reason: "no",
			Code: -32000, Session: "s1", Principal: "token:ci", Decision: &denied,
			Records: []audit.Record{denied}, OmittedRecords: 3},
		waiting: console.WaitingList{Requests: []console.WaitingRequest{{ID: "k2f7", Server: "box",
			Method: "tools/call", Name: "risky", Principal: "token:ci", Reason: "ask a person",
			Values: "path: /srv", Expires: time.Now().Add(time.Hour)}}, MoreRequests: 5,
			Elsewhere: 2, Pins: []console.WaitingPins{{Server: "git", Items: 3, Moved: true}},
			WithValues: true},
		servers: console.ServerList{Counted: console.CountedPeriod{Since: noon, First: 8,
			Cut: true}, Servers: []console.ServerState{{Name: "box", Transport: "stdio",
			Era: "modern", State: "down", Sandbox: "guard", Processes: 2, Refused: 4,
			HasPins: true, HeldBack: 3, Moved: "launch", Calls: 11, RefusedCalls: 12,
			FailedCalls: 13, Restarts: 14, Lost: 15}}, Plugins: []console.PluginState{
			{Name: "secrets", Error: "exit status 1", Starts: 16, InFlight: 17, Timeouts: 18}}},
		tools: console.ToolList{Servers: []string{"box"}, All: 40, More: 30,
			Counted: console.CountedPeriod{Since: noon}, Tools: []*console.ToolState{{Server: "box",
				Name: "risky", Pin: console.PinWaiting, HiddenBy: []string{"pins"},
				Annotations: console.Annotations{ReadOnly: true}, Calls: 21, Refused: 22,
				LastRefusal: &console.LastRefusal{Seq: 23, Time: noon, Stage: "policy",
					Reason: "no"}}}},
		pins: console.PinList{Enabled: true, LockFile: "gatekit.lock", HasLock: true,
			Servers: []console.PinServer{{Name: "box", Pinned: 8, Digest: "d0", MoreItems: 9,
				Warnings: []string{"a name is used twice"}, Items: []console.PinItem{
					{Key: "tool risky", Kind: "tool", Name: "risky", Digest: "d1",
						Changes: []console.PinChange{{Class: "text", Pointer: "/description",
							HeldBack: true, Findings: []string{"override"}, Words: []console.
									WordChange{{Removed: "old", Added: "new", Equal: " words"}}}}},
					{Key: "launch", Digest: "d2"}}}}},
		policies: console.PolicyList{Enabled: true, Shadow: true, Digest: "0123456789abcdef01",
			Counted: console.CountedPeriod{Since: noon}, Rules: []console.PolicyRule{{
				Name: "roots/traversal", Title: "Blocks paths", Settings: `{"a":1}`, Hits: 31,
				Would: 32}}, Files: []console.PolicyFile{{Name: "own.rego", Effects: "1 deny"}},
			Bundles: []string{"corp"},
			Hits:    []console.PolicyHit{{Rule: "own", Hits: 33, Would: 34}}},
		audit: console.AuditState{File: "audit.jsonl", Bodies: "redacted", Durability: "sync",
			Committed: 50, Files: 2, Size: 1_500_000, Health: "the disk is full", First: 1,
			Verified: 45, VerifiedAt: noon, Covered: 44, Key: "gatekit/vm",
			Recovered: []string{"3 to 4"}, Anchor: "anchor.txt", AnchorCovered: 41,
			AnchorAt: time.Now().Add(-time.Hour), Sinks: []console.SinkState{{Name: "siem",
				Description: "tls://siem:6514", Backlog: 43}}},
	}
	f.stats.Stats = &query.Stats{}
	for i := range 4 {
		c := *f.call
		c.Start = noon.Add(time.Duration(i) * time.Minute)
		f.stats.Add(&c)
		f.stats.Timeline.Add(&c)
	}
	return f
}

// Each page is rendered without a browser, so that a broken template or a missing field is found.
func TestPagesShowTheirData(t *testing.T) {
	for _, test := range []struct {
		page string
		want []string // separated by any text
	}{
		{"record?seq=4&explain=1&proof=1", []string{"echo", "✕ refused : no",
			"2026-11-28 12:00:00Z", "token:ci", "box", "tools/call echo", "-32000",
			"[#traffic?filter=--session s1] s1", "has 1 and 3 more", "12:00:00",
			"request to the server", "deny", "policy: deny, rule: no", "found aws-key at /a",
			"hid secret_tool", "1.5ms", "120 B", `{"a":1}`, "decided pass ; today, they decide deny",
			"the reasons", "checkpoint over 9 records", "the proof"}},
		{"waiting", []string{"tools/call risky at box", "ask a person", "token:ci", "k2f7",
			"1h", "path: /srv", "[approve]", "[k2f7]", "Approve once", "5 more",
			"2 more requests wait", "[#pins?server=git] git", "3"}},
		{"servers", []string{"from record 8 on", "[#tools?server=box]", "box", "down",
			"stdio, modern", "guard", "[#pins?server=box] 3 held back, other launch",
			"2 (4 starts refused)", "11", "12", "13", "14", "15", "secrets",
			"not running: exit status 1", "16", "17", "18"}},
		{"tools?server=box", []string{"[box] box", "server box", "[#tools] show all 40",
			"[#traffic?filter=--server 'box' --tool 'risky']", "box", "risky",
			"[#pins?server=box] waiting", "read-only", "pins", "21", "22", "[#record?seq=23]",
			"by policy: no", "30 more tools"}},
		{"pins", []string{"gatekit.lock", "box", "8 definitions approved", "a name is used twice",
			"tool risky", "text /description", "old new words", "injection: override",
			"[approve]", "[tool risky]", "[d1]", "Approve", "[reject]", "Launch of the server",
			"[d2]", "9 more", "[d0]", "Approve all 2 of box"}},
		{"policies?source=own.rego&message=%7B%7D&from=5&through=9", []string{"Shadow mode",
			"0123456789abcdef ", "roots/traversal", "Blocks paths", `{"a":1}`, "31", "32",
			"own.rego", "1 deny", "Bundles: corp", "own", "33", "34", "1 package x",
			"2 deny := 1", "the reasons", "Records 5 to 9: 2 differ", "[#policies?from=10]",
			"[#record?seq=7] record 7 : pass, now deny", "1 more"}},
		{"audit", []string{"Verified up to record 45", "2026-11-28 12:00:00Z", "audit.jsonl", "50",
			"1.5 MB in 2 files", "redacted", "sync", "the disk is full", "44 records", "6 newer",
			"gatekit/vm", "3 to 4", "anchor.txt", "41 records", "1 h ago", "siem",
			"tls://siem:6514", "43"}},
		{"stats", []string{"4 calls from", "4 refused", "Calls by time", "in steps of 1 min",
			"12:01:00Z", "from clients", "4", "box", "echo"}},
	} {
		t.Run(test.page, func(t *testing.T) {
			got := full().get(t, console.ScopeApprove, test.page)
			rest := got
			for _, want := range test.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("the page does not have %q, or not at this place: %s", want, got)
				}
				rest = after
			}
		})
	}
}

// A page without data says so, and what to do next.
func TestEmptyPagesSayWhatToDo(t *testing.T) {
	nothing := &fakeOperator{call: &query.Call{FirstSeq: 4, Kind: "event", Action: "start"}}
	for page, want := range map[string]string{
		"record?seq=4": "start",
		"waiting":      "No request waits",
		"servers":      "gatekit init",
		"tools":        "No server has listed a tool",
		"pins":         "gatekit help pin",
		"policies":     "gatekit policy list",
		"audit":        "No record is verified yet",
		"stats":        "Choose a longer time",
	} {
		if got := nothing.get(t, console.ScopeApprove, page); !strings.Contains(got, want) {
			t.Errorf("%s: without %q: %s", page, want, got)
		}
	}
}

// A viewer who can only read sees no form that approves.
func TestReadersSeeNoApproval(t *testing.T) {
	for _, page := range []string{"waiting", "pins"} {
		if got := full().get(t, console.ScopeRead, page); strings.Contains(got, "[approve]") {
			t.Errorf("%s: a reader sees a form to approve: %s", page, got)
		}
	}
}

// With few steps of time, a plot would have a bar that stands alone.
func TestFewStepsHaveNoPlot(t *testing.T) {
	f := &fakeOperator{stats: console.StatsReport{Stats: &query.Stats{}}}
	f.stats.Add(full().call)
	f.stats.Timeline.Add(full().call)
	got := f.get(t, console.ScopeRead, "stats")
	if !strings.Contains(got, "1 call from") || strings.Contains(got, "Calls by time") {
		t.Errorf("calls of one minute: %s", got)
	}
}
