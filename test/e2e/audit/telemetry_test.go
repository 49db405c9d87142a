package audit

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// adminEndpoint returns the configuration of an admin endpoint, and the endpoint's URL. The text
// more is appended to the configuration.
func adminEndpoint(t *testing.T, more string) (config, url string) {
	t.Helper()
	address := peers.FreeAddress(t)
	return fmt.Sprintf("[admin]\nhttp = %q\n%s\n", address, more), "http://" + address
}

// get returns a page of the admin endpoint.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// scrape reads /metrics and parses it like Prometheus.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	status, body := get(t, url+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("/metrics: %v\n%s", err, body)
	}
	return families
}

// seriesValues returns the value of each series of a metric. For a histogram the value is the
// count. The key of a series consists of the values of the given labels, separated by spaces. An
// absent label has the value "-". The values of series with the same key are added up.
func seriesValues(f *dto.MetricFamily, labels ...string) map[string]int {
	all := map[string]int{}
	for _, m := range f.GetMetric() {
		var words []string
		for _, name := range labels {
			value := "-"
			for _, l := range m.GetLabel() {
				if l.GetName() == name {
					value = l.GetValue()
				}
			}
			words = append(words, value)
		}
		n := m.GetCounter().GetValue() + m.GetGauge().GetValue() +
			float64(m.GetHistogram().GetSampleCount())
		all[strings.Join(words, " ")] += int(n)
	}
	return all
}

// TestMetricsMatchTheAuditLog makes a session with denials. It compares the metric of decisions
// with the records of the audit log, and the other metrics with the calls of the session.
func TestMetricsMatchTheAuditLog(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			admin, url := adminEndpoint(t, "")
			config := admin + harness.ScriptedServer("box") + harness.Builtin("secrets",
				`action = "block"`) + harness.PolicyFile(t,
				`deny contains "it ends the server" if input.name == "die"
				hide contains "progress" if input.method == "tools/list"`)
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				harness.Request(t, c, "tools/list", `{}`)
				for range 5 {
					harness.CallTool(t, c, "box__echo", `{"tag":1}`)
				}
				harness.Request(t, c, "tools/call", `{"name":"box__die"}`)
				harness.Request(t, c, "tools/call",
					`{"name":"box__echo","arguments":{"tag":"AKIAQYLPMN5HHHFPZAM2"}}`)
				harness.Request(t, c, "tools/call", `{"name":"nobodys"}`)
				harness.Request(t, c, "prompts/get",
					`{"name":"box__greet","arguments":{"who":"x"}}`)

				metrics := scrape(t, url)
				want, denied := map[string]int{}, 0
				for _, r := range g.Records() {
					for _, word := range []*string{&r.Method, &r.Server, &r.Direction, &r.Kind} {
						if *word == "" {
							*word = "-"
						}
					}
					want[strings.Join([]string{r.Method, r.Server, r.Direction, r.Kind, r.Action},
						" ")]++
					if r.Action == "deny" {
						denied++
					}
				}
				got := seriesValues(metrics["gatekit_decisions_total"], "mcp_method_name",
					"gatekit_server", "gatekit_direction", "gatekit_kind", "gatekit_action")
				if !maps.Equal(got, want) {
					t.Errorf("gatekit_decisions_total is\n%v\nwant, like the audit log,\n%v", got,
						want)
				}
				denials := seriesValues(metrics["gatekit_denials_total"], "gatekit_stage",
					"gatekit_rule")
				if denials["policy mine"] != 1 || denials["secrets -"] != 1 ||
					denials["policy mine"]+denials["secrets -"] != denied {
					t.Errorf("gatekit_denials_total is %v, want %d denials like the audit log",
						denials, denied)
				}
				hidden := seriesValues(metrics["gatekit_items_hidden_total"], "mcp_method_name",
					"gatekit_server", "gatekit_stage")
				if !maps.Equal(hidden, map[string]int{"tools/list box policy": 1}) {
					t.Errorf("gatekit_items_hidden_total is %v, want 1 tool hidden by the policy",
						hidden)
				}
				received := seriesValues(metrics["mcp_server_operation_duration_seconds"],
					"mcp_method_name", "error_type")
				if received["tools/call -"] != 5 || received["tools/call -31000"] != 2 ||
					received["tools/list -"] != 1 || received["prompts/get -"] != 1 {
					t.Errorf("mcp_server_operation_duration_seconds counts %v, want 5 calls, 2 "+
						"denied calls, 1 tools/list and 1 prompts/get", received)
				}
				sent := seriesValues(metrics["mcp_client_operation_duration_seconds"],
					"mcp_method_name", "gatekit_server")
				if sent["tools/call box"] != 5 || sent["prompts/get box"] != 1 {
					t.Errorf("mcp_client_operation_duration_seconds counts %v, want 5 calls and 1 "+
						"prompts/get", sent)
				}
				stages := seriesValues(metrics["gatekit_stage_duration_seconds"], "gatekit_stage",
					"gatekit_action")
				if stages["policy deny"] != 1 || stages["secrets deny"] != 1 ||
					stages["policy pass"] < 5 {
					t.Errorf("gatekit_stage_duration_seconds counts %v, want 1 denial of each "+
						"stage, and 5 or more passes of the policy", stages)
				}
				for name, want := range map[string]string{"gatekit_sessions": "map[:1]",
					"gatekit_requests_active": "map[:0]", "gatekit_calls_parked": "map[:0]",
					"gatekit_audit_waiting": "map[:0]"} {
					if got := fmt.Sprint(seriesValues(metrics[name])); got != want {
						t.Errorf("%s is %s, want %s", name, got, want)
					}
				}
				if state := seriesValues(metrics["gatekit_server_state"], "gatekit_server",
					"gatekit_state"); state["box up"] != 1 || state["box down"] != 0 {
					t.Errorf("gatekit_server_state is %v, want box up", state)
				}
				if up := seriesValues(metrics["gatekit_plugin_up"],
					"gatekit_plugin"); up["built-in"] != 1 {
					t.Errorf("gatekit_plugin_up is %v, want built-in 1", up)
				}
			})
		})
	}
}

