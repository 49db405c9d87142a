package query_test

import (
	"testing"

	"gatekit/audit"
	"gatekit/audit/query"
)

func TestAlarm(t *testing.T) {
	found := []audit.Finding{{Type: "canary:key"}}
	for _, tt := range []struct {
		name string
		step audit.Step
		want string
	}{
		{"a planted value", audit.Step{Stage: "canary", Reason: "r", Findings: found}, "r"},
		{"nothing found", audit.Step{Stage: "canary", Reason: "r"}, ""},
		{"another finding", audit.Step{Stage: "canary", Reason: "r",
			Findings: []audit.Finding{{Type: "key"}}}, ""},
		{"another stage", audit.Step{Stage: "s", Reason: "r", Findings: found}, ""},
	} {
		c := query.Call{Records: []audit.Record{{}, {Steps: []audit.Step{{Stage: "a"}, tt.step}},
			{Steps: []audit.Step{{Stage: "canary", Reason: "later"}}}}}
		if got := c.Alarm(); got != tt.want {
			t.Errorf("%s: got the alarm %q, want %q", tt.name, got, tt.want)
		}
	}
}
