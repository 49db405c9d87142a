package config

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// check reports values that are not allowed, and makes paths absolute. Errors quote values as the
// file contains them.
func (l *loader) check(c *Config, root *node) {
	l.checkListen(&c.Listen, root.lookup("listen"))
	if c.Cluster != nil {
		l.checkCluster(c.Cluster, &c.Listen, root)
	}
	if c.Shared != nil {
		l.checkShared(c.Shared, c, root)
	}
	l.hasDocument = c.Listen.ClientDocumentURL() != "" ||
		l.isUnknown(root.lookup("listen"), "public_url")
	for i := range c.Servers {
		l.checkServer(&c.Servers[i], root.lookup("server", c.Servers[i].Name))
	}
	l.checkExchanges(c, root)
	l.checkEnvTokens(c, root)
	if len(c.Servers) == 0 && !l.partial && len(l.errs) == 0 {
		l.errorf(root, "no server configured: add a [server.NAME] with a command or a url")
	}

	l.checkTokens(&c.Tokens, root.lookup("tokens"))

	names := root.lookup("names")
	l.checkOneOf(&c.Names.Prefix, names, "names", "prefix", "always", "never")
	l.checkOneOf(&c.Names.Resources, names, "names", "resources", "scheme", "prefix", "transparent")
	if c.Names.Prefix == "never" && len(c.Servers) > 1 {
		l.errorf(names.lookup("prefix"),
			`names.prefix = "never" needs a single server, and there are %d servers, whose tools `+
				`could have the same names`, len(c.Servers))
	}

	if c.Pins != nil {
		l.checkPins(c.Pins, root.lookup("pins"))
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		if n := root.lookup("server", s.Name); s.Pins != nil {
			l.checkServerPins(s, n, "server."+s.Name)
			if c.Pins == nil && !l.partial {
				l.errorf(n.lookup("pins"), "server.%s.pins needs a table [pins]: without it, "+
					"gatekit run does not read the lock file", s.Name)
			}
		}
	}
	l.checkCanaries(c, root)
	l.checkPlugins(c, root)
	if c.Policy != nil {
		l.checkPolicy(c.Policy, root.lookup("policy"))
		if c.Policy.Labels == "principal" && c.Listen.HTTP != "" && !c.Listen.Auth.Required() &&
			!l.isUnknown(root.lookup("listen"), "auth") {
			l.errorf(root.lookup("policy", "labels"), `policy.labels = "principal" does not work `+
				`with listen.http: HTTP clients are not authenticated, so all of them are one `+
				`principal; use "session"`)
		}
	}

	audit := root.lookup("audit")
	l.checkOneOf(&c.Audit.Bodies, audit, "audit", "bodies", "none", "digest", "redacted")
	l.checkOneOf(&c.Audit.Durability, audit, "audit", "durability", "write", "fsync", "async")
	if c.Audit.File == "" && !l.hasErrorAt(audit.lookup("file")) {
		l.errorf(audit.lookup("file"), "audit.file must name a file: every message is recorded")
	}
	l.checkSinks(&c.Audit, audit.lookup("sink"), l.checkAuditFiles(&c.Audit, audit))
	l.checkWitnesses(&c.Audit, audit.lookup("witness"))
	l.checkAdmin(&c.Admin, root.lookup("admin"))
	l.checkStop(&c.Stop, root.lookup("stop"))
	l.checkTelemetry(&c.Telemetry, root.lookup("telemetry"))
	l.checkOneOf(&c.Log.Format, root.lookup("log"), "log", "format", "text", "json")
	l.checkOneOf(&c.Log.Level, root.lookup("log"), "log", "level", "debug", "info", "warn", "error")
	l.checkOneOf(&c.Deny.ToolCalls, root.lookup("deny"), "deny", "tool_calls", "error", "result")
}

// hasErrorAt reports whether an error has been reported at the position of n. Checks call it so
// that each value gets only one error. For example, if the variable of ${env:NAME} is not set, the
// value is not also reported as empty.
func (l *loader) hasErrorAt(n *node) bool {
	at := l.doc.position(n.offset)
	return slices.ContainsFunc(l.errs, func(e *Error) bool { return e.Position == at })
}

