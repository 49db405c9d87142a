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

// operators is the configuration of a listener for them, and where it is.
func operators(t *testing.T, more string) (config, url string) {
	t.Helper()
	address := peers.FreeAddress(t)
	return fmt.Sprintf("[admin]\nhttp = %q\n%s\n", address, more), "http://" + address
}

// get answers a page of the listener for operators.
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

// scrape reads the metrics as Prometheus does.
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

// values are those of the series of a metric, by the labels that are named: of a histogram, how
// many were observed.
func values(f *dto.MetricFamily, labels ...string) map[string]int {
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

func TestTheMetricsAreTheAuditLogsNumbers(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			admin, url := operators(t, "")
			config := admin + harness.ScriptedServer("box") + harness.Builtin("secrets",
				`action = "block"`) + harness.PolicyFile(t,
				`deny contains "it ends the server" if input.name == "die"`)
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
				got := values(metrics["gatekit_decisions_total"], "mcp_method_name",
					"gatekit_server", "gatekit_direction", "gatekit_kind", "gatekit_action")
				if !maps.Equal(got, want) {
					t.Errorf("the metrics count\n%v, the audit log has\n%v", got, want)
				}
				denials := values(metrics["gatekit_denials_total"], "gatekit_stage", "gatekit_rule")
				if denials["policy mine"] != 1 || denials["secrets -"] != 1 ||
					denials["policy mine"]+denials["secrets -"] != denied {
					t.Errorf("denials are %v, the audit log has %d", denials, denied)
				}
				asked := values(metrics["mcp_server_operation_duration_seconds"], "mcp_method_name",
					"error_type")
				if asked["tools/call -"] != 5 || asked["tools/call -31000"] != 2 ||
					asked["tools/list -"] != 1 || asked["prompts/get -"] != 1 {
					t.Errorf("clients' requests are %v", asked)
				}
				sent := values(metrics["mcp_client_operation_duration_seconds"], "mcp_method_name",
					"gatekit_server")
				if sent["tools/call box"] != 5 || sent["prompts/get box"] != 1 {
					t.Errorf("requests to servers are %v", sent)
				}
				steps := values(metrics["gatekit_stage_duration_seconds"], "gatekit_stage",
					"gatekit_action")
				if steps["policy deny"] != 1 || steps["secrets deny"] != 1 ||
					steps["policy pass"] < 5 {
					t.Errorf("steps are %v", steps)
				}
				for name, want := range map[string]string{"gatekit_sessions": "map[:1]",
					"gatekit_requests_active": "map[:0]", "gatekit_calls_parked": "map[:0]",
					"gatekit_audit_waiting": "map[:0]"} {
					if got := fmt.Sprint(values(metrics[name])); got != want {
						t.Errorf("%s is %s, want %s", name, got, want)
					}
				}
				if state := values(metrics["gatekit_server_state"], "gatekit_server",
					"gatekit_state"); state["box up"] != 1 || state["box down"] != 0 {
					t.Errorf("the server is %v", state)
				}
				if up := values(metrics["gatekit_plugin_up"],
					"gatekit_plugin"); up["built-in"] != 1 {
					t.Errorf("plugins are %v", up)
				}
			})
		})
	}
}

func TestAHostilePeerDoesNotMakeMetrics(t *testing.T) {
	for _, tools := range []bool{false, true} {
		t.Run(fmt.Sprintf("tools = %t", tools), func(t *testing.T) {
			admin, url := operators(t, fmt.Sprintf("[telemetry]\ntools = %t", tools))
			_, c := harness.StartStdio(t, admin+harness.ScriptedServer("box"), "2025-11-25")
			harness.CallTool(t, c, "box__echo", `{"tag":1}`)
			for n := range 400 {
				harness.Request(t, c, "tools/call",
					fmt.Sprintf(`{"name":"box__made-up-%d\u001b[2J"}`, n))
				harness.Request(t, c, fmt.Sprintf("made/up/%d", n), `{}`)
			}
			metrics := scrape(t, url)
			known := slices.Collect(maps.Keys(values(metrics["gatekit_decisions_total"],
				"gen_ai_tool_name")))
			switch {
			case tools && (len(known) > 260 || !slices.Contains(known, "echo") ||
				!slices.Contains(known, "_OTHER")):
				t.Errorf("%d tools are told: %q", len(known), known)
			case !tools && len(known) != 1:
				t.Errorf("tools are told: %q", known)
			}
			for _, k := range known {
				if strings.ContainsRune(k, '\x1b') {
					t.Errorf("%q came through", k)
				}
			}
			if methods := values(metrics["mcp_server_operation_duration_seconds"],
				"mcp_method_name"); len(methods) > 4 || methods["_OTHER"] != 400 {
				t.Errorf("methods are %v", methods)
			}
			for name, f := range metrics {
				if len(f.GetMetric()) > 2000 {
					t.Errorf("%s has %d series", name, len(f.GetMetric()))
				}
			}
		})
	}
}

