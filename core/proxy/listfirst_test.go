package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// hiderOfX is a stage that hides the items with the name or URI "x" or "f:x" from lists, and judges
// nothing else.
func hiderOfX(methods ...string) pipeline.StageConfig {
	return pipeline.StageConfig{Name: "hider", KeepHidden: true,
		Wants: pipeline.Wants{Methods: methods},
		Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			v := pipeline.Verdict{Action: pipeline.Allow}
			if m.Kind == mcp.Response && strings.HasSuffix(m.Method, "/list") {
				v.Hide = []string{"x", "f:x"}
			}
			return v
		})}
}

// listingServer is a server with items x and y of all kinds. Its lists have two pages.
func listingServer() *fakeServer {
	return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		first := !strings.Contains(string(m.Body()), `"cursor"`)
		item := map[bool]string{true: "y", false: "x"}[first]
		next := map[bool]string{true: `,"nextCursor":"2"`}[first]
		switch m.Method {
		case "server/discover":
			return `{"capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{}}}`
		case "tools/list":
			return `{"tools":[{"name":"` + item + `"}]` + next + `}`
		case "prompts/list":
			return `{"prompts":[{"name":"` + item + `"}]` + next + `}`
		case "resources/list":
			return `{"resources":[{"uri":"f:` + item + `"}]` + next + `}`
		case "resources/templates/list":
			return `{"resourceTemplates":[]}`
		}
		return `{"done":true}`
	}}
}

// lists returns the methods of the lists that the server was asked for.
func (s *fakeServer) lists() (methods []string) {
	for _, m := range s.seen() {
		if method, _, _ := strings.Cut(m, " "); strings.HasSuffix(method, "/list") {
			methods = append(methods, method)
		}
	}
	return methods
}

func listFirst(o *proxy.Options) { o.ListFirst = true }

// What a stage hides from a list cannot be used on a replica that has not listed. The lists are
// asked for once, with all pages, and reach no client.
func TestHiddenItemsOfAReplicaThatHasNotListed(t *testing.T) {
	for name, c := range map[string]struct{ method, hidden, shown, lists string }{
		"a tool": {"tools/call", `{"name":"a__x"}`, `{"name":"a__y"}`, "tools/list tools/list"},
		"a prompt": {"prompts/get", `{"name":"a__x"}`, `{"name":"a__y"}`,
			"prompts/list prompts/list"},
		"a resource": {"resources/read", `{"uri":"a+f:x"}`, `{"uri":"a+f:y"}`,
			"resources/list resources/list resources/templates/list skills/list"},
		"completion": {"completion/complete",
			`{"ref":{"type":"ref/prompt","name":"a__x"},"argument":{}}`,
			`{"ref":{"type":"ref/prompt","name":"a__y"},"argument":{}}`,
			"prompts/list prompts/list"},
		"completion of a resource": {"completion/complete",
			`{"ref":{"type":"ref/resource","uri":"a+f:x"},"argument":{}}`,
			`{"ref":{"type":"ref/resource","uri":"a+f:y"},"argument":{}}`,
			"resources/list resources/list resources/templates/list"},
	} {
		t.Run(name, func(t *testing.T) {
			a := listingServer()
			w := open(t, map[string]*fakeServer{"a": a}, listFirst, hiderOfX())
			if got := w.call(t, c.method, c.hidden); name != "completion of a resource" &&
				got != "!-31000 refused by policy" {
				t.Errorf("%s of the hidden item: got %s, want a denial", c.method, got)
			}
			for range 2 {
				if got := w.call(t, c.method, c.shown); got != `{"done":true}` {
					t.Errorf("%s of the other item: got %s, want a result", c.method, got)
				}
			}
			if got := strings.Join(a.lists(), " "); got != c.lists {
				t.Errorf("the server was asked for %s, want %s", got, c.lists)
			}
			if n := len(w.client.received()) + len(w.feed.received()); n > 0 {
				t.Errorf("the client got %d messages beside its answers", n)
			}
		})
	}
}

