package plugins_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/sdk"
)

// These tests show which verdicts on definitions the host keeps. The plugin "counting" returns a
// finding with the number of messages that its stage has inspected, so a verdict that is used again
// has the same finding.

// countingStage does what a tool's description says.
type countingStage struct {
	inspected  *atomic.Int64
	principals int
	never      bool
}

func (s countingStage) Reuse() *sdk.Reuse {
	if s.never {
		return nil
	}
	return &sdk.Reuse{Principals: s.principals}
}

func (s countingStage) Inspect(_ context.Context, m *mcp.Message) (sdk.Verdict, error) {
	v := sdk.Allow()
	v.Findings = []pipeline.Finding{{Type: fmt.Sprint("asked ", s.inspected.Add(1))}}
	var err error
	m.ItemTexts("/tools", "/description", func(i int, _ []byte, text string, _ bool) bool {
		self, _ := os.FindProcess(os.Getpid())
		switch text {
		case "hide":
			v.Action, v.Hide = pipeline.Modify, append(v.Hide, "t0")
		case "change":
			v.Action = pipeline.Modify
			v.Edits = append(v.Edits, mcp.Set(fmt.Sprint("/tools/", i, "/description"),
				[]byte(`"changed"`)))
		case "deny":
			v.Action = pipeline.Deny
		case "fail":
			err = fmt.Errorf("failed as instructed")
		case "large":
			v.Labels = []string{strings.Repeat("x", 499)}
			v.Reason = strings.Repeat("x", 999)
			for range 900 {
				v.Findings = append(v.Findings, pipeline.Finding{Type: strings.Repeat("x", 499)})
			}
		case "redact":
			v.Redacted = []pipeline.Redacted{{Placeholder: "p", Value: "v"}}
		case "die":
			self.Kill()
			select {}
		case "stop":
			self.Signal(syscall.SIGSTOP)
			select {}
		}
		return err == nil
	})
	return v, err
}

func serveCounting() { sdk.Serve(counting()) }

// counting returns the plugin "counting".
func counting() sdk.Plugin {
	return sdk.Plugin{
		Name: "counting", Version: "1", Doc: "counts", Needs: sdk.Needs{Body: true},
		Schema: []byte(`{"additionalProperties":false,"properties":{
			"principals":{"type":"integer"},"never":{"type":"boolean"},"request":{"type":"boolean"}}}`),
		New: func(config []byte) (sdk.Stage, error) {
			var c struct {
				Principals     int
				Never, Request bool
			}
			err := json.NewDecoder(bytes.NewReader(config)).Decode(&c)
			s := countingStage{new(atomic.Int64), c.Principals, c.Never}
			if c.Request {
				return readsRequest{s}, err
			}
			return s, err
		}}
}

// readsRequest is a stage that also reads requests.
type readsRequest struct{ countingStage }

func (readsRequest) Needs() sdk.Needs { return sdk.Needs{Body: true, Request: true} }

// toolList returns a list of tools with these descriptions, of the server and for the principal.
func toolList(server, principal string, descriptions ...string) *mcp.Message {
	var b strings.Builder
	for i, d := range descriptions {
		fmt.Fprintf(&b, `,{"name":"t%d","description":%s}`, i, mcp.Quote(d))
	}
	m := addressed(mcp.NewResponse("1", []byte(`{"tools":[`+strings.TrimPrefix(b.String(),
		",")+`]}`)), mcp.ToClient)
	m.Method, m.Name, m.Server, m.Principal = "tools/list", "", server,
		identity.FromID(principal)
	m.Request = addressed(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer)
	return m
}

// asked passes m, and returns the finding of the last stage, such as "asked 1". It returns "denied"
// for a denial.
func (h *testHost) asked(m *mcp.Message) string {
	h.t.Helper()
	findings := &findingsRecorder{}
	h.pipe = pipeline.New(findings, pipeline.Options{}, h.set.Stages(h.specs)...)
	if _, err := h.pass(m); err != nil {
		return "denied"
	}
	return findings.last
}

// findingsRecorder keeps the first finding of the last step.
type findingsRecorder struct {
	mu   sync.Mutex
	last string
}

func (r *findingsRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(o.Steps); n > 0 && len(o.Steps[n-1].Findings) > 0 {
		r.last = o.Steps[n-1].Findings[0].Type
	}
	return 1, nil
}

