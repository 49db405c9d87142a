package proxy_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// Clients must not notice the cache: each session gets the servers' current answers.
func TestCachedListFollowsTheServers(t *testing.T) {
	now := map[string]string{"a": `{"tools":[{"name":"x"}]}`, "b": `{"tools":[{"name":"y"}]}`}
	server := func(name string) *fakeServer {
		return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
			return now[name]
		}}
	}
	hidden := ""
	hides := pipeline.StageConfig{Name: "hides",
		Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			if hidden != "" {
				return pipeline.Verdict{Action: pipeline.Allow, Hide: []string{hidden}}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
	w := open(t, map[string]*fakeServer{"a": server("a"), "b": server("b")}, nil, hides)
	const both = `{"tools":[{"name":"a__x"},{"name":"b__y"}]}`
	for _, step := range []struct{ name, a, b, hide, want string }{
		{"at first", `{"tools":[{"name":"x"}]}`, `{"tools":[{"name":"y"}]}`, "", both},
		{"the lists have not changed", `{"tools":[{"name":"x"}]}`, `{"tools":[{"name":"y"}]}`,
			"", both},
		{"one list has changed", `{"tools":[{"name":"z"}]}`, `{"tools":[{"name":"y"}]}`,
			"", `{"tools":[{"name":"a__z"},{"name":"b__y"}]}`},
		{"one server fails", `!-32603 no`, `{"tools":[{"name":"y"}]}`,
			"", `{"tools":[{"name":"b__y"}],"_meta":{"gatekit/partial":[{"server":"a","reason":"server \"a\" is not available: it answered error -32603, \"no\""}]}}`},
		{"one server has no list", `!-32601 no`, `{"tools":[{"name":"y"}]}`,
			"", `{"tools":[{"name":"b__y"}]}`},
		{"both lists as at first", `{"tools":[{"name":"x"}]}`, `{"tools":[{"name":"y"}]}`, "", both},
		{"a stage hides a tool", `{"tools":[{"name":"x"}]}`, `{"tools":[{"name":"y"}]}`,
			"x", `{"tools":[{"name":"b__y"}]}`},
		{"the stage no longer hides the tool", `{"tools":[{"name":"x"}]}`,
			`{"tools":[{"name":"y"}]}`, "", both},
	} {
		now["a"], now["b"], hidden = step.a, step.b, step.hide
		before := len(w.record.rows)
		equal(t, step.name, w.call(t, "tools/list", `{}`), step.want)
		if rows := w.record.rows[before:]; len(rows) != 5 || !slices.Contains(rows,
			"answer to_client response tools/list") {
			t.Errorf("%s: got the records %q, want two requests, two answers and the list",
				step.name, rows)
		}
	}
}

func TestSessionLearnsURIsFromCachedList(t *testing.T) {
	a := &fakeServer{answer: fixedResults(
		map[string]string{"resources/list": `{"resources":[{"uri":"file:///x","name":"x"}]}`,
			"resources/read": `{"contents":[]}`})}
	w := open(t, map[string]*fakeServer{"a": a, "b": {answer: fixedResults(nil)}}, nil)
	for _, name := range []string{"s1", "s2"} {
		s, c := w.proxy.Open(proxy.OpenOptions{Session: name, Principal: identity.FromID(name)},
			&fakeClient{}),
			&fakeClient{}
		read := func() string {
			return w.callAs(t, s, c, `1`, "resources/read", `{"uri":"file:///x"}`)
		}
		equal(t, name+": resources/list", w.callAs(t, s, c, `2`, "resources/list", `{}`),
			`{"resources":[{"uri":"a+file:///x","name":"x"}]}`)
		before := strings.Count(strings.Join(a.seen(), "\n"), "resources/list")
		equal(t, name+": resources/read after the list", read(), `{"contents":[]}`)
		equal(t, name+": requests for the list that the read caused",
			strings.Count(strings.Join(a.seen(), "\n"), "resources/list")-before, 0)
	}
}

func TestPagesOfLongListAreBoundToPrincipal(t *testing.T) {
	a := &fakeServer{answer: fixedResults(
		map[string]string{"tools/list": `{"tools":[{"name":"x"},{"name":"y"}]}`})}
	w := open(t, map[string]*fakeServer{"a": a}, func(o *proxy.Options) { o.Limits.PageItems = 1 })
	cursors := map[string]string{}
	for _, name := range []string{"p1", "p2"} {
		s := w.proxy.Open(proxy.OpenOptions{Session: name, Principal: identity.FromID(name)},
			&fakeClient{})
		p := s.Call(t.Context(), request(t, `1`, "tools/list", `{}`), &fakeClient{})
		cursors[name], _ = p.Message().Text("/nextCursor")
		got := w.callAs(t, s, &fakeClient{}, `2`, "tools/list", `{"cursor":"`+cursors[name]+`"}`)
		equal(t, "the second page of "+name, got, `{"tools":[{"name":"a__y"}]}`)
	}
	s := w.proxy.Open(proxy.OpenOptions{Session: "p3", Principal: identity.FromID("p3")},
		&fakeClient{})
	if got := w.callAs(t, s, &fakeClient{}, `2`, "tools/list", `{"cursor":"`+cursors["p1"]+
		`"}`); !strings.HasPrefix(got, "!-32602 invalid cursor") {
		t.Errorf("another principal's cursor: got %s, want invalid cursor", got)
	}
}
