package receivers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// TestPrometheusAlertsOnADenial lets Prometheus scrape the metrics, with an alert on denials. The
// alert fires when a call has been denied, and not before.
func TestPrometheusAlertsOnADenial(t *testing.T) {
	harness.Long(t, "waits for scrapes")
	peers.Installed(t, "prometheus", "promtool")
	admin, address, dir := peers.FreeAddress(t), peers.FreeAddress(t), t.TempDir()
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+harness.PolicyFile(t,
		`deny contains "it ends the server" if input.name == "die"`)+
		fmt.Sprintf("[admin]\nhttp = %q\n", admin))
	rules := writeFile(t, filepath.Join(dir, "rules.yml"),
		"groups:",
		"- name: gatekit",
		"  interval: 1s",
		"  rules:",
		"  - alert: GatekitDenial",
		"    expr: sum by (gatekit_stage) (gatekit_denials_total) > 0")
	config := writeFile(t, filepath.Join(dir, "prometheus.yml"),
		"global: { scrape_interval: 1s, evaluation_interval: 1s }",
		"rule_files: ["+rules+"]",
		"scrape_configs:",
		"- job_name: gatekit",
		"  static_configs: [{ targets: ["+admin+"] }]")
	startProgram(t, address, &harness.Output{}, "prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	eventually(t, func() string { // Prometheus listens before it can answer queries
		r, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return err.Error()
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return "Prometheus is not ready: " + r.Status
		}
		return ""
	})
	callEcho(t, g, 5)
	eventually(t, func() string {
		if n := queryPrometheus(t, address, `count(gatekit_decisions_total)`); n == 0 {
			return "Prometheus has not scraped the metrics"
		}
		return ""
	})
	if alerts := firingAlerts(t, address); len(alerts) > 0 {
		t.Errorf("before the denial these alerts fire: %v, want none", alerts)
	}
	c := g.Client("2025-11-25")
	harness.WantDenied(t, c, "tools/call", `{"name":"box__die"}`)
	eventually(t, func() string {
		if alerts := firingAlerts(t, address); len(alerts) != 1 || alerts[0] != "policy" {
			return fmt.Sprintf("the alert fires for the stages %q, want [policy]", alerts)
		}
		return ""
	})

	lint := exec.Command("promtool", "check", "metrics")
	lint.Stdin = strings.NewReader(getPage(t, "http://"+admin+"/metrics"))
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// queryPrometheus returns the number of results of a query.
func queryPrometheus(t *testing.T, address, query string) int {
	t.Helper()
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	page := getPage(t, "http://"+address+"/api/v1/query?query="+query)
	if err := json.Unmarshal([]byte(page), &answer); err != nil {
		t.Fatal(err)
	}
	return len(answer.Data.Result)
}

// firingAlerts returns the label gatekit_stage of each alert that fires.
func firingAlerts(t *testing.T, address string) (stages []string) {
	t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	page := getPage(t, "http://"+address+"/api/v1/alerts")
	if err := json.Unmarshal([]byte(page), &answer); err != nil {
		t.Fatal(err)
	}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			stages = append(stages, a.Labels["gatekit_stage"])
		}
	}
	return stages
}