// TestMetricsCountShadowDecisions makes a session under policies in shadow mode. The metrics count
// what the policies would have done, and count no denied message and no hidden item.
func TestMetricsCountShadowDecisions(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			admin, url := adminEndpoint(t, "")
			config := admin + harness.ScriptedServer("box") + harness.PolicyFile(t,
				`deny contains "no tag 1" if input.params.arguments.tag == 1
				ask contains "no tag 2" if input.params.arguments.tag == 2
				set contains {"path": "/arguments/tag", "value": 0} if input.params.arguments.tag == 3
				hide contains "progress" if input.method == "tools/list"`) + "mode = \"shadow\"\n"
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				harness.Request(t, c, "tools/list", `{}`)
				for _, tag := range []int{1, 1, 2, 3, 4} {
					harness.CallTool(t, c, "box__echo", fmt.Sprintf(`{"tag":%d}`, tag))
				}
				g.WantRecords("to_server request tools/call box echo would_deny")

				metrics := scrape(t, url)
				got := seriesValues(metrics["gatekit_decisions_total"], "mcp_method_name",
					"gatekit_server", "gatekit_direction", "gatekit_kind", "gatekit_action")
				for series, want := range map[string]int{
					"tools/call box to_server request would_deny":   2,
					"tools/call box to_server request would_ask":    1,
					"tools/call box to_server request would_modify": 1,
					"tools/call box to_server request pass":         1,
					"tools/list box to_client response would_hide":  1,
				} {
					recorded := 0
					for _, r := range g.Records() {
						if strings.Join([]string{r.Method, r.Server, r.Direction, r.Kind,
							r.Action}, " ") == series {
							recorded++
						}
					}
					if got[series] != want || recorded != want {
						t.Errorf("gatekit_decisions_total has %d and the log %d of %q, want %d",
							got[series], recorded, series, want)
					}
				}
				for _, name := range []string{"gatekit_denials_total",
					"gatekit_items_hidden_total"} {
					if all := seriesValues(metrics[name], "gatekit_stage"); len(all) > 0 {
						t.Errorf("%s is %v, want none", name, all)
					}
				}
				stages := seriesValues(metrics["gatekit_stage_duration_seconds"], "gatekit_stage",
					"gatekit_action")
				if stages["policy would_deny"] != 2 {
					t.Errorf("gatekit_stage_duration_seconds counts %v, want 2 of would_deny",
						stages)
				}
			})
		})
	}
}

