package config

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"gatekit/core/tlsconfig"
)

// Sink is one [[audit.sink]].
type Sink struct {
	// Name is the name of the sink, unique among the sinks. Gatekit stores the progress of the sink
	// under this name, beside the log.
	Name string `toml:"name"`
	// Kind is the kind of the sink: file, stderr, syslog, otlp or webhook.
	Kind string `toml:"kind"`
	// Format is the format of the records: jsonl, ocsf, csv or text. Default: text for stderr,
	// jsonl for the other kinds.
	Format string `toml:"format"`
	// Send holds what is sent: records, checkpoints, or both. Default: records.
	Send []string `toml:"send"`

	// Path is the absolute path of a file sink.
	Path string `toml:"path"`
	// SegmentBytes is the size, in bytes, at which the file of a file sink is renamed and a new
	// file is begun. Default: 64 MiB.
	SegmentBytes int `toml:"segment_bytes"`
	// KeepFiles is how many renamed files of a file sink are kept. Default: 0, which keeps all.
	KeepFiles int `toml:"keep_files"`

	// URL is the address of a syslog, otlp or webhook sink.
	URL string `toml:"url"`
	// Facility is the syslog facility. Default: audit.
	Facility string `toml:"facility"`
	// Protocol is the protocol of an otlp sink: grpc or http. Default: grpc.
	Protocol string `toml:"protocol"`
	// Headers holds headers for every request of an otlp or webhook sink. Default: none.
	Headers map[string]Secret `toml:"headers"`
	// SigningKey is the key that signs the requests of a webhook sink, by the rules of Standard
	// Webhooks. It must have at least 24 bytes. Default: none.
	SigningKey Secret `toml:"signing_key"`
	// CA is the absolute path of a PEM file with the certificates to trust. Default: the
	// certificates that the system trusts.
	CA string `toml:"ca"`
	// Cert is the absolute path of a client certificate. It needs cert_key. Default: none.
	Cert string `toml:"cert"`
	// CertKey is the absolute path of the private key of the client certificate. Default: none.
	CertKey string `toml:"cert_key"`
	// Insecure allows a sink on another machine without TLS. Default: false.
	Insecure bool `toml:"insecure"`
}

func (s *Sink) setDefaults() {
	s.Send, s.SegmentBytes, s.Facility, s.Protocol = []string{"records"}, 64<<20, "audit", "grpc"
}

// String returns the name of the sink. The other fields may hold secrets.
func (s Sink) String() string { return s.Name }

