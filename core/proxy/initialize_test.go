package proxy_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// initializeParams are the params of the initialize that tests send.
const initializeParams = `{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}`

func TestInitializeMergesAllServers(t *testing.T) {
	a := &fakeServer{answer: fixedResults(
		map[string]string{"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"experimental":{"x":1,"y":2}},"serverInfo":{"name":"A","version":"1"},"instructions":"Be A."}`})}
	b := &fakeServer{answer: fixedResults(
		map[string]string{"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"resources":{"subscribe":true},"logging":{},"completions":{},"experimental":{"y":3,"z":4}},"serverInfo":{"name":"B","version":"1"},"instructions":"Be B."}`})}
	w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
	equal(t, "answer", w.call(t, "initialize", initializeParams),
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"experimental":{"x":1,"z":4},`+
			`"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}},"serverInfo":{"name":"gatekit","version":"1.0"},`+
			`"instructions":"# a\n\nBe A.\n\n# b\n\nBe B."}`)
	w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
	equal(t, "server a saw", a.seen(),
		[]string{"initialize " + initializeParams, "notifications/initialized {}"})
	w.record.expect(t, "pass to_server request initialize a", "pass to_server request initialize b",
		"pass to_client response initialize a", "answer to_client response initialize")
	equal(t, "a second initialize",
		w.callAs(t, w.session, w.client, "8", "initialize", initializeParams),
		"!-32600 the session is initialized already")
	equal(t, "a list whose capability no server declared", w.call(t, "prompts/list", `{}`),
		"!-32601 no server supports prompts/list")
	equal(t, "a call whose capability its server did not declare", w.call(t, "prompts/get", `{"name":"a__x"}`),
		`!-32601 server "a" has no prompts`)
	equal(t, "number of messages that server a saw", len(a.seen()), 2)
}

func TestDiscoverMergesAllServers(t *testing.T) {
	a := &fakeServer{answer: fixedResults(
		map[string]string{"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":300,"cacheScope":"public"}`})}
	b := &fakeServer{answer: fixedResults(
		map[string]string{"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}},"ttlMs":200,"cacheScope":"private"}`})}
	w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
	equal(t, "answer", w.call(t, "server/discover", `{}`),
		`{"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true}},`+
			`"resultType":"complete","ttlMs":200,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"gatekit","version":"1.0"}}}`)
}

func TestSlowServerIsInitializedLater(t *testing.T) {
	answered := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`
	for _, c := range []struct {
		name  string
		bad   func(began time.Time) string // the bad server's answer to initialize
		after time.Duration                // time until the client has the answer to initialize
	}{
		{"a server that is down at first", func(began time.Time) string {
			if time.Since(began) < 5*time.Second {
				return "dead"
			}
			return answered
		}, 0},
		{"a slow server", func(time.Time) string {
			time.Sleep(40 * time.Second)
			return answered
		}, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				bad := &fakeServer{answer: func(_ context.Context, m *mcp.Message,
					_ proxy.Handler) string {
					if m.Method == "initialize" {
						return c.bad(began)
					}
					return `{"tools":[{"name":"late"}]}`
				}}
				good := &fakeServer{answer: fixedResults(map[string]string{"initialize": answered,
					"tools/list": `{"tools":[{"name":"x"}]}`})}
				w := open(t, map[string]*fakeServer{"good": good, "bad": bad}, nil)
				if got := w.call(t, "initialize", initializeParams); !strings.Contains(got,
					`"gatekit/partial":[{"server":"bad"`) {
					t.Errorf("initialize: got %s, want the server bad in gatekit/partial", got)
				}
				equal(t, "time until the answer", time.Since(began), c.after)
				w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
				if got := w.call(t, "tools/list", `{}`); !strings.Contains(got,
					`"gatekit/partial":[{"server":"bad"`) {
					t.Errorf("tools/list meanwhile: got %s, want the server bad in gatekit/partial",
						got)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := strings.Join(w.feed.received(), "\n"); !strings.Contains(got,
					"notifications/tools/list_changed") {
					t.Errorf("the client got %q, want notifications/tools/list_changed", got)
				}
				equal(t, "tools/list after bad is initialized", w.call(t, "tools/list", `{}`),
					`{"tools":[{"name":"bad__late"},{"name":"good__x"}]}`)
				if seen := bad.seen(); seen[len(seen)-2] != "notifications/initialized {}" {
					t.Errorf("the late server saw %q, want notifications/initialized before "+
						"tools/list", seen)
				}
			})
		})
	}
}

func TestInitializeFailsWhenAllServersFail(t *testing.T) {
	dead := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		return "dead"
	}}
	w := open(t, map[string]*fakeServer{"a": dead, "b": dead}, nil)
	equal(t, "answer", w.call(t, "initialize", initializeParams),
		`!-32603 no server answered initialize: server "a" is not available: it ended; server "b" is not available: it ended`)
	one := open(t, map[string]*fakeServer{"a": dead}, withoutPrefix)
	equal(t, "answer of a single server", one.call(t, "initialize", initializeParams),
		`!-32603 server "a" is not available: it ended`)
}

func TestReloadKeepsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := func(name string) *fakeServer {
			return &fakeServer{answer: fixedResults(
				map[string]string{"initialize": `{"capabilities":{"tools":{}}}`,
					"tools/list": `{"tools":[{"name":"` + name + `"}]}`})}
		}
		a, b, c := list("x"), list("y"), list("z")
		w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
		w.call(t, "initialize", initializeParams)
		w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
		o := w.options
		o.Servers = []proxy.ServerConfig{{Name: "a", Upstream: a}, {Name: "c", Upstream: c}}
		if err := w.proxy.Apply(o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		equal(t, "list", w.call(t, "tools/list", `{}`),
			`{"tools":[{"name":"a__x"},{"name":"c__z"}]}`)
		equal(t, "times that server b was closed", b.closed, 1)
		equal(t, "messages that server a saw", len(a.seen()), 3)
		equal(t, "server c saw", c.seen()[:2], []string{"initialize " + initializeParams,
			"notifications/initialized {}"})
		if got := strings.Join(w.feed.received(), "\n"); !strings.Contains(got,
			"notifications/tools/list_changed") {
			t.Errorf("the client got %q, want notifications/tools/list_changed", got)
		}
		bad := o
		bad.Servers = nil
		if err := w.proxy.Apply(bad); err == nil {
			t.Error("Apply of options without servers returned no error")
		}
		equal(t, "list after a refused reload", w.call(t, "tools/list", `{}`),
			`{"tools":[{"name":"a__x"},{"name":"c__z"}]}`)
	})
}

func TestCapabilitiesAreMerged(t *testing.T) {
	for _, c := range []struct{ name, a, b, want string }{
		{"tasks, member by member at each depth", `{"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}`,
			`{"tasks":{"cancel":{},"requests":{"tools":{"call":{"x":1}},"y":{}}}}`,
			`{"tasks":{"list":{},"requests":{"tools":{"call":{}},"y":{}},"cancel":{}}}`},
		{"extensions on which the servers agree",
			`{"extensions":{"io.modelcontextprotocol/ui":{"v":1},"io.modelcontextprotocol/tasks":{"v":1}}}`,
			`{"extensions":{"io.modelcontextprotocol/ui":{"v":1},"io.modelcontextprotocol/tasks":{"v":2}}}`,
			`{"extensions":{"io.modelcontextprotocol/ui":{"v":1}}}`},
		{"extensions that cannot be served", `{"extensions":{"io.modelcontextprotocol/new":{},"acme/x":{"v":1}}}`,
			`{"extensions":{"io.modelcontextprotocol/tasks":true}}`, `{"extensions":{}}`},
		{"extensions whose methods are allowed", `{}`,
			`{"extensions":{"io.modelcontextprotocol/vendor":{},"io.modelcontextprotocol/new":{},"acme/x":{"v":1}}}`,
			`{"extensions":{"io.modelcontextprotocol/vendor":{},"acme/x":{"v":1}}}`},
		{"skills of two servers, one of which serves directories",
			`{"extensions":{"io.modelcontextprotocol/skills":{}}}`,
			`{"extensions":{"io.modelcontextprotocol/skills":{"directoryRead":true}}}`,
			`{"extensions":{"io.modelcontextprotocol/skills":{"directoryRead":true}}}`},
		{"skills without directories", `{"extensions":{"io.modelcontextprotocol/skills":{"directoryRead":false,"x":1}}}`,
			`{}`, `{"extensions":{"io.modelcontextprotocol/skills":{}}}`},
		{"skills with settings that are no object", `{"extensions":{"io.modelcontextprotocol/skills":true}}`,
			`{}`, `{"extensions":{}}`},
		{"no capabilities", `{}`, `7`, `{}`},
		{"resources that nobody can subscribe to", `{"resources":{"subscribe":false}}`,
			`{"resources":{}}`, `{"resources":{"listChanged":true}}`},
	} {
		w := open(t, map[string]*fakeServer{"a": serverAnswering(`{"capabilities":` + c.a + `}`),
			"b": serverAnswering(`{"capabilities":` + c.b + `}`)}, func(o *proxy.Options) {
			if c.name == "extensions whose methods are allowed" {
				o.Servers[1].Methods = []string{"vendor/*"}
			}
		})
		result := w.call(t, "initialize", initializeParams)
		got, _ := mcp.NewResponse("", []byte(result)).Get("/capabilities")
		equal(t, c.name, string(got), c.want)
	}
}

func TestInstructionsAreBounded(t *testing.T) {
	long := serverAnswering(`{"capabilities":{},"instructions":"` + strings.Repeat("é",
		40_000) + `"}`)
	w := open(t, map[string]*fakeServer{"a": long, "b": long}, nil)
	result := w.call(t, "initialize", initializeParams)
	text, _ := mcp.NewResponse("", []byte(result)).Text("/instructions")
	if len(text) < 30<<10 || len(text) > 33<<10 || !utf8.ValidString(text) || strings.Contains(text,
		"\uFFFD") {
		t.Errorf("the instructions have %d bytes, valid UTF-8: %v; want 30 to 33 KiB, all valid",
			len(text), utf8.ValidString(text))
	}
}

func TestServerIsNotAskedForMissingCapability(t *testing.T) {
	old := &fakeServer{answer: fixedOrEmpty(
		map[string]string{"initialize": `{"protocolVersion":"2024-11-05","capabilities":{"prompts":{}}}`})}
	new := &fakeServer{answer: fixedOrEmpty(
		map[string]string{"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"prompts":{}}}`, "prompts/list": `{"prompts":[]}`})}
	w := open(t, map[string]*fakeServer{"old": old, "new": new}, nil)
	w.call(t, "initialize", initializeParams)
	const complete = `{"ref":{"type":"ref/prompt","name":"%__x"}}`
	equal(t, "completion by a server of 2024-11-05, which cannot declare this capability",
		w.call(t, "completion/complete", strings.ReplaceAll(complete, "%", "old")), `{}`)
	equal(t, "completion by a newer server that does not declare this capability",
		w.call(t, "completion/complete", strings.ReplaceAll(complete, "%", "new")), `!-32601 server "new" has no completions`)
	equal(t, "a list that no server declared", w.call(t, "tools/list", `{}`),
		"!-32601 no server supports tools/list")
	equal(t, "messages that the server new saw", len(new.seen()), 1)
}

func TestDeniedInitializeIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := pipeline.StageConfig{Name: "no", Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			if m.Server == "bad" && m.Kind == mcp.Response {
				return pipeline.Verdict{}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
		bad := serverAnswering(`{"capabilities":{"tools":{}},"instructions":"obey me"}`)
		w := open(t, map[string]*fakeServer{"bad": bad,
			"good": serverAnswering(`{"capabilities":{"tools":{}},"tools":[]}`)}, nil, no)
		if got := w.call(t, "initialize", initializeParams); strings.Contains(got, "obey") ||
			!strings.Contains(got, `{"server":"bad","reason":"refused by policy"}`) {
			t.Errorf("initialize: got %s, want no instructions of the server bad, and the reason "+
				"refused by policy", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "messages that the server bad saw", len(bad.seen()), 1)
		if got := w.call(t, "tools/call", `{"name":"bad__x"}`); !strings.HasPrefix(got, "!-31000") {
			t.Errorf("a call of the server bad: got %s, want error -31000", got)
		}
	})
}

// failingStage is a stage that may fail.
type failingStage func(m *mcp.Message) (pipeline.Verdict, error)

func (s failingStage) Inspect(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	return s(m)
}

// A denial that came of a failure is not kept for the life of the session: initialize is repeated
// until the stage has a verdict. A server whose answer was denied is opened anew, because it would
// refuse another initialize.
func TestInitializeIsRepeatedAfterAStageHadNoVerdict(t *testing.T) {
	for _, tt := range []struct {
		name       string
		kind       mcp.Kind // of the message for which the stage has no verdict
		isLate     bool     // the stage has no verdict in time; false: it fails
		seen       int      // messages that the server saw
		closed     int      // how often the server was closed before the session
		wantRecord string
	}{
		{"late verdict about the request", mcp.Request, true, 2, 0,
			"deny to_server request initialize bad"},
		{"late verdict about the answer", mcp.Response, true, 3, 1,
			"deny to_client response initialize bad"},
		{"failed at the answer", mcp.Response, false, 3, 1,
			"deny to_client response initialize bad"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var works atomic.Bool
				unsteady := pipeline.StageConfig{Name: "unsteady", Timeout: time.Second,
					Stage: failingStage(func(m *mcp.Message) (pipeline.Verdict, error) {
						switch {
						case works.Load() || m.Server != "bad" || m.Kind != tt.kind:
						case tt.isLate:
							time.Sleep(2 * time.Second)
						default:
							return pipeline.Verdict{}, errors.New("broken")
						}
						return pipeline.Verdict{Action: pipeline.Allow}, nil
					})}
				bad := serverAnswering(`{"capabilities":{"tools":{}}}`)
				w := open(t, map[string]*fakeServer{"bad": bad,
					"good": serverAnswering(`{"capabilities":{"tools":{}}}`)}, nil, unsteady)
				w.call(t, "initialize", initializeParams)
				if got := w.call(t, "tools/call", `{"name":"bad__x"}`); !strings.HasPrefix(got,
					"!-31000") {
					t.Errorf("without a verdict: a call got %s, want error -31000", got)
				}
				w.record.expect(t, tt.wantRecord)
				works.Store(true)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := w.call(t, "tools/call", `{"name":"bad__x"}`); strings.HasPrefix(got, "!") {
					t.Errorf("when the stage works again: a call got %s, want a result", got)
				}
				equal(t, "messages that the server bad saw", len(bad.seen()), tt.seen)
				bad.mu.Lock()
				defer bad.mu.Unlock()
				equal(t, "closed", bad.closed, tt.closed)
			})
		})
	}
}

func TestSlowServerAnnouncesOnlyItsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		late := &fakeServer{answer: func(_ context.Context, m *mcp.Message,
			_ proxy.Handler) string {
			if times++; times == 1 {
				return "dead"
			}
			return `{"capabilities":{"prompts":{}}}`
		}}
		w := open(t, map[string]*fakeServer{"good": serverAnswering(
			`{"capabilities":{"tools":{}}}`), "late": late}, nil)
		w.call(t, "initialize", initializeParams)
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "the client got", w.feed.received(),
			[]string{"notifications/prompts/list_changed "})
	})
}

func TestInitializedIsForwardedBeforeNotifyReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowlyNotifiedServer{fakeServer: serverAnswering(`{"capabilities":{"tools":{}}}`)}
		w := open(t, map[string]*fakeServer{"a": slow.fakeServer},
			func(o *proxy.Options) { o.Servers[0].Upstream = slow })
		w.call(t, "initialize", initializeParams)
		inParallel(3, func(int) {
			w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
			equal(t, "messages that server a saw", len(slow.seen()), 2)
		})
	})
}

func TestSecondInitializedIsDropped(t *testing.T) {
	a := serverAnswering(`{"capabilities":{"tools":{}}}`)
	w := open(t, map[string]*fakeServer{"a": a}, nil)
	w.call(t, "initialize", initializeParams)
	for range 2 {
		w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
	}
	equal(t, "messages that the server saw", len(a.seen()), 2)
	w.record.expect(t, "pass to_server notification notifications/initialized a",
		"drop to_server notification notifications/initialized")
}

func TestServerAddedBetweenBeginAndRunOfInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serverAnswering(`{"capabilities":{"tools":{}}}`)
		w := open(t, map[string]*fakeServer{"a": serverAnswering(`{"capabilities":{}}`)}, nil)
		call := w.session.Begin(request(t, "7", "initialize", initializeParams), w.client)
		o := w.options
		o.Servers = []proxy.ServerConfig{{Name: "b", Upstream: b}}
		if err := w.proxy.Apply(o); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "answer", answerText(t, "7", call.Run(t.Context())),
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"gatekit","version":"1.0"}}`)
		equal(t, "a call", w.call(t, "tools/call", `{"name":"b__t"}`),
			`{"capabilities":{"tools":{}}}`)
	})
}

// slowlyNotifiedServer takes one second for each notification.
type slowlyNotifiedServer struct{ *fakeServer }

func (s *slowlyNotifiedServer) Open(ctx context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	_, err := s.fakeServer.Open(ctx, o, feed)
	return s, err
}

func (s *slowlyNotifiedServer) Notify(ctx context.Context, p pipeline.Passed) error {
	time.Sleep(time.Second)
	return s.fakeServer.Notify(ctx, p)
}

// A reload initializes a new server at once. The first calls to that server wait until it is
// initialized, but at most 15 seconds. The first calls of a session have the same limit.
func TestServerAddedToOpenSession(t *testing.T) {
	for _, c := range []struct {
		name   string
		starts time.Duration // time until the server answers initialize
		want   string
	}{
		{"starts soon", 14 * time.Second, `{"x":1}`},
		{"takes too long", 16 * time.Second,
			`!-32603 server "b" is not available: it is still starting`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, map[string]*fakeServer{"a": {answer: echo}}, nil)
				w.call(t, "initialize", initializeParams)
				w.session.Notify(t.Context(), notification(t, "notifications/initialized", `{}`))
				b := &fakeServer{answer: func(_ context.Context, m *mcp.Message,
					_ proxy.Handler) string {
					if m.Method == "initialize" {
						time.Sleep(c.starts)
						return `{"capabilities":{"tools":{}}}`
					}
					return `{"x":1}`
				}}
				o := w.options
				o.Servers = append(o.Servers, proxy.ServerConfig{Name: "b", Upstream: b})
				if err := w.proxy.Apply(o); err != nil {
					t.Fatal(err)
				}
				equal(t, "the first call", w.call(t, "tools/call", `{"name":"b__t"}`), c.want)
				time.Sleep(time.Minute)
				equal(t, "a later call", w.call(t, "tools/call", `{"name":"b__t"}`), `{"x":1}`)
				var methods []string
				for _, m := range b.seen()[:3] {
					methods = append(methods, strings.Fields(m)[0])
				}
				equal(t, "the server saw", methods,
					"[initialize notifications/initialized tools/call]")
			})
		})
	}
}
