package proxy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// fakeApprovals is a proxy.Approvals in memory.
type fakeApprovals struct {
	approved  bool     // the next call of Consume returns true
	submitted []string // server, name and reason of each submitted request
	values    []string // values of each submitted request
	err       error    // of Submit
}

func (a *fakeApprovals) Consume(*mcp.Message) bool {
	approved := a.approved
	a.approved = false
	return approved
}

func (a *fakeApprovals) Submit(m *mcp.Message, reason, values string) (string, error) {
	a.submitted = append(a.submitted, m.Server+" "+m.Name+" "+reason)
	a.values = append(a.values, values)
	return "ask the boss", a.err
}

func TestApprovedRequestIsForwarded(t *testing.T) {
	asks := pipeline.StageConfig{Name: "policy",
		Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			if m.Method == "tools/call" && m.Kind == mcp.Request {
				return pipeline.Verdict{Action: pipeline.Ask, Reason: "it is large",
					Edits: []mcp.Edit{mcp.Set("/arguments/checked", []byte("true"))}}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
	const able, unable = `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`
	const ran = `{"structuredContent":{"name":"x","arguments":{"n":1,"checked":true}}}`
	for _, c := range []struct {
		name, initializeParams, answer string
		approved                       bool // an administrator has approved the request
		want                           string
		recorded                       []string
		submitted                      int   // number of requests submitted to Approvals
		err                            error // of Submit
	}{
		{"the user approves", able, `{"action":"accept","content":{"approve":true}}`, false, ran,
			[]string{"ask to_server request tools/call a x",
				"answer to_client request elicitation/create a",
				"approve to_server request tools/call a x"}, 0, nil},
		{"the user rejects", able, `{"action":"accept","content":{"approve":false}}`, false,
			`!-31000 refused by policy`, []string{"reject to_server request tools/call a x"}, 0, nil},
		{"the user declines to answer", able, `{"action":"decline"}`, false, `!-31000 refused by policy`, nil,
			0, nil},
		{"the client cannot ask its user", unable, ``, false, `!-31000 refused by policy: ask the boss`,
			[]string{"ask to_server request tools/call a x"}, 1, nil},
		{"the request cannot be stored", unable, ``, false, `!-31000 refused by policy: needs ` +
			`approval, and could not be stored for it: try again later`,
			[]string{"ask to_server request tools/call a x"}, 1, errors.New("full")},
		{"an administrator has approved", unable, ``, true, ran,
			[]string{"approve to_server request tools/call a x"}, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			outside := &fakeApprovals{approved: c.approved, err: c.err}
			answer := func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
				if m.Method == "initialize" {
					return `{"capabilities":{"tools":{}}}`
				}
				return `{"structuredContent":` + string(m.Body()) + `}`
			}
			w := open(t, map[string]*fakeServer{"a": {answer: answer}},
				func(o *proxy.Options) { o.Approvals = outside }, asks)
			w.call(t, "initialize", c.initializeParams)
			w.client.answer = func(m *mcp.Message) *mcp.Message {
				return mcp.NewResponse(m.ID(), []byte(c.answer))
			}
			if got := w.call(t, "tools/call",
				`{"name":"a__x","arguments":{"n":1}}`); !strings.HasPrefix(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			w.record.expect(t, c.recorded...)
			if len(outside.submitted) != c.submitted {
				t.Errorf("%d requests were submitted, want %d: %q", len(outside.submitted),
					c.submitted, outside.submitted)
			}
			if c.approved { // an approval is valid for one request
				if got := w.call(t, "tools/call",
					`{"name":"a__x","arguments":{"n":1}}`); !strings.HasPrefix(got, "!-31000") {
					t.Errorf("the second request: got %s, want error -31000", got)
				}
			}
		})
	}
}

// A client's name may contain secrets. So the recorded name has the edits of the stages. If a stage
// denies initialize, no name is recorded.
func TestClientNameIsRecordedAfterInspection(t *testing.T) {
	const initializeParams = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c s3cret","version":"1"}}`
	for name, verdict := range map[string]pipeline.Verdict{
		"edited": {Action: pipeline.Modify, Edits: []mcp.Edit{mcp.Set("/clientInfo/name",
			[]byte(`"c edited"`))}},
		"denied": {Action: pipeline.Deny, Reason: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"a": {answer: func(context.Context, *mcp.Message,
				proxy.Handler) string {
				return `{"capabilities":{}}`
			}}}, nil, pipeline.StageConfig{Name: "s",
				Stage: stage(func(m *mcp.Message) pipeline.Verdict {
					if m.Method == "initialize" && m.Kind == mcp.Request {
						return verdict
					}
					return pipeline.Verdict{Action: pipeline.Allow}
				})})
			w.call(t, "initialize", initializeParams)
			w.record.mu.Lock()
			defer w.record.mu.Unlock()
			got := slices.DeleteFunc(slices.Clone(w.record.reasons), func(r string) bool {
				return !strings.HasPrefix(r, "connect ")
			})
			want := map[string][]string{"edited": {"connect c edited 1, "}}[name]
			if !slices.Equal(got, want) {
				t.Errorf("the client is recorded as %q, want %q", got, want)
			}
		})
	}
}

func TestClientIsRecordedByItsClientInfo(t *testing.T) {
	for info, want := range map[string]string{
		`{"name":"c","version":"1"}`: "connect c 1, ",
		`{"name":"c"}`:               "connect c, ",
		`{"version":"1"}`:            "connect a client without a name 1, ",
		`{}`:                         "connect a client without a name, ",
		`{"name":""}`:                "connect a client without a name, ",
		`{"name":7,"version":[]}`:    "connect a client without a name, ",
	} {
		t.Run(info, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"a": {answer: func(context.Context, *mcp.Message,
				proxy.Handler) string {
				return `{"capabilities":{}}`
			}}}, nil)
			w.call(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":`+info+`}`)
			w.record.mu.Lock()
			defer w.record.mu.Unlock()
			if !slices.Contains(w.record.reasons, want) {
				t.Errorf("the records are %q, want %q among them", w.record.reasons, want)
			}
		})
	}
}