// TestHostileNamesDoNotMultiplyMetricSeries makes requests for hundreds of tools and methods that
// do not exist. The requests share a few series, and no label contains a control character.
func TestHostileNamesDoNotMultiplyMetricSeries(t *testing.T) {
	for _, tools := range []bool{false, true} {
		t.Run(fmt.Sprintf("tools = %t", tools), func(t *testing.T) {
			admin, url := adminEndpoint(t, fmt.Sprintf("[telemetry]\ntools = %t", tools))
			_, c := harness.StartStdio(t, admin+harness.ScriptedServer("box"), "2025-11-25")
			harness.CallTool(t, c, "box__echo", `{"tag":1}`)
			for n := range 400 {
				harness.Request(t, c, "tools/call",
					fmt.Sprintf(`{"name":"box__made-up-%d\u001b[2J"}`, n))
				harness.Request(t, c, fmt.Sprintf("made/up/%d", n), `{}`)
			}
			metrics := scrape(t, url)
			labels := slices.Collect(maps.Keys(seriesValues(metrics["gatekit_decisions_total"],
				"gen_ai_tool_name")))
			switch {
			case tools && (len(labels) > 260 || !slices.Contains(labels, "echo") ||
				!slices.Contains(labels, "_OTHER")):
				t.Errorf("gen_ai_tool_name has %d values, want at most 260, with echo and "+
					"_OTHER: %q", len(labels), labels)
			case !tools && len(labels) != 1:
				t.Errorf("gen_ai_tool_name has the values %q, want one value", labels)
			}
			for _, label := range labels {
				if strings.ContainsRune(label, '\x1b') {
					t.Errorf("a label contains a control character: %q", label)
				}
			}
			if methods := seriesValues(metrics["mcp_server_operation_duration_seconds"],
				"mcp_method_name"); len(methods) > 4 || methods["_OTHER"] != 400 {
				t.Errorf("mcp_method_name counts %v, want at most 4 values and 400 of _OTHER",
					methods)
			}
			for name, f := range metrics {
				if len(f.GetMetric()) > 2000 {
					t.Errorf("%s has %d series, want at most 2000", name, len(f.GetMetric()))
				}
			}
		})
	}
}

// TestReadinessReflectsServerState ends two of three servers, one after the other. /readyz then
// fails and names these servers, but /healthz does not fail.
func TestReadinessReflectsServerState(t *testing.T) {
	harness.Long(t, "waits for servers")
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			admin, url := adminEndpoint(t, "")
			far := httptest.NewServer(mcptest.Toolbox("far", revision))
			defer func() { far.CloseClientConnections(); far.Close() }()
			config := admin +
				harness.ScriptedServer("bad", "-revisions", revision) + "restart = false\n" +
				harness.ScriptedServer("good", "-revisions", revision) +
				harness.HTTPServer("far", far.URL)
			_, c := harness.StartStdio(t, config, revision)
			awaitReadiness := func(want int, prefixes ...string) {
				t.Helper()
				awaitReadiness(t, url, want, prefixes...)
			}
			harness.CallTool(t, c, "bad__echo", ``)
			harness.CallTool(t, c, "good__echo", ``)
			awaitReadiness(http.StatusOK, "ok    server bad: up", "ok    server far: up",
				"ok    server good: up", "ok    audit: written")
			harness.Request(t, c, "tools/call", `{"name":"bad__die"}`)
			awaitReadiness(http.StatusServiceUnavailable, "FAIL  server bad: ",
				"ok    server far: up", "ok    server good: up")
			far.Listener.Close()
			far.CloseClientConnections()
			awaitReadiness(http.StatusServiceUnavailable, "FAIL  server bad: ",
				"FAIL  server far: ", "ok    server good: up")
			if state := seriesValues(scrape(t, url)["gatekit_server_state"], "gatekit_server",
				"gatekit_state"); state["bad down"] != 1 || state["good up"] != 1 {
				t.Errorf("gatekit_server_state is %v, want bad down and good up", state)
			}
			if status, page := get(t, url+"/healthz"); status != http.StatusOK ||
				page != "ok    audit: written\n" {
				t.Errorf("/healthz: got %d\n%swant 200, with the audit log only", status, page)
			}
		})
	}
}