// isUnknown reports whether it is not known what the file sets a key of n to: an error has been
// reported for the value, or a line with a syntax error may set the key. Checks that blame another
// key for the value, or n for the absence of the key, call it.
func (l *loader) isUnknown(n *node, key string) bool {
	if !n.has(key) {
		return l.partial
	}
	return l.hasErrorAt(n.lookup(key))
}

// checkOneOf reports an error when the value of a key is not one of the allowed values.
func (l *loader) checkOneOf(value *string, table *node, name, key string, allowed ...string) {
	if !table.has(key) || slices.Contains(allowed, *value) || l.hasErrorAt(table.lookup(key)) {
		return
	}
	l.errorf(table.lookup(key), "%s must be one of %s, not %q", join(name, key),
		strings.Join(quoteAll(allowed), ", "), table.lookup(key).raw)
}

func quoteAll(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strconv.Quote(w)
	}
	return out
}

func (l *loader) checkListen(c *Listen, n *node) {
	if !n.has("stdio") {
		c.Stdio = !n.has("http")
	}
	if n.has("http") && !l.hasErrorAt(n.lookup("http")) {
		l.checkAddress(c, n)
	}
	if !c.Stdio && !n.has("http") && !l.partial {
		l.errorf(n.lookup("stdio"), "nothing to listen on: listen.stdio is false and listen.http "+
			"is not set")
	}
	if c.SSE && !n.has("http") && !l.partial {
		l.errorf(n.lookup("sse"), "listen.sse needs listen.http, which is not set")
	}
	if c.Drain > 0 && !n.has("http") && !l.partial {
		l.errorf(n.lookup("drain"), "listen.drain needs listen.http, which is not set: it is for "+
			"clients that a balancer sends here")
	}
	l.checkPath(c, n)
	l.checkAuthentication(c, n)
	for i, o := range c.AllowedOrigins {
		u, err := url.Parse(o)
		if at := n.lookup("allowed_origins").item(i); err != nil || u.Scheme == "" ||
			u.Host == "" ||
			u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			l.errorf(at, `listen.allowed_origins[%d] must be an origin such as `+
				`"https://app.example", not %q`, i, at.raw)
		}
	}
	for i, h := range c.AllowedHosts {
		if at := n.lookup("allowed_hosts").item(i); h == "" || strings.ContainsAny(h, "/*@? ") {
			l.errorf(at, `listen.allowed_hosts[%d] must be a host such as "gatekit.example" or `+
				`"gatekit.example:7777", not %q`, i, at.raw)
		}
	}
	if n.has("state_key") && len(c.StateKey) < 32 && !l.hasErrorAt(n.lookup("state_key")) {
		l.errorf(n.lookup("state_key"), "listen.state_key must be at least 32 random bytes")
	}
}

func (l *loader) checkAddress(c *Listen, n *node) {
	at := n.lookup("http")
	host, ok := splitAddress(c.HTTP)
	if !ok {
		l.errorf(at, `listen.http must be an address and port such as "127.0.0.1:7777", not %q`,
			at.raw)
		return
	}
	switch {
	case isLoopback(host) || l.partial || l.isUnknown(n, "auth"):
	case !c.Auth.hasCredentials():
		l.errorf(at, `listen.http = %q can be reached from other machines, and clients are not `+
			"authenticated; listen on 127.0.0.1, or add [listen.auth]", at.raw)
	case c.TLS == nil && !strings.HasPrefix(c.PublicURL, "https://") && !l.isUnknown(n, "tls") &&
		!l.isUnknown(n, "public_url"):
		l.errorf(at, `listen.http = %q can be reached from other machines, and credentials would `+
			"be sent without encryption; set listen.tls, or set listen.public_url to the https "+
			"URL of the proxy that encrypts", at.raw)
	}
}