// countingHost returns a host with the plugin "counting" in a process of its own.
func countingHost(t *testing.T, configs ...string) *testHost {
	var specs []plugins.Spec
	for i, config := range configs {
		s := programSpec(fmt.Sprint("counting-", i), "counting")
		s.Config = []byte(config)
		specs = append(specs, s)
	}
	h := startHost(t, specs...)
	h.specs = specs
	return h
}

func TestVerdictsOnDefinitionsAreKept(t *testing.T) {
	other := toolList("a", "ann", "x")
	prompts := toolList("a", "ann", "x")
	prompts.Method = "prompts/list"
	call := toolList("a", "ann", "x")
	call.Method = "tools/call"
	for _, c := range []struct {
		name, config string
		messages     []*mcp.Message
		want         []string
	}{
		{"the same list of the same server, once for each principal", `{}`,
			[]*mcp.Message{other, other, toolList("a", "bob", "x")},
			[]string{"asked 1", "asked 1", "asked 2"}},
		{"another list", `{}`, []*mcp.Message{other, toolList("a", "ann", "y"), other},
			[]string{"asked 1", "asked 2", "asked 1"}},
		{"the same list of another server", `{}`, []*mcp.Message{other, toolList("b", "ann", "x")},
			[]string{"asked 1", "asked 2"}},
		{"the same bytes with another method", `{}`, []*mcp.Message{other, prompts, call, call},
			[]string{"asked 1", "asked 2", "asked 3", "asked 4"}},
		{"a stage without the promise", `{"never":true}`, []*mcp.Message{other, other},
			[]string{"asked 1", "asked 2"}},
		{"a stage that reads requests", `{"request":true}`, []*mcp.Message{other, other},
			[]string{"asked 1", "asked 2"}},
		{"hidden items", `{}`, slices.Repeat([]*mcp.Message{toolList("a", "ann", "hide", "x")}, 2),
			[]string{"asked 1", "asked 1"}},
		{"changed items", `{}`, slices.Repeat([]*mcp.Message{toolList("a", "ann", "change")}, 2),
			[]string{"asked 1", "asked 1"}},
		{"denials", `{}`, []*mcp.Message{toolList("a", "ann", "deny"),
			toolList("a", "ann", "deny"), other}, []string{"denied", "denied", "asked 3"}},
		{"errors", `{}`, []*mcp.Message{toolList("a", "ann", "fail"), toolList("a", "ann", "fail"),
			other}, []string{"denied", "denied", "asked 3"}},
		{"redacted values", `{}`, slices.Repeat([]*mcp.Message{toolList("a", "ann", "redact")}, 2),
			[]string{"asked 1", "asked 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := countingHost(t, c.config)
			for i, m := range c.messages {
				if got := h.asked(m); got != c.want[i] {
					t.Errorf("message %d: got %q, want %q", i, got, c.want[i])
				}
			}
		})
	}
}

// Principals share the verdicts of a stage only if it cannot see the principal.
func TestVerdictsOnDefinitionsAreSharedIfThePrincipalIsHidden(t *testing.T) {
	s := programSpec("counting-0", "counting")
	s.Grants.Principal = false
	h := startHost(t, s)
	h.specs = []plugins.Spec{s}
	for _, principal := range []string{"ann", "bob"} {
		if got := h.asked(toolList("a", principal, "x")); got != "asked 1" {
			t.Errorf("%s: got %q, want the kept verdict", principal, got)
		}
	}
}

// A stage that compares lists is asked again after another list of the principal has changed.
func TestComparedListsAreJudgedAgainAfterAChange(t *testing.T) {
	h := countingHost(t, `{"principals":8}`)
	a, b := toolList("a", "ann", "x"), toolList("b", "ann", "x")
	promptsOfC := toolList("c", "ann", "y")
	promptsOfC.Method = "prompts/list"
	for i, c := range []struct {
		m    *mcp.Message
		want string
	}{
		{a, "asked 1"}, // a new list is not kept: another list may be judged at the same time
		{a, "asked 2"}, {a, "asked 2"},
		{b, "asked 3"},
		{a, "asked 4"}, {b, "asked 5"}, {a, "asked 4"}, {b, "asked 5"},
		{toolList("a", "bob", "x"), "asked 6"}, // the lists of others make no difference
		{toolList("a", "bob", "x"), "asked 7"},
		{a, "asked 4"}, {b, "asked 5"},
		{promptsOfC, "asked 8"}, // nor do the lists of other methods
		{a, "asked 4"},
		{toolList("b", "ann", "x", "y"), "asked 9"},
		{a, "asked 10"}, {a, "asked 10"},
		{b, "asked 11"}, // the stage remembers its first item, which has not changed
		{toolList("b", "ann", "z"), "asked 12"},
		{b, "asked 13"}, {a, "asked 14"}, {a, "asked 14"},
	} {
		if got := h.asked(c.m); got != c.want {
			t.Errorf("message %d: got %q, want %q", i, got, c.want)
		}
	}
}

