package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/test/peers"
)

// testContext returns a context that ends long after the expected end of a run.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// runSuite runs the conformance suite.
func runSuite(t *testing.T, env []string, args ...string) {
	t.Helper()
	preload := filepath.Join(peers.Top(), "test", "conformance", "preload.mjs")
	index := peers.Node(t).Path("@modelcontextprotocol", "conformance", "dist", "index.js")
	cmd := exec.CommandContext(testContext(t), "node", append([]string{"--import", preload, index},
		args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	// The exit code 1 means that a scenario failed.
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) &&
		exit.ExitCode() == 1) {
		t.Errorf("%s: %v\n%s", cmd, err, out[max(0, len(out)-4000):])
	}
}

// requiredScenarios returns the scenarios that a revision requires, without those for
// authorization, in which a client must be an OAuth client. role is "server" or "client".
func requiredScenarios(t *testing.T, revision, role string, want int) []string {
	t.Helper()
	names := slices.DeleteFunc(scenarios(t, revision, role, ""), func(name string) bool {
		return strings.HasPrefix(name, "auth/")
	})
	if len(names) != want {
		t.Fatalf("%s requires %d %s scenarios, want %d", revision, len(names), role, want)
	}
	return names
}

// scenarios returns the scenarios with a prefix that a revision requires.
func scenarios(t *testing.T, revision, role, prefix string) (names []string) {
	t.Helper()
	b, err := os.ReadFile(peers.Node(t).Path("@modelcontextprotocol", "conformance", "requirements",
		revision+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	// The file has only lists of names under keys, so no YAML library is needed.
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if key, ok := strings.CutSuffix(line, ":"); ok && !strings.HasPrefix(line, " ") {
			section = key
		}
		if name, ok := strings.CutPrefix(line, "  - "); ok && section == role &&
			strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// verdicts counts the suite's findings: by scenario, then by check and status.
type verdicts map[string]map[verdict]int

type verdict struct{ ID, Status string }

// readVerdicts reads the suite's output: a folder for each scenario, with the time in its name.
func readVerdicts(t *testing.T, dir, prefix string) verdicts {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := verdicts{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		var checks []verdict
		if err == nil {
			err = json.Unmarshal(b, &checks)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := timeSuffix.ReplaceAllString(strings.TrimPrefix(filepath.Base(filepath.Dir(file)),
			prefix), "")
		all[name] = map[verdict]int{}
		for _, c := range checks {
			// This warning means that a client reconnects 0.2 s to 0.5 s late, which also happens
			// on a busy machine. A client that is later, or early, gets FAILURE.
			if c == (verdict{"client-sse-retry-timing", "WARNING"}) {
				c.Status = "SUCCESS"
			}
			all[name][c]++
		}
	}
	return all
}

// timeSuffix matches the time at the end of a folder's name.
var timeSuffix = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// regressions returns the verdicts that are worse through Gatekit than without it. The verdicts on
// required scenarios must be equal, without a failure. Other scenarios may have better verdicts
// through Gatekit, because the server alone cannot resume a stream.
func regressions(names []string, direct, via verdicts) (faults []string) {
	for _, name := range names {
		if len(direct[name]) == 0 {
			faults = append(faults, name+" has no verdict in the direct run")
		}
		for v, n := range via[name] {
			if v.Status == "FAILURE" {
				faults = append(faults, fmt.Sprintf("the required scenario %s: the check %s "+
					"failed %d times through gatekit", name, v.ID, n))
			}
		}
	}
	for name, checks := range direct {
		either := maps.Clone(checks)
		maps.Copy(either, via[name])
		for v := range either {
			want, got := checks[v], via[name][v]
			worse := got < want && v.Status == "SUCCESS" || got > want && v.Status == "FAILURE"
			if !v.isUninformative() && (worse || got != want && slices.Contains(names, name)) {
				faults = append(faults, fmt.Sprintf("%s: the check %s has %s %d times through "+
					"gatekit, want %d times as in the direct run", name, v.ID, v.Status, got, want))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// isUninformative reports whether a verdict proves nothing: it is a line of the suite's log, or the
// check that no message was malformed. That check also succeeds when there is no message.
func (v verdict) isUninformative() bool {
	return v.Status == "INFO" || v.Status == "SUCCESS" && strings.HasPrefix(v.ID, "wire-schema-")
}

// wantNoRegressions fails the test for each regression.
func wantNoRegressions(t *testing.T, names []string, direct, via verdicts) {
	t.Helper()
	found := regressions(names, direct, via)
	for _, f := range found {
		t.Error(f)
	}
	checks := 0
	for _, d := range direct {
		for v, n := range d {
			if !v.isUninformative() {
				checks += n
			}
		}
	}
	t.Logf("%d scenarios required, %d run; %d checks compared, %d faults", len(names), len(direct),
		checks, len(found))
}

func TestRegressionsAreFound(t *testing.T) {
	ok, bad, schema := verdict{"check", "SUCCESS"}, verdict{"check", "FAILURE"},
		verdict{"wire-schema-valid", "SUCCESS"}
	direct := verdicts{"needed": {ok: 2, schema: 1}, "extra": {ok: 1}}
	for _, c := range []struct {
		name string
		via  verdicts
		want int
	}{
		{"nothing differs", verdicts{"needed": {ok: 2}, "extra": {ok: 1}}, 0},
		{"a required scenario has no result", verdicts{"extra": {ok: 1}}, 1},
		{"a required check succeeds once instead of twice",
			verdicts{"needed": {ok: 1}, "extra": {ok: 1}}, 1},
		{"a required check fails", verdicts{"needed": {ok: 1, bad: 1}, "extra": {ok: 1}}, 3},
		{"a required check succeeds three times instead of twice",
			verdicts{"needed": {ok: 3}, "extra": {ok: 1}}, 1},
		{"another check succeeds more often", verdicts{"needed": {ok: 2}, "extra": {ok: 2}}, 0},
		{"another check fails", verdicts{"needed": {ok: 2}, "extra": {bad: 1}}, 2},
		{"a message is malformed", verdicts{"needed": {ok: 2, {"wire-schema-valid", "FAILURE"}: 1},
			"extra": {ok: 1}}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := regressions([]string{"needed"}, direct, c.via); len(got) != c.want {
				t.Errorf("found %q, want %d faults", got, c.want)
			}
		})
	}
	if got := regressions([]string{"needed"}, verdicts{}, verdicts{}); len(got) != 1 {
		t.Errorf("without a direct run: found %q, want one fault", got)
	}
}
