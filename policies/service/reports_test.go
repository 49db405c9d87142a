package service_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
	"gatekit/policies/service"
	"gatekit/test/bundles"
)

// secret is a text in the messages of these tests. Decision logs and status must not contain it.
const secret = "sk-planted-0123456789"

// received holds the bodies of the requests that a service received.
type received struct {
	mu    sync.Mutex
	texts []string
}

func (d *received) record(r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			d.add("not gzip: " + err.Error())
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	if err != nil {
		b = append(b, err.Error()...)
	}
	d.add(string(b))
}

func (d *received) add(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.texts = append(d.texts, text)
}

func (d *received) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.texts)
}

// decisions returns the events of all decision logs that the service received.
func (d *received) decisions(t *testing.T) (events []map[string]any) {
	t.Helper()
	for _, text := range d.all() {
		var some []map[string]any
		if err := json.Unmarshal([]byte(text), &some); err != nil {
			t.Fatalf("the request is not a list of events: %v: %s", err, text)
		}
		events = append(events, some...)
	}
	return events
}

const reasonsWithContent = `package gatekit.acme

deny contains sprintf("no: %v", [input.params]) if { input.name == "refused"; input.params.arguments.key }

redact contains {"pattern": "sk-[a-z0-9-]+", "with": "[key]"} if input.name == "cleared"

ask contains sprintf("may it say %v?", [input.params]) if input.name == "asked"
`

func call(name string) *mcp.Message {
	m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"`+name+`","arguments":{"key":"`+secret+
		`"}}`))
	m.Direction, m.Server, m.Session, m.Exchange, m.Principal, m.Name = mcp.ToServer,
		"a", "s1", "e1",
		identity.FromID("ann"), name
	return m
}

// The stage with a decision log needs the same lists as the stage itself.
func TestStageWithDecisionLogNeedsLists(t *testing.T) {
	s := newServer(t, plain)
	s.serve("/logs/here", func(http.ResponseWriter, *http.Request) {})
	b := newTestClient(t)
	b.o.DecisionLogs = &service.DecisionLogs{Endpoint: s.remote(), Resource: "logs/here",
		Buffer: 100, MinDelay: time.Second, MaxDelay: time.Second}
	for rule, want := range map[string]bool{"input.item.title": true, "input.name": false} {
		file := filepath.Join(t.TempDir(), "t.rego")
		if err := os.WriteFile(file, []byte("package gatekit.t\n\ndeny contains \"x\" if "+rule),
			0o600); err != nil {
			t.Fatal(err)
		}
		stage, err := policies.Load(policies.Options{Files: []string{file}})
		if err != nil {
			t.Fatal(err)
		}
		call := mcp.NewRequest("1", "tools/call", nil)
		call.Direction = mcp.ToServer
		logged, ok := b.open().WithDecisionLog(stage).(pipeline.ListReader)
		if !ok || logged.NeedsList(call, "tools/list") != want {
			t.Errorf("with a rule that reads %s, tools/list is needed: %v, want %v", rule, !want,
				want)
		}
	}
}

