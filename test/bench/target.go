//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatekit/test/peers"
)

// route is a pair of transports: the transport of the client and the transport of the server.
type route string

const (
	httpHTTP   route = "http-http"
	httpStdio  route = "http-stdio"
	stdioStdio route = "stdio-stdio"
)

func (r route) hasHTTPClient() bool { return strings.HasPrefix(string(r), "http-") }
func (r route) hasHTTPServer() bool { return strings.HasSuffix(string(r), "-http") }

// target is a connection from the client to the backend, direct or through a proxy. The processes
// of a target are running.
type target struct {
	client  client
	proxy   *process       // nil for the direct connection
	others  []*process     // other processes through which calls go; nil for most targets
	tool    string         // the exposed name of the echo tool
	config  string         // file of Gatekit's configuration; "" for other proxies
	closers []func() error // in the order of opening; close calls them in reverse
}

func (t *target) close() error {
	var errs []error
	for i := len(t.closers) - 1; i >= 0; i-- {
		errs = append(errs, t.closers[i]())
	}
	return errors.Join(errs...)
}

// setup holds the settings that all targets of a comparison share.
type setup struct {
	route   route
	era     era
	workers int
	// number of Gatekit's servers; the other targets have one server with all tools
	servers         int
	tools           int       // number of tools of each server
	streams         bool      // the server has GET streams
	newItems        bool      // the first server's list has a new tool each time
	gatekit         string    // path of the gatekit binary
	unloggedGatekit string    // path of the gatekit binary that records no message
	dir             string    // for configurations and audit logs
	bodies          string    // setting "bodies" of the audit log
	variants        []variant // the variants that open can start, by their names
	hasProfiler     bool      // the gatekit binary writes profiles on SIGUSR1
}

// targetNames are the targets of most comparisons, in the order of the report. The other targets
// are "bridged" and the variants.
var targetNames = []string{"direct", "relay", "gatekit"}

// open starts the named targets, which share one backend. end closes the targets; the caller must
// call it even after an error.
func (s setup) open(names ...string) (targets []*target, end func() error, err error) {
	var backend string
	var closers []func() error
	end = func() error {
		var errs []error
		for i := len(closers) - 1; i >= 0; i-- {
			errs = append(errs, closers[i]())
		}
		return errors.Join(errs...)
	}
	if s.route.hasHTTPServer() {
		p, err := startSelf("echo", "http")
		if err != nil {
			return nil, end, err
		}
		closers = append(closers, p.stop)
		address, err := p.firstLine()
		if err != nil {
			return nil, end, err
		}
		backend = "http://" + address
	}
	for _, name := range names {
		t := &target{tool: "echo"}
		closers = append(closers, t.close)
		switch name {
		case "direct":
			err = s.openDirect(t, backend)
		case "relay":
			err = s.openRelay(t, backend)
		case "gatekit":
			err = s.openGatekit(t, backend, s.era, variant{})
		case "bridged":
			other := map[era]era{legacy: modern, modern: legacy}
			err = s.openGatekit(t, backend, other[s.era], variant{})
		default:
			i := slices.IndexFunc(s.variants, func(v variant) bool { return v.name == name })
			err = s.openGatekit(t, backend, s.era, s.variants[i])
		}
		if err == nil {
			err = handshake(t.client, s.era)
		}
		if err != nil {
			return nil, end, fmt.Errorf("%s %s %s: %w", s.route, s.era, name, err)
		}
		targets = append(targets, t)
	}
	return targets, end, nil
}

// singleServerURL returns the URL of a backend that has all the tools of the setup.
func (s setup) singleServerURL(backend string) string {
	return fmt.Sprintf("%s/tools/%d", backend, s.tools*s.servers)
}

// openDirect connects the client to the backend. For http-stdio the backend is a stdio server, and
// the direct connection is stdio.
func (s setup) openDirect(t *target, backend string) error {
	if s.route.hasHTTPServer() {
		return s.dialHTTP(t, s.singleServerURL(backend))
	}
	p, err := startSelf("echo", "stdio")
	if err != nil {
		return err
	}
	t.closers = append(t.closers, p.stop)
	s.dialStdio(t, p)
	return nil
}

