package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestMain runs the tests. When the suite tests a client through Gatekit, it starts the test binary
// as this client.
func TestMain(m *testing.M) {
	if os.Getenv(envDir) != "" {
		if err := clientThroughGatekit(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(envAuth) != "" {
		if err := authClient(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(peers.M{M: m}.Run())
}

// eras are the revisions for which the suite has fixed requirements. The numbers of scenarios are
// repeated here, so that the tests fail if the suite has fewer.
var eras = []struct {
	revision         string
	kind             string   // the era in gatekit's configuration
	server, client   int      // required scenarios, without those for authorization
	steps            int      // steps of the transcript
	everythingServer []string // flags of the go-sdk's server for this era over HTTP
	mode             string   // of the transcript's client
}{
	{"2025-11-25", "legacy", 30, 4, 41, []string{"-stateless=false"}, "legacy"},
	{mcptest.Modern, "modern", 37, 7, 41, nil, mcptest.Modern},
}

// upstreams are the transports from Gatekit to the go-sdk's server; table returns the server's
// table in the configuration.
var upstreams = []struct {
	name  string
	table func(t *testing.T, flags []string) string
}{
	{"http", func(t *testing.T, flags []string) string {
		return fmt.Sprintf("url = %q", startEverythingServer(t, flags))
	}},
	{"stdio", func(t *testing.T, _ []string) string {
		return fmt.Sprintf("command = %q", peers.Tool(t, "everything-server"))
	}},
}

func TestServerScenarios(t *testing.T) {
	for _, era := range eras {
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			names := requiredScenarios(t, era.revision, "server", era.server)
			run := func(url string, env ...string) verdicts {
				out := t.TempDir()
				// The exit code of the suite is ignored: it also fails if a scenario fails that is
				// not required. The test reads the suite's files.
				runSuite(t, env, "server", "--url", url, "--requirements", era.revision, "-o", out)
				return readVerdicts(t, out, "server-")
			}
			direct := run(startEverythingServer(t, era.everythingServer))
			for _, up := range upstreams {
				t.Run(up.name, func(t *testing.T) {
					url := startGatekit(t, up.table(t, era.everythingServer))
					wantNoRegressions(t, names, direct, run(url))
				})
			}
			t.Run("with a bearer on the listener", func(t *testing.T) {
				url, env := startGatekitWithBearer(t, upstreams[0].table(t, era.everythingServer))
				wantNoRegressions(t, names, direct, run(url, env...))
			})
			for _, b := range balancers {
				t.Run(b.name, func(t *testing.T) {
					url, env := startReplicas(t, upstreams[0].table(t, era.everythingServer),
						era.kind == "legacy", b.start)
					wantNoRegressions(t, names, direct, run(url, env...))
				})
			}
			t.Run("one of two servers, each with its prefix", func(t *testing.T) {
				var tables []string
				for _, up := range upstreams {
					tables = append(tables, up.table(t, era.everythingServer))
				}
				wantNoRegressions(t, names, direct,
					run(proxyWithoutPrefix(t, startGatekit(t, tables...))))
			})
		})
	}
}

// cannotBridge has the required scenarios that fail with a server of the other era, with the
// reasons.
var cannotBridge = map[string]map[string]string{
	mcptest.Modern: {
		"input-required-result-basic-elicitation": "the suite checks the key of the server's " +
			"input request; a legacy server's request has none, and gets one from Gatekit",
		"input-required-result-multi-round": "the go-sdk (v1.8.0) sends a legacy client one " +
			"JSON-RPC request, and then an input_required result, which legacy revisions do not " +
			"have",
	},
	"2025-11-25": {
		"tools-call-sampling": "the server's tool only sends JSON-RPC requests, which the " +
			"go-sdk rejects in the modern era",
		"tools-call-elicitation":       "as for tools-call-sampling",
		"elicitation-sep1034-defaults": "as for tools-call-sampling",
		"elicitation-sep1330-enums":    "as for tools-call-sampling",
	},
}

// knownWarnings has the warnings of required scenarios with a server of the other era, with the
// reasons.
var knownWarnings = map[string]map[verdict]string{
	mcptest.Modern: {
		{"sep-2322-ignore-unexpected-params", "WARNING"}: "the suite's first request of a call " +
			"already has the answer to a question of the server, under the server's key; a " +
			"question of a legacy server has no key, and comes only when the call runs",
	},
}

// wantNamedWarnings fails the test for each warning of a scenario that knownWarnings does not have.
// It adds the warnings of the scenario to seen.
func wantNamedWarnings(t *testing.T, revision, scenario string, checks map[verdict]int,
	seen map[verdict]bool) {
	t.Helper()
	for v := range checks {
		seen[v] = seen[v] || v.Status == "WARNING"
		if v.Status == "WARNING" && knownWarnings[revision][v] == "" {
			t.Errorf("%s: warning %s, want only those of knownWarnings", scenario, v.ID)
		}
	}
}

// failed returns the id of a check that failed, or "" if no check failed.
func failed(checks map[verdict]int) string {
	for v := range checks {
		if v.Status == "FAILURE" {
			return v.ID
		}
	}
	return ""
}

// TestServerScenariosAcrossTheEras runs the server scenarios of each era with a server of the other
// era.
func TestServerScenariosAcrossTheEras(t *testing.T) {
	for i, era := range eras {
		other := eras[1-i]
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			names := requiredScenarios(t, era.revision, "server", era.server)
			for _, up := range upstreams {
				t.Run(up.name, func(t *testing.T) {
					url := startGatekit(t, up.table(t, other.everythingServer)+
						fmt.Sprintf("\nera = %q", other.kind))
					out := t.TempDir()
					runSuite(t, nil, "server", "--url", url, "--requirements", era.revision,
						"-o", out)
					via, crossed := readVerdicts(t, out, "server-"), 0
					seen := map[verdict]bool{}
					for _, name := range names {
						why, cannot := cannotBridge[era.revision][name]
						wantNamedWarnings(t, era.revision, name, via[name], seen)
						switch failed := failed(via[name]); {
						case len(via[name]) == 0:
							t.Errorf("%s has no result", name)
						case failed != "" && !cannot:
							t.Errorf("%s: the check %s failed", name, failed)
						case failed == "" && cannot:
							t.Errorf("%s passes: remove it from cannotBridge (%s)", name, why)
						case failed == "":
							crossed++
						}
					}
					for v, why := range knownWarnings[era.revision] {
						if !seen[v] {
							t.Errorf("no scenario has the warning %s: remove it from "+
								"knownWarnings (%s)", v.ID, why)
						}
					}
					t.Logf("%d of %d required scenarios pass", crossed, len(names))
				})
			}
		})
	}
}