// TestPublicURIRemovesSecrets checks that decision logs contain only the scheme, host and path of a
// URI.
func TestPublicURIRemovesSecrets(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	s.serveBundle("/bundles/acme", `"1"`, bundles.Build(t,
		"one", map[string]string{"acme.rego": reasonsWithContent},
		&bundles.Signature{Key: key, ID: "acme"}))
	var decisions received
	s.serve("/logs/here", func(_ http.ResponseWriter, r *http.Request) { decisions.record(r) })
	b := newTestClient(t, acme(s.remote(), key))
	b.o.DecisionLogs = &service.DecisionLogs{Endpoint: s.remote(), Resource: "logs/here",
		Buffer:   100,
		MinDelay: time.Second, MaxDelay: time.Second}
	c := b.open()
	stage, err := policies.Load(policies.Options{Bundles: c.Bundles()})
	if err != nil {
		t.Fatal(err)
	}
	logged := c.WithDecisionLog(stage)
	want := map[string]string{
		"https://ann:" + secret + "@example.com/a?b=c": "https://example.com/a",
		"https://a@" + secret + "@example.com":         "https://example.com",
		"file:///a/b#" + secret:                        "file:///a/b",
		"data:text/plain," + secret:                    "data:",
		"DATA:;base64," + secret:                       "DATA:",
		"mailto:" + secret:                             "mailto:",
		"note://inbox/{id}{?" + secret + "}":           "note://inbox/{id}{",
		"file:/a/b":                                    "file:/a/b",
		"postgres://ann:a/" + secret + "@db/x":         "postgres://db/x",
		"npm://[::1]:80/@scope/x":                      "npm://[::1]:80/@scope/x",
		"npm:///@scope/x":                              "npm:///@scope/x",
	}
	for uri := range want {
		m := call(uri)
		m.Method = "resources/read"
		if _, err := logged.Inspect(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the decisions", func() bool { return len(decisions.decisions(t)) == len(want) })
	names := map[any]bool{}
	for _, e := range decisions.decisions(t) {
		names[e["input"].(map[string]any)["name"]] = true
	}
	for uri, name := range want {
		if !names[name] {
			t.Errorf("the names are %v, want %s in them for the URI %s", names, name, uri)
		}
	}
}

func TestDecisionLogsAndStatusHaveNoContent(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	s.serveBundle("/bundles/acme", `"1"`, bundles.Build(t,
		"one", map[string]string{"acme.rego": reasonsWithContent},
		&bundles.Signature{Key: key, ID: "acme"}))
	var decisions, statuses received
	s.serve("/logs/here", func(_ http.ResponseWriter, r *http.Request) { decisions.record(r) })
	s.serve("/status", func(_ http.ResponseWriter, r *http.Request) { statuses.record(r) })
	b := newTestClient(t, acme(s.remote(), key))
	remote := s.remote()
	b.o.Status = &remote
	b.o.DecisionLogs = &service.DecisionLogs{Endpoint: remote, Resource: "logs/here", Buffer: 100,
		MinDelay: time.Second, MaxDelay: time.Second}
	c := b.open()
	stage, err := policies.Load(policies.Options{Bundles: c.Bundles()})
	if err != nil {
		t.Fatal(err)
	}
	logged := c.WithDecisionLog(stage)
	want := map[string]string{"refused": "deny acme", "cleared": "modify acme", "asked": "ask acme",
		"passed": "pass <nil>", "mail?to=" + secret: "pass <nil>"}
	for name, decision := range want {
		v, err := logged.Inspect(t.Context(), call(name))
		plain, err2 := stage.Inspect(t.Context(), call(name))
		if err != nil || err2 != nil || v.Action != plain.Action || v.Reason != plain.Reason {
			t.Errorf("%s: errors %v and %v; the verdict is %+v, want the verdict of the policies, "+
				"%+v", decision, err, err2, v, plain)
		}
	}
	until(t, "the decisions", func() bool { return len(decisions.decisions(t)) == len(want) })
	ids := map[any]bool{}
	for _, e := range decisions.decisions(t) {
		input, result, custom := e["input"].(map[string]any), e["result"].(map[string]any),
			e["custom"].(map[string]any)
		name := fmt.Sprint(input["name"])
		if name == "mail" {
			name = "mail?to=" + secret
		}
		if got := fmt.Sprintf("%v %v", result["action"], result["rule"]); got != want[name] {
			t.Errorf("%s is logged as %s, want %s", name, got, want[name])
		}
		if fmt.Sprint(e["bundles"]) != "map[acme:map[revision:one]]" ||
			custom["policies"] != stage.Digest() || custom["session"] != "s1" ||
			custom["exchange"] != "e1" {
			t.Errorf("the event %v does not have the bundle, policies, session and exchange of "+
				"the message", e)
		}
		if got := fmt.Sprint(input["direction"], input["kind"], input["method"], input["server"],
			input["principal"]); got != "to_serverrequesttools/callaann" || len(input) != 6 {
			t.Errorf("the input is %v, want direction, kind, method, server, principal and name",
				input)
		}
		if took, ok := e["metrics"].(map[string]any)["timer_rego_query_eval_ns"].(float64); !ok ||
			took <= 0 {
			t.Errorf("the event has no evaluation time: %v", e["metrics"])
		}
		ids[e["decision_id"]] = true
	}
	if len(ids) != len(want) {
		t.Errorf("%d decisions have %d different ids, want one for each", len(want), len(ids))
	}
	// isLastStatus returns a function that checks the revision and message of the last status.
	isLastStatus := func(revision, message string) func() bool {
		return func() bool {
			all := statuses.all()
			if len(all) == 0 {
				return false
			}
			var last struct {
				Bundles map[string]struct {
					ActiveRevision string `json:"active_revision"`
					Message        string
				}
			}
			if err := json.Unmarshal([]byte(all[len(all)-1]), &last); err != nil {
				t.Fatal(err)
			}
			return last.Bundles["acme"].ActiveRevision == revision &&
				strings.Contains(last.Bundles["acme"].Message, message) &&
				(message == "") == (last.Bundles["acme"].Message == "")
		}
	}
	until(t, "the status of the first bundle", isLastStatus("one", ""))
	s.serve("/bundles/acme", write([]byte("garbage")))
	until(t, "the status of garbage", isLastStatus("one", "not a bundle"))
	s.serveBundle("/bundles/acme", `"2"`, pack(t, "two", key))
	until(t, "the status of the second bundle", isLastStatus("two", ""))
	c.Close()
	for _, text := range slices.Concat(decisions.all(), statuses.all()) {
		if strings.Contains(text, secret) || strings.Contains(text, token) {
			t.Errorf("a secret was sent: %s", text)
		}
	}
}

// TestDroppedDecisionsAreCounted checks that a service that accepts no data, or whose response does
// not end, delays neither decisions nor Close. If the service accepts no data, the log must have a
// warning about the dropped decisions.
func TestDroppedDecisionsAreCounted(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"the service fails": func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"the service hangs": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard,
				r.Body)
			<-r.Context().Done()
		},
		"the response is endless": func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard,
				r.Body)
			endless(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := bundles.NewKey(t)
			s := newServer(t, plain)
			s.serveBundle("/bundles/acme", `"1"`, bundles.Build(t,
				"one", map[string]string{"acme.rego": reasonsWithContent},
				&bundles.Signature{Key: key,
					ID: "acme"}))
			s.serve("/logs", answer)
			s.serve("/status", answer)
			b := newTestClient(t, acme(s.remote(), key))
			remote := s.remote()
			b.o.Status = &remote
			b.o.DecisionLogs = &service.DecisionLogs{Endpoint: remote, Resource: "logs", Buffer: 10,
				MinDelay: time.Second, MaxDelay: time.Second}
			c := b.open()
			stage, err := policies.Load(policies.Options{Bundles: c.Bundles()})
			if err != nil {
				t.Fatal(err)
			}
			logged, slowest := c.WithDecisionLog(stage), time.Duration(0)
			for range 3000 {
				began := time.Now()
				if v, err := logged.Inspect(t.Context(), call("passed")); err != nil ||
					v.Action != pipeline.Allow {
					t.Fatalf("the verdict is %+v, error %v; want that the call passes", v, err)
				}
				slowest = max(slowest, time.Since(began))
			}
			if slowest > 30*time.Second {
				t.Errorf("a decision took %s, want at most 30s", slowest)
			}
			began := time.Now()
			c.Close()
			if d := time.Since(began); d > time.Minute {
				t.Errorf("Close took %s, want at most a minute", d)
			}
			if name != "the response is endless" && !strings.Contains(b.logText(),
				"decisions dropped") {
				t.Errorf("the log has no warning about dropped decisions:\n%s", b.logText())
			}
		})
	}
}
