package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// pagingServer returns a server that answers each request with the result of the function page.
// page gets the cursor of the request. Its parameter paged is true if the request has a cursor.
func pagingServer(page func(cursor string, paged bool) string) *fakeServer {
	return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		cursor, paged := m.Text("/cursor")
		return page(cursor, paged)
	}}
}

func TestUnusualListsOfServers(t *testing.T) {
	const one = `{"tools":[{"name":"x"}]}`
	good := &fakeServer{answer: fixedResults(map[string]string{"tools/list": one})}
	huge := `{"tools":[` + strings.Repeat(`{"name":"y"},`, 10_000) + `{"name":"y"}]}`
	for _, c := range []struct {
		name   string
		odd    *fakeServer
		items  string // items of the odd server in the merged list, with a comma at the end
		reason string // why the list is partial; "" if it is complete
		asked  int    // requests that the odd server gets
	}{
		{"an empty list", serverAnswering(`{"tools":[]}`), "", "", 1},
		{"null, which some servers send for an empty list", serverAnswering(`{"tools":null}`), "", "", 1},
		{"a result without a list", serverAnswering(`{}`), "", "its result has no list of tools", 1},
		{"an object instead of a list", serverAnswering(`{"tools":{"name":"y"}}`),
			"", "its result has no list of tools", 1},
		{"a result that is no object", serverAnswering(`[{"name":"y"}]`),
			"", "its result is no object", 1},
		{"a result that is null", serverAnswering(`null`), "", "its result is no object", 1},
		{"error -32601, method not found", serverAnswering("!-32601 no"), "", "", 1},
		{"items without names, which are forwarded",
			serverAnswering(`{"tools":[7,{},{"name":7}]}`), `7,{},{"name":7},`, "", 1},
		{"nextCursor null", serverAnswering(`{"tools":[{"name":"y"}],"nextCursor":null}`),
			`{"name":"odd__y"},`, "", 1},
		{"nextCursor that is no string", serverAnswering(`{"tools":[{"name":"y"}],"nextCursor":7}`),
			`{"name":"odd__y"},`, "its nextCursor is no string", 1},
		{"an empty cursor, which is valid", pagingServer(func(_ string, paged bool) string {
			if !paged {
				return `{"tools":[{"name":"1"}],"nextCursor":""}`
			}
			return `{"tools":[{"name":"2"}]}`
		}), `{"name":"odd__1"},{"name":"odd__2"},`, "", 2},
		{"the same cursor for ever", serverAnswering(`{"tools":[{"name":"y"}],"nextCursor":"c"}`),
			`{"name":"odd__y"},{"name":"odd__y"},`,
			"its nextCursor is the cursor of the same page", 2},
		{"a new cursor for ever", pagingServer(func(cursor string, _ bool) string {
			return `{"tools":[],"nextCursor":"` + cursor + `x"}`
		}), "", "its list has more than 100 pages ([limits] list_pages)", 100},
		{"a failure on the second page", pagingServer(func(_ string, paged bool) string {
			if paged {
				return "!-32603 oops"
			}
			return `{"tools":[{"name":"y"}],"nextCursor":"2"}`
		}), `{"name":"odd__y"},`, `it answered error -32603, \"oops\"`, 2},
		{"more items than a whole list may have", serverAnswering(huge),
			"", "its list has more than 10000 items, or 67108864 bytes ([limits] list_items)", 1},
		{"a long error with a terminal's control sequence",
			serverAnswering("!-32603 \x1b[2J" + strings.Repeat("x",
				10_000)), "", `it answered error -32603, \"\\x1b[2J` + strings.Repeat("x",
				196) + `…\"`,
			1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"odd": c.odd, "zgood": good}, nil)
			want := `{"tools":[` + c.items + `{"name":"zgood__x"}]`
			if c.reason != "" {
				want += `,"_meta":{"gatekit/partial":[{"server":"odd","reason":"server \"odd\" is not available: ` + c.reason + `"}]}`
			}
			equal(t, "list", w.call(t, "tools/list", `{}`), want+"}")
			equal(t, "requests that the odd server got", len(c.odd.seen()), c.asked)
		})
	}
}

func TestServerThatMakesListTooLongIsLeftOut(t *testing.T) {
	three := serverAnswering(`{"tools":[{"name":"1"},{"name":"2"},{"name":"3"}]}`)
	w := open(t, map[string]*fakeServer{"a": three, "b": three,
		"c": serverAnswering(`{"tools":[]}`)}, func(o *proxy.Options) { o.Limits.ListItems = 5 })
	equal(t, "list", w.call(t, "tools/list", `{}`),
		`{"tools":[{"name":"a__1"},{"name":"a__2"},{"name":"a__3"}],"_meta":{"gatekit/partial":[`+
			`{"server":"b","reason":"server \"b\" is not available: with its items the merged list would be too long ([limits] list_items)"}]}}`)
}

func TestServerWithSlowPagesDoesNotDelayList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drip := pagingServer(func(cursor string, paged bool) string {
			if paged {
				time.Sleep(4 * time.Second)
			}
			return `{"tools":[{"name":"` + cursor + `"}],"nextCursor":"` + cursor + `x"}`
		})
		w := open(t, map[string]*fakeServer{"drip": drip,
			"good": serverAnswering(`{"tools":[{"name":"x"}]}`)}, nil)
		began := time.Now()
		got := w.call(t, "tools/list", `{}`)
		equal(t, "list", got, `{"tools":[{"name":"drip__"},{"name":"drip__x"},{"name":"good__x"}],"_meta":{"gatekit/partial":[{"server":"drip","reason":"server \"drip\" is not available: it has not answered in time; its items come later"}]}}`)
		equal(t, "time until the answer", time.Since(began), 5*time.Second)
	})
}

