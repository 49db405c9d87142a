//lint:file-ignore SA1019 clients still use sampling, roots and logging, deprecated in 2026-07-28

package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// event is something that a client observed. clients/scenario.mjs prints events, and runGoScenario
// collects them.
type event struct{ Kind, Text string }

// TestScenarioForAllErasTransportsAndSDKs runs one scenario for all pairs of eras, all transports
// on both sides and the clients of two SDKs. During a call the server logs, reports progress,
// changes its lists and asks for sampling, a form, the roots and a visit to a URL. The client
// answers the last of these requests only when it has received the log message, progress and all
// list changes. After the call, the client makes another call and cancels it.
//
// Each message arrives in every combination, but in different ways. A modern client gets logs only
// for calls that ask for them, and list changes only if it listens. A legacy client sets a level,
// and gets all logs and list changes. The Go SDK answers roots/list itself, so that only the
// server's result shows this request.
func TestScenarioForAllErasTransportsAndSDKs(t *testing.T) {
	transports := []string{"stdio", "http"}
	for _, sdk := range []string{"go", "typescript"} {
		for _, client := range []string{"2025-11-25", mcptest.Modern} {
			for _, front := range transports {
				for _, server := range []string{"2025-11-25", mcptest.Modern} {
					for _, back := range transports {
						t.Run(fmt.Sprintf("%s %s over %s, server %s over %s", sdk, client, front,
							server, back), func(t *testing.T) {
							t.Parallel()
							config := harness.ScriptedServerOver(t, "box", server, back)
							var g *harness.Gatekit
							if front == "http" {
								g = harness.StartHTTP(t, config)
							} else {
								g = harness.Prepare(t, config)
								defer g.CheckExit()
							}
							run := runGoScenario
							if sdk == "typescript" {
								run = runNodeScenario
							}
							wantScenario(t, g, run(t, g, client), client, server)
						})
					}
				}
			}
		}
	}
}

// runNodeScenario runs the scenario with a client of the TypeScript SDK and returns its events.
func runNodeScenario(t *testing.T, g *harness.Gatekit, revision string) (all []event) {
	sdk := "v1"
	if revision == mcptest.Modern {
		sdk = "v2"
	}
	target := []string{g.URL}
	if g.URL == "" {
		target = []string{"--", g.Cmd.Path, "run"}
	}
	for line := range bytes.Lines(runNode(t, "scenario.mjs", sdk, g.Dir, target...)) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// eventLog holds the events of a client of the Go SDK.
type eventLog struct {
	mu      sync.Mutex // guards the fields below
	all     []event
	changed chan struct{} // closed and replaced with every event
}

func newEventLog() *eventLog { return &eventLog{changed: make(chan struct{})} }

// add adds an event and wakes the waiting goroutines.
func (l *eventLog) add(kind, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, event{kind, text})
	close(l.changed)
	l.changed = make(chan struct{})
}

// waitFor waits until there are n events of each kind or the context ends, and returns all events.
func (l *eventLog) waitFor(ctx context.Context, n int, kinds ...string) []event {
	for {
		l.mu.Lock()
		all, changed := slices.Clone(l.all), l.changed
		l.mu.Unlock()
		missing := func(kind string) bool { return len(texts(all, kind)) < n }
		if !slices.ContainsFunc(kinds, missing) {
			return all
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all
		}
	}
}

// texts returns the texts of the events of one kind.
func texts(all []event, kind string) (some []string) {
	for _, e := range all {
		if e.Kind == kind {
			some = append(some, e.Text)
		}
	}
	return some
}

// runGoScenario runs the scenario with a client of the Go SDK and returns its events.
func runGoScenario(t *testing.T, g *harness.Gatekit, revision string) []event {
	ctx, log := harness.Context(t), newEventLog()
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{},
				URL: &mcp.URLElicitationCapabilities{}}},
		CreateMessageHandler: func(_ context.Context,
			r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			log.add("sampling", r.Params.Messages[0].Content.(*mcp.TextContent).Text)
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant",
				Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult,
			error) {
			if r.Params.Mode != "url" {
				log.add("form", r.Params.Message)
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "a"}},
					nil
			}
			// The server continues the call when it has this answer.
			log.waitFor(ctx, 1, "log", "progress", "changed tools", "changed prompts",
				"changed resources")
			log.add("url", r.Params.Message+": "+r.Params.URL)
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			log.add("log", fmt.Sprintf("%s %s: %s", r.Params.Level, r.Params.Logger, r.Params.Data))
		},
		ToolListChangedHandler: func(context.Context,
			*mcp.ToolListChangedRequest) {
			log.add("changed tools", "")
		},
		PromptListChangedHandler: func(context.Context,
			*mcp.PromptListChangedRequest) {
			log.add("changed prompts", "")
		},
		ResourceListChangedHandler: func(context.Context,
			*mcp.ResourceListChangedRequest) {
			log.add("changed resources", "")
		},
		ProgressNotificationHandler: func(_ context.Context,
			r *mcp.ProgressNotificationClientRequest) {
			if r.Params.ProgressToken == "w" {
				cancel()
				return
			}
			log.add("progress", fmt.Sprintf("%v of %v", r.Params.Progress, r.Params.Total))
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///work"})
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				log.add("listening", "")
			}
			return next(ctx, method, r)
		}
	})
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: g.URL}
	if g.URL == "" {
		transport = &mcp.CommandTransport{Command: g.Cmd}
	}
	s, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	call := func(ctx context.Context, tool, token, arguments string) (*mcp.CallToolResult, error) {
		params := &mcp.CallToolParams{Name: "box__" + tool, Arguments: json.RawMessage(arguments),
			Meta: mcp.Meta{"progressToken": token}}
		if revision == mcptest.Modern {
			params.Meta[mcp.MetaKeyLogLevel] = "info"
		}
		return s.CallTool(ctx, params)
	}
	era := "modern"
	if s.InitializeResult().ProtocolVersion == mcptest.Modern {
		log.waitFor(ctx, 1, "listening")
	} else {
		era = "legacy"
		if err := s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			t.Fatal(err)
		}
	}
	log.add("connected", era)
	r, err := call(ctx, "scenario", "t", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(r.StructuredContent)
	log.waitFor(ctx, 2, "progress") // the SDK handles notifications in the background
	log.add("result", string(b))
	var names []string
	for tool, err := range s.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	log.add("tools", strings.Join(names, " "))
	if r, err = call(cancelled, "wait", "w", `{"tag":"t"}`); err == nil {
		t.Errorf("the cancelled call got the result %+v", r)
	} else {
		log.add("wait", "cancelled")
	}
	if _, err = call(ctx, "cancelled", "c", `{"tag":"t"}`); err != nil {
		t.Fatal(err)
	}
	log.add("cancelled", "at the server")
	return log.waitFor(ctx, 0) // all events so far, without waiting
}