// awaitReadiness waits until /readyz has the status want, and a line with each prefix.
func awaitReadiness(t *testing.T, url string, want int, prefixes ...string) {
	t.Helper()
	var status int
	var page string
	// Gatekit checks the servers at intervals, not at each request.
	deadline := time.Now().Add(harness.Patience)
	for ; time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		status, page = get(t, url+"/readyz")
		lines := strings.Split(page, "\n")
		isMissing := func(prefix string) bool {
			return !slices.ContainsFunc(lines, func(line string) bool {
				return strings.HasPrefix(line, prefix)
			})
		}
		if status == want && !slices.ContainsFunc(prefixes, isMissing) {
			return
		}
	}
	t.Fatalf("/readyz: got %d\n%swant %d, and lines that begin with %q", status, page, want,
		prefixes)
}

// TestReadinessReportsServersThatExitAtStart configures commands that exit at once, without any
// output. /readyz names such a server as soon as a client was refused, also when the client is
// gone.
func TestReadinessReportsServersThatExitAtStart(t *testing.T) {
	for _, command := range []string{"true", "false"} {
		for _, revision := range harness.Revisions {
			t.Run(command+", "+revision, func(t *testing.T) {
				t.Parallel()
				admin, url := adminEndpoint(t, "")
				g := harness.StartHTTP(t, admin+harness.StdioServer("gone", []string{command}))
				awaitReadiness(t, url, http.StatusOK, "ok    server gone: idle")
				c := g.Connect(revision)
				if m, err := c.Open(harness.Context(t)); err == nil && m.Error == nil {
					t.Errorf("the handshake got %s, want an error", m.Raw)
				}
				c.Close()
				awaitReadiness(t, url, http.StatusServiceUnavailable, "FAIL  server gone: ")
			})
		}
	}
}

func TestAdminEndpointIsLocalAndReadOnly(t *testing.T) {
	admin, url := adminEndpoint(t, "")
	harness.StartStdio(t, admin+harness.ScriptedServer("box"), "2025-11-25")
	for _, c := range []struct {
		name, method, path, host string
		status                   int
	}{
		{"a page is served", "GET", "/healthz", "", 200},
		{"the host localhost is allowed", "GET", "/healthz", "localhost:7", 200},
		{"another host (DNS rebinding) is refused", "GET", "/metrics", "evil.example", 403},
		{"POST is refused", "POST", "/metrics", "", 405},
		{"other paths do not exist", "GET", "/debug/pprof/", "", 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.NewRequest(c.method, url+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != c.status ||
				answer.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("got %s %v, want %d without CORS headers", answer.Status, answer.Header,
					c.status)
			}
		})
	}
}

// TestProcessLogFormatsEscapeControlCharacters uses a server that writes terminal control sequences
// to stderr. Gatekit logs these lines.
func TestProcessLogFormatsEscapeControlCharacters(t *testing.T) {
	for _, c := range []struct{ name, log, has, lacks string }{
		{"text by default", ``, `level=INFO msg=stderr server=box line="mcptest: \\x1b[2J`, "{"},
		{"JSON", `format = "json"`,
			`"level":"INFO","msg":"stderr","server":"box","line":"mcptest: \\x1b[2J`, "level=INFO"},
		{"only warnings", `level = "warn"`, "", "INFO"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, client := harness.StartStdio(t, "[log]\n"+c.log+"\n"+harness.ScriptedServer("box",
				"-name", "\x1b[2J\u202e\u0007"), "2025-11-25")
			harness.CallTool(t, client, "box__echo", `{}`)
			g.Stop()
			log := g.Stderr.String()
			if !strings.Contains(log, c.has) || strings.Contains(log, c.lacks) {
				t.Errorf("the log does not contain %q, or it contains %q:\n%s", c.has, c.lacks, log)
			}
			if strings.ContainsAny(log, "\x1b\u202e\u0007") {
				t.Errorf("the log contains control characters: %q", log)
			}
			for line := range strings.Lines(log) {
				if isJSON := strings.HasPrefix(line, "{"); isJSON != (c.name == "JSON") {
					t.Errorf("case %s: a line of the log has the wrong format: %s", c.name, line)
				}
			}
		})
	}
}
