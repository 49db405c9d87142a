package proxy_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// A client uses a name from a list. The request reaches the server that listed it, with the
// server's own name.
func FuzzNamesThereAndBack(f *testing.F) {
	for _, seed := range []string{"x", "", "__", "_x", "a__x", "a-b__x", "file:///x", "A+file:///x",
		"ui://w", "UI://a+w", "ui://", "ui+x", "a+b+c", "+", "://x", "{scheme}://x", "naïve 名",
		"a\u0000b", "\u212A+x", "ui" + strings.Repeat("5", 2500)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if !utf8.ValidString(v) {
			return // no JSON string
		}
		quoted := string(mcp.Quote(v))
		lists := fixedOrEcho(map[string]string{
			"tools/list":               `{"tools":[{"name":` + quoted + `}]}`,
			"prompts/list":             `{"prompts":[{"name":` + quoted + `}]}`,
			"resources/list":           `{"resources":[{"uri":` + quoted + `}]}`,
			"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":` + quoted + `}]}`,
			"tasks/list":               `{"tasks":[{"taskId":` + quoted + `}]}`,
		})
		for _, mode := range []string{"scheme", "prefix", "transparent"} {
			servers := map[string]*fakeServer{"a": {answer: lists}, "a-b": {answer: lists},
				"ui": {answer: lists}}
			w := open(t, servers, func(o *proxy.Options) { o.Naming.Resources = mode })
			for _, c := range []struct{ list, at, member, use, before, after string }{
				{"tools/list", "/tools", "/name", "tools/call", `{"name":`, `}`},
				{"prompts/list", "/prompts", "/name", "prompts/get", `{"name":`, `}`},
				{"resources/list", "/resources", "/uri", "resources/subscribe", `{"uri":`, `}`},
				{"resources/templates/list", "/resourceTemplates", "/uriTemplate",
					"completion/complete", `{"ref":{"type":"ref/resource","uri":`, `}}`},
				{"tasks/list", "/tasks", "/taskId", "tasks/result", `{"taskId":`, `}`},
			} {
				listed := mcp.NewResponse("", []byte(w.call(t, c.list, `{}`)))
				if listed.Len(c.at) != 3 {
					t.Fatalf("%s: got %s, want 3 items", c.list, listed.Body())
				}
				for i, name := range []string{"a", "a-b", "ui"} {
					shown, _ := listed.Get(c.at + "/" + string(rune('0'+i)) + c.member)
					w.call(t, c.use, c.before+string(shown)+c.after)
					seen := servers[name].seen()
					if got := seen[len(seen)-1]; got != c.use+" "+c.before+quoted+c.after {
						t.Errorf("%s, %s, %q of %s is shown as %s: the server got %q, want %s",
							mode, c.use, v, name, shown, got, quoted)
					}
				}
			}
			w.session.Close()
		}
	})
}

// fixedOrEcho returns an answerFunc with fixed results for some methods and an empty one for the
// rest.
func fixedOrEcho(results map[string]string) answerFunc {
	return func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		if r, ok := results[m.Method]; ok {
			return r
		}
		return "{}"
	}
}

func TestUnprefixedURIGoesToItsOnlyOwner(t *testing.T) {
	lists := func(uris, templates string) *fakeServer {
		return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
			switch m.Method {
			case "resources/list":
				return `{"resources":[` + uris + `]}`
			case "resources/templates/list":
				return `{"resourceTemplates":[` + templates + `]}`
			case "tools/call":
				return `{"content":[{"type":"resource_link","uri":"linked:///x","name":"x"},{"type":"resource","resource":{"uri":"embedded:///x","text":""}}]}`
			case "resources/read":
				if strings.Contains(string(m.Body()), "missing") {
					return `!-32002 no`
				}
			}
			return string(m.Body())
		}}
	}
	a := lists(`{"uri":"f:///a"},{"uri":"f:///both"},{"uri":"long:///`+strings.Repeat("x",
		3000)+`"}`, `{"uriTemplate":"t://{x}"},{"uriTemplate":"{any}"},{"uriTemplate":"g{any}"}`)
	b := lists(`{"uri":"f:///both"}`, `{"uriTemplate":"u://{x}"},{"uriTemplate":"both://{x}"}`)
	w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
	for _, m := range []string{"resources/list", "resources/templates/list"} {
		w.call(t, m, `{}`)
	}
	w.call(t, "tools/call", `{"name":"b__x"}`)
	for _, c := range []struct{ name, uri, want string }{
		{"listed by one", "f:///a", "a"},
		{"listed by two", "f:///both", ""},
		{"of a template", "t://1", "a"},
		{"of a template of the other server", "u://1", "b"},
		{"linked to in a result", "linked:///x", "b"},
		{"embedded in a result", "embedded:///x", "b"},
		{"of a template that begins with an expression", "any:///x", ""},
		{"of a template with an expression in its scheme", "gopher:///x", ""},
		{"too long to be remembered", "long:///" + strings.Repeat("x", 3000), ""},
	} {
		before := len(a.seen()) + len(b.seen())
		got := w.call(t, "resources/read", `{"uri":"`+c.uri+`"}`)
		if c.want == "" {
			if !strings.HasPrefix(got, "!-32602 Unknown resource") || len(got) > 200 ||
				len(a.seen())+len(b.seen()) != before {
				t.Errorf("%s: got %s, and the servers saw %d messages; want Unknown resource "+
					"and none", c.name, got, len(a.seen())+len(b.seen())-before)
			}
			continue
		}
		equal(t, c.name, got, `{"uri":"`+c.uri+`"}`)
		w.record.expect(t, "pass to_server request resources/read "+c.want+" "+c.uri)
	}
	w.call(t, "resources/read", `{"uri":"a+missing:///x"}`)
	if got := w.call(t, "resources/read", `{"uri":"missing:///x"}`); !strings.HasPrefix(got,
		"!-32602") {
		t.Errorf("a URI for which its server answered not found: got %s, want error -32602", got)
	}
}