// isLoopback reports whether only this machine can reach an address. It does not look up names, as
// the address of a name may change. The name localhost counts as a loopback address.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (l *loader) checkPath(c *Listen, n *node) {
	at := n.lookup("path")
	if l.hasErrorAt(at) {
		return
	}
	if u, err := url.Parse(c.Path); err != nil || !strings.HasPrefix(c.Path, "/") ||
		u.Path != c.Path || strings.ContainsAny(c.Path, "{} ") {
		l.errorf(at, `listen.path must be a plain path such as "/mcp", not %q`, at.raw)
	} else if c.SSE && (c.Path == "/sse" || c.Path == "/messages") {
		l.errorf(at, "listen.path = %q is a path that listen.sse uses", at.raw)
	}
}

var (
	serverName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	methodName = regexp.MustCompile(`^[^*\s]+(/\*)?$`)
	headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	envName    = regexp.MustCompile(`^[^=\x00]+$`)
)

// reservedHeaders holds the headers that only Gatekit itself may set. A different value in the
// configuration would break the protocol.
var reservedHeaders = []string{"accept", "accept-encoding", "connection", "content-encoding",
	"content-length", "content-type", "cookie", "expect", "host",
	"last-event-id", "te", "trailer", "transfer-encoding", "upgrade"}

func (l *loader) checkServer(s *Server, n *node) {
	name := "server." + s.Name
	if !serverName.MatchString(s.Name) {
		l.errorf(n, `%q is not a valid server name: it must start with a-z and contain only a-z, `+
			`0-9 and "-", since it becomes part of names and URIs`, s.Name)
	}
	hasCommand, hasURL := n.has("command"), n.has("url")
	switch {
	case hasCommand && hasURL:
		l.errorf(n.lookup("url"), "[%s] has both a command and a url: remove one of them", name)
	case !hasCommand && !hasURL && !l.partial:
		// A misspelt key has been reported already. It is not also reported as missing.
		if !slices.ContainsFunc(n.keys, func(k string) bool {
			return resembles(k, "command") || resembles(k, "url")
		}) {
			l.errorf(n, "[%s] needs a command to run or a url to call", name)
		}
	}
	for _, key := range []string{"args", "env", "cwd", "restart"} {
		if hasURL && !hasCommand && n.has(key) {
			l.errorf(n.lookup(key), "%s.%s applies to a server with a command, and this one has "+
				"a url",
				name, key)
		}
	}
	if hasCommand && !hasURL && n.has("headers") {
		l.errorf(n.lookup("headers"),
			"%s.headers applies to a server with a url, and this one has a command", name)
	}
	if hasURL && !l.hasErrorAt(n.lookup("url")) {
		l.checkURL(s.URL, n.lookup("url"), name)
	}
	if hasCommand && !l.hasErrorAt(n.lookup("command")) {
		switch {
		case s.Command == "":
			l.errorf(n.lookup("command"), "%s.command is empty", name)
		case strings.ContainsRune(s.Command, filepath.Separator):
			s.Command = l.absPath(s.Command)
		}
	}
	s.Cwd = l.absPath(s.Cwd)
	if n.has("cwd") && !l.hasErrorAt(n.lookup("cwd")) {
		if i, err := os.Stat(s.Cwd); err != nil || !i.IsDir() {
			l.errorf(n.lookup("cwd"), "%s.cwd = %q is not a folder", name, n.lookup("cwd").raw)
		}
	}
	l.checkSandbox(s, n, name)
	for key, value := range s.Env {
		if at := n.lookup("env", key); !envName.MatchString(key) ||
			strings.ContainsRune(string(value),
				0) {
			l.errorf(at, "%s.env.%s is not a valid environment variable", name, key)
		}
	}
	for key, value := range s.Headers {
		l.checkHeader(key, string(value), n.lookup("headers", key), name)
	}
	l.checkServerAuth(s, n)
	l.checkOneOf(&s.Era, n, name, "era", "auto", "legacy", "modern")
	if s.MaxTimeout < s.Timeout {
		if n.has("max_timeout") && !l.hasErrorAt(n.lookup("max_timeout")) &&
			!l.isUnknown(n, "timeout") {
			l.errorf(n.lookup("max_timeout"),
				"%s.max_timeout limits the whole call and must not be shorter than timeout", name)
		}
		s.MaxTimeout = s.Timeout
	}
	for i, m := range s.Methods {
		if at := n.lookup("methods").item(i); !methodName.MatchString(m) {
			l.errorf(at, `%s.methods[%d] must be a method or a prefix such as "acme/*", not %q`,
				name, i, at.raw)
		}
	}
}

