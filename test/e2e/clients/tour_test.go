//lint:file-ignore SA1019 sampling, roots and logging are deprecated in 2026-07-28, and carried through for as long as clients have them

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

// event is something that a client saw: clients/tour.mjs prints them, goTour collects the same.
type event struct{ What, Text string }

// TestEveryPairInTheMiddleOfACall is the table of all pairs of eras, all transports on both sides
// and the clients of two SDKs. In the middle of one call the server logs, reports progress, changes
// its lists and asks for sampling, a form, the roots and a visit to a URL; the client answers the
// last of these only when it has seen all that was said before. Then it cancels another call.
//
// All of it crosses in every pair. What differs is how: a modern client gets logs only for calls
// that ask for them and hears of lists only what it listens to, a legacy one sets a level and hears
// of all. The Go client answers roots/list itself, so that only the server can say whether it was
// asked.
func TestEveryPairInTheMiddleOfACall(t *testing.T) {
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
							tour := goTour
							if sdk == "typescript" {
								tour = nodeTour
							}
							judge(t, g, tour(t, g, client), client, server)
						})
					}
				}
			}
		}
	}
}

func nodeTour(t *testing.T, g *harness.Gatekit, revision string) (all []event) {
	sdk := "v1"
	if revision == mcptest.Modern {
		sdk = "v2"
	}
	target := []string{g.URL}
	if g.URL == "" {
		target = []string{"--", g.Cmd.Path, "run"}
	}
	for line := range bytes.Lines(node(t, "tour.mjs", sdk, g.Dir, target...)) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// diary is what a client of the go-sdk has seen.
type diary struct {
	mu      sync.Mutex // guards what follows
	all     []event
	changed chan struct{} // closed and made anew with every event
}

func (d *diary) saw(what, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, event{what, text})
	close(d.changed)
	d.changed = make(chan struct{})
}

// until waits for n events of each kind, for as long as the context lasts, and answers all that
// there are.
func (d *diary) until(ctx context.Context, n int, whats ...string) []event {
	for {
		d.mu.Lock()
		all, changed := slices.Clone(d.all), d.changed
		d.mu.Unlock()
		if !slices.ContainsFunc(whats, func(w string) bool { return len(texts(all, w)) < n }) {
			return all
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all
		}
	}
}

// texts are those of the events of one kind.
func texts(all []event, what string) (some []string) {
	for _, e := range all {
		if e.What == what {
			some = append(some, e.Text)
		}
	}
	return some
}

func goTour(t *testing.T, g *harness.Gatekit, revision string) []event {
	ctx, d := harness.Context(t), &diary{changed: make(chan struct{})}
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{},
				URL: &mcp.URLElicitationCapabilities{}}},
		CreateMessageHandler: func(_ context.Context,
			r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			d.saw("sampling", r.Params.Messages[0].Content.(*mcp.TextContent).Text)
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant",
				Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult,
			error) {
			if r.Params.Mode != "url" {
				d.saw("form", r.Params.Message)
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "a"}},
					nil
			}
			// in mid-call: it goes on when this is answered
			d.until(ctx, 1, "log", "progress", "changed tools", "changed prompts",
				"changed resources")
			d.saw("url", r.Params.Message+": "+r.Params.URL)
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			d.saw("log", fmt.Sprintf("%s %s: %s", r.Params.Level, r.Params.Logger, r.Params.Data))
		},
		ToolListChangedHandler: func(context.Context,
			*mcp.ToolListChangedRequest) {
			d.saw("changed tools", "")
		},
		PromptListChangedHandler: func(context.Context,
			*mcp.PromptListChangedRequest) {
			d.saw("changed prompts", "")
		},
		ResourceListChangedHandler: func(context.Context,
			*mcp.ResourceListChangedRequest) {
			d.saw("changed resources", "")
		},
		ProgressNotificationHandler: func(_ context.Context,
			r *mcp.ProgressNotificationClientRequest) {
			if r.Params.ProgressToken == "w" {
				cancel()
				return
			}
			d.saw("progress", fmt.Sprintf("%v of %v", r.Params.Progress, r.Params.Total))
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///work"})
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				d.saw("listening", "")
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
		d.until(ctx, 1, "listening")
	} else {
		era = "legacy"
		if err := s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			t.Fatal(err)
		}
	}
	d.saw("connected", era)
	r, err := call(ctx, "tour", "t", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(r.StructuredContent)
	d.until(ctx, 2, "progress") // handled aside
	d.saw("answered", string(b))
	var names []string
	for tool, err := range s.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	d.saw("tools", strings.Join(names, " "))
	if r, err = call(cancelled, "wait", "w", `{"tag":"t"}`); err == nil {
		t.Errorf("the cancelled call was answered %+v", r)
	} else {
		d.saw("wait", "cancelled")
	}
	if _, err = call(ctx, "cancelled", "c", `{"tag":"t"}`); err != nil {
		t.Fatal(err)
	}
	d.saw("cancelled", "at the server")
	return d.until(ctx, 0)
}