// openRelay starts the relay and connects the client to it.
func (s setup) openRelay(t *target, backend string) error {
	role := []string{"relay", string(s.route)}
	if s.route.hasHTTPServer() {
		role = append(role, s.singleServerURL(backend))
	}
	p, err := startSelf(role...)
	if err != nil {
		return err
	}
	t.proxy, t.closers = p, append(t.closers, p.stop)
	if !s.route.hasHTTPClient() {
		s.dialStdio(t, p)
		return nil
	}
	address, err := p.firstLine()
	if err != nil {
		return err
	}
	return s.dialHTTP(t, "http://"+address+"/mcp")
}

// openGatekit starts the gatekit binary and connects the client to it. The audit log is on and
// names have prefixes, as in production. Gatekit's servers are of the era serverEra.
func (s setup) openGatekit(t *target, backend string, serverEra era, v variant) error {
	dir, err := os.MkdirTemp(s.dir, "gatekit-")
	if err != nil {
		return err
	}
	t.closers = append(t.closers, func() error { return os.RemoveAll(dir) })
	var config bytes.Buffer
	var address string
	if s.route.hasHTTPClient() {
		if address, err = freeAddress(); err != nil {
			return err
		}
		fmt.Fprintf(&config, "[listen]\nhttp = %q\n%s", address, v.listenKeys)
	}
	t.tool = "s0__echo"
	for i := range s.servers {
		fmt.Fprintf(&config, "[server.s%d]\nera = %q\n", i, serverEra)
		if s.route.hasHTTPServer() {
			lastSegment := fmt.Sprintf("s%d", i)
			if s.streams {
				lastSegment = "streams"
			} else if s.newItems && i == 0 {
				lastSegment = newItems
			}
			fmt.Fprintf(&config, "url = %q\n", fmt.Sprintf("%s/tools/%d/%s", backend, s.tools,
				lastSegment))
			continue
		}
		path, err := os.Executable()
		if err != nil {
			return err
		}
		fmt.Fprintf(&config, "command = %q\nargs = [\"echo\", \"stdio\"]\n", path)
	}
	fmt.Fprintf(&config, "[audit]\nfile = %q\nbodies = %q\n", filepath.Join(dir,
		"audit", "gatekit.jsonl"), s.bodies)
	config.WriteString(v.auditKeys + v.tables)
	file := filepath.Join(dir, "gatekit.toml")
	if err := os.WriteFile(file, config.Bytes(), 0o600); err != nil {
		return err
	}
	binary := s.gatekit
	if v.unlogged {
		binary = s.unloggedGatekit
	}
	if v.binary != "" {
		binary = v.binary
	}
	p, err := startProcess([]string{binary, "run", "--config", file}, v.env...)
	if err != nil {
		return err
	}
	t.proxy, t.config, t.closers = p, file, append(t.closers, p.stop)
	if s.hasProfiler {
		t.closers = append(t.closers, p.writeProfiles)
	}
	if !s.route.hasHTTPClient() {
		s.dialStdio(t, p)
		return nil
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("gatekit does not listen on %s after 10s\n%s", address,
				p.stderrText())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return s.dialHTTPWithToken(t, "http://"+address+"/mcp", v.token)
}

func (s setup) dialHTTP(t *target, url string) error { return s.dialHTTPWithToken(t, url, "") }

func (s setup) dialHTTPWithToken(t *target, url, token string) error {
	c, err := dialHTTP(url, s.era, s.workers)
	if err != nil {
		return err
	}
	c.token = token
	t.client, t.closers = c, append(t.closers, c.close)
	return nil
}

func (s setup) dialStdio(t *target, p *process) {
	c := dialStdio(p.stdout, p.stdin, s.era, s.workers)
	t.client, t.closers = c, append(t.closers, c.close)
}

// freeAddress returns a loopback address with a free port. It stays reserved for the processes of
// this one until this one ends.
func freeAddress() (string, error) {
	address, _, err := peers.Reserve()
	return address, err
}