func TestReadinessAsksTheServers(t *testing.T) {
	harness.Long(t, "waits for servers")
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			admin, url := operators(t, "")
			far := httptest.NewServer(mcptest.Toolbox("far", revision))
			defer func() { far.CloseClientConnections(); far.Close() }()
			config := admin + harness.ScriptedServer("bad", "-revisions", revision) +
				"restart = false\n" + harness.ScriptedServer("good",
				"-revisions", revision) + harness.HTTPServer("far", far.URL)
			_, c := harness.StartStdio(t, config, revision)
			ready := func(want int, lines ...string) {
				t.Helper()
				var status int
				var page string
				// it is not asked at every question
				for deadline := time.Now().Add(harness.Patience); time.Now().Before(
					deadline); time.Sleep(100 * time.Millisecond) {
					status, page = get(t, url+"/readyz")
					got := strings.Split(page, "\n")
					if status == want && !slices.ContainsFunc(lines, func(l string) bool {
						return !slices.ContainsFunc(got, func(g string) bool {
							return strings.HasPrefix(g, l)
						})
					}) {
						return
					}
				}
				t.Fatalf("/readyz: %d\n%swant %d %q", status, page, want, lines)
			}
			harness.CallTool(t, c, "bad__echo", ``)
			harness.CallTool(t, c, "good__echo", ``)
			ready(http.StatusOK, "ok    server bad: up", "ok    server far: up",
				"ok    server good: up", "ok    audit: written")
			harness.Request(t, c, "tools/call", `{"name":"bad__die"}`)
			ready(http.StatusServiceUnavailable, "FAIL  server bad: ", "ok    server far: up",
				"ok    server good: up")
			far.Listener.Close()
			far.CloseClientConnections()
			ready(http.StatusServiceUnavailable, "FAIL  server bad: ", "FAIL  server far: ",
				"ok    server good: up")
			if state := values(scrape(t, url)["gatekit_server_state"], "gatekit_server",
				"gatekit_state"); state["bad down"] != 1 || state["good up"] != 1 {
				t.Errorf("the servers are %v", state)
			}
			if status, page := get(t, url+"/healthz"); status != http.StatusOK ||
				page != "ok    audit: written\n" {
				t.Errorf("/healthz: %d\n%s", status, page)
			}
		})
	}
}

func TestOperatorsAreOfThisMachineAndOnlyAsk(t *testing.T) {
	admin, url := operators(t, "")
	harness.StartStdio(t, admin+harness.ScriptedServer("box"), "2025-11-25")
	for _, c := range []struct {
		name, method, path, host string
		status                   int
	}{
		{"a page is got", "GET", "/healthz", "", 200},
		{"a name of this machine is good", "GET", "/healthz", "localhost:7", 200},
		{"a name that a browser was told is here is not", "GET", "/metrics", "evil.example", 403},
		{"nothing is posted", "POST", "/metrics", "", 405},
		{"there is nothing else", "GET", "/debug/pprof/", "", 404},
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
				t.Errorf("got %s %v, want %d", answer.Status, answer.Header, c.status)
			}
		})
	}
}

func TestTheLogIsTextOrJSONAndObeyedByNoTerminal(t *testing.T) {
	for _, c := range []struct{ name, log, has, lacks string }{
		{"text by default", ``, `level=INFO msg=stderr server=box line="mcptest: \\x1b[2J`, "{"},
		{"JSON", `format = "json"`,
			`"level":"INFO","msg":"stderr","server":"box","line":"mcptest: \\x1b[2J`, "level=INFO"},
		{"no more than a level", `level = "warn"`, "", "INFO"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, client := harness.StartStdio(t, "[log]\n"+c.log+"\n"+harness.ScriptedServer("box",
				"-name", "\x1b[2J\u202e\u0007"), "2025-11-25")
			harness.CallTool(t, client, "box__echo", `{}`)
			g.Stop()
			log := g.Stderr.String()
			if !strings.Contains(log, c.has) || strings.Contains(log, c.lacks) {
				t.Errorf("the log is\n%s", log)
			}
			if strings.ContainsAny(log, "\x1b\u202e\u0007") {
				t.Errorf("something that does not print came through: %q", log)
			}
			for line := range strings.Lines(log) {
				if json := strings.HasPrefix(line, "{"); json != (c.name == "JSON") {
					t.Errorf("a line is not as the others: %s", line)
				}
			}
		})
	}
}
