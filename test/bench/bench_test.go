//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/test/issuertest"
)

func TestMain(m *testing.M) {
	if isRole, err := runRole(os.Args[1:]); isRole {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// buildGatekit builds Gatekit for a test or benchmark. With -short, it skips the test.
func (p *plan) buildGatekit(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: builds gatekit and starts it many times")
	}
	var err error
	if p.gatekit, err = buildGatekit(t.TempDir(), ""); err != nil {
		t.Fatal(err)
	}
}

// TestEverythingRuns measures each case once, for a moment, and counts the rows of the report. It
// does not check the figures, which mean nothing on a busy machine.
func TestEverythingRuns(t *testing.T) {
	p := newPlan()
	p.buildGatekit(t)
	p.shorten()
	p.before, p.parts, p.link = p.gatekit, append(p.parts, "before"), time.Nanosecond
	var out bytes.Buffer
	if err := p.run(report{&out}); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	plugins, err := pluginVariants()
	if err != nil {
		t.Fatal(err)
	}
	policies, err := policyVariants(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	authentication, err := authenticationVariants(issuertest.New(""), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(out.String()) {
		for _, first := range []string{"http", "stdio", "legacy", "modern", "without a stream",
			"GET streams", "forwarded", "bare", "scaled", "rates", "open calls", "server alone",
			"gatekit wrap", "       1 | ", "      32 | "} {
			if strings.HasPrefix(line, first) {
				rows++
			}
		}
		// The baseline has the same name in all parts, so it is searched for only once.
		for _, v := range slices.Concat(plugins, auditVariants("")[1:], telemetryVariants("")[1:],
			policies[1:], authentication[1:]) {
			if strings.Contains(line, "  "+v.name+"  ") {
				rows++
			}
		}
	}
	// the parts calls and before have a row for each case
	callRows := 2 * len(p.routes) * len(p.eras) * len(p.workers) * len(p.sizes)
	bridgeRows := len(p.routes) * len(p.eras) * len(p.sizes)
	listRows := len(p.eras) * len(p.workers)
	// without and with plugins, for known lists and for lists with a new tool
	definitionRows := 2 * 2 * len(p.workers)
	memoryRows := len(p.routes) * len(p.workers) * len(p.proxies())
	pluginRows := len(plugins) * len(p.workers) * len(p.sizes)
	auditRows := len(auditVariants("")) * len(p.workers) * len(p.sizes)
	telemetryRows := len(telemetryVariants("")) * len(p.workers) * len(p.sizes)
	policyRows := len(policies) * len(p.workers) * len(p.sizes)
	authenticationRows := len(authentication) * len(p.workers) * len(p.sizes)
	principalRows := len(p.eras)
	replicaRows := (1 + len(bareProtocols)) * len(p.workers) * len(p.sizes)
	scalingRows := len(p.eras) * len(replicaNames) * len(p.workers) * len(p.sizes)
	sharedRows := len(sharedCases) * len(p.workers) * len(p.sizes)
	if _, err := exec.LookPath("redis-server"); err != nil {
		sharedRows = 0
	}
	const sessionRows, viewerRows, startRows = 2, 2, 2
	if want := callRows + bridgeRows + listRows + definitionRows + memoryRows + sessionRows +
		pluginRows + auditRows + telemetryRows + policyRows + authenticationRows +
		principalRows + replicaRows + scalingRows + sharedRows + viewerRows +
		startRows; rows != want {
		t.Errorf("the report has %d rows, want %d:\n%s", rows, want, &out)
	}
	t.Logf("\n%s", &out)
}

// TestTargetsEchoTextUnchanged checks that each target forwards the text unchanged, in both
// directions.
func TestTargetsEchoTextUnchanged(t *testing.T) {
	p := newPlan()
	p.buildGatekit(t)
	for _, route := range p.routes {
		for _, era := range p.eras {
			t.Run(fmt.Sprintf("%s %s", route, era), func(t *testing.T) {
				s := setup{route: route, era: era, workers: 2, servers: 1, tools: 1,
					gatekit: p.gatekit, bodies: p.bodies, dir: t.TempDir()}
				targets, end, err := s.open(targetNames...)
				defer func() {
					if err := end(); err != nil {
						t.Error(err)
					}
				}()
				if err != nil {
					t.Fatal(err)
				}
				for i, target := range targets {
					m := echoCall(target.tool, 200_000)
					result, err := call(target.client, 1, m)
					if err != nil {
						t.Fatalf("%s: %v", targetNames[i], err)
					}
					want := member([]byte("{"+m.params[strings.Index(m.params, `"arguments"`):]+
						"}"), "arguments")
					content := member(result, "content")
					if got := member(content, "text"); !bytes.Equal(got, member(want, "text")) {
						t.Errorf("%s: got %d bytes of text, want the %d bytes that were sent",
							targetNames[i], len(got), len(member(want, "text")))
					}
				}
			})
		}
	}
}

// TestPluginsForwardTextUnchanged checks that the plugins of the comparison forward the text
// unchanged.
func TestPluginsForwardTextUnchanged(t *testing.T) {
	p := newPlan()
	p.buildGatekit(t)
	plugins, err := pluginVariants()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range plugins {
		t.Run(v.name, func(t *testing.T) {
			s := setup{route: httpHTTP, era: legacy, workers: 1, servers: 1, tools: 1,
				gatekit: p.gatekit, bodies: p.bodies, dir: t.TempDir(), variants: plugins}
			targets, end, err := s.open(v.name)
			defer func() {
				if err := end(); err != nil {
					t.Error(err)
				}
			}()
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range p.sizes {
				m := echoCall(targets[0].tool, size)
				result, err := call(targets[0].client, 0, m)
				if err != nil {
					t.Fatal(err)
				}
				text := member([]byte("{"+m.params[strings.Index(m.params, `"text"`):]), "text")
				if !bytes.Contains(result, text) {
					t.Errorf("the answer does not contain the %s of text that were sent",
						formatBytes(size))
				}
			}
		})
	}
}

// BenchmarkCall measures the calls of the part "calls" as Go benchmarks, with one call per
// operation.
func BenchmarkCall(b *testing.B) {
	p := newPlan()
	p.buildGatekit(b)
	for _, route := range p.routes {
		for _, era := range p.eras {
			for _, size := range p.sizes {
				for _, workers := range p.workers {
					for _, name := range targetNames {
						b.Run(fmt.Sprintf("%s/%s/%s/%d/%s", route, era,
							strings.ReplaceAll(formatBytes(size), " ", ""), workers, name),
							func(b *testing.B) {
								s := setup{route: route, era: era, workers: workers, servers: 1,
									tools:   1,
									gatekit: p.gatekit, bodies: p.bodies, dir: b.TempDir()}
								targets, end, err := s.open(name)
								defer end()
								if err != nil {
									b.Fatal(err)
								}
								benchmarkCalls(b, targets[0], workers, size)
							})
					}
				}
			}
		}
	}
}

// benchmarkCalls makes b.N calls, spread over the workers.
func benchmarkCalls(b *testing.B, t *target, workers, size int) {
	m := echoCall(t.tool, size)
	b.SetBytes(int64(size))
	b.ResetTimer()
	if _, err := callRepeatedly(t.client, workers, m, func(n int64) bool {
		return n < int64(b.N)
	}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRelayMessage measures the relay's work on a message, without the transport.
func BenchmarkRelayMessage(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(formatBytes(size), func(b *testing.B) {
			msg := echoCall("echo", size).append(nil, legacy, 1)
			b.SetBytes(int64(len(msg)))
			var dst []byte
			for b.Loop() {
				dst = withID(dst[:0], msg, "12345")
			}
		})
	}
}
