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

// The test binary is also the client that the suite starts when Gatekit is to stand between.
func TestMain(m *testing.M) {
	if os.Getenv(viaDir) != "" {
		if err := clientThroughGatekit(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(peers.M{M: m}.Run())
}

// eras are what the suite has a frozen set of requirements for, and how much is in it: a smaller
// set would be a lesser test.
var eras = []struct {
	revision         string
	kind             string   // of server, in gatekit's configuration
	server, client   int      // scenarios that are required, those for authorization apart
	steps            int      // of the transcript
	everythingServer []string // flags that make it a server of the era over HTTP
	mode             string   // that the transcript's client speaks in
}{
	{"2025-11-25", "legacy", 30, 4, 41, []string{"-stateless=false"}, "legacy"},
	{mcptest.Modern, "modern", 37, 7, 41, nil, mcptest.Modern},
}

// upstreams are the ways for Gatekit to reach the go-sdk's server; each is the server's table in
// the configuration.
var upstreams = []struct {
	name  string
	table func(t *testing.T, flags []string) string
}{
	{"http", func(t *testing.T, flags []string) string {
		return fmt.Sprintf("url = %q", everythingServer(t, flags))
	}},
	{"stdio", func(t *testing.T, _ []string) string {
		return fmt.Sprintf("command = %q", peers.Tool(t, "everything-server"))
	}},
}

func TestServerScenarios(t *testing.T) {
	for _, era := range eras {
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			names := required(t, era.revision, "server", era.server)
			run := func(url string) verdicts {
				out := t.TempDir()
				// A scenario that is not required may fail, and then so does the suite: what counts
				// is what it wrote.
				suite(t, nil, "server", "--url", url, "--requirements", era.revision, "-o", out)
				return read(t, out, "server-")
			}
			direct := run(everythingServer(t, era.everythingServer))
			for _, up := range upstreams {
				t.Run(up.name, func(t *testing.T) {
					url := startGatekit(t, up.table(t, era.everythingServer))
					hold(t, names, direct, run(url))
				})
			}
			t.Run("one of two, each in its namespace", func(t *testing.T) {
				var tables []string
				for _, up := range upstreams {
					tables = append(tables, up.table(t, era.everythingServer))
				}
				hold(t, names, direct, run(withoutNamespace(t, startGatekit(t, tables...))))
			})
		})
	}
}

// cannotCross are the required scenarios that fail when the server is of the other era, and why.
var cannotCross = map[string]map[string]string{
	mcptest.Modern: {
		"input-required-result-basic-elicitation": "the suite wants the key that its server " +
			"gives a question; what a legacy server asks has none, and gets one of ours",
		"input-required-result-multi-round": "the go-sdk (v1.8.0) asks a legacy client live " +
			"once, and then sends it a result that asks, which legacy revisions do not have",
	},
	"2025-11-25": {
		"tools-call-sampling": "the server's tool asks live alone, which the go-sdk " +
			"refuses in the modern era",
		"tools-call-elicitation":       "the same",
		"elicitation-sep1034-defaults": "the same",
		"elicitation-sep1330-enums":    "the same",
	},
}

// failed is a check that failed, "" when none did.
func failed(checks map[verdict]int) string {
	for v := range checks {
		if v.Status == "FAILURE" {
			return v.ID
		}
	}
	return ""
}

// TestServerScenariosAcrossTheEras runs the requirements of one era against servers that speak the
// other.
func TestServerScenariosAcrossTheEras(t *testing.T) {
	for i, era := range eras {
		other := eras[1-i]
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			names := required(t, era.revision, "server", era.server)
			for _, up := range upstreams {
				t.Run(up.name, func(t *testing.T) {
					url := startGatekit(t, up.table(t, other.everythingServer)+
						fmt.Sprintf("\nera = %q", other.kind))
					out := t.TempDir()
					suite(t, nil, "server", "--url", url, "--requirements", era.revision, "-o", out)
					via, crossed := read(t, out, "server-"), 0
					for _, name := range names {
						why, cannot := cannotCross[era.revision][name]
						switch failed := failed(via[name]); {
						case len(via[name]) == 0:
							t.Errorf("%s has no result", name)
						case failed != "" && !cannot:
							t.Errorf("%s: %s", name, failed)
						case failed == "" && cannot:
							t.Errorf("%s crosses after all (%s): take it off the list", name, why)
						case failed == "":
							crossed++
						}
					}
					t.Logf("%d of %d required scenarios cross", crossed, len(names))
				})
			}
		})
	}
}

// TestClientScenarios has the suite's server of each era meet a client of its own era and one of
// the other, on which the verdicts must be those of the direct run too: every required scenario
// crosses, so there is no list of those that cannot. Which era gatekit speaks to the server is the
// suite's to see to: its server does not know the other one, or finds fault with it.
func TestClientScenarios(t *testing.T) {
	for _, era := range eras {
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			names, client := required(t, era.revision, "client", era.client),
				peers.Tool(t, "everything-client")
			run := func(command string, env func() []string) verdicts {
				out := t.TempDir()
				// one by one: the suite would run those for authorization with them
				for _, name := range names {
					suite(t, env(), "client", "--command", command, "--scenario", name,
						"--spec-version", era.revision, "--force", "--timeout", "120000", "-o", out)
				}
				return read(t, out, "")
			}
			direct := run(client, func() []string { return nil })
			for _, spoken := range eras {
				t.Run(map[bool]string{true: "same era",
					false: "across the eras"}[spoken.kind == era.kind], func(t *testing.T) {
					hold(t, names, direct, run(os.Args[0], func() []string {
						dir := t.TempDir()
						t.Cleanup(func() { verify(t, dir) })
						return []string{viaDir + "=" + dir, viaGatekit + "=" + peers.Gatekit(t),
							viaAddress + "=" + peers.FreeAddress(t),
							// not a second each
							viaClient + "=" + client, viaEra + "=" + spoken.kind,
							"GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0"}
					}))
				})
			}
		})
	}
}

func TestARealClientSeesTheSame(t *testing.T) {
	type step struct {
		Step string
		Said []string
	}
	for _, era := range eras {
		t.Run(era.revision, func(t *testing.T) {
			t.Parallel()
			run := func(url string) (steps []step) {
				cmd := exec.CommandContext(bounded(t), "node", filepath.Join(peers.Top(),
					"test", "conformance", "transcript.mjs"), era.mode, url)
				cmd.Env = append(os.Environ(), "NODE_MODULES="+peers.Node(t).Path())
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
			direct := run(everythingServer(t, era.everythingServer))
			if len(direct) != era.steps {
				t.Fatalf("the transcript has %d steps, want %d", len(direct), era.steps)
			}
			for _, up := range upstreams {
				t.Run(up.name, func(t *testing.T) {
					url := startGatekit(t, up.table(t, era.everythingServer))
					via, same := run(url), 0
					if len(via) != len(direct) {
						t.Fatalf("%d steps through gatekit, %d directly", len(via), len(direct))
					}
					for i, want := range direct {
						if got := via[i]; got.Step == want.Step && slices.Equal(got.Said,
							want.Said) {
							same++
						} else {
							t.Errorf("%s\ngot  %s %q\nwant %q", want.Step, got.Step, got.Said,
								want.Said)
						}
					}
					t.Logf("same in %d of %d steps", same, era.steps)
				})
			}
		})
	}
}