// TestClientScenarios connects the suite's server of each era with a client of the same era and
// with one of the other era. The verdicts must be those of the direct run in both cases. The suite
// itself checks which era gatekit uses with its server.
func TestClientScenarios(t *testing.T) {
	for _, era := range eras {
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			names, client := requiredScenarios(t, era.revision, "client", era.client),
				peers.Tool(t, "everything-client")
			run := func(command string, env func() []string) verdicts {
				out := t.TempDir()
				// one by one: otherwise the suite would also run the scenarios for authorization
				for _, name := range names {
					runSuite(t, env(), "client", "--command", command, "--scenario", name,
						"--spec-version", era.revision, "--force", "--timeout", "120000", "-o", out)
				}
				return readVerdicts(t, out, "")
			}
			direct := run(client, func() []string { return nil })
			for _, clientEra := range eras {
				t.Run(map[bool]string{true: "same era",
					false: "across the eras"}[clientEra.kind == era.kind], func(t *testing.T) {
					wantNoRegressions(t, names, direct, run(os.Args[0], func() []string {
						dir := t.TempDir()
						t.Cleanup(func() { checkAuditLog(t, dir) })
						return []string{envDir + "=" + dir, envGatekit + "=" + peers.Gatekit(t),
							envAddress + "=" + peers.FreeAddress(t),
							envClient + "=" + client, envEra + "=" + clientEra.kind,
							// otherwise the race detector sleeps a second at each exit
							"GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0"}
					}))
				})
			}
		})
	}
}

// transcriptStep has the messages that a real client received in one step of transcript.mjs.
type transcriptStep struct {
	Step     string
	Messages []string
}

// transcript runs transcript.mjs against a server.
func transcript(t *testing.T, mode, url string, env ...string) (steps []transcriptStep) {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), "node", filepath.Join(peers.Top(), "test",
		"conformance", "transcript.mjs"), mode, url)
	cmd.Env = append(append(os.Environ(), env...), "NODE_MODULES="+peers.Node(t).Path())
	cmd.Stderr = t.Output()
	b, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(b, &steps)
	}
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return steps
}

// wantSameTranscript fails the test for each step of two transcripts that differs.
func wantSameTranscript(t *testing.T, direct, via []transcriptStep) {
	t.Helper()
	if len(via) != len(direct) {
		t.Fatalf("got %d steps through gatekit, want %d as in the direct run", len(via),
			len(direct))
	}
	same := 0
	for i, want := range direct {
		if got := via[i]; got.Step == want.Step && slices.Equal(got.Messages, want.Messages) {
			same++
		} else {
			t.Errorf("%s:\ngot  %s %q\nwant %q", want.Step, got.Step, got.Messages, want.Messages)
		}
	}
	t.Logf("same in %d of %d steps", same, len(direct))
}

// TestRealClientReceivesTheSameMessages runs transcript.mjs directly, through gatekit, and through
// replicas of gatekit.
func TestRealClientReceivesTheSameMessages(t *testing.T) {
	for _, era := range eras {
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			direct := transcript(t, era.mode, startEverythingServer(t, era.everythingServer))
			if len(direct) != era.steps {
				t.Fatalf("the transcript has %d steps, want %d", len(direct), era.steps)
			}
			for _, up := range upstreams {
				t.Run(up.name, func(t *testing.T) {
					url := startGatekit(t, up.table(t, era.everythingServer))
					wantSameTranscript(t, direct, transcript(t, era.mode, url))
				})
			}
			for _, b := range balancers {
				t.Run(b.name, func(t *testing.T) {
					url, env := startReplicas(t, upstreams[0].table(t, era.everythingServer),
						era.kind == "legacy", b.start)
					wantSameTranscript(t, direct, transcript(t, era.mode, url, env...))
				})
			}
		})
	}
}
