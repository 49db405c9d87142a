package console_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/transport/console"
)

// recordsOfCall returns the call that it holds.
type recordsOfCall struct{ call *query.Call }

func (f recordsOfCall) Call(context.Context, uint64) (*query.Call, error) { return f.call, nil }

func (f recordsOfCall) Explain(context.Context, *query.Call) ([]console.Explanation, error) {
	return nil, nil
}

func (f recordsOfCall) Prove(context.Context, uint64) (string, int64, error) {
	return "", 0, errors.New("none")
}

// A planted value shows as an alarm, in red, although the message passed.
func TestPlantedValueIsAnAlarm(t *testing.T) {
	step := audit.Step{Stage: "canary", Action: "would_deny", Reason: "planted value",
		Findings: []audit.Finding{{Type: "canary:key", Pointer: "/a"}}}
	passed := func(steps ...audit.Step) *query.Call {
		return &query.Call{FirstSeq: 1, Start: time.Unix(0, 0), Kind: "request",
			Method: "tools/call", Name: "t", Action: "modify", Reason: "cleaned",
			Status: query.StatusAnswered, Records: []audit.Record{{Seq: 1, Kind: "request",
				Action: "modify", Steps: steps}}}
	}
	refused := passed(step)
	refused.Status, refused.Reason = query.StatusRefused, "no"
	for _, tt := range []struct {
		name     string
		call     *query.Call
		want     []string
		isFailed int // how many times the traffic page has the class failed
	}{
		{"a call that passed", passed(step), []string{`"alarm"`, `"planted value"`}, 1},
		{"a call that was refused", refused, []string{`"refused"`, `"no"`}, 1},
		{"another call", passed(), []string{`"cleaned"`}, 0},
	} {
		c := newConsole(t, console.ScopeRead, tt.call)
		_, body := send(c, "GET", pagePath, "", login(t, c, console.ScopeRead))
		for _, want := range tt.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page has no text %s: %s", tt.name, want, body)
			}
		}
		if n := strings.Count(body, `"failed"`); n != tt.isFailed {
			t.Errorf("%s: %d rows are red, want %d: %s", tt.name, n, tt.isFailed, body)
		}
		page, err := console.New(console.Options{Scope: console.ScopeRead,
			Pages: []console.Page{console.RecordPage(recordsOfCall{tt.call})}})
		if err != nil {
			t.Fatal(err)
		}
		_, body = send(page, "GET", "/console/api/page/record?seq=1", "",
			login(t, page, console.ScopeRead))
		// the outcome of the call, and the row of its record
		if n := strings.Count(body, `"class":"failed"`); n != 2*tt.isFailed {
			t.Errorf("%s: the record's page has %d red parts, want %d: %s", tt.name, n,
				2*tt.isFailed, body)
		}
		page.Close()
	}
}
