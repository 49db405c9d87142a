package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gatekit/audit/query"
	"gatekit/transport/console"
)

// fakeFleet has a call of the replica gatekit-1.
type fakeFleet struct {
	*fakeOperator
	asked console.FleetQuery
	at    string // the position that was asked for
}

func (f *fakeFleet) calls() []*query.Call {
	c := *f.call
	c.Replica = "gatekit-1"
	return []*query.Call{&c}
}

func (f *fakeFleet) Calls(_ context.Context, q console.FleetQuery,
	before string) (*console.FleetCallList, error) {
	f.asked, f.at = q, before
	if q.Filter == "wrong" {
		return nil, &console.FilterError{Err: errors.New("the filter is wrong")}
	}
	return &console.FleetCallList{Calls: f.calls(), Before: "a-4", Through: "a-9.b-7",
		Replicas: []string{"gatekit-0", "gatekit-1"}, Failures: []string{"gatekit-0 is damaged"},
	}, nil
}

func (f *fakeFleet) Follow(ctx context.Context, q console.FleetQuery, after string,
	send func(console.FleetNewCalls) error) error {
	f.asked, f.at = q, after
	live := console.NewLiveCall(f.calls()[0])
	for _, n := range []console.FleetNewCalls{{Calls: []*console.LiveCall{live}, Skipped: 3,
		Through: "a-11.b-7"}, {Replica: "gatekit-0", Failure: "<b>no</b>", Through: "a-12.b-7"}} {
		if err := send(n); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeFleet) Records(replica string) (console.Records, error) {
	if replica != "gatekit-1" {
		return nil, errors.New("there is no such replica")
	}
	return fakeRecords{f.fakeOperator}, nil
}

func (f *fakeFleet) States(context.Context) ([]console.ReplicaState, error) {
	good := console.AuditState{Committed: 9, First: 1, Verified: 8, Complete: true, Covered: 8,
		VerifiedAt: noon, Key: "gatekit/x+1234", Files: 2, Size: 3000,
		Recovered: []string{"3 to 4"}}
	return []console.ReplicaState{{Replica: "gatekit-0", Unreadable: "its folder has no log"},
		{Replica: "gatekit-1", AuditState: good},
		{Replica: "<i>x</i>", AuditState: console.AuditState{Committed: 5,
			Failure: "record 2: changed", FailureAt: noon}}}, nil
}

// fleetConsole returns a console of the pages of a fleet, and the header of a session.
func (f *fakeFleet) console(t *testing.T) (*console.Console, string) {
	t.Helper()
	stats := &fakeOperator{}
	stats.stats.Stats = &query.Stats{}
	stats.stats.Failures = []string{"gatekit-0 is damaged"}
	for _, c := range f.calls() {
		answered := *c
		answered.Status, answered.Duration = query.StatusAnswered, time.Second
		stats.stats.Add(&answered)
	}
	c, err := console.New(console.Options{Command: "gatekit console --fleet DIR",
		Pages: []console.Page{console.FleetTrafficPage(f), console.FleetRecordPage(f),
			console.FleetAuditPage(f), console.StatsPage(stats)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, login(t, c, console.ScopeRead)
}

// show returns the text of a page or, if there is one, its error.
func (f *fakeFleet) show(t *testing.T, page string) string {
	t.Helper()
	c, token := f.console(t)
	status, body := send(c, "GET", "/console/api/page/"+page, "", token)
	var reply struct {
		Nodes []any
		Error string
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil {
		t.Fatalf("%s: status %d, %v", page, status, err)
	}
	var text strings.Builder
	writeText(&text, reply.Nodes)
	return strings.Join(strings.Fields(text.String()+reply.Error), " ")
}

func TestFleetPagesShowReplicas(t *testing.T) {
	for _, test := range []struct {
		page string
		want []string
	}{
		{"traffic?filter=x&replica=gatekit-1", []string{"gatekit-0 is damaged", "replica gatekit-1",
			"[#record?seq=gatekit-1:4]", "echo", "Replica",
			"[#traffic?before=a-4&filter=x&replica=gatekit-1] Older calls"}},
		{"traffic?filter=wrong", []string{"the filter is wrong"}},
		{"record?seq=gatekit-1:4", []string{"Replica gatekit-1", "echo",
			"[#record?seq=gatekit-1:4&explain=1]", "[#record?seq=gatekit-1:4&proof=1]"}},
		{"record?seq=gatekit-1:4&proof=1&explain=1", []string{"the proof", "the reasons"}},
		{"record?seq=gatekit-2:4", []string{"there is no such replica"}},
		{"record?seq=4", []string{"#record?seq=gatekit-1:12"}},
		{"record?seq=:4", []string{"#record?seq=gatekit-1:12"}},
		{"record?seq=gatekit-1:0", []string{"#record?seq=gatekit-1:12"}},
		{"record?seq=gatekit-1:x", []string{"#record?seq=gatekit-1:12"}},
		{"logs", []string{"gatekit-0 0 not yet its folder has no log",
			"gatekit-1 9 1 to 8 2026-11-28 12:00:00Z 8 records, 1 newer gatekit/x+1234 3 to 4",
			"3 kB", "<i>x</i> 5 not yet Verification failed at 2026-11-28 12:00:00Z: record 2"}},
		{"stats", []string{"gatekit-0 is damaged", "gatekit audit stats --fleet DIR --since 24h",
			"Replicas Replicas. P50", "[#record?seq=gatekit-1:4] gatekit-1:4"}},
	} {
		f := &fakeFleet{fakeOperator: full()}
		got := f.show(t, test.page)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s does not have %q:\n%s", test.page, want, got)
			}
		}
	}
}

func TestFleetTrafficGetsFilterReplicaAndPosition(t *testing.T) {
	f := &fakeFleet{fakeOperator: full()}
	f.show(t, "traffic?filter=a&replica=b&before=a-4.b-2")
	if f.asked != (console.FleetQuery{Filter: "a", Replica: "b"}) || f.at != "a-4.b-2" {
		t.Errorf("Calls got %+v and %q", f.asked, f.at)
	}
}

func TestFleetTrafficIsLive(t *testing.T) {
	f := &fakeFleet{fakeOperator: full()}
	c, token := f.console(t)
	server := httptest.NewServer(c)
	defer server.Close()
	defer c.Close() // ends the stream
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+
		"/console/api/live/traffic?filter=x&after=a-9.b-7", nil)
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(token, ": ")
	r.Header.Set(name, value)
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var lines []string
	for s := bufio.NewScanner(response.Body); len(lines) < 3 && s.Scan(); {
		lines = append(lines, s.Text())
	}
	if len(lines) < 3 || !strings.Contains(lines[1], `"data-key":"gatekit-1:4"`) ||
		!strings.Contains(lines[1], `"omitted":3,"after":"a-11.b-7"`) ||
		!strings.Contains(lines[2], `The log of gatekit-0 cannot be read: `) ||
		!strings.Contains(lines[2], `<b>no</b>"`) ||
		!strings.Contains(lines[2], `"after":"a-12.b-7"`) {
		t.Fatalf("the lines are %q", lines)
	}
	if f.asked.Filter != "x" || f.at != "a-9.b-7" {
		t.Errorf("Follow got %+v and %q", f.asked, f.at)
	}
}

func TestConsoleNamesItsCommand(t *testing.T) {
	c, _ := (&fakeFleet{fakeOperator: full()}).console(t)
	if _, body := send(c, "GET", "/console/", ""); !strings.Contains(body,
		"<pre>gatekit console --fleet DIR</pre>") {
		t.Error("the page without a session does not name the command")
	}
	_, body := send(c, "POST", "/console/api/session", "code=wrong")
	if !strings.Contains(body, "run gatekit console --fleet DIR again") {
		t.Errorf("the refusal of a code is %q", body)
	}
	_, body = send(newConsole(t, console.ScopeRead), "GET", "/console/", "")
	if !strings.Contains(body, "<pre>gatekit console</pre>") {
		t.Error("the page without a session does not name gatekit console")
	}
}
