package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Sink is one [[audit.sink]].
type Sink struct {
	Name   string   `toml:"name"`
	Kind   string   `toml:"kind"`
	Format string   `toml:"format"`
	Send   []string `toml:"send"`

	Path         string `toml:"path"` // absolute; of a file
	SegmentBytes int    `toml:"segment_bytes"`
	KeepFiles    int    `toml:"keep_files"` // 0 is all

	URL        string            `toml:"url"` // of the others, but stderr
	Facility   string            `toml:"facility"`
	Protocol   string            `toml:"protocol"`
	Headers    map[string]Secret `toml:"headers"`
	SigningKey Secret            `toml:"signing_key"`
	CA         string            `toml:"ca"`       // absolute, or empty: the system's
	Cert       string            `toml:"cert"`     // absolute, or empty
	CertKey    string            `toml:"cert_key"` // absolute, or empty
	Insecure   bool              `toml:"insecure"`
}

func (s *Sink) setDefaults() {
	s.Send, s.SegmentBytes, s.Facility, s.Protocol = []string{"records"}, 64<<20, "audit", "grpc"
}

// String is the sink's name and nothing that may hold a secret.
func (s Sink) String() string { return s.Name }

// sinkKind says what a sink of that kind can have.
type sinkKind struct {
	formats []string // the first is the default
	keys    []string // beside name, kind, format and send
	schemes []string // of its url
	example string   // of a url
}

var sinkKinds = map[string]sinkKind{
	"file": {formats: []string{"jsonl", "ocsf", "csv", "text"}, keys: []string{"path",
		"segment_bytes", "keep_files"}},
	"stderr": {formats: []string{"text", "jsonl", "ocsf", "csv"}},
	"syslog": {formats: []string{"jsonl", "ocsf", "text"}, keys: []string{"url", "facility", "ca",
		"cert", "cert_key", "insecure"},
		schemes: []string{"tls", "tcp", "udp", "unix"}, example: "tls://siem.example:6514"},
	"otlp": {formats: []string{"jsonl", "ocsf", "text"}, keys: []string{"url",
		"protocol", "headers", "ca", "cert", "cert_key", "insecure"},
		schemes: []string{"https", "http"}, example: "https://collector.example:4317"},
	"webhook": {formats: []string{"jsonl", "ocsf"}, keys: []string{"url", "headers", "signing_key",
		"ca", "cert", "cert_key", "insecure"},
		schemes: []string{"https", "http"}, example: "https://siem.example/hook"},
}

// sinkKeys are those that not every kind has.
var sinkKeys = []string{"path", "segment_bytes", "keep_files", "url", "facility", "protocol",
	"headers", "signing_key", "ca", "cert", "cert_key", "insecure"}

var facilities = []string{"audit", "auth", "authpriv", "daemon", "user", "local0", "local1",
	"local2", "local3", "local4", "local5", "local6", "local7"}

func (l *loader) checkSinks(a *Audit, n *node, files *auditFiles) {
	names := map[string]bool{}
	for i := range a.Sinks {
		s, n := &a.Sinks[i], n.item(i)
		name := fmt.Sprintf("audit.sink[%d]", i)
		switch {
		case s.Name == "" && !l.hasErrorAt(n.lookup("name")):
			l.errorf(n, "%s has no name", name)
		case s.Name != "" && !serverName.MatchString(s.Name):
			l.errorf(n.lookup("name"), `%s.name must begin with a-z and hold only a-z, 0-9 and "-", not %q`, name, n.lookup("name").raw)
		case s.Name != "" && names[s.Name]:
			l.errorf(n.lookup("name"), "there are two sinks named %q", n.lookup("name").raw)
		}
		names[s.Name] = true
		kind, ok := sinkKinds[s.Kind]
		if !ok {
			if !n.has("kind") {
				l.errorf(n, `%s has no kind: write "file", "stderr", "syslog", "otlp" or "webhook"`,
					name)
			}
			l.checkOneOf(&s.Kind, n, name, "kind", "file", "stderr", "syslog", "otlp", "webhook")
			continue
		}
		for _, key := range sinkKeys {
			if n.has(key) && !slices.Contains(kind.keys, key) {
				l.errorf(n.lookup(key), "%s.%s is not for a sink of the kind %q", name, key, s.Kind)
			}
		}
		if s.Format == "" {
			s.Format = kind.formats[0]
		}
		l.checkOneOf(&s.Format, n, name, "format", kind.formats...)
		l.checkSend(s, n, name, kind)
		if s.Kind == "file" {
			l.checkSinkPath(s, n, name, files)
		}
		if kind.schemes != nil {
			l.checkSinkURL(s, n, name, kind)
		}
		l.checkOneOf(&s.Facility, n, name, "facility", facilities...)
		l.checkOneOf(&s.Protocol, n, name, "protocol", "grpc", "http")
		for key, value := range s.Headers {
			l.checkHeader(key, string(value), n.lookup("headers", key), name)
		}
		if at := n.lookup("signing_key"); n.has("signing_key") && len(s.SigningKey) < 24 &&
			!l.hasErrorAt(at) {
			l.errorf(at, "%s.signing_key must be at least 24 bytes of randomness", name)
		}
		l.checkCertificates(s, n, name)
	}
}

