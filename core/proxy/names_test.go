package proxy_test

import (
	"bytes"
	"context"
	"fmt"
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

// A client uses a name from a list. The request reaches the server that listed the name. In this
// request, the name has no prefix, as in the server's own list.
func FuzzListedNamesReachTheirServers(f *testing.F) {
	for _, seed := range []string{"x", "", "__", "_x", "a__x", "a-b__x", "file:///x", "A+file:///x",
		"ui://w", "UI://a+w", "ui://", "ui+x", "a+b+c", "+", "://x", "{scheme}://x", "naïve 名",
		"a\u0000b", "\u212A+x", "ui" + strings.Repeat("5", 2500)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if !utf8.ValidString(v) {
			return // v cannot be a JSON string
		}
		quoted := string(mcp.Quote(v))
		lists := fixedOrEmpty(map[string]string{
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
					want := c.use + " " + c.before + quoted + c.after
					if got := seen[len(seen)-1]; got != want {
						t.Errorf("mode %s: the name %q of server %q is shown as %s; the server "+
							"got %q, want %q", mode, v, name, shown, got, want)
					}
				}
			}
			w.session.Close()
		}
	})
}

// fixedOrEmpty returns an answerFunc with fixed results for some methods, and with an empty result
// for all other methods.
func fixedOrEmpty(results map[string]string) answerFunc {
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
		{"a URI that one server listed", "f:///a", "a"},
		{"a URI that two servers listed", "f:///both", ""},
		{"a URI of a template", "t://1", "a"},
		{"a URI of a template of the other server", "u://1", "b"},
		{"a URI that a result links to", "linked:///x", "b"},
		{"a URI of a resource embedded in a result", "embedded:///x", "b"},
		{"a URI of the template {any}", "any:///x", ""},
		{"a URI of the template g{any}", "gopher:///x", ""},
		{"a URI that is too long to be remembered", "long:///" + strings.Repeat("x", 3000), ""},
	} {
		before := len(a.seen()) + len(b.seen())
		got := w.call(t, "resources/read", `{"uri":"`+c.uri+`"}`)
		if c.want == "" {
			if !strings.HasPrefix(got, "!-32602 Unknown resource") || len(got) > 200 ||
				len(a.seen())+len(b.seen()) != before {
				t.Errorf("%s: got %s, and the servers saw %d messages; want the error "+
					"Unknown resource and no messages", c.name, got,
					len(a.seen())+len(b.seen())-before)
			}
			continue
		}
		equal(t, c.name, got, `{"uri":"`+c.uri+`"}`)
		w.record.expect(t, "pass to_server request resources/read "+c.want+" "+c.uri)
	}
	w.call(t, "resources/read", `{"uri":"a+missing:///x"}`)
	if got := w.call(t, "resources/read", `{"uri":"missing:///x"}`); !strings.HasPrefix(got,
		"!-32602") {
		t.Errorf("a URI that its server reported as not found: got %s, want error -32602", got)
	}
}

// In TestHostileTemplatesAreMatchedInLinearTime, a server lists more templates than a session
// remembers. Then the client reads URIs for which a backtracking matcher would need a long time.
func TestHostileTemplatesAreMatchedInLinearTime(t *testing.T) {
	templates := make([]string, 20_000)
	for i := range templates {
		// All templates begin with the same long text. A comparison finds their difference late.
		templates[i] = fmt.Sprintf(`{"uriTemplate":"t://%s%d{/a*}{/b*}{/c*}{?d*}","name":"t"}`,
			strings.Repeat("/", 1000), i)
	}
	a := &fakeServer{answer: fixedResults(map[string]string{"resources/list": `{"resources":[]}`,
		"resources/templates/list": `{"resourceTemplates":[` + strings.Join(templates, ",") + `]}`,
		"resources/read":           `{"contents":[]}`})}
	b := &fakeServer{answer: fixedResults(map[string]string{"resources/list": `{"resources":[]}`,
		"resources/templates/list": `{"resourceTemplates":[]}`})}
	w := open(t, map[string]*fakeServer{"a": a, "b": b}, func(o *proxy.Options) {
		o.Limits.ListItems = 50_000
	})
	for _, m := range []string{"resources/list", "resources/templates/list"} {
		w.call(t, m, `{}`)
	}
	if got := w.call(t, "resources/read", `{"uri":"t://`+strings.Repeat("/", 1000)+
		`1/x"}`); got != `{"contents":[]}` {
		t.Fatalf("a URI of a template got %.200s, want the result of its server", got)
	}
	for _, uri := range []string{"t://" + strings.Repeat("/", 8<<20), strings.Repeat("t:", 4<<20),
		"t://" + strings.Repeat("/", 1000) + strings.Repeat("{a}", 1<<20),
		"t://" + strings.Repeat("/", 999) + strings.Repeat("%2f", 1<<20)} {
		started := time.Now()
		for range 5 {
			if got := w.call(t, "resources/read", `{"uri":"`+uri+`"}`); !strings.HasPrefix(got,
				"!-32602") {
				t.Errorf("%.20s…: got %.200s, want error -32602", uri, got)
			}
		}
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("5 reads of %d bytes of %.20s took %v, want less than 10 s", len(uri), uri,
				took)
		}
	}
}

