package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gatekit/core/hostlist"
)

// Sandbox is [server.NAME.sandbox]. It confines the program of a stdio server, on Linux.
type Sandbox struct {
	// Level says what the program may do: off (everything), guard (everything but to read the
	// user's secrets and Gatekit's files, and to write outside of its own folders) or strict (only
	// what is named here). If the system cannot hold the level, the server does not start.
	// Default: guard.
	Level string `toml:"level"`
	// Read holds files and folders that the program may read. A relative path starts at the folder
	// of the file. Default: none.
	Read []string `toml:"read"`
	// Write holds files and folders that the program may read and write. In the level strict, it
	// may not execute programs in them. Default: none.
	Write []string `toml:"write"`
	// Run holds files and folders that the program may read, write and execute. Default: none.
	Run []string `toml:"run"`
	// Network is all, none, or a list of hosts such as "api.github.com" and "*.example.com:8443",
	// to which the program may connect. The port is 443 unless the host names one. With none, the
	// program can open no sockets but connected pairs. Default: none for strict, else all.
	Network Network `toml:"network"`
	// Networks holds networks, such as 10.0.0.0/8, that the hosts may be in, beside the public
	// internet. Default: none.
	Networks []string `toml:"networks"`
	// Memory is how many bytes of private memory each process of the program may have. A process
	// that needs more gets an error. Shared memory, and files that it reads into memory, are not
	// counted. Default: no limit.
	Memory int `toml:"memory"`
	// Files is how many files and connections each process of the program may have open. Default:
	// the limit of Gatekit.
	Files int `toml:"files"`
	// BestEffort starts the program without a sandbox if the system cannot hold the level. No key
	// sets it: what the file asks for holds.
	BestEffort bool `toml:"-"`
}

// Network says what a program may connect to.
type Network struct {
	Mode  string        // NetworkAll, NetworkNone or NetworkHosts
	Hosts hostlist.List // with NetworkHosts
}

// The modes of a Network.
const (
	NetworkAll   = "all"
	NetworkNone  = "none"
	NetworkHosts = "hosts"
)

// decodeNetwork fills a Network from "all", "none" or a list of hosts.
func (l *loader) decodeNetwork(to *Network, value any, n *node, name string) {
	const want = `%s must be "all", "none" or a list of hosts such as ["api.github.com"], not %s`
	if text, ok := value.(string); ok {
		mode := l.expand(text, n, name)
		switch {
		case l.hasErrorAt(n):
		case mode != NetworkAll && mode != NetworkNone:
			l.errorf(n, want, name, strconv.Quote(n.raw))
		default:
			to.Mode = mode
		}
		return
	}
	items, ok := asList(value)
	if !ok {
		l.errorf(n, want, name, describeType(value))
		return
	}
	to.Mode = NetworkHosts
	for i, item := range items {
		at, itsName := n.item(i), elementName(name, i, "")
		text, ok := item.(string)
		if !ok {
			l.errorf(at, "%s must be a string, not %s", itsName, describeType(item))
			continue
		}
		text = l.expand(text, at, itsName)
		if l.hasErrorAt(at) {
			continue
		}
		host, err := hostlist.Parse(text)
		switch {
		case text == NetworkAll || text == NetworkNone:
			l.errorf(at, "%s is %q: in a list, each element is a host", itsName, text)
		case err != nil:
			l.errorf(at, "%s: %s", itsName, err)
		default:
			to.Hosts = append(to.Hosts, host)
		}
	}
	if err := to.Hosts.Check(); err != nil {
		l.errorf(n, "%s: %s", name, err)
	}
	if len(items) == 0 {
		l.errorf(n, `%s has no host: write "none" instead`, name)
	}
}

func (s *Sandbox) setDefaults() { s.Level = "guard" }

// PluginSandbox is [plugin.sandbox]. It says what the program of a plugin may do, on Linux.
type PluginSandbox struct {
	// Level is as for a server: strict, guard or off. If the system cannot hold the level, the
	// plugin does not start. Default: strict.
	Level string `toml:"level"`
	// Read holds files and folders that the program may read. A relative path starts at the folder
	// of the file. Default: none.
	Read []string `toml:"read"`
	// Write holds files and folders that the program may read and write. Default: none.
	Write []string `toml:"write"`
	// Run holds files and folders that the program may read, write and execute. Default: none.
	Run []string `toml:"run"`
	// Network says where the program may connect to: all or none. With none, it can only wait for
	// Gatekit to connect. Default: none.
	Network string `toml:"network"`
}

func (s *PluginSandbox) setDefaults() { s.Level, s.Network = "strict", "none" }

// checkPluginSandbox makes the paths absolute.
func (l *loader) checkPluginSandbox(b *PluginSandbox, n *node, plugin string) {
	if b == nil {
		return
	}
	table, name := n.lookup("sandbox"), join(plugin, "sandbox")
	l.checkOneOf(&b.Level, table, name, "level", "off", "guard", "strict")
	l.checkOneOf(&b.Network, table, name, "network", "all", "none")
	l.checkGranted(table, name, b.Read, b.Write, b.Run)
}

