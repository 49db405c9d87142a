package config

import (
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
)

// checkAdmin has no way to open up: what is told there is told to everybody who asks.
func (l *loader) checkAdmin(c *Admin, n *node) {
	at := n.lookup("http")
	if !n.has("http") || l.hasErrorAt(at) {
		return
	}
	host, ok := splitAddress(c.HTTP)
	switch {
	case !ok:
		l.errorf(at, `admin.http must be an address and port such as "127.0.0.1:7778", not %q`,
			at.raw)
	case !isLoopback(host):
		l.errorf(at, `admin.http = %q is reachable from other machines, and asks nobody who they are; listen on 127.0.0.1, and let something that authenticates pass on what others need`, at.raw)
	}
}

// splitAddress is the host of an address, where it is one with a port.
func splitAddress(s string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(s)
	p, perr := strconv.Atoi(port)
	return host, err == nil && perr == nil && 0 <= p && p <= 65535
}

func (l *loader) checkTelemetry(c *Telemetry, n *node) {
	l.checkOneOf(&c.Protocol, n, "telemetry", "protocol", "grpc", "http")
	if !n.has("url") {
		for _, key := range []string{"protocol", "headers", "ca", "insecure", "metrics", "interval",
			"traces", "sample"} {
			if n.has(key) {
				l.errorf(n.lookup(key), "telemetry.%s is for a collector, and there is no telemetry.url", key)
			}
		}
		return
	}
	l.checkCollector(c, n)
	for key, value := range c.Headers {
		l.checkHeader(key, string(value), n.lookup("headers", key), "telemetry")
	}
	if at := n.lookup("ca"); c.CA != "" && !l.hasErrorAt(at) {
		if c.CA = l.absPath(c.CA); !fileExists(c.CA) {
			l.errorf(at, "telemetry.ca: there is no file %q", at.raw)
		}
	}
	if at := n.lookup("sample"); c.Sample < 0 || c.Sample > 1 || c.Sample != c.Sample {
		l.errorf(at, "telemetry.sample is a share, from 0 to 1")
	}
	if !c.Metrics && !c.Traces {
		l.errorf(n.lookup("url"), "telemetry.url is told nothing: neither telemetry.metrics nor "+
			"telemetry.traces is true")
	}
}

// checkCollector sees that credentials, and what clients do, do not travel through a network in the
// open.
func (l *loader) checkCollector(c *Telemetry, n *node) {
	at := n.lookup("url")
	if l.hasErrorAt(at) {
		return
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) ||
		u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		l.errorf(at, `telemetry.url must be a URL such as "https://collector.example:4317", not %q`,
			at.raw)
	case u.User != nil:
		l.errorf(at, "telemetry.url holds credentials, which end in logs; send them with "+
			"headers = { Authorization = … }")
	case c.Protocol == "grpc" && u.Path != "" && u.Path != "/":
		l.errorf(at, `telemetry.url has a path, which gRPC has no place for; set telemetry.protocol = "http" if the collector takes OTLP over HTTP`)
	case u.Scheme == "http" && !isLoopback(u.Hostname()) && !c.Insecure:
		l.errorf(at, "telemetry.url is on another machine, and not encrypted; use https, or set "+
			"telemetry.insecure = true if the network between is trusted")
	}
}

func fileExists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