// A skill that a stage hides cannot be used on a replica that has not listed skills, and the files
// of the others must match their digests there.
func TestSkillsOfAReplicaThatHasNotListed(t *testing.T) {
	hide := stage(func(m *mcp.Message) pipeline.Verdict {
		v := pipeline.Verdict{Action: pipeline.Allow}
		if m.Kind == mcp.Response && m.Method == "skills/list" {
			v.Hide = []string{"skill://x/SKILL.md"}
		}
		return v
	})
	hider := pipeline.StageConfig{Name: "hider", Stage: hide}
	for _, declares := range []bool{false, true} {
		a := skillServer(map[string]string{"skill://y/SKILL.md": `{"text":"evil"}`},
			skill("skill://x", "x"), skill("skill://y", "good"))
		w := open(t, map[string]*fakeServer{"a": a}, listFirst, hider)
		if declares {
			w.call(t, "initialize", `{"protocolVersion":"2025-11-25"}`)
		}
		for _, c := range []struct{ method, uri, want string }{
			{"resources/read", "skill://x/SKILL.md", "the skill is hidden from this client"},
			{"skills/get", "skill://x/SKILL.md", "the skill is hidden from this client"},
			{"resources/directory/read", "skill://x", "the skill is hidden from this client"},
			{"resources/read", "skill://y/SKILL.md", "does not match the digest"},
			{"skills/get", "skill://y/SKILL.md", `"description":"d"`},
		} {
			got := w.call(t, c.method, `{"uri":"a+`+c.uri+`"}`)
			if !strings.Contains(got, c.want) {
				t.Errorf("%s of %s: got %s, want %s", c.method, c.uri, got, c.want)
			}
		}
		if got := strings.Join(a.lists(), " "); got != "skills/list" {
			t.Errorf("the server was asked for %s, want skills/list", got)
		}
	}
}

// A server that is not known to have skills may answer skills/list with any error.
func TestServerWithoutSkillsIsRead(t *testing.T) {
	for name, answer := range map[string]string{"no method": "!-32601 no", "an error": "!-32603 no",
		"no list": `{}`} {
		t.Run(name, func(t *testing.T) {
			a := listingServer()
			rest := a.answer
			a.answer = func(ctx context.Context, m *mcp.Message, h proxy.Handler) string {
				if m.Method == "skills/list" {
					return answer
				}
				return rest(ctx, m, h)
			}
			w := open(t, map[string]*fakeServer{"a": a}, listFirst)
			for range 2 {
				if got := w.call(t, "resources/read", `{"uri":"a+f:y"}`); got != `{"done":true}` {
					t.Errorf("resources/read: got %s, want a result", got)
				}
			}
			if got := strings.Join(a.lists(), " "); got != "skills/list" {
				t.Errorf("the server was asked for %s, want skills/list once", got)
			}
		})
	}
}

// A list that no stage needs is not asked for, and none is asked for without other replicas or
// after the client has listed.
func TestListsThatAreNotAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*proxy.Options)
		stage  pipeline.StageConfig
		before string // method that the client calls first
		want   string // the lists
	}{
		"needed":         {listFirst, hiderOfX(), "", "tools/list tools/list"},
		"one Gatekit":    {nil, hiderOfX(), "", ""},
		"no stage":       {listFirst, hiderOfX("prompts/list"), "", ""},
		"listed already": {listFirst, hiderOfX(), "tools/list", "tools/list tools/list"},
		"another list": {listFirst, hiderOfX(), "prompts/list",
			"prompts/list prompts/list tools/list tools/list"},
	} {
		t.Run(name, func(t *testing.T) {
			a := listingServer()
			w := open(t, map[string]*fakeServer{"a": a}, c.change, c.stage)
			if c.before != "" {
				w.call(t, c.before, `{}`)
			}
			if got := w.call(t, "tools/call", `{"name":"a__y"}`); got != `{"done":true}` {
				t.Errorf("tools/call: got %s, want a result", got)
			}
			if got := strings.Join(a.lists(), " "); got != c.want {
				t.Errorf("the server was asked for %q, want %q", got, c.want)
			}
		})
	}
}