// judge holds what a client saw, and what is recorded, against what the server did.
func judge(t *testing.T, g *harness.Gatekit, all []event, client, server string) {
	t.Helper()
	era := "legacy"
	if client == mcptest.Modern {
		era = "modern"
	}
	for what, want := range map[string][]string{
		"connected": {era}, "log": {"warning box/tour: on the way"}, "progress": {"1 of 2",
			"2 of 2"},
		"changed tools": {""}, "changed prompts": {""}, "changed resources": {""},
		"sampling": {"say it"}, "form": {"who?"},
		"url": {"go there: https://example.com/sign?in=1"}, "wait": {"cancelled"},
		"cancelled": {"at the server"},
	} {
		if got := texts(all, what); !slices.Equal(got, want) {
			t.Errorf("%s: the client saw %q, want %q", what, got, want)
		}
	}
	var told map[string]any
	json.Unmarshal([]byte(strings.Join(texts(all, "answered"), "")), &told)
	if want := "map[form:map[action:accept content:map[name:a]] " +
		"roots:map[roots:[map[uri:file:///work]]] sampling:map[content:map[text:sampled " +
		"type:text] model:m role:assistant] url:map[action:decline]]"; fmt.Sprint(told) != want {
		t.Errorf("the server was told %v, want %s", told, want)
	}
	if got := strings.Join(texts(all, "tools"), ""); !strings.HasSuffix(got, " box__added-14") {
		t.Errorf("after the change the tools are %s", got)
	}

	rows := map[string]int{}
	for _, r := range g.Records() {
		if rows[r.String()]++; r.Kind == "error" {
			t.Errorf("an error is recorded: %s", r)
		}
	}
	rounds, parked, cancelled := 1, 0, "pass"
	// each question ends a request, and its answer comes with the next
	if client == mcptest.Modern && server == mcptest.Modern {
		rounds = 5
	} else if client == mcptest.Modern {
		parked = 4
	}
	// the end of its stream says it; the words are Gatekit's
	if client == mcptest.Modern && g.URL != "" {
		cancelled = "answer"
	}
	for row, want := range map[string]int{
		"to_server request tools/call box tour pass":              rounds,
		"to_client notification notifications/message box - pass": 1,
		// one is of the call that is cancelled
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
		"to_client response tools/call box tour pass":                            rounds,
		"to_server request tools/call box wait pass":                             1,
		"to_client response tools/call box wait pass":                            0,
		"to_client response tools/call box cancelled pass":                       1,
	} {
		if rows[row] != want {
			t.Errorf("recorded %d times, want %d: %s", rows[row], want, row)
		}
	}
	g.WantRecords("to_server notification notifications/cancelled box - " + cancelled)
	g.CheckChain()
}