// TestURIOfAnEarlierSession uses URIs before any list, as a client does that knows them from an
// earlier session.
func TestURIOfAnEarlierSession(t *testing.T) {
	lists := func(uris, templates string) *fakeServer {
		return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
			switch m.Method {
			case "resources/list":
				return `{"resources":[` + uris + `]}`
			case "resources/templates/list":
				return `{"resourceTemplates":[` + templates + `]}`
			}
			return string(m.Body())
		}}
	}
	for _, mode := range []string{"scheme", "transparent"} {
		for _, c := range []struct{ name, uri, want string }{
			{"listed by one", "f:///a", "a"},
			{"listed by the other", "f:///b", "b"},
			{"of a template", "u://1", "b"},
			{"listed by two", "f:///both", ""},
			{"listed by none", "f:///none", ""},
			{"too long to be remembered", "f:///" + strings.Repeat("x", 3000), ""},
		} {
			t.Run(mode+", "+c.name, func(t *testing.T) {
				a := lists(`{"uri":"f:///a"},{"uri":"f:///both"}`, ``)
				b := lists(`{"uri":"f:///b"},{"uri":"f:///both"}`, `{"uriTemplate":"u://{x}"}`)
				w := open(t, map[string]*fakeServer{"a": a, "b": b}, func(o *proxy.Options) {
					o.Naming.Resources = mode
				})
				for range 2 {
					got := w.call(t, "resources/read", `{"uri":"`+c.uri+`"}`)
					if c.want == "" && !strings.HasPrefix(got, "!-32602 Unknown resource") ||
						c.want != "" && got != `{"uri":"`+c.uri+`"}` {
						t.Errorf("got %s, want the answer of server %q", got, c.want)
					}
				}
				for name, s := range map[string]*fakeServer{"a": a, "b": b} {
					seen := strings.Join(s.seen(), "\n")
					if n := strings.Count(seen, "resources/list"); n > 1 {
						t.Errorf("the server %q was asked for its list %d times", name, n)
					}
					if name != c.want && strings.Contains(seen, "resources/read") {
						t.Errorf("the server %q has seen the URI", name)
					}
				}
			})
		}
	}
	t.Run("of the only server", func(t *testing.T) {
		a := lists(``, ``)
		w := open(t, map[string]*fakeServer{"a": a}, nil)
		equal(t, "answer", w.call(t, "resources/read", `{"uri":"f:///x"}`), `{"uri":"f:///x"}`)
		w.record.expect(t, "pass to_server request resources/read a f:///x")
		if seen := strings.Join(a.seen(), "\n"); strings.Contains(seen, "list") {
			t.Errorf("the server saw\n%s\nwant no list", seen)
		}
	})
	t.Run("a server does not answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			silent := &fakeServer{answer: func(ctx context.Context, _ *mcp.Message,
				_ proxy.Handler) string {
				<-ctx.Done()
				return ""
			}}
			w := open(t, map[string]*fakeServer{"a": lists(`{"uri":"f:///a"}`, ``), "b": silent},
				nil)
			began := time.Now()
			equal(t, "answer", w.call(t, "resources/read", `{"uri":"f:///a"}`), `{"uri":"f:///a"}`)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the answer took %v", took)
			}
			w.proxy.Close()
		})
	})
	t.Run("a list that a policy denies", func(t *testing.T) {
		w := open(t, map[string]*fakeServer{"a": lists(`{"uri":"f:///a"}`, ``),
			"b": lists(``, ``)}, nil, pipeline.StageConfig{Name: "hide", Stage: stage(
			func(m *mcp.Message) pipeline.Verdict {
				if m.Method == "resources/list" && m.Kind == mcp.Response {
					return pipeline.Verdict{Reason: "no"}
				}
				return pipeline.Verdict{Action: pipeline.Allow}
			})})
		if got := w.call(t, "resources/read", `{"uri":"f:///a"}`); !strings.HasPrefix(got,
			"!-32602 Unknown resource") {
			t.Errorf("got %s, want Unknown resource", got)
		}
	})
}