// If a list fails, or is denied, or is longer than lists may be, what it hides is not known.
func TestUseWithoutTheNeededListIsRefused(t *testing.T) {
	denying := hiderOfX()
	hide := denying.Stage.(stage)
	denying.Stage = stage(func(m *mcp.Message) pipeline.Verdict {
		if m.Method == "tools/list" {
			return pipeline.Verdict{Reason: "no lists"}
		}
		return hide(m)
	})
	for name, c := range map[string]struct {
		stage        pipeline.StageConfig
		list, answer string
	}{
		"an error": {hiderOfX(), "!-32000 no", `!-32603 server "a" is not available: it answered ` +
			`error -32000, "no"`},
		"no list": {hiderOfX(), `{}`,
			`!-32603 server "a" is not available: its result has no list of tools`},
		"no end": {hiderOfX(), `{"tools":[],"nextCursor":"1"}`, `!-32603 server "a" is not ` +
			`available: its list has more than 100 pages ([limits] list_pages)`},
		"too long": {hiderOfX(), `{"tools":[` + strings.Repeat(`{"name":"y"},`, 10_000) +
			`{"name":"y"}]}`, `!-32603 server "a" is not available: its list has more than ` +
			`10000 items ([limits] list_items)`},
		"a denial":   {denying, `{"tools":[]}`, "!-31000 refused by policy"},
		"no method":  {hiderOfX(), "!-32601 no", `{"done":true}`},
		"empty list": {hiderOfX(), `{"tools":[]}`, `{"done":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := listingServer()
			rest := a.answer
			a.answer = func(ctx context.Context, m *mcp.Message, h proxy.Handler) string {
				if m.Method == "tools/list" {
					return c.list
				}
				return rest(ctx, m, h)
			}
			w := open(t, map[string]*fakeServer{"a": a}, listFirst, c.stage)
			for range 2 {
				if got := w.call(t, "tools/call", `{"name":"a__y"}`); got != c.answer {
					t.Errorf("tools/call: got %s, want %s", got, c.answer)
				}
			}
			for _, m := range a.seen() {
				if strings.HasPrefix(m, "tools/call") && strings.HasPrefix(c.answer, "!") {
					t.Errorf("the server got %s", m)
				}
			}
		})
	}
}

// A server that does not answer is told that the list is cancelled.
func TestNeededListThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := listingServer()
		rest := a.answer
		a.answer = func(ctx context.Context, m *mcp.Message, h proxy.Handler) string {
			if m.Method == "tools/list" {
				return ""
			}
			return rest(ctx, m, h)
		}
		w := open(t, map[string]*fakeServer{"a": a}, listFirst, hiderOfX())
		began := time.Now()
		equal(t, "tools/call", w.call(t, "tools/call", `{"name":"a__y"}`),
			`!-32603 server "a" did not answer within 20s`)
		equal(t, "the time", time.Since(began), 20*time.Second)
		equal(t, "the requests", strings.Join(a.lists(), " "), "tools/list")
		var cancelled *proxy.CancelledError
		if len(a.ended) != 1 || !errors.As(a.ended[0], &cancelled) ||
			cancelled.Notification.Message() == nil {
			t.Errorf("the list has ended with %v, want a notification for the server", a.ended)
		}
	})
}

// In a session that other replicas serve, too, a list is asked for again after a minute. In every
// session, it is asked for again after the server has said that it changed.
func TestListsAreAskedForAgain(t *testing.T) {
	for _, isShared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := listingServer()
			w := open(t, map[string]*fakeServer{"a": a}, listFirst, hiderOfX())
			s := w.proxy.Open(proxy.OpenOptions{Session: "m", Principal: identity.FromID("p"),
				Shared: isShared}, &fakeClient{})
			asked := func() int {
				before := len(a.lists())
				w.callAs(t, s, &fakeClient{}, `1`, "tools/call", `{"name":"a__y"}`)
				return len(a.lists()) - before
			}
			if n := asked(); n != 2 {
				t.Errorf("at first, %d pages are asked for, want 2", n)
			}
			time.Sleep(59 * time.Second)
			if n := asked(); n != 0 {
				t.Errorf("within a minute, %d pages are asked for, want none", n)
			}
			time.Sleep(time.Second)
			if n := asked(); n != 2 && isShared || n != 0 && !isShared {
				t.Errorf("after a minute, with a shared session %v, %d pages are asked for",
					isShared, n)
			}
			a.mu.Lock()
			feed := a.feed
			a.mu.Unlock()
			for method, want := range map[string]int{"prompts": 0, "tools": 2} {
				feed.HandleNotification(t.Context(),
					mcp.NewNotification("notifications/"+method+"/list_changed", nil))
				if n := asked(); n != want {
					t.Errorf("after the list of %s changed, %d pages are asked for, want %d",
						method, n, want)
				}
			}
		})
	}
}

// Calls that need the same list wait for it together.
func TestCallsAskForAListOnce(t *testing.T) {
	a := listingServer()
	w := open(t, map[string]*fakeServer{"a": a}, listFirst, hiderOfX())
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			if got := w.callAs(t, w.session, &fakeClient{}, fmt.Sprint(i), "tools/call",
				`{"name":"a__x"}`); got != "!-31000 refused by policy" {
				t.Errorf("the hidden tool: got %s, want a denial", got)
			}
		})
	}
	calls.Wait()
	if n := len(a.lists()); n != 2 {
		t.Errorf("%d pages are asked for, want 2", n)
	}
}