// sinkKind holds the formats and keys that one kind of sink supports.
type sinkKind struct {
	formats []string // the first is the default
	keys    []string // keys other than name, kind, format and send
	schemes []string // allowed in the url; nil when the kind has no url
	example string   // an example of a url
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

// sinkKeys holds the keys that only some kinds of sinks have.
var sinkKeys = []string{"path", "segment_bytes", "keep_files", "url", "facility", "protocol",
	"headers", "signing_key", "ca", "cert", "cert_key", "insecure"}

var facilities = []string{"audit", "auth", "authpriv", "daemon", "user", "local0", "local1",
	"local2", "local3", "local4", "local5", "local6", "local7"}

func (l *loader) checkSinks(a *Audit, n *node, files *auditFiles) {
	names := map[string]bool{}
	for i := range a.Sinks {
		s, n := &a.Sinks[i], n.item(i)
		name := elementName("audit.sink", i, n.lookup("name").raw)
		prefix := join(name, "")
		switch {
		case s.Name == "" && !l.isUnknown(n, "name"):
			l.errorf(n, "%s has no name", name)
		case s.Name != "" && !serverName.MatchString(s.Name):
			l.errorf(n.lookup("name"), `%sname must start with a-z and contain only a-z, 0-9 `+
				`and "-", not %q`, prefix, n.lookup("name").raw)
		case s.Name != "" && names[s.Name]:
			l.errorf(n.lookup("name"), "there are two sinks named %q", n.lookup("name").raw)
		}
		names[s.Name] = true
		kind, ok := sinkKinds[s.Kind]
		if !ok {
			if !n.has("kind") && !l.partial {
				l.errorf(n, `%s has no kind: set it to "file", "stderr", "syslog", "otlp" or `+
					`"webhook"`,
					name)
			}
			l.checkOneOf(&s.Kind, n, name, "kind", "file", "stderr", "syslog", "otlp", "webhook")
			continue
		}
		for _, key := range sinkKeys {
			if n.has(key) && !slices.Contains(kind.keys, key) {
				l.errorf(n.lookup(key), "%s%s does not apply to a sink of kind %q",
					prefix, key, s.Kind)
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
			l.errorf(at, "%ssigning_key must be at least 24 random bytes", prefix)
		}
		l.checkCertificates(s, n, name)
	}
}

func (l *loader) checkSend(s *Sink, n *node, name string, kind sinkKind) {
	at, prefix := n.lookup("send"), join(name, "")
	for i, what := range s.Send {
		item := at.item(i)
		switch {
		case what != "records" && what != "checkpoints":
			if !l.hasErrorAt(item) {
				l.errorf(item, `%ssend[%d] must be "records" or "checkpoints", not %q`, prefix, i,
					item.raw)
			}
		case what == "checkpoints" && kind.schemes == nil:
			l.errorf(item, "%ssend: a sink of kind %q takes only records; to write checkpoints "+
				"to a file, set audit.anchor", prefix, s.Kind)
		}
	}
	if len(s.Send) == 0 && !l.hasErrorAt(at) {
		l.errorf(at, "%ssend is empty: set it to \"records\", \"checkpoints\" or both", prefix)
	}
}

// checkSinkPath checks that no other part of the configuration writes to the file of the sink. A
// sink that wrote to the audit log would send the log to itself.
func (l *loader) checkSinkPath(s *Sink, n *node, name string, files *auditFiles) {
	at, prefix := n.lookup("path"), join(name, "")
	if s.Path == "" {
		switch {
		case l.isUnknown(n, "path"):
		case n.has("path"):
			l.errorf(at, "%spath is empty", prefix)
		default:
			l.errorf(n, "%s has no path", name)
		}
		return
	}
	s.Path = l.absPath(s.Path)
	l.claimFile(files, s.Path, at, prefix+"path")
}

func (l *loader) checkSinkURL(s *Sink, n *node, name string, kind sinkKind) {
	at, prefix := n.lookup("url"), join(name, "")
	switch {
	case l.isUnknown(n, "url"):
		return
	case !n.has("url"):
		l.errorf(n, "%s has no url, such as %q", name, kind.example)
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || !slices.Contains(kind.schemes, u.Scheme) || u.Scheme == "unix" &&
		(u.Host != "" || u.Path == "") || u.Scheme != "unix" && u.Hostname() == "":
		l.errorf(at, "%surl must be a URL such as %q (%s), not %q", prefix, kind.example,
			strings.Join(kind.schemes, ", "), at.raw)
	case u.User != nil:
		l.errorf(at, "%surl contains credentials, which would be logged; put them in headers = "+
			"{ Authorization = \"…\" }", prefix)
	case slices.Contains([]string{"tls", "tcp", "udp"}, u.Scheme) &&
		(u.Path != "" || u.RawQuery != "" || u.Fragment != ""):
		l.errorf(at, "%surl must contain only a scheme, a host and a port", prefix)
	case u.Fragment != "":
		l.errorf(at, "%surl has a fragment, which is never sent", prefix)
	case slices.Contains([]string{"tls", "tcp", "udp"}, u.Scheme) && u.Port() == "":
		l.errorf(at, "%surl has no port; the usual ports are 6514 (tls), 601 (tcp) and 514 (udp)",
			prefix)
	case slices.Contains([]string{"http", "tcp", "udp"}, u.Scheme) && !isLoopback(u.Hostname()) &&
		!s.Insecure && !l.isUnknown(n, "insecure"):
		l.errorf(at, "%surl sends to another machine by %s, without encryption; use %s, or set "+
			"insecure = true if the network is trusted", prefix, u.Scheme,
			kind.schemes[0])
	}
}

func (l *loader) checkCertificates(s *Sink, n *node, name string) {
	prefix := join(name, "")
	for key, path := range map[string]*string{"ca": &s.CA, "cert": &s.Cert,
		"cert_key": &s.CertKey} {
		if *path == "" {
			continue
		}
		*path = l.absPath(*path)
		if _, err := os.Stat(*path); errors.Is(err, fs.ErrNotExist) &&
			!l.hasErrorAt(n.lookup(key)) {
			l.errorf(n.lookup(key), "%s%s: file %q does not exist", prefix, key, n.lookup(key).raw)
		}
	}
	if (s.Cert == "") != (s.CertKey == "") {
		if !l.isUnknown(n, "cert") && !l.isUnknown(n, "cert_key") {
			l.errorf(n, "%s has only one of cert and cert_key: set both or neither", name)
		}
		return
	}
	if at := n.lookup("ca"); s.CA != "" && !l.hasErrorAt(at) {
		l.checkTLSFiles(tlsconfig.Files{CA: s.CA}, at, prefix+"ca")
	}
	if at := n.lookup("cert"); s.Cert != "" && !l.hasErrorAt(at) &&
		!l.hasErrorAt(n.lookup("cert_key")) {
		l.checkTLSFiles(tlsconfig.Files{Cert: s.Cert, Key: s.CertKey}, at, prefix+"cert")
	}
}

// checkTLSFiles reports files that do not contain a certificate or key. It ignores files that this
// user may not read, since a command that only reads the audit log does not need them. A command
// that needs such a file reports the error itself.
func (l *loader) checkTLSFiles(f tlsconfig.Files, at *node, key string) {
	if _, err := f.Load(); err != nil && !errors.Is(err, fs.ErrPermission) {
		l.errorf(at, "%s: %v", key, err)
	}
}