func TestURIWithPrefixOfAnotherServer(t *testing.T) {
	a := &fakeServer{answer: fixedOrEcho(
		map[string]string{"resources/list": `{"resources":[{"uri":"b+f:///x"},{"uri":"ui://b+w"},{"uri":"b__f"}]}`})}
	b := &fakeServer{answer: fixedOrEcho(nil)}
	w := open(t, map[string]*fakeServer{"a": a, "b": b},
		func(o *proxy.Options) { o.Naming.Resources = "transparent" })
	if got := w.call(t, "resources/list", `{}`); !strings.HasPrefix(got,
		`{"resources":[{"uri":"a+b+f:///x"},{"uri":"ui://a+b+w"},{"uri":"a+b__f"}]`) {
		t.Errorf("the list is %s, want a's prefix before each URI", got)
	}
}

func TestLongNamesAreForwardedAndLoggedOnce(t *testing.T) {
	long, short := strings.Repeat("é", 62), strings.Repeat("é", 61)
	s := &fakeServer{answer: fixedResults(map[string]string{
		"tools/list":   `{"tools":[{"name":"` + long + `"},{"name":"` + short + `"}]}`,
		"prompts/list": `{"prompts":[{"name":"` + strings.Repeat("p", 10_000) + `"}]}`,
	})}
	var log bytes.Buffer
	w := open(t, map[string]*fakeServer{"a": s},
		func(o *proxy.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		equal(t, "list", w.call(t, "tools/list", `{}`),
			`{"tools":[{"name":"a__`+long+`"},{"name":"a__`+short+`"}]}`)
		w.call(t, "prompts/list", `{}`)
		other := w.proxy.Open(proxy.OpenOptions{Session: "other"}, w.client)
		w.callAs(t, other, w.client, "1", "tools/list", `{}`)
	}
	if n := strings.Count(log.String(), "too long for many models"); n != 2 ||
		!strings.Contains(log.String(), "name=a__"+long+" ") || log.Len() > 2000 {
		t.Errorf("logged %d lines in %d bytes, want one short line for each long name:\n%.500s",
			n, log.Len(), log.String())
	}
}

func TestNamesInErrorsAreQuotedAndClipped(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": {answer: echo}, "b": {answer: echo}}, nil)
	name := `x\u0000\u001b[2J` + strings.Repeat("y", 100_000)
	for method, params := range map[string]string{
		"tools/call": `{"name":"` + name + `"}`, "prompts/get": `{"name":"` + name + `"}`,
		"resources/read": `{"uri":"` + name + `"}`, "tasks/cancel": `{"taskId":"` + name + `"}`,
		"completion/complete": `{"ref":{"type":"ref/resource","uri":"` + name + `"}}`,
		"tools/list":          `{"cursor":"` + name + `"}`, strings.Repeat("z", 5000): `{}`,
	} {
		if got := w.call(t, method, params); !strings.HasPrefix(got, "!-3260") || len(got) > 250 ||
			strings.ContainsAny(got, "\x00\x1b") {
			t.Errorf("%.30s: got %d bytes: %.300q, want a short error without control characters",
				method, len(got), got)
		}
	}
}

// TestUnknownResourceHasTheCodeOfTheRevision reads a URI that no server owns.
func TestUnknownResourceHasTheCodeOfTheRevision(t *testing.T) {
	lists := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		return `{"resources":[],"resourceTemplates":[]}`
	}}
	w := open(t, map[string]*fakeServer{"a": lists, "b": lists}, nil)
	for revision, want := range map[string]int{mcp.Rev20241105: -32002, mcp.Rev20251125: -32002,
		mcp.Rev20260728: -32602} {
		s := w.proxy.Open(proxy.OpenOptions{Session: revision, Revision: revision}, w.client)
		answer := s.Call(t.Context(), mcp.NewRequest("1", "resources/read",
			[]byte(`{"uri":"nobody:///x"}`)), w.client).Message()
		if answer.ErrorCode() != want {
			t.Errorf("revision %s: an unknown resource is error %d, want %d", revision,
				answer.ErrorCode(), want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
