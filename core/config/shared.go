package config

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"gatekit/core/tlsconfig"
)

// Shared is [shared]: the Valkey or Redis server with what replicas know together.
type Shared struct {
	// URL is the address of the server's primary: rediss://HOST:PORT/DATABASE (with TLS) or, on the
	// loopback interface only, redis://HOST:PORT/DATABASE. valkeys and valkey mean the same.
	URL string `toml:"url"`
	// User is the user at the server. Default: none, which is the user default.
	User string `toml:"user"`
	// Password is the password of the user. Default: none.
	Password Secret `toml:"password"`
	// CA is the absolute path of a PEM file with certificates that sign the server's. Default:
	// those that the system trusts.
	CA string `toml:"ca"`
	// Prefix begins the names of all keys, so that others can use the server, too. Replicas of one
	// cluster have the same. Default: gatekit:.
	Prefix string `toml:"prefix"`
	// Copies is how many replicas of the server must have a label, an approval, a stop, a login or
	// a revocation before what needs it goes on, at most 10. Default: none, which does not wait.
	Copies int `toml:"copies"`
	// Timeout bounds each request to the server. Default: 50ms.
	Timeout time.Duration `toml:"timeout"`
	// Lost selects what follows when the server has lost what it knew: taint (sessions have the
	// label lost) or deny (messages of sessions whose labels or counts a policy reads are denied).
	// Default: taint.
	Lost string `toml:"lost"`
	// Limits selects what the plugin limits does with what it counts while the server is not
	// available: deny, or local (each replica counts for itself, with the limits divided by the
	// number of cluster.replicas, and at least 1 at once). Default: deny.
	Limits string `toml:"limits"`
}

func (s *Shared) setDefaults() {
	s.Prefix, s.Timeout, s.Lost, s.Limits = "gatekit:", 50*time.Millisecond, "taint", "deny"
}

// Bounds of [shared].
const (
	maxSharedCopies  = 10
	minSharedTimeout = time.Millisecond
	maxSharedTimeout = 5 * time.Second
	maxSharedPrefix  = 100
	defaultRedisPort = "6379"
)

// Server returns where the server is: an address as host:port, whether the connection is
// encrypted, and the number of the database.
func (s *Shared) Server() (address string, encrypted bool, database int) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "", true, 0 // Load refuses it
	}
	port := u.Port()
	if port == "" {
		port = defaultRedisPort
	}
	database, _ = strconv.Atoi(strings.TrimPrefix(u.Path, "/"))
	return net.JoinHostPort(u.Hostname(), port), u.Scheme == "rediss" || u.Scheme == "valkeys",
		database
}

// TLS returns the files of the certificates.
func (s *Shared) TLS() tlsconfig.Files { return tlsconfig.Files{CA: s.CA} }

func (l *loader) checkShared(s *Shared, c *Config, root *node) {
	n := root.lookup("shared")
	complete := !l.partial
	switch at := n.lookup("url"); {
	case s.URL == "" && !l.isUnknown(n, "url") && complete:
		l.errorf(n, `shared.url is missing, such as "rediss://valkey.internal:6379"`)
	case s.URL != "" && !l.hasErrorAt(at):
		l.checkSharedURL(s, n)
	}
	if s.User != "" && s.Password == "" && !l.isUnknown(n, "password") && complete {
		l.errorf(n.lookup("user"), "shared.user needs shared.password")
	}
	if at := n.lookup("prefix"); !l.hasErrorAt(at) && (s.Prefix == "" ||
		len(s.Prefix) > maxSharedPrefix || strings.ContainsFunc(s.Prefix, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`{}*?[]\`, r)
	})) {
		l.errorf(at, `shared.prefix must have 1 to %d letters, digits and signs other than `+
			`{}*?[]\, such as "gatekit:prod:", not %q`, maxSharedPrefix, at.raw)
	}
	if at := n.lookup("copies"); s.Copies > maxSharedCopies &&
		!l.hasErrorAt(at) {
		l.errorf(at, "shared.copies must be at most %d", maxSharedCopies)
	}
	if at := n.lookup("timeout"); (s.Timeout < minSharedTimeout ||
		s.Timeout > maxSharedTimeout) && !l.hasErrorAt(at) {
		l.errorf(at, "shared.timeout must be from %v to %v", minSharedTimeout, maxSharedTimeout)
	}
	l.checkOneOf(&s.Lost, n, "shared", "lost", "taint", "deny")
	l.checkOneOf(&s.Limits, n, "shared", "limits", "deny", "local")
	if s.Limits == "local" && (c.Cluster == nil || len(c.Cluster.Replicas) == 0) && complete &&
		!l.isUnknown(root.lookup("cluster"), "replicas") {
		l.errorf(n.lookup("limits"), `shared.limits = "local" needs cluster.replicas, the names `+
			"of all replicas: each of them counts its part of a limit")
	}
	if complete && c.Listen.StateKey == "" && !l.isUnknown(root.lookup("listen"), "state_key") {
		l.errorf(n, "[shared] needs listen.state_key, the same in all replicas: it encrypts what "+
			"they share")
	}
}

// checkSharedURL checks shared.url and shared.ca.
func (l *loader) checkSharedURL(s *Shared, n *node) {
	at := n.lookup("url")
	u, err := url.Parse(s.URL)
	database := ""
	if err == nil {
		database = strings.TrimPrefix(u.Path, "/")
	}
	number, errDatabase := strconv.Atoi("0" + database)
	switch {
	case err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" ||
		u.Opaque != "" || errDatabase != nil || number > 1<<20:
		l.errorf(at, `shared.url must be a URL such as "rediss://valkey.internal:6379/0"`)
		return
	case u.User != nil:
		l.errorf(at, "shared.url has a user or a password: they belong into shared.user and "+
			"shared.password")
		return
	}
	switch u.Scheme {
	case "rediss", "valkeys":
		if s.CA != "" {
			s.CA = l.absPath(s.CA)
			l.checkTLSFiles(s.TLS(), n, "shared")
		}
	case "redis", "valkey":
		if !isLoopback(u.Hostname()) {
			l.errorf(at, "shared.url is not encrypted, and the server is on another machine: "+
				"whoever is between could remove labels, approvals and stops; use rediss://")
		} else if s.CA != "" {
			l.errorf(n.lookup("ca"), "shared.ca needs an encrypted shared.url: use rediss://")
		}
	default:
		l.errorf(at, "shared.url must begin with rediss:// or redis://, not %s://", u.Scheme)
	}
}