// wantScenario fails the test unless the events of a client and the audit log are those of the
// scenario.
func wantScenario(t *testing.T, g *harness.Gatekit, all []event, client, server string) {
	t.Helper()
	era := "legacy"
	if client == mcptest.Modern {
		era = "modern"
	}
	for kind, want := range map[string][]string{
		"connected": {era}, "log": {"warning box/scenario: on the way"}, "progress": {"1 of 2",
			"2 of 2"},
		"changed tools": {""}, "changed prompts": {""}, "changed resources": {""},
		"sampling": {"say it"}, "form": {"who?"},
		"url": {"go there: https://example.com/sign?in=1"}, "wait": {"cancelled"},
		"cancelled": {"at the server"},
	} {
		if got := texts(all, kind); !slices.Equal(got, want) {
			t.Errorf("events %q: got %q, want %q", kind, got, want)
		}
	}
	var answers map[string]any
	json.Unmarshal([]byte(strings.Join(texts(all, "result"), "")), &answers)
	if want := "map[form:map[action:accept content:map[name:a]] " +
		"roots:map[roots:[map[uri:file:///work]]] sampling:map[content:map[text:sampled " +
		"type:text] model:m role:assistant] url:map[action:decline]]"; fmt.Sprint(answers) != want {
		t.Errorf("the server got the answers %v, want %s", answers, want)
	}
	if got := strings.Join(texts(all, "tools"), ""); !strings.HasSuffix(got, " box__added-14") {
		t.Errorf("got the tools %s, want box__added-14 last", got)
	}

	counts := map[string]int{} // by record
	for _, r := range g.Records() {
		// a legacy server answers Gatekit's own server/discover with an error
		if counts[r.String()]++; r.Kind == "error" && r.Action != "own" {
			t.Errorf("the audit log has the error %s, want none", r)
		}
	}
	rounds, results, parked, cancelled := 1, 1, 0, "pass"
	// A modern server asks each of its four questions in a result, and ends the call with a fifth.
	// After each question, the call is made again: by a modern client itself, or by Gatekit for a
	// legacy client. A legacy server asks a modern client in requests: Gatekit parks the call for
	// each of them, and resumes the call with the client's answer.
	if server == mcptest.Modern {
		results = 5
	}
	if client == mcptest.Modern && server == mcptest.Modern {
		rounds = 5
	} else if client == mcptest.Modern {
		parked = 4
	}
	// The client cancels by closing the stream; Gatekit makes the notification.
	if client == mcptest.Modern && g.URL != "" {
		cancelled = "answer"
	}
	for record, want := range map[string]int{
		"to_server request tools/call box scenario pass":          rounds,
		"to_client notification notifications/message box - pass": 1,
		// two for the first call and one for the cancelled call
		"to_client notification notifications/progress box - pass":               3,
		"to_client notification notifications/tools/list_changed box - pass":     1,
		"to_client notification notifications/prompts/list_changed box - pass":   1,
		"to_client notification notifications/resources/list_changed box - pass": 1,
		"to_client request sampling/createMessage box - pass":                    1,
		"to_server response sampling/createMessage box - pass":                   1,
		"to_client request elicitation/create box - pass":                        2,
		"to_server response elicitation/create box - pass":                       2,
		"to_client request roots/list box - pass":                                1,
		"to_server response roots/list box - pass":                               1,
		"to_client response tools/call box - park":                               parked,
		"to_server request tools/call box - resume":                              parked,
		"to_client response tools/call box scenario pass":                        results,
		"to_server request tools/call box wait pass":                             1,
		"to_client response tools/call box wait pass":                            0,
		"to_client response tools/call box cancelled pass":                       1,
	} {
		if counts[record] != want {
			t.Errorf("record %q: got %d, want %d", record, counts[record], want)
		}
	}
	g.WantRecords("to_server notification notifications/cancelled box - " + cancelled)
	g.CheckChain()
}