// checkGranted makes the paths of a sandbox absolute, and reports those that do not exist.
func (l *loader) checkGranted(table *node, name string, read, write, run []string) {
	for key, paths := range map[string][]string{"read": read, "write": write, "run": run} {
		for i, p := range paths {
			paths[i] = l.absPath(p)
			if _, err := os.Stat(paths[i]); err != nil {
				l.errorf(table.lookup(key).item(i), "%s.%s[%d]: %s does not exist", name, key, i,
					paths[i])
			}
		}
	}
}

// The least limits of a sandbox. With less, no program starts.
const (
	MinMemory = 16 << 20
	MinFiles  = 16
)

// DefaultNetwork returns the network of a level for which none is set.
func DefaultNetwork(level string) string {
	if level == "strict" {
		return NetworkNone
	}
	return NetworkAll
}

// checkSandbox makes the paths absolute.
func (l *loader) checkSandbox(s *Server, n *node, server string) {
	b, name := s.Sandbox, join(server, "sandbox")
	if b == nil {
		return
	}
	if s.Command == "" && n.has("sandbox") {
		l.errorf(n.lookup("sandbox"), "%s applies to a server with a command, and this one has a "+
			"url", name)
		return
	}
	table := n.lookup("sandbox")
	l.checkOneOf(&b.Level, table, name, "level", "off", "guard", "strict")
	if b.Network.Mode == "" {
		b.Network.Mode = DefaultNetwork(b.Level)
	}
	isList := b.Network.Mode == NetworkHosts
	if isList && b.Level == "off" {
		l.errorf(table.lookup("network"), "%s.network: a list of hosts needs the level guard or "+
			"strict", name)
	}
	if table.has("networks") && !isList && !l.isUnknown(table, "network") {
		l.errorf(table.lookup("networks"), "%s.networks needs a list of hosts in network", name)
	}
	for i, network := range b.Networks {
		if item := table.lookup("networks").item(i); !l.hasErrorAt(item) {
			if p, err := netip.ParsePrefix(network); err != nil || p.Masked() != p {
				l.errorf(item, `%s.networks[%d] must be a network such as "10.0.0.0/8", not %q`,
					name, i, item.raw)
			}
		}
	}
	for _, limit := range []struct {
		key          string
		value, least int
	}{{"memory", b.Memory, MinMemory}, {"files", b.Files, MinFiles}} {
		switch at := table.lookup(limit.key); {
		case !table.has(limit.key):
		case b.Level == "off":
			l.errorf(at, "%s.%s needs the level guard or strict", name, limit.key)
		case limit.value < limit.least:
			l.errorf(at, "%s.%s must be at least %d", name, limit.key, limit.least)
		}
	}
	l.checkGranted(table, name, b.Read, b.Write, b.Run)
}

// ProtectedFiles returns the files and folders that no server may touch: hidden ones, which it may
// not even read, such as the audit log and its key, and fixed ones, which it may not write, such as
// the configuration and the policies. A file may not exist yet.
func (c *Config) ProtectedFiles() (hidden, fixed []string) {
	log := strings.TrimSuffix(c.Audit.File, filepath.Ext(c.Audit.File))
	hidden, _ = filepath.Glob(globEscape.Replace(log) + "*") // closed segments, lock, key, tiles
	hidden = append(hidden, c.Audit.File)
	for _, f := range []string{c.Audit.Key, c.Audit.Anchor} {
		if f != "" {
			hidden = append(hidden, f)
		}
	}
	for _, s := range c.Audit.Sinks {
		if s.Path != "" {
			hidden = append(hidden, s.Path)
		}
	}
	if c.Tokens.File != "" {
		hidden = append(hidden, c.Tokens.File)
	}
	if c.Listen.TLS != nil {
		hidden = append(hidden, c.Listen.TLS.Key)
	}
	if c.Pins != nil {
		fixed = append(fixed, c.Pins.File)
	}
	if c.File != "" {
		fixed = append(fixed, c.File, filepath.Join(filepath.Dir(c.File), "gatekit.lock"))
	}
	if c.source != nil {
		for _, f := range c.source.files {
			if f != c.File {
				hidden = append(hidden, f) // ${file:…} names files with secrets
			}
		}
	}
	if c.Policy != nil {
		fixed = append(append(fixed, c.Policy.Files...), c.Policy.Data...)
	}
	for _, p := range c.Plugins {
		for _, word := range p.Command {
			if i, err := os.Stat(word); err == nil && filepath.IsAbs(word) && i.Mode().IsRegular() {
				fixed = append(fixed, word)
			}
		}
	}
	return hidden, fixed
}

// globEscape makes a path match only itself in filepath.Glob.
var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
