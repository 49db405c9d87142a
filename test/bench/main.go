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
	if isRole, err := runRole(os.Args[1:]); isRole {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	p := newPlan()
	p.addFlags(flag.CommandLine)
	flag.Parse()
	if err := p.run(report{os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runRole runs this binary as one of the other processes of a measurement: backend, plugin, relay,
// link, bare server or bare proxy. isRole reports whether the arguments name a role.
func runRole(args []string) (isRole bool, err error) {
	if len(args) < 2 {
		return false, nil
	}
	switch args[0] + " " + args[1] {
	case "echo stdio":
		return true, serveEchoStdio()
	case "echo http":
		return true, serveEchoHTTP()
	case "plugin allow":
		servePlugin()
		return true, nil
	case "bare server":
		return true, serveBare(args[2])
	case "bare proxy":
		return true, serveBareProxy(args[2], args[3], args[4])
	case "link to":
		return true, serveLink(args[2], args[3])
	case "relay http-http":
		return true, serveRelayHTTP(forwardToHTTP(args[2]))
	case "relay http-stdio":
		forward, err := forwardToStdio(backendCommand())
		if err != nil {
			return true, err
		}
		return true, serveRelayHTTP(forward)
	case "relay stdio-stdio":
		return true, serveRelayStdio(backendCommand())
	}
	return false, nil
}

// backendCommand returns the command that starts the stdio backend.
func backendCommand() []string { return []string{os.Args[0], "echo", "stdio"} }

// plan holds what to measure. The flags of the command set it.
type plan struct {
	parts, targets          listFlag[string]
	routes                  listFlag[route]
	eras                    listFlag[era]
	sizes, workers          listFlag[int]
	rounds                  int
	length                  time.Duration // time for which a target is measured in one round
	calls                   int           // in the part memory
	sessions                int           // idle clients in the parts sessions and principals
	starts                  int           // in the part start
	viewedRate              int           // calls per second in the part viewers
	server                  string        // command of the server in the part start
	gatekit, profile        string        // path of the binary to measure; folder for profiles
	before                  string        // path of an older binary in the part before
	link                    time.Duration // round trip between replicas in the part replicas
	bodies                  string        // setting "bodies" of the audit log
	servers, toolsPerServer int           // servers in the part list, and tools of each server
}

func newPlan() plan {
	return plan{
		parts: listFlag[string]{"calls", "bridge", "list", "definitions", "memory", "sessions",
			"plugins", "policies", "audit", "telemetry", "authentication", "principals",
			"replicas", "scaling", "shared", "viewers", "start"},
		targets:        targetNames,
		routes:         listFlag[route]{httpHTTP, httpStdio, stdioStdio},
		eras:           listFlag[era]{legacy, modern},
		sizes:          listFlag[int]{1 << 10, 64 << 10, 1 << 20},
		workers:        listFlag[int]{1, 32},
		rounds:         9,
		length:         300 * time.Millisecond,
		calls:          10_000,
		sessions:       400,
		starts:         40,
		viewedRate:     5000,
		servers:        10,
		toolsPerServer: 100,
		bodies:         "digest",
	}
}

// addFlags adds a flag for each value of the plan that can be set.
func (p *plan) addFlags(f *flag.FlagSet) {
	f.Var(&p.parts, "parts", "parts of the report")
	f.Var(&p.targets, "targets",
		"direct, relay and gatekit; the parts calls and list always include direct")
	f.Var(&p.routes, "routes", "transports of the client and of the server")
	f.Var(&p.eras, "eras", "legacy (2025-11-25) and modern (2026-07-28)")
	f.Var(&p.sizes, "sizes", "bytes of text in a call")
	f.Var(&p.workers, "workers", "number of concurrent calls")
	f.IntVar(&p.rounds, "rounds", p.rounds, "number of rounds of each case; the report has medians")
	f.DurationVar(&p.length, "for", p.length, "time for which each target is measured in a round")
	f.IntVar(&p.calls, "calls", p.calls, "number of calls of each size before memory is measured")
	f.IntVar(&p.sessions, "sessions", p.sessions, "number of idle sessions, and of idle principals")
	f.IntVar(&p.starts, "starts", p.starts, "number of starts in the part start")
	f.IntVar(&p.viewedRate, "rate", p.viewedRate, "calls per second in the part viewers")
	f.StringVar(&p.server, "server", "",
		"`command` of the stdio server in the part start; by default the backend")
	f.StringVar(&p.gatekit, "gatekit", "",
		"`path` of a gatekit binary; by default ./cmd/gatekit is built")
	f.StringVar(&p.before, "before", "",
		"`path` of an older gatekit binary for the part before")
	f.DurationVar(&p.link, "link", 0, "round trip that a relay adds between replicas in the part "+
		"replicas; 0 is no relay, 1ns is the relay alone")
	f.StringVar(&p.bodies, "bodies", p.bodies,
		"setting `bodies` of gatekit's audit log: digest, none or redacted")
	f.StringVar(&p.profile, "profile", "",
		"`folder` for a CPU and a heap profile of each gatekit process; gatekit is then "+
			"built with a profiler")
}

// shorten makes the plan short enough for a test on a busy machine. The results then mean nothing;
// they only show that every part runs.
func (p *plan) shorten() {
	p.rounds, p.length, p.calls, p.sessions, p.starts = 1, 20*time.Millisecond, 10, 5, 1
	p.servers, p.toolsPerServer = 3, 10
	p.sizes, p.workers = p.sizes[:1], []int{2}
}

// run measures the parts of the plan and prints the report.
func (p *plan) run(out report) (err error) {
	dir, err := os.MkdirTemp("", "gatekit-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if slices.Contains(p.targets, "gatekit") && p.gatekit == "" {
		if p.gatekit, err = buildGatekit(dir, p.profile); err != nil {
			return err
		}
	}
	s := setup{servers: 1, tools: 1, gatekit: p.gatekit, bodies: p.bodies, dir: dir,
		hasProfiler: p.profile != ""}
	for _, part := range p.parts {
		switch part {
		case "calls":
			err = p.measureCalls(s, out)
		case "bridge":
			err = p.measureBridge(s, out)
		case "list":
			err = p.measureList(s, out)
		case "definitions":
			err = p.measureDefinitions(s, out)
		case "memory":
			err = p.measureMemory(s, out)
		case "sessions":
			err = p.measureSessions(s, out)
		case "plugins":
			err = p.measurePlugins(s, out)
		case "policies":
			err = p.measurePolicies(s, out)
		case "audit":
			err = p.measureAudit(s, out)
		case "telemetry":
			err = p.measureTelemetry(s, out)
		case "authentication":
			err = p.measureAuthentication(s, out)
		case "principals":
			err = p.measurePrincipals(s, out)
		case "replicas":
			err = p.measureReplicas(s, out)
		case "before":
			err = p.measureBefore(s, out)
		case "scaling":
			err = p.measureScaling(s, out)
		case "shared":
			err = p.measureShared(s, out)
		case "viewers":
			err = p.measureViewers(s, out)
		case "start":
			err = p.measureStarts(s, out)
		default:
			err = fmt.Errorf("-parts: unknown part %q, want calls, bridge, list, "+
				"definitions, memory, sessions, plugins, policies, audit, telemetry, "+
				"authentication, principals, replicas, scaling, shared, before, viewers or start",
				part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// proxies returns the targets that are proxies.
func (p *plan) proxies() []string {
	return slices.DeleteFunc(slices.Clone(p.targets), func(name string) bool {
		return name == "direct"
	})
}

// measureCalls compares the proxies with the direct connection.
func (p *plan) measureCalls(s setup, out report) error {
	out.callsHeader(p.proxies())
	for _, s.route = range p.routes {
		for _, s.era = range p.eras {
			for _, s.workers = range p.workers {
				targets, end, err := s.open(append([]string{"direct"}, p.proxies()...)...)
				for _, size := range p.sizes {
					if err != nil {
						break
					}
					var c comparison
					c, err = compare(targets, s.workers, func(t *target) message {
						return echoCall(t.tool, size)
					}, p.rounds, p.length)
					if err == nil {
						out.callsRow(s, size, p.proxies(), c)
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

// measureBridge measures gatekit in two cases: with a server of the client's era, and with a server
// of the other era.
func (p *plan) measureBridge(s setup, out report) error {
	if !slices.Contains(p.targets, "gatekit") {
		return nil
	}
	names := []string{"gatekit", "bridged"}
	out.bridgeHeader(names)
	s.workers = 1
	for _, s.route = range p.routes {
		for _, s.era = range p.eras {
			targets, end, err := s.open(append([]string{"direct"}, names...)...)
			for _, size := range p.sizes {
				if err != nil {
					break
				}
				var c comparison
				c, err = compare(targets, s.workers, func(t *target) message {
					return echoCall(t.tool, size)
				}, p.rounds, p.length)
				if err == nil {
					out.bridgeRow(s, size, names, c)
				}
			}
			if err = errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureList compares the merged list of several servers with the same list from one server that
// has all the tools.
func (p *plan) measureList(s setup, out report) error {
	s.route, s.servers, s.tools = httpHTTP, p.servers, p.toolsPerServer
	out.listHeader(s, p.proxies())
	for _, s.era = range p.eras {
		for _, s.workers = range p.workers {
			targets, end, err := s.open(append([]string{"direct"}, p.proxies()...)...)
			if err == nil {
				var c comparison
				c, err = compare(targets, s.workers, func(*target) message {
					return listTools
				}, p.rounds, p.length)
				if err == nil {
					out.listRow(s, p.proxies(), c)
				}
			}
			if err = errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildGatekit builds gatekit in dir, with a profiler when profile names a folder.
func buildGatekit(dir, profile string) (string, error) {
	return build(filepath.Join(dir, "gatekit"), func(root string) (string, error) {
		if profile == "" {
			return "", nil
		}
		return profilerOverlay(dir, root, profile)
	})
}

// buildUnlogged builds a gatekit that records no message.
func buildUnlogged(dir string) (string, error) {
	return build(filepath.Join(dir, "gatekit-unlogged"), func(root string) (string, error) {
		return unloggedOverlay(dir, root)
	})
}

// build builds gatekit at path. The function overlay returns the path of an overlay file for go
// build, or "" if none is needed.
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

// listFlag is a flag with several values, separated by commas. Numbers may have the unit KiB or
// MiB.
type listFlag[T string | route | era | int] []T

func (l *listFlag[T]) String() string {
	if l == nil {
		return ""
	}
	var words []string
	for _, v := range *l {
		words = append(words, fmt.Sprint(v))
	}
	return strings.Join(words, ",")
}

func (l *listFlag[T]) Set(s string) error {
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
