//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if is, err := playRole(os.Args[1:]); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// build has Gatekit built once for what t does.
func (p *plan) build(t testing.TB) {
	t.Helper()
	var err error
	if p.gatekit, err = buildGatekit(t.TempDir(), ""); err != nil {
		t.Fatal(err)
	}
}

// TestEverythingRuns takes each case once, for a moment. It asserts no time: figures from a busy
// machine say nothing.
func TestEverythingRuns(t *testing.T) {
	p := newPlan()
	p.build(t)
	p.smoke()
	var out bytes.Buffer
	if err := p.run(report{&out}); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	plugged, err := withPlugins()
	if err != nil {
		t.Fatal(err)
	}
	ruling, err := withPolicies(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(out.String()) {
		for _, first := range []string{"http", "stdio", "legacy", "modern", "without a stream",
			"GET streams"} {
			if strings.HasPrefix(line, first) {
				rows++
			}
		}
		// all have a plain one
		for _, s := range slices.Concat(plugged, withLogs("")[1:], withTelemetry("")[1:],
			ruling[1:]) {
			if strings.Contains(line, "  "+s.way+"  ") {
				rows++
			}
		}
	}
	calls := len(p.routes) * len(p.eras) * len(p.at) * len(p.sizes)
	bridge := len(p.routes) * len(p.eras) * len(p.sizes)
	list := len(p.eras) * len(p.at)
	memory := len(p.routes) * len(p.at) * len(p.proxies())
	plugins := len(plugged) * len(p.at) * len(p.sizes)
	audit := len(withLogs("")) * len(p.at) * len(p.sizes)
	told := len(withTelemetry("")) * len(p.at) * len(p.sizes)
	policies := len(ruling) * len(p.at) * len(p.sizes)
	if want := calls + bridge + list + memory + 2 + plugins + audit + told +
		policies; rows != want {
		t.Errorf("%d rows were printed, want %d:\n%s", rows, want, &out)
	}
	t.Logf("\n%s", &out)
}

// TestEchoIsEqual holds the harness to what it claims: all ways carry the text both ways,
// unchanged.
func TestEchoIsEqual(t *testing.T) {
	p := newPlan()
	p.build(t)
	for _, route := range p.routes {
		for _, era := range p.eras {
			t.Run(fmt.Sprintf("%s %s", route, era), func(t *testing.T) {
				l := lane{route: route, era: era, workers: 2, servers: 1, tools: 1,
					gatekit: p.gatekit, bodies: p.bodies, dir: t.TempDir()}
				targets, end, err := l.open(ways...)
				defer func() {
					if err := end(); err != nil {
						t.Error(err)
					}
				}()
				if err != nil {
					t.Fatal(err)
				}
				for i, target := range targets {
					m := callEcho(target.tool, 200_000)
					result, err := call(target.client, 1, m)
					if err != nil {
						t.Fatalf("%s: %v", ways[i], err)
					}
					want := member([]byte("{"+m.params[strings.Index(m.params, `"arguments"`):]+
						"}"), "arguments")
					content := member(result, "content")
					if got := member(content, "text"); !bytes.Equal(got, member(want, "text")) {
						t.Errorf("%s: %d bytes of text came back, not the %d that were sent",
							ways[i], len(got), len(member(want, "text")))
					}
				}
			})
		}
	}
}

// TestPluginsChangeNothing holds the plugins that are compared to what the comparison claims: with
// all of them the text goes through as it is.
func TestPluginsChangeNothing(t *testing.T) {
	p := newPlan()
	p.build(t)
	plugged, err := withPlugins()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plugged {
		t.Run(s.way, func(t *testing.T) {
			l := lane{route: httpHTTP, era: legacy, workers: 1, servers: 1, tools: 1,
				gatekit: p.gatekit, bodies: p.bodies, dir: t.TempDir(), stages: plugged}
			targets, end, err := l.open(s.way)
			defer func() {
				if err := end(); err != nil {
					t.Error(err)
				}
			}()
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range p.sizes {
				m := callEcho(targets[0].tool, size)
				result, err := call(targets[0].client, 0, m)
				if err != nil {
					t.Fatal(err)
				}
				text := member([]byte("{"+m.params[strings.Index(m.params, `"text"`):]), "text")
				if !bytes.Contains(result, text) {
					t.Errorf("%s of text came back changed", bytesOf(size))
				}
			}
		})
	}
}

// BenchmarkCall is the matrix of the command, one call an operation.
func BenchmarkCall(b *testing.B) {
	p := newPlan()
	p.build(b)
	for _, route := range p.routes {
		for _, era := range p.eras {
			for _, size := range p.sizes {
				for _, at := range p.at {
					for _, way := range ways {
						b.Run(fmt.Sprintf("%s/%s/%s/%d/%s", route, era,
							strings.ReplaceAll(bytesOf(size), " ", ""), at, way),
							func(b *testing.B) {
								l := lane{route: route, era: era, workers: at, servers: 1, tools: 1,
									gatekit: p.gatekit, bodies: p.bodies, dir: b.TempDir()}
								targets, end, err := l.open(way)
								defer end()
								if err != nil {
									b.Fatal(err)
								}
								benchmark(b, targets[0], at, size)
							})
					}
				}
			}
		}
	}
}

func benchmark(b *testing.B, t *target, workers, size int) {
	m := callEcho(t.tool, size)
	b.SetBytes(int64(size))
	b.ResetTimer()
	if _, err := drive(t.client, workers, m, func(n int64) bool {
		return n < int64(b.N)
	}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWire is what the relay does to a message, without its transport.
func BenchmarkWire(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(bytesOf(size), func(b *testing.B) {
			msg := callEcho("echo", size).append(nil, legacy, 1)
			b.SetBytes(int64(len(msg)))
			var dst []byte
			for b.Loop() {
				dst = withID(dst[:0], msg, "12345")
			}
		})
	}
}