// resembles reports whether key looks like a misspelling of other.
func resembles(key, other string) bool {
	return Closest(key, []string{other}) != ""
}

func (l *loader) checkURL(text string, at *node, name string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		l.errorf(at, `%s.url must be a URL such as "https://example.com/mcp", not %q`, name,
			at.raw)
	case u.User != nil:
		l.errorf(at, "%s.url contains credentials, which would be logged; put them in headers = "+
			"{ Authorization = \"…\" }", name)
	case u.Fragment != "":
		l.errorf(at, "%s.url has a fragment, which is never sent", name)
	}
}

func (l *loader) checkHeader(key, value string, at *node, name string) {
	lower, prefix := strings.ToLower(key), join(name, "")
	switch {
	case !headerName.MatchString(key):
		l.errorf(at, "%sheaders: %q is not a valid header name", prefix, key)
	case slices.Contains(reservedHeaders, lower) || strings.HasPrefix(lower, "mcp-"):
		l.errorf(at, "%sheaders.%s is set by the protocol and cannot be configured", prefix, key)
	case strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) && r != '\t'
	}):
		l.errorf(at, "%sheaders.%s contains a line break or another control character", prefix, key)
	}
}

func (l *loader) checkPlugins(c *Config, root *node) {
	seen := map[string]bool{}
	for i := range c.Plugins {
		p, n := &c.Plugins[i], root.lookup("plugin").item(i)
		name := elementName("plugin", i, n.lookup("name").raw)
		prefix := join(name, "")
		switch {
		case p.Name == "" && !l.isUnknown(n, "name"):
			l.errorf(n, "%s has no name", name)
		case p.Name != "" && !serverName.MatchString(p.Name):
			l.errorf(n.lookup("name"), `%sname must start with a-z and contain only a-z, 0-9 `+
				`and "-", not %q`, prefix, n.lookup("name").raw)
		case p.Name != "" && seen[p.Name]:
			l.errorf(n.lookup("name"), "there are two plugins named %q", n.lookup("name").raw)
		case p.Name == "canary" && len(c.Canaries) > 0:
			l.errorf(n.lookup("name"), `%sname must not be "canary": with [canary], the audit log `+
				`has that name for the stage that finds planted values`, prefix)
		case p.Name == "pins" && c.Pins != nil:
			l.errorf(n.lookup("name"), `%sname must not be "pins": with [pins], the audit log has `+
				`that name for the comparison with the lock file`, prefix)
		}
		seen[p.Name] = true
		switch use, command := n.has("use"), n.has("command"); {
		case use && command:
			l.errorf(n.lookup("command"),
				"%s has both use (a built-in plugin) and command (your own program): remove one "+
					"of them", name)
		case !use && !command && !l.partial:
			l.errorf(n, "%s needs use (a built-in plugin) or command (your own program)", name)
		case use && p.Use == "" && !l.hasErrorAt(n.lookup("use")):
			l.errorf(n.lookup("use"), "%suse is empty", prefix)
		case command && (len(p.Command) == 0 || p.Command[0] == ""):
			if at := n.lookup("command"); !l.hasErrorAt(at) && !l.hasErrorAt(at.item(0)) {
				l.errorf(at, "%scommand is empty", prefix)
			}
		}
		for i, word := range p.Command { // the plugin runs in another folder
			if i == 0 && strings.ContainsRune(word, filepath.Separator) || strings.HasPrefix(word,
				"./") || strings.HasPrefix(word, "../") {
				p.Command[i] = l.absPath(word)
			}
		}
		for key, words := range map[string][]string{"see": {"body", "request", "principal"},
			"may": {"modify", "answer", "hide", "rename", "label", "restore"}} {
			given := map[string][]string{"see": p.See, "may": p.May}[key]
			for j, w := range given {
				if at := n.lookup(key).item(j); !slices.Contains(words, w) && !l.hasErrorAt(at) {
					l.errorf(at, "%s%s[%d] must be one of %s, not %q", prefix, key, j,
						strings.Join(quoteAll(words), ", "), at.raw)
				}
			}
		}
		l.checkPluginSandbox(p.Sandbox, n, name)
		for _, key := range []string{"env", "mtls", "sha256", "sandbox"} {
			if n.has(key) && n.has("use") && !n.has("command") && !l.hasErrorAt(n.lookup(key)) {
				l.errorf(n.lookup(key), "%s%s applies to a plugin with a command, and this one "+
					"is built in", prefix,
					key)
			}
		}
		if sum, err := hex.DecodeString(p.SHA256); n.has("sha256") && (err != nil ||
			len(sum) != 32) && !l.hasErrorAt(n.lookup("sha256")) {
			l.errorf(n.lookup("sha256"), "%ssha256 must be 64 hexadecimal digits", prefix)
		}
		l.checkOneOf(&p.OnError, n, name, "on_error", "deny", "skip")
		l.checkOneOf(&p.Process, n, name, "process", "own", "shared")
		if !n.has("process") {
			p.Process = p.defaultProcess()
		} else if p.Process == "shared" && !n.has("use") {
			l.errorf(n.lookup("process"), "%sprocess = \"shared\" applies to built-in plugins, "+
				"and this one is a program: remove the line", prefix)
		}
		for j, s := range p.Servers {
			at := n.lookup("servers").item(j)
			known := slices.ContainsFunc(c.Servers, func(c Server) bool { return c.Name == s })
			if s != "*" && !known && !l.partial && !l.hasErrorAt(at) {
				l.errorf(at, "%sservers[%d]: server %q does not exist%s", prefix, j, at.raw,
					suggest(at.raw, c.serverNames()))
			}
		}
	}
}

