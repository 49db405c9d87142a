//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if is, err := playRole(os.Args[1:]); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	p := newPlan()
	p.flags(flag.CommandLine)
	flag.Parse()
	if err := p.run(report{os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// playRole is this binary as one of the other processes of a measurement; is says whether the
// arguments name one.
func playRole(args []string) (is bool, err error) {
	if len(args) < 2 {
		return false, nil
	}
	switch args[0] + " " + args[1] {
	case "echo stdio":
		return true, echoStdio()
	case "echo http":
		return true, echoHTTP()
	case "plugin allow":
		servePlugin()
		return true, nil
	case "relay http-http":
		return true, relayHTTP(toHTTP(args[2]))
	case "relay http-stdio":
		forward, err := toStdio(selfCommand())
		if err != nil {
			return true, err
		}
		return true, relayHTTP(forward)
	case "relay stdio-stdio":
		return true, relayStdio(selfCommand())
	}
	return false, nil
}

// selfCommand is the stdio backend as a command.
func selfCommand() []string { return []string{os.Args[0], "echo", "stdio"} }

// plan is what is to be measured.
type plan struct {
	parts, ways         list[string]
	routes              list[route]
	eras                list[era]
	sizes, at           list[int]
	rounds              int
	length              time.Duration
	calls, sessions     int
	gatekit, profile    string
	bodies              string
	servers, toolsOfOne int
}

func newPlan() plan {
	return plan{
		parts: list[string]{"calls", "bridge", "list", "memory", "sessions", "plugins", "policies",
			"audit", "telemetry"}, ways: ways,
		routes: list[route]{httpHTTP, httpStdio, stdioStdio}, eras: list[era]{legacy, modern},
		sizes: list[int]{1 << 10, 64 << 10, 1 << 20}, at: list[int]{1, 32},
		rounds: 9, length: 300 * time.Millisecond, calls: 10_000, sessions: 400,
		servers: 10, toolsOfOne: 100, bodies: "digest",
	}
}

func (p *plan) flags(f *flag.FlagSet) {
	f.Var(&p.parts, "parts", "what to measure")
	f.Var(&p.ways, "ways", "what to measure it on; direct is always taken by calls and list")
	f.Var(&p.routes, "routes", "transport of the client and of the server")
	f.Var(&p.eras, "eras", "legacy (2025-11-25) and modern (2026-07-28)")
	f.Var(&p.sizes, "sizes", "bytes of text in a call")
	f.Var(&p.at, "at", "calls at a time")
	f.IntVar(&p.rounds, "rounds", p.rounds, "rounds of each case; medians of them are shown")
	f.DurationVar(&p.length, "for", p.length, "length of one target's turn in a round")
	f.IntVar(&p.calls, "calls", p.calls, "calls of each size before memory is read")
	f.IntVar(&p.sessions, "sessions", p.sessions, "idle sessions that are opened")
	f.StringVar(&p.gatekit, "gatekit", "",
		"`path` of a built gatekit; built from ./cmd/gatekit when empty")
	f.StringVar(&p.bodies, "bodies", p.bodies,
		"what gatekit's audit log holds of them: digest, none or redacted")
	f.StringVar(&p.profile, "profile", "",
		"`folder` for CPU and heap profiles of gatekit, one pair a process; gatekit is then "+
			"built with a profiler added")
}

// smoke makes the plan so short that it only shows that everything runs.
func (p *plan) smoke() {
	p.rounds, p.length, p.calls, p.sessions, p.servers, p.toolsOfOne = 1, 20*time.Millisecond, 10,
		5, 3, 10
	// a busy machine that builds and tests other things has these in time, too
	p.sizes, p.at = p.sizes[:2], []int{1, 4}
}

func (p *plan) run(out report) (err error) {
	dir, err := os.MkdirTemp("", "gatekit-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if slices.Contains(p.ways, "gatekit") && p.gatekit == "" {
		if p.gatekit, err = buildGatekit(dir, p.profile); err != nil {
			return err
		}
	}
	l := lane{servers: 1, tools: 1, gatekit: p.gatekit, bodies: p.bodies, dir: dir,
		profiled: p.profile != ""}
	for _, part := range p.parts {
		switch part {
		case "calls":
			err = p.measureCalls(l, out)
		case "bridge":
			err = p.measureBridge(l, out)
		case "list":
			err = p.measureList(l, out)
		case "memory":
			err = p.measureMemory(l, out)
		case "sessions":
			err = p.measureSessions(l, out)
		case "plugins":
			err = p.measurePlugins(l, out)
		case "policies":
			err = p.measurePolicies(l, out)
		case "audit":
			err = p.measureAudit(l, out)
		case "telemetry":
			err = p.measureTelemetry(l, out)
		default:
			err = fmt.Errorf("-parts %q: there are calls, bridge, list, memory, sessions, "+
				"plugins, policies, audit and telemetry", part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// proxies are the ways that are proxies.
func (p *plan) proxies() []string {
	return slices.DeleteFunc(slices.Clone(p.ways), func(way string) bool { return way == "direct" })
}

func (p *plan) measureCalls(l lane, out report) error {
	out.callsHead(p.proxies())
	for _, l.route = range p.routes {
		for _, l.era = range p.eras {
			for _, l.workers = range p.at {
				targets, end, err := l.open(append([]string{"direct"}, p.proxies()...)...)
				for _, size := range p.sizes {
					if err != nil {
						break
					}
					var c comparison
					c, err = compare(targets, l.workers, func(t *target) message {
						return callEcho(t.tool, size)
					}, p.rounds, p.length)
					if err == nil {
						out.calls(l, size, p.proxies(), c)
					}
				}
				if err = errors.Join(err, end()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measureBridge compares gatekit before a server of the client's era with gatekit before one of the
// other.
func (p *plan) measureBridge(l lane, out report) error {
	if !slices.Contains(p.ways, "gatekit") {
		return nil
	}
	ways := []string{"gatekit", "bridged"}
	out.bridgeHead(ways)
	l.workers = 1
	for _, l.route = range p.routes {
		for _, l.era = range p.eras {
			targets, end, err := l.open(append([]string{"direct"}, ways...)...)
			for _, size := range p.sizes {
				if err != nil {
					break
				}
				var c comparison
				c, err = compare(targets, l.workers, func(t *target) message {
					return callEcho(t.tool, size)
				}, p.rounds, p.length)
				if err == nil {
					out.bridge(l, size, ways, c)
				}
			}
			if err = errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureList compares the merged list of several servers with the same list from one: what a
// client would see that had all the tools in one place.
func (p *plan) measureList(l lane, out report) error {
	l.route, l.servers, l.tools = httpHTTP, p.servers, p.toolsOfOne
	out.listHead(l, p.proxies())
	for _, l.era = range p.eras {
		for _, l.workers = range p.at {
			targets, end, err := l.open(append([]string{"direct"}, p.proxies()...)...)
			if err == nil {
				var c comparison
				c, err = compare(targets, l.workers, func(*target) message {
					return listTools
				}, p.rounds, p.length)
				if err == nil {
					out.list(l, p.proxies(), c)
				}
			}
			if err = errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	return nil
}

func buildGatekit(dir, profile string) (string, error) {
	return build(filepath.Join(dir, "gatekit"), func(root string) (string, error) {
		if profile == "" {
			return "", nil
		}
		return profiled(dir, root, profile)
	})
}

// buildUnlogged builds one that records no message.
func buildUnlogged(dir string) (string, error) {
	return build(filepath.Join(dir, "gatekit-unlogged"), func(root string) (string, error) {
		return unlogged(dir, root)
	})
}

// build builds gatekit under an overlay, or as it is where that is none.
func build(path string, overlay func(root string) (string, error)) (string, error) {
	b, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	root := strings.TrimSpace(string(b))
	args := []string{"build", "-o", path}
	over, err := overlay(root)
	if err != nil {
		return "", err
	}
	if over != "" {
		args = append(args, "-overlay", over)
	}
	build := exec.Command("go", append(args, "./cmd/gatekit")...)
	build.Dir = root
	if b, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gatekit: %w\n%s", err, b)
	}
	return path, nil
}

// list is a flag of several values, with commas between them. Sizes may be written 64KiB.
type list[T string | route | era | int] []T

func (l *list[T]) String() string {
	if l == nil {
		return ""
	}
	var words []string
	for _, v := range *l {
		words = append(words, fmt.Sprint(v))
	}
	return strings.Join(words, ",")
}

func (l *list[T]) Set(s string) error {
	*l = nil
	for word := range strings.SplitSeq(s, ",") {
		var v T
		switch v := any(&v).(type) {
		case *string:
			*v = word
		case *route:
			*v = route(word)
		case *era:
			*v = era(word)
		case *int:
			scale := 1
			for unit, n := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
				if number, ok := strings.CutSuffix(word, unit); ok {
					word, scale = number, n
				}
			}
			n, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			*v = n * scale
		}
		*l = append(*l, v)
	}
	return nil
}
