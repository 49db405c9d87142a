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
)

// route is what the client speaks and what the server speaks.
type route string

const (
	httpHTTP   route = "http-http"
	httpStdio  route = "http-stdio"
	stdioStdio route = "stdio-stdio"
)

func (r route) httpFront() bool { return strings.HasPrefix(string(r), "http-") }
func (r route) httpBack() bool  { return strings.HasSuffix(string(r), "-http") }

// target is one way from the driver to the backend, all its processes running.
type target struct {
	client client
	proxy  *process // nil for the direct way
	tool   string   // what the echo tool is called here
	ends   []func() error
}

func (t *target) close() error {
	var errs []error
	for i := len(t.ends) - 1; i >= 0; i-- {
		errs = append(errs, t.ends[i]())
	}
	return errors.Join(errs...)
}

// lane is what the three targets of one comparison have in common.
type lane struct {
	route    route
	era      era
	workers  int
	servers  int      // how many Gatekit has; the other ways have one with all the tools
	tools    int      // of each server
	streams  bool     // the server grants GET streams
	gatekit  string   // the binary
	unlogged string   // one that records no message
	dir      string   // for configurations and audit logs
	bodies   string   // what the audit log holds of them
	stages   []stages // that ways other than those below have

	profiled bool // the binary writes profiles when it is told to
}

// ways are the targets of a comparison, in the order of the report.
var ways = []string{"direct", "relay", "gatekit"}

// open starts all of the named targets on one backend. They are closed by the answered function,
// also after an error.
func (l lane) open(names ...string) (targets []*target, end func() error, err error) {
	var backend string
	var ends []func() error
	end = func() error {
		var errs []error
		for i := len(ends) - 1; i >= 0; i-- {
			errs = append(errs, ends[i]())
		}
		return errors.Join(errs...)
	}
	if l.route.httpBack() {
		p, err := self("echo", "http")
		if err != nil {
			return nil, end, err
		}
		ends = append(ends, p.stop)
		address, err := p.line()
		if err != nil {
			return nil, end, err
		}
		backend = "http://" + address
	}
	for _, name := range names {
		t := &target{tool: "echo"}
		ends = append(ends, t.close)
		switch name {
		case "direct":
			err = l.direct(t, backend)
		case "relay":
			err = l.relay(t, backend)
		case "gatekit":
			err = l.behindGatekit(t, backend, l.era, stages{})
		case "bridged":
			other := map[era]era{legacy: modern, modern: legacy}
			err = l.behindGatekit(t, backend, other[l.era], stages{})
		default:
			i := slices.IndexFunc(l.stages, func(s stages) bool { return s.way == name })
			err = l.behindGatekit(t, backend, l.era, l.stages[i])
		}
		if err == nil {
			err = shake(t.client, l.era)
		}
		if err != nil {
			return nil, end, fmt.Errorf("%s %s %s: %w", l.route, l.era, name, err)
		}
		targets = append(targets, t)
	}
	return targets, end, nil
}

// oneServer is the URL of a backend that has all the tools of the lane.
func (l lane) oneServer(backend string) string {
	return fmt.Sprintf("%s/tools/%d", backend, l.tools*l.servers)
}

// direct is the driver on the backend itself. The backend of http-stdio is a stdio server, and so
// is its direct way.
func (l lane) direct(t *target, backend string) error {
	if l.route.httpBack() {
		return l.dialHTTP(t, l.oneServer(backend))
	}
	p, err := self("echo", "stdio")
	if err != nil {
		return err
	}
	t.ends = append(t.ends, p.stop)
	l.dialStdio(t, p)
	return nil
}

func (l lane) relay(t *target, backend string) error {
	role := []string{"relay", string(l.route)}
	if l.route.httpBack() {
		role = append(role, l.oneServer(backend))
	}
	p, err := self(role...)
	if err != nil {
		return err
	}
	t.proxy, t.ends = p, append(t.ends, p.stop)
	if !l.route.httpFront() {
		l.dialStdio(t, p)
		return nil
	}
	address, err := p.line()
	if err != nil {
		return err
	}
	return l.dialHTTP(t, "http://"+address+"/mcp")
}

// behindGatekit is the real binary, its audit log on, and names prefixed: what a user gets. To the
// backend it speaks serverEra.
func (l lane) behindGatekit(t *target, backend string, serverEra era, with stages) error {
	dir, err := os.MkdirTemp(l.dir, "gatekit-")
	if err != nil {
		return err
	}
	t.ends = append(t.ends, func() error { return os.RemoveAll(dir) })
	var config bytes.Buffer
	var address string
	if l.route.httpFront() {
		if address, err = freePort(); err != nil {
			return err
		}
		fmt.Fprintf(&config, "[listen]\nhttp = %q\n", address)
	}
	t.tool = "s0__echo"
	for i := range l.servers {
		fmt.Fprintf(&config, "[server.s%d]\nera = %q\n", i, serverEra)
		if l.route.httpBack() {
			kind := fmt.Sprintf("s%d", i)
			if l.streams {
				kind = "streams"
			}
			fmt.Fprintf(&config, "url = %q\n", fmt.Sprintf("%s/tools/%d/%s", backend, l.tools,
				kind))
			continue
		}
		path, err := os.Executable()
		if err != nil {
			return err
		}
		fmt.Fprintf(&config, "command = %q\nargs = [\"echo\", \"stdio\"]\n", path)
	}
	fmt.Fprintf(&config, "[audit]\nfile = %q\nbodies = %q\n", filepath.Join(dir,
		"audit", "gatekit.jsonl"), l.bodies)
	config.WriteString(with.audit + with.tables)
	file := filepath.Join(dir, "gatekit.toml")
	if err := os.WriteFile(file, config.Bytes(), 0o600); err != nil {
		return err
	}
	binary := l.gatekit
	if with.unlogged {
		binary = l.unlogged
	}
	p, err := start([]string{binary, "run", "--config", file})
	if err != nil {
		return err
	}
	t.proxy, t.ends = p, append(t.ends, p.stop)
	if l.profiled {
		t.ends = append(t.ends, p.profile)
	}
	if !l.route.httpFront() {
		l.dialStdio(t, p)
		return nil
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing listens on %s after 10s\n%s", address, p.log())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return l.dialHTTP(t, "http://"+address+"/mcp")
}

func (l lane) dialHTTP(t *target, url string) error {
	c, err := dialHTTP(url, l.era, l.workers)
	if err != nil {
		return err
	}
	t.client, t.ends = c, append(t.ends, c.close)
	return nil
}

func (l lane) dialStdio(t *target, p *process) {
	c := dialStdio(p.stdout, p.stdin, l.era, l.workers)
	t.client, t.ends = c, append(t.ends, c.close)
}

// freePort is an address that nothing listens on at the moment.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
