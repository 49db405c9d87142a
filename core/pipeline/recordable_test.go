package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

func TestNamesThatNoStageInspectedAreWithheld(t *testing.T) {
	finding := func(a pipeline.Action, at string) stage {
		return always(pipeline.Verdict{Action: a, Reason: "found one",
			Findings: []pipeline.Finding{{Type: "key", Pointer: at}}})
	}
	failing := stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
		return pipeline.Verdict{}, errors.New("down")
	})
	deny := always(pipeline.Verdict{Reason: "no"})
	const tool, vendor = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s3cret"}}`, `{"jsonrpc":"2.0","id":1,"method":"x/s3cret","params":{}}`
	for _, tt := range []struct {
		name         string
		message      string
		stages       []stage
		skipOnError  bool
		listed       string // of names, that a server gave before
		wantRecorded bool
	}{
		{"a name that all stages let pass is told", tool, []stage{allow, allow}, false, "", true},
		{"a name that the last stage denies is told", tool, []stage{allow, deny}, false, "", true},
		{"a name that not all stages have judged is not", tool, []stage{deny, allow}, false,
			"", false},
		{"a name that not all stages have judged is told when a server listed it", tool,
			[]stage{deny, allow}, false, "s3cret", true},
		{"a name in which something was found is not", tool,
			[]stage{finding(pipeline.Deny, "/name")},
			false, "", false},
		{"a name in which something was found is not, though a server listed it", tool,
			[]stage{finding(pipeline.Deny, "/name")}, false, "s3cret", false},
		{"a name in which something was found is not, though it passes", tool,
			[]stage{finding(pipeline.Allow, "/name"), allow}, false, "", false},
		{"a name is told when something was found elsewhere", tool,
			[]stage{finding(pipeline.Deny, "/arguments/a")}, false, "", true},
		{"a name that a stage failed to judge is not", tool, []stage{failing}, false, "", false},
		{"a name that a stage skipped is not", tool, []stage{failing}, true, "", false},
		{"a method that all stages let pass is told", vendor, []stage{allow}, false, "", true},
		{"a method in which something was found is not", vendor,
			[]stage{finding(pipeline.Deny, "")},
			false, "", false},
		{"a method in which something was found is not, though it passes", vendor,
			[]stage{finding(pipeline.Allow, "")}, false, "", false},
		{"a method that not all stages have judged is not", vendor, []stage{deny, allow}, false,
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
			if m.Method == "tools/call" {
				m.Name = "s3cret"
			}
			method, name := m.Method, m.Name
			check := func(what string) {
				t.Helper()
				o := rec.last(t)
				isRecorded := o.Before.Method == method && o.Before.Name == name &&
					o.Withheld == nil
				isWithheld := !slices.Contains([]string{o.Before.Method, o.Before.Name},
					"s3cret") &&
					o.Before.Method != vendor && len(o.Withheld) == 1
				if isRecorded != tt.wantRecorded || isWithheld == tt.wantRecorded {
					t.Errorf("the record of the %s says %q %q, veiled %q", what, o.Before.Method,
						o.Before.Name, o.Withheld)
				}
			}
			passed, err := p.Pass(t.Context(), m)
			check("request")
			if err != nil {
				return
			}
			if to := passed.Message(); to.Name != name || to.Method != method {
				t.Errorf("the message moves as %q %q", to.Method, to.Name)
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

func TestQuotesInOwnErrorsAreWithheld(t *testing.T) {
	for _, tt := range []struct {
		name            string
		message, reason string
		stages          []pipeline.StageConfig
		withheld        []string
	}{
		{"what a client asked for", `Unknown tool: "a \"s3cret\" one", or not`,
			`Unknown tool: …, or not`, []pipeline.StageConfig{{Name: "s", Stage: allow}},
			[]string{`a "s3cret" one`}},
		{"what is cut in a quote", `Unknown tool: "s3cret`, `Unknown tool: …`,
			[]pipeline.StageConfig{{Name: "s", Stage: allow}}, []string{`Unknown tool: "s3cret`}},
		{"the name of a server is no client's", `server "files" is not available`,
			`server "files" is not available`, []pipeline.StageConfig{{Name: "s", Stage: allow}},
			nil},
		{"where there is no stage nobody looks for anything", `Unknown tool: "s3cret"`,
			`Unknown tool: "s3cret"`, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			m := mcp.NewError("1", mcp.CodeInvalidParams, tt.message, nil)
			m.Method, m.Server = "tools/call", "files"
			passed := pipeline.New(rec, pipeline.Options{}, tt.stages...).PassOwn(t.Context(), m)
			if clientMessage, _ := passed.Message().Text("/message"); clientMessage != tt.message {
				t.Errorf("the client is told %q", clientMessage)
			}
			if o := rec.last(t); o.Reason != tt.reason || !slices.Equal(o.Withheld, tt.withheld) {
				t.Errorf("recorded %q, veiled %q; want %q, %q", o.Reason, o.Withheld, tt.reason,
					tt.withheld)
			}
		})
	}
}
