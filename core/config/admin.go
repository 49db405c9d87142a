package config

import (
	"errors"
	"io/fs"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"

	"gatekit/core/tlsconfig"
)

// checkAdmin checks the address of the admin endpoint. No setting allows an address that other
// machines can reach, because the endpoint does not authenticate clients.
func (l *loader) checkAdmin(c *Admin, n *node) {
	l.checkOneOf(&c.Console, n, "admin", "console", "off", "read", "approve")
	if n.has("console") && c.Console != "off" && !n.has("http") && !l.partial &&
		!l.isUnknown(n, "console") {
		l.errorf(n.lookup("console"), "admin.console needs admin.http, which is not set")
	}
	at := n.lookup("http")
	if token := n.lookup("token"); n.has("token") && !l.hasErrorAt(token) {
		switch {
		case len(c.Token) < 32:
			l.errorf(token, "admin.token must be at least 32 random bytes")
		case !n.has("http") && !l.partial:
			l.errorf(token, "admin.token needs admin.http, which is not set")
		}
	}
	if !n.has("http") || l.hasErrorAt(at) {
		return
	}
	host, ok := splitAddress(c.HTTP)
	switch {
	case !ok:
		l.errorf(at, `admin.http must be an address and port such as "127.0.0.1:7778", not %q`,
			at.raw)
	case !isLoopback(host):
		l.errorf(at, `admin.http = %q can be reached from other machines, and clients are not `+
			`authenticated; listen on 127.0.0.1, and put a proxy that authenticates in front of it`,
			at.raw)
	}
}

// splitAddress returns the host of an address, and reports whether the address has a valid port.
func splitAddress(s string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(s)
	p, perr := strconv.Atoi(port)
	return host, err == nil && perr == nil && 0 <= p && p <= 65535
}

// checkStop makes the path of the file that stops all traffic absolute.
func (l *loader) checkStop(c *Stop, n *node) {
	at := n.lookup("file")
	switch {
	case !n.has("file") || l.hasErrorAt(at):
	case c.File == "":
		l.errorf(at, "stop.file must name a file; leave it out if no file stops the traffic")
	default:
		c.File = l.absPath(c.File)
	}
}

func (l *loader) checkTelemetry(c *Telemetry, n *node) {
	l.checkOneOf(&c.Protocol, n, "telemetry", "protocol", "grpc", "http")
	if !n.has("url") {
		for _, key := range []string{"protocol", "headers", "ca", "insecure", "metrics", "interval",
			"traces", "sample"} {
			if n.has(key) && !l.partial {
				l.errorf(n.lookup(key), "telemetry.%s needs telemetry.url, which is not set", key)
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
			l.errorf(at, "telemetry.ca: file %q does not exist", at.raw)
		} else {
			l.checkTLSFiles(tlsconfig.Files{CA: c.CA}, at, "telemetry.ca")
		}
	}
	if at := n.lookup("sample"); c.Sample < 0 || c.Sample > 1 || math.IsNaN(c.Sample) {
		l.errorf(at, "telemetry.sample must be between 0 and 1")
	}
	if !c.Metrics && !c.Traces && !l.isUnknown(n, "traces") {
		l.errorf(n.lookup("url"), "nothing is sent to telemetry.url: telemetry.metrics and "+
			"telemetry.traces are both false")
	}
}

// checkCollector checks the URL of the collector. It refuses to send credentials and measurements
// over a network without encryption, unless telemetry.insecure is set.
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
		l.errorf(at, "telemetry.url contains credentials, which would be logged; put them in "+
			"headers = { Authorization = \"…\" }")
	case c.Protocol == "grpc" && u.Path != "" && u.Path != "/" && !l.isUnknown(n, "protocol"):
		l.errorf(at, `telemetry.url has a path, which gRPC does not use; set telemetry.protocol `+
			`= "http" for OTLP over HTTP`)
	case u.Scheme == "http" && !isLoopback(u.Hostname()) && !c.Insecure &&
		!l.isUnknown(n, "insecure"):
		l.errorf(at, "telemetry.url sends to another machine without encryption; use https, or "+
			"set telemetry.insecure = true if the network is trusted")
	}
}

// fileExists reports whether a file exists. It also returns true if the file cannot be checked.
func fileExists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