func TestBroadcastsAreAnsweredWithoutSilentServer(t *testing.T) {
	for method, good := range map[string]string{"server/discover": `{"capabilities":{}}`,
		"logging/setLevel": `{}`, "tasks/list": `{"tasks":[]}`} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"good": serverAnswering(good),
				"silent": serverAnswering("")}, nil)
			began := time.Now()
			if got := w.call(t, method, `{}`); !strings.Contains(got,
				`"gatekit/partial":[{"server":"silent"`) {
				t.Errorf("%s: got %s, want a partial answer without the server silent", method, got)
			}
			equal(t, method+" took", time.Since(began), 5*time.Second)
		})
	}
}

func TestOnlyGatekitSetsPartial(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": serverAnswering(
		`{"tools":[],"_meta":{"gatekit/partial":[{"server":"b","reason":"it is evil"}],"k":1}}`),
		"b": serverAnswering("dead")}, nil)
	equal(t, "list", w.call(t, "tools/list", `{}`),
		`{"tools":[],"_meta":{"k":1,"gatekit/partial":[{"server":"b","reason":"server \"b\" is not available: it ended"}]}}`)
}

func TestDeniedList(t *testing.T) {
	denyAnswersOf := func(servers ...string) pipeline.StageConfig {
		return pipeline.StageConfig{Name: "no", Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			for _, s := range servers {
				if m.Server == s && m.Kind == mcp.Response {
					return pipeline.Verdict{}
				}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
	}
	servers := func() map[string]*fakeServer {
		return map[string]*fakeServer{"a": serverAnswering(`{"tools":[{"name":"x"}]}`),
			"b": serverAnswering(`{"tools":[{"name":"x"}]}`)}
	}
	w := open(t, servers(), nil, denyAnswersOf("a"))
	equal(t, "a list denied for one server", w.call(t, "tools/list", `{}`),
		`{"tools":[{"name":"b__x"}],"_meta":{"gatekit/partial":[{"server":"a","reason":"refused by policy"}]}}`)
	w = open(t, servers(), nil, denyAnswersOf("a", "b"))
	equal(t, "a list denied for all servers", w.call(t, "tools/list", `{}`), "!-31000 refused by policy")
}

func TestCursorBeyondShortenedList(t *testing.T) {
	tools := `{"tools":[{"name":"1"},{"name":"2"},{"name":"3"}]}`
	s := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		return tools
	}}
	w := open(t, map[string]*fakeServer{"a": s}, func(o *proxy.Options) { o.Limits.PageItems = 2 })
	cursor, _ := mcp.NewResponse("", []byte(w.call(t, "tools/list", `{}`))).Text("/nextCursor")
	tools = `{"tools":[{"name":"1"}]}`
	equal(t, "next page", w.call(t, "tools/list", `{"cursor":"`+cursor+`"}`),
		"!-32602 invalid cursor: the list has changed, ask again without a cursor")
}

// A former version merged the members of results in quadratic time, which took minutes here.
func TestManyMembersAreMergedInLinearTime(t *testing.T) {
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, `,"m%d":1`, i)
	}
	w := open(t, map[string]*fakeServer{"a": serverAnswering(`{"tools":[],"_meta":{"k":1` +
		many.String() + `}` +
		many.String() + `}`), "b": serverAnswering(`{"tools":[]` + many.String() + `}`)}, nil)
	began := time.Now()
	if got := w.call(t, "tools/list", `{}`); strings.HasPrefix(got, "!") {
		t.Errorf("list: got %.200s, want a result", got)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the list took %v, want at most 20s", took)
	}
}

func TestSetLevelReachesAllServers(t *testing.T) {
	level := func(accepted string) *fakeServer {
		return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
			if v, _ := m.Text("/level"); v == accepted || accepted == "" {
				return `{}`
			}
			return `!-32602 invalid level`
		}}
	}
	a, b, c := level("info"), level(""), serverAnswering("!-32601 no")
	w := open(t, map[string]*fakeServer{"a": a, "b": b, "c": c}, nil)
	equal(t, "a good level", w.call(t, "logging/setLevel", `{"level":"info"}`), `{}`)
	equal(t, "a bad level", w.call(t, "logging/setLevel", `{"level":"loud"}`),
		"!-32602 invalid level")
	for name, s := range map[string]*fakeServer{"a": a, "b": b, "c": c} {
		equal(t, "server "+name+" saw", s.seen(), []string{`logging/setLevel {"level":"info"}`,
			`logging/setLevel {"level":"loud"}`})
	}
	w = open(t, map[string]*fakeServer{"a": serverAnswering("!-32603 broken"),
		"b": serverAnswering("dead")}, nil)
	equal(t, "when every server fails", w.call(t, "logging/setLevel", `{"level":"info"}`), "!-32603 broken")
}

func TestMergedListHasGatekitsServerInfo(t *testing.T) {
	const info = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"NAME","version":"1"},"k":1}`
	w := open(t, map[string]*fakeServer{"a": serverAnswering(`{"tools":[],` +
		strings.ReplaceAll(info,
			"NAME", "a") + `}`), "b": serverAnswering(`{"tools":[],` + strings.ReplaceAll(info,
		"NAME", "b") + `}`)}, nil)
	if got := w.call(t, "tools/list", `{}`); !strings.Contains(got,
		`"io.modelcontextprotocol/serverInfo":{"name":"gatekit",`) || strings.Contains(got,
		`"name":"a"`) {
		t.Errorf("the list is %s, want Gatekit's serverInfo", got)
	}
}