// The host remembers the lists of half as many principals as the stage.
func TestListsOfTheOldestPrincipalAreForgotten(t *testing.T) {
	h := countingHost(t, `{"principals":4}`)
	list := func(principal string) *mcp.Message { return toolList("a", principal, "x") }
	for i, c := range []struct{ principal, want string }{
		{"ann", "asked 1"}, {"ann", "asked 2"}, {"bob", "asked 3"}, {"bob", "asked 4"},
		{"ann", "asked 2"}, // a kept verdict does not make ann more recent for the stage
		{"eve", "asked 5"}, {"bob", "asked 4"}, {"ann", "asked 6"},
	} {
		if got := h.asked(list(c.principal)); got != c.want {
			t.Errorf("message %d: got %q, want %q", i, got, c.want)
		}
	}
}

func TestKeptVerdictsAreBounded(t *testing.T) {
	h := countingHost(t, `{}`)
	first := toolList("a", "ann", "first")
	if got := h.asked(first); got != "asked 1" {
		t.Fatalf("got %q, want asked 1", got)
	}
	// Each verdict has about half a MiB, so 8 MiB have no room for the first one.
	for i := range 20 {
		h.asked(toolList("a", "ann", "large", fmt.Sprint(i)))
	}
	if got := h.asked(toolList("a", "ann", "large", "19")); got != "asked 21" {
		t.Errorf("the latest list: got %q, want asked 21", got)
	}
	if got := h.asked(first); got != "asked 22" {
		t.Errorf("the oldest list: got %q, want asked 22", got)
	}
}

// A verdict belongs to one process and one configuration.
func TestKeptVerdictsEndWithTheProcess(t *testing.T) {
	h := countingHost(t, `{}`)
	list := toolList("a", "ann", "x")
	h.asked(list)
	if got := h.asked(list); got != "asked 1" {
		t.Fatalf("got %q, want asked 1", got)
	}
	if got := h.asked(toolList("b", "ann", "die")); got != "denied" {
		t.Errorf("a list that ends the process: got %q, want denied", got)
	}
	h.waitUntilRunning()
	if got := h.asked(toolList("a", "ann", "y")); got != "asked 1" {
		t.Errorf("another list in the new process: got %q, want asked 1", got)
	}
	if got := h.asked(list); got != "asked 2" {
		t.Errorf("the list in the new process: got %q, want asked 2", got)
	}
	h.specs[0].Config = []byte(`{"never":false}`)
	h.load(h.specs...)
	if got := h.asked(list); got != "asked 1" {
		t.Errorf("the list with another configuration: got %q, want asked 1", got)
	}
}

// A process that is stopped, or that does not run, cannot be asked. Only what it has judged before
// passes, and only while it runs.
func TestKeptVerdictHoldsWhileTheProcessHangs(t *testing.T) {
	spec := programSpec("counting", "counting")
	spec.Timeout = testTimeout / 60
	h := startHost(t, spec)
	h.specs = []plugins.Spec{spec}
	list := toolList("a", "ann", "x")
	h.asked(list)
	if got := h.asked(toolList("b", "ann", "stop")); got != "denied" {
		t.Fatalf("a list that stops the process: got %q, want denied", got)
	}
	if got := h.asked(list); got != "asked 1" {
		t.Errorf("a list that was judged: got %q, want asked 1", got)
	}
	if got := h.asked(toolList("a", "ann", "y")); got != "denied" {
		t.Errorf("a new list: got %q, want denied", got)
	}
}