func (l *loader) checkPolicy(p *Policy, n *node) {
	l.checkOneOf(&p.Mode, n, "policy", "mode", "enforce", "shadow")
	l.checkOneOf(&p.Labels, n, "policy", "labels", "session", "principal")
	for key, paths := range map[string][]string{"files": p.Files, "data": p.Data} {
		for i := range paths {
			at := n.lookup(key).item(i)
			if paths[i] == "" { // the absolute path would be the folder of the file
				if !l.hasErrorAt(at) {
					l.errorf(at, "policy.%s[%d] is empty", key, i)
				}
				continue
			}
			paths[i] = l.absPath(paths[i])
			if _, err := os.Stat(paths[i]); errors.Is(err, fs.ErrNotExist) && !l.hasErrorAt(at) {
				l.errorf(at, "policy.%s[%d]: file %q does not exist", key, i, at.raw)
			}
		}
	}
	isEmpty := func(path string) bool { return path == "" }
	p.Files = slices.DeleteFunc(p.Files, isEmpty)
	p.Data = slices.DeleteFunc(p.Data, isEmpty)
	l.checkBundles(p, n)
	for i := range p.Rules {
		p.RulePositions = append(p.RulePositions, l.doc.position(n.lookup("rules").item(i).offset))
	}
	p.ConfigPositions = map[string]Position{}
	for rule := range p.Config {
		p.ConfigPositions[rule] = l.doc.position(n.lookup("config", rule).offset)
		if !slices.Contains(p.Rules, rule) && !l.isUnknown(n, "rules") {
			l.errorf(n.lookup("config", rule), "policy.config: rule %q is not in policy.rules%s",
				rule,
				suggest(rule, p.Rules))
		}
	}
}