func (l *loader) checkSend(s *Sink, n *node, name string, kind sinkKind) {
	at := n.lookup("send")
	for i, what := range s.Send {
		item := at.item(i)
		switch {
		case what != "records" && what != "checkpoints":
			if !l.hasErrorAt(item) {
				l.errorf(item, `%s.send[%d] must be "records" or "checkpoints", not %q`, name, i,
					item.raw)
			}
		case what == "checkpoints" && kind.schemes == nil:
			l.errorf(item, "%s.send: a sink of the kind %q takes records alone; for a file of "+
				"checkpoints there is audit.anchor", name, s.Kind)
		}
	}
	if len(s.Send) == 0 && !l.hasErrorAt(at) {
		l.errorf(at, "%s.send is empty: there is nothing to send", name)
	}
}

// checkSinkPath sees that no two write to one file: the log would be sent into itself.
func (l *loader) checkSinkPath(s *Sink, n *node, name string, files *auditFiles) {
	at := n.lookup("path")
	if s.Path == "" {
		if !n.has("path") {
			l.errorf(n, "%s has no path", name)
		} else if !l.hasErrorAt(at) {
			l.errorf(at, "%s.path is empty", name)
		}
		return
	}
	s.Path = l.absPath(s.Path)
	l.claimFile(files, s.Path, at, name+".path")
}

func (l *loader) checkSinkURL(s *Sink, n *node, name string, kind sinkKind) {
	at := n.lookup("url")
	if !n.has("url") {
		l.errorf(n, "%s has no url, such as %q", name, kind.example)
		return
	}
	if l.hasErrorAt(at) {
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || !slices.Contains(kind.schemes, u.Scheme) || u.Scheme == "unix" &&
		(u.Host != "" || u.Path == "") || u.Scheme != "unix" && u.Hostname() == "":
		l.errorf(at, "%s.url must be a URL such as %q (%s), not %q", name, kind.example,
			strings.Join(kind.schemes, ", "), at.raw)
	case u.User != nil:
		l.errorf(at, "%s.url holds credentials, which end in logs; send them with headers = { "+
			"Authorization = … }", name)
	case u.Fragment != "" || slices.Contains([]string{"tls", "tcp", "udp"}, u.Scheme) &&
		(u.Path != "" || u.RawQuery != ""):
		l.errorf(at, "%s.url has more than a host and a port", name)
	case slices.Contains([]string{"tls", "tcp", "udp"}, u.Scheme) && u.Port() == "":
		l.errorf(at, "%s.url has no port; usual are 6514 for tls, 601 for tcp and 514 for udp",
			name)
	case slices.Contains([]string{"http", "tcp", "udp"}, u.Scheme) && !isLoopback(u.Hostname()) &&
		!s.Insecure:
		l.errorf(at, "%s.url: others on the way can read and change what goes to another "+
			"machine by %s; use %s, or set insecure = true if the way is safe", name, u.Scheme,
			kind.schemes[0])
	}
}

func (l *loader) checkCertificates(s *Sink, n *node, name string) {
	for key, path := range map[string]*string{"ca": &s.CA, "cert": &s.Cert,
		"cert_key": &s.CertKey} {
		if *path == "" {
			continue
		}
		*path = l.absPath(*path)
		if _, err := os.Stat(*path); errors.Is(err, fs.ErrNotExist) && !l.hasErrorAt(n.lookup(key)) {
			l.errorf(n.lookup(key), "%s.%s: there is no file %q", name, key, n.lookup(key).raw)
		}
	}
	if (s.Cert == "") != (s.CertKey == "") {
		l.errorf(n, "%s has one of cert and cert_key: a certificate needs both", name)
	}
}