// TestURIOfAnEarlierSession reads URIs before the client asks for a list. A client may know such
// URIs from an earlier session.
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
			{"a URI that one server listed", "f:///a", "a"},
			{"a URI that the other server listed", "f:///b", "b"},
			{"a URI of a template", "u://1", "b"},
			{"a URI that two servers listed", "f:///both", ""},
			{"a URI that no server listed", "f:///none", ""},
			{"a URI that is too long to be remembered", "f:///" + strings.Repeat("x", 3000), ""},
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
						t.Errorf("got %s, want the answer of server %q (\"\": the error Unknown "+
							"resource)", got, c.want)
					}
				}
				for name, s := range map[string]*fakeServer{"a": a, "b": b} {
					seen := strings.Join(s.seen(), "\n")
					if n := strings.Count(seen, "resources/list"); n > 1 {
						t.Errorf("the server %q was asked for its list %d times, want at most once",
							name, n)
					}
					if name != c.want && strings.Contains(seen, "resources/read") {
						t.Errorf("the server %q got the URI, want only its owner to get it", name)
					}
				}
			})
		}
	}
	t.Run("the only server gets every URI", func(t *testing.T) {
		a := lists(``, ``)
		w := open(t, map[string]*fakeServer{"a": a}, nil)
		equal(t, "answer", w.call(t, "resources/read", `{"uri":"f:///x"}`), `{"uri":"f:///x"}`)
		w.record.expect(t, "pass to_server request resources/read a f:///x")
		if seen := strings.Join(a.seen(), "\n"); strings.Contains(seen, "list") {
			t.Errorf("the server saw\n%s\nwant no request for a list", seen)
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
				t.Errorf("the answer took %v, want at most 6s", took)
			}
			w.proxy.Close()
		})
	})
	t.Run("a policy denies the list that contains the URI", func(t *testing.T) {
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

// TestSharedTemplatesGetPrefixes checks that a client gets a template with a prefix if the URIs of
// the template could belong to several servers.
func TestSharedTemplatesGetPrefixes(t *testing.T) {
	template := func(s string) *fakeServer {
		return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
			switch m.Method {
			case "resources/list":
				return `{"resources":[]}`
			case "resources/templates/list":
				return `{"resourceTemplates":[{"uriTemplate":"` + s + `"}]}`
			}
			return string(m.Body())
		}}
	}
	for _, test := range []struct{ name, a, b, wantA, wantB string }{
		{"the same template", "u://{x}", "u://{x}", "a+u://{x}", "b+u://{x}"},
		{"the same beginning", "u://{x}", "u://{y}/z", "a+u://{x}", "b+u://{y}/z"},
		{"one template matches all URIs of the other", "u://{x}", "u://v/{y}", "u://{x}",
			"b+u://v/{y}"},
		{"different templates", "u://{x}", "v://{y}", "u://{x}", "v://{y}"},
		{"a template without a scheme", "{+x}", "v://{y}", "a+{+x}", "v://{y}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"a": template(test.a), "b": template(test.b)},
				func(o *proxy.Options) { o.Naming.Resources = "transparent" })
			for range 2 {
				got := w.call(t, "resources/templates/list", `{}`)
				if want := `{"resourceTemplates":[{"uriTemplate":"` + test.wantA +
					`"},{"uriTemplate":"` + test.wantB + `"}]`; !strings.HasPrefix(got, want) {
					t.Errorf("the list is %s, want %s", got, want)
				}
			}
		})
	}
	t.Run("the error for a URI of both servers suggests URIs with prefixes", func(t *testing.T) {
		a, b := template("u://{x}"), template("u://{x}")
		w := open(t, map[string]*fakeServer{"a": a, "b": b},
			func(o *proxy.Options) { o.Naming.Resources = "transparent" })
		const want = `Unknown resource: "u://1", which the servers a, b have in common: use ` +
			`"a+u://1" or "b+u://1"`
		if got := w.call(t, "resources/read", `{"uri":"u://1"}`); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
		for name, s := range map[string]*fakeServer{"a": a, "b": b} {
			if strings.Contains(strings.Join(s.seen(), "\n"), "resources/read") {
				t.Errorf("the server %q got the URI", name)
			}
			equal(t, "answer", w.call(t, "resources/read", `{"uri":"`+name+`+u://1"}`),
				`{"uri":"u://1"}`)
			if n := strings.Count(strings.Join(s.seen(), "\n"), "resources/read"); n != 1 {
				t.Errorf("the server %q got %d reads, want 1", name, n)
			}
		}
	})
}

func TestURIWithPrefixOfAnotherServer(t *testing.T) {
	a := &fakeServer{answer: fixedOrEmpty(
		map[string]string{"resources/list": `{"resources":[{"uri":"b+f:///x"},{"uri":"ui://b+w"},{"uri":"b__f"}]}`})}
	b := &fakeServer{answer: fixedOrEmpty(nil)}
	w := open(t, map[string]*fakeServer{"a": a, "b": b},
		func(o *proxy.Options) { o.Naming.Resources = "transparent" })
	if got := w.call(t, "resources/list", `{}`); !strings.HasPrefix(got,
		`{"resources":[{"uri":"a+b+f:///x"},{"uri":"ui://a+b+w"},{"uri":"a+b__f"}]`) {
		t.Errorf("the list is %s, want the prefix of server a before each URI", got)
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
		t.Errorf("logged %d lines in %d bytes, want two short lines, one for each long "+
			"name:\n%.500s", n, log.Len(), log.String())
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
			t.Errorf("revision %s: got error %d for an unknown resource, want %d", revision,
				answer.ErrorCode(), want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