// Each of two stages of one process has its own verdicts. The second stage sees the changes of the
// first.
func TestStagesOfOneProcessKeepTheirVerdicts(t *testing.T) {
	var specs []plugins.Spec
	for i, config := range []string{`{}`, `{"never":true}`, `{"principals":4}`} {
		s := builtinSpec(fmt.Sprint("counting-", i), config)
		s.Use = "counting"
		specs = append(specs, s)
	}
	h := startHost(t, specs...)
	for _, m := range []*mcp.Message{toolList("a", "ann", "change", "x"),
		toolList("a", "ann", "hide", "x")} {
		var first string
		for i := range 3 {
			got, err := h.pass(m)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = string(got.Body())
			} else if string(got.Body()) != first {
				t.Errorf("list %d: got %s, want %s as at first", i, got.Body(), first)
			}
		}
	}
	h.specs = specs
	list := toolList("b", "ann", "change")
	steps := func() (all []string) {
		r := &stepsRecorder{}
		h.pipe = pipeline.New(r, pipeline.Options{}, h.set.Stages(specs)...)
		if _, err := h.pass(list); err != nil {
			t.Fatal(err)
		}
		return r.steps
	}
	for i, want := range [][]string{
		{"modify asked 3", "pass asked 7", "pass asked 4"},
		{"modify asked 3", "pass asked 8", "pass asked 5"},
		{"modify asked 3", "pass asked 9", "pass asked 5"},
	} {
		if got := steps(); !slices.Equal(got, want) {
			t.Errorf("list %d: got %q, want %q", i, got, want)
		}
	}
}

// A stage that gives an error, or no verdict, on a definition has failed. The message passes if the
// configuration skips failures.
func TestFailureOnADefinition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, program, description, want string
		stages                           int
	}{
		{"an error", "counting", "fail", "failed as instructed", 1},
		{"no verdict of the second stage", "a verdict for the first stage only", "x",
			"gave no verdict", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := &testHost{t: t, record: &recorder{}}
			h.host = plugins.New(plugins.Options{Dir: socketDir(t),
				BuiltinCommand: []string{os.Args[0], "", "plugin"},
				BuiltinPlugins: []string{c.program}})
			t.Cleanup(func() { h.host.Close() })
			for _, skip := range []bool{false, true} {
				var specs []plugins.Spec
				for i := range c.stages {
					s := builtinSpec(fmt.Sprint("p", i), `{}`)
					if c.program == "counting" {
						s.Use = c.program
					}
					s.SkipOnError, s.Grants.Request = skip, false // verdicts may be kept
					specs = append(specs, s)
				}
				h.load(specs...)
				// For another principal, no verdict is kept yet.
				_, err := h.pass(toolList("a", fmt.Sprint("skip ", skip), c.description))
				if got := h.record.last(); (err != nil) == skip || !strings.Contains(got, c.want) {
					t.Errorf("skip %v: recorded as %q with the error %v, want %q", skip, got, err,
						c.want)
				}
			}
		})
	}
}

type stepsRecorder struct{ steps []string }

func (r *stepsRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	for _, s := range o.Steps {
		r.steps = append(r.steps, s.Action+" "+s.Findings[0].Type)
	}
	return 1, nil
}

// Lists that are judged at the same time are not kept wrongly: afterwards, each list is judged with
// all others known. Run it with -race.
func TestListsJudgedAtTheSameTime(t *testing.T) {
	h := countingHost(t, `{"principals":8}`)
	for round := range 3 {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				p := pipeline.New(&findingsRecorder{}, pipeline.Options{}, h.set.Stages(h.specs)...)
				for n := range 8 {
					p.Pass(t.Context(), toolList(fmt.Sprint("s", i%4), "ann", fmt.Sprint(round,
						(i+n)%2)))
				}
			})
		}
		all.Wait()
		list := toolList("s0", "ann", fmt.Sprint(round, 0))
		h.asked(list)
		want := h.asked(list)
		if got := h.asked(list); got != want {
			t.Errorf("round %d: got %q after %q, want the same verdict again", round, got, want)
		}
		if got := h.asked(toolList("s1", "ann", "new")); got == want {
			t.Errorf("round %d: a new list has the verdict %q of another", round, got)
		}
		if got := h.asked(list); got == want {
			t.Errorf("round %d: the verdict %q was kept although another list is new", round, got)
		}
	}
}

// A plugin in any language says how its verdicts may be kept.
func TestSDKDeclaresReuse(t *testing.T) {
	server := sdk.NewServer(sdk.Plugin{Name: "p", New: func(config []byte) (sdk.Stage, error) {
		return countingStage{new(atomic.Int64), len(config), len(config) == 0}, nil
	}})
	for config, want := range map[string]*pb.Reuse{"": nil, "1234567": {Principals: 7}} {
		r, err := server.Configure(t.Context(), &pb.ConfigureRequest{Config: []byte(config)})
		if err != nil || r.Reuse.GetPrincipals() != want.GetPrincipals() ||
			(r.Reuse == nil) != (want == nil) {
			t.Errorf("config %q: got %v, %v, want %v", config, r.GetReuse(), err, want)
		}
	}
}
