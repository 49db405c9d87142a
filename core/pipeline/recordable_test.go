package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

func TestNamesAreWithheldUnlessAllStagesInspectedThem(t *testing.T) {
	finding := func(a pipeline.Action, at string) stage {
		return always(pipeline.Verdict{Action: a, Reason: "found one",
			Findings: []pipeline.Finding{{Type: "key", Pointer: at}}})
	}
	failing := stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
		return pipeline.Verdict{}, errors.New("down")
	})
	deny := always(pipeline.Verdict{Reason: "no"})
	const (
		toolCall      = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s3cret"}}`
		unknownMethod = `{"jsonrpc":"2.0","id":1,"method":"x/s3cret","params":{}}`
		completion    = `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":` +
			`{"ref":{"type":"ref/prompt","name":"s3cret"},"argument":{"name":"a","value":""}}}`
	)
	for _, tt := range []struct {
		name         string
		message      string
		stages       []stage
		skipOnError  bool
		listed       string // name of a tool that a server lists before the message; "" means none
		wantRecorded bool
	}{
		{"a name that all stages allow is recorded", toolCall, []stage{allow, allow}, false,
			"", true},
		{"a name that the last stage denies is recorded", toolCall, []stage{allow, deny}, false,
			"", true},
		{"a name that not all stages inspected is withheld", toolCall, []stage{deny, allow}, false,
			"", false},
		{"a name that not all stages inspected is recorded if a server listed it", toolCall,
			[]stage{deny, allow}, false, "s3cret", true},
		{"a name with a finding is withheld", toolCall, []stage{finding(pipeline.Deny, "/name")},
			false, "", false},
		{"a name with a finding is withheld, even if a server listed it", toolCall,
			[]stage{finding(pipeline.Deny, "/name")}, false, "s3cret", false},
		{"a name with a finding is withheld, even if the message is allowed", toolCall,
			[]stage{finding(pipeline.Allow, "/name"), allow}, false, "", false},
		{"a name is recorded if the finding is elsewhere", toolCall,
			[]stage{finding(pipeline.Deny, "/arguments/a")}, false, "", true},
		{"a name with a finding in a part of the reference is withheld", completion,
			[]stage{finding(pipeline.Deny, "/ref/name/0")}, false, "", false},
		{"a name is withheld if the stage failed", toolCall, []stage{failing}, false,
			"", false},
		{"a name is withheld if the failed stage was skipped", toolCall, []stage{failing}, true,
			"", false},
		{"an unknown method that all stages allow is recorded", unknownMethod, []stage{allow},
			false, "", true},
		{"an unknown method with a finding is withheld", unknownMethod,
			[]stage{finding(pipeline.Deny, "")},
			false, "", false},
		{"an unknown method with a finding is withheld, even if the message is allowed",
			unknownMethod,
			[]stage{finding(pipeline.Allow, "")}, false, "", false},
		{"an unknown method that not all stages inspected is withheld", unknownMethod,
			[]stage{deny, allow}, false,
			"", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			var stages []pipeline.StageConfig
			for _, s := range tt.stages {
				stages = append(stages, pipeline.StageConfig{Name: "s", Stage: s,
					SkipOnError: tt.skipOnError,
					Wants:       pipeline.Wants{Directions: []mcp.Direction{mcp.ToServer}}})
			}
			p := pipeline.New(rec, pipeline.Options{}, stages...)
			if tt.listed != "" {
				list := parse(t, mcp.ToClient,
					`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"`+tt.listed+`"}]}}`)
				list.Method = "tools/list"
				if _, err := p.Pass(t.Context(), list); err != nil {
					t.Fatal(err)
				}
			}
			m := parse(t, mcp.ToServer, tt.message)
			if m.Method != "x/s3cret" {
				m.Name = "s3cret"
			}
			method, name := m.Method, m.Name
			check := func(kind string) {
				t.Helper()
				o := rec.last(t)
				isRecorded := o.Before.Method == method && o.Before.Name == name &&
					o.Withheld == nil
				isWithheld := !slices.Contains([]string{o.Before.Method, o.Before.Name},
					"s3cret") &&
					o.Before.Method != unknownMethod && len(o.Withheld) == 1
				if isRecorded != tt.wantRecorded || isWithheld == tt.wantRecorded {
					t.Errorf("the record of the %s has the method %q, the name %q and the "+
						"withheld texts %q; want the name and method in the record: %v", kind,
						o.Before.Method, o.Before.Name, o.Withheld, tt.wantRecorded)
				}
			}
			passed, err := p.Pass(t.Context(), m)
			check("request")
			if err != nil {
				return
			}
			if to := passed.Message(); to.Name != name || to.Method != method {
				t.Errorf("the forwarded message has the method %q and the name %q, want %q and %q",
					to.Method, to.Name, method, name)
			}
			answer := parse(t, mcp.ToClient, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			answer.Method, answer.Name, answer.Request = method, name, passed.Message()
			if _, err := p.Pass(t.Context(), answer); err != nil {
				t.Fatal(err)
			}
			check("answer")
		})
	}
}

func TestQuotesInErrorsOfGatekitAreWithheld(t *testing.T) {
	for _, tt := range []struct {
		name            string
		message, reason string
		stages          []pipeline.StageConfig
		withheld        []string
	}{
		{"a quoted name from a client is withheld", `Unknown tool: "a \"s3cret\" one", or not`,
			`Unknown tool: …, or not`, []pipeline.StageConfig{{Name: "s", Stage: allow}},
			[]string{`a "s3cret" one`}},
		{"a message that ends within a quote is withheld", `Unknown tool: "s3cret`,
			`Unknown tool: …`,
			[]pipeline.StageConfig{{Name: "s", Stage: allow}}, []string{`Unknown tool: "s3cret`}},
		{"a quote at the beginning is withheld", `"s3cret" is unknown`, `… is unknown`,
			[]pipeline.StageConfig{{Name: "s", Stage: allow}}, []string{`s3cret`}},
		{"the quoted name of a server is recorded", `server "files" is not available`,
			`server "files" is not available`, []pipeline.StageConfig{{Name: "s", Stage: allow}},
			nil},
		{"without stages, a quoted name is recorded", `Unknown tool: "s3cret"`,
			`Unknown tool: "s3cret"`, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			m := mcp.NewError("1", mcp.CodeInvalidParams, tt.message, nil)
			m.Method, m.Server = "tools/call", "files"
			passed := pipeline.New(rec, pipeline.Options{}, tt.stages...).PassOwn(t.Context(), m)
			if clientMessage, _ := passed.Message().Text("/message"); clientMessage != tt.message {
				t.Errorf("the client got the message %q, want %q", clientMessage, tt.message)
			}
			if o := rec.last(t); o.Reason != tt.reason || !slices.Equal(o.Withheld, tt.withheld) {
				t.Errorf("the record has the reason %q and the withheld texts %q, want %q and %q",
					o.Reason, o.Withheld, tt.reason, tt.withheld)
			}
		})
	}
}
