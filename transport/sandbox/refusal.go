package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Refusal is a missing grant, by an error message of the process.
type Refusal struct {
	Key   string // of the settings: read, write or network
	Value string // a path, a host, or "all" for the network
	// Missing is set if the path does not exist. It must, to be granted.
	Missing bool
	// Secret is set if the path is a known place of keys or passwords.
	Secret bool
}

// Refusal returns what would let the process do what it was refused, by a line that it wrote to
// stderr. It returns false if the line says nothing about that, or if the sandbox did not refuse it
// or never grants it. The process may write any text, so the result is no proof.
func (b *Sandbox) Refusal(line string) (Refusal, bool) {
	if b.rules == nil || !containsAny(line, "EACCES", "EPERM", "EAI_AGAIN", "permission denied",
		"not permitted", "name resolution", "resolve host") {
		return Refusal{}, false
	}
	if path := lastPath(line); path != "" {
		return b.grants.refusal(filepath.Clean(path))
	}
	r := Refusal{Key: "network", Value: "all"}
	if host := unresolvedHost(line); host != "" {
		r.Value = host
	}
	return r, b.grants.noNetwork && containsAny(line, "EAI_AGAIN", "connect", "getaddrinfo",
		"dial ", "name resolution", "network", "resolve host", "socket")
}

// unresolvedHost returns the host name in a line about a name that was not resolved, as Node, curl
// and Go write it, or "".
func unresolvedHost(line string) string {
	for _, before := range []string{"EAI_AGAIN ", "ENOTFOUND ", "resolve host: ", " lookup "} {
		_, after, ok := strings.Cut(line, before)
		if !ok {
			continue
		}
		host, _, _ := strings.Cut(strings.TrimSpace(after), " ")
		host = strings.TrimRight(host, ".,:;'\"")
		if len(host) <= 253 && strings.Contains(host, ".") && strings.Trim(strings.ToLower(host),
			"abcdefghijklmnopqrstuvwxyz0123456789.-_") == "" {
			return host
		}
	}
	return ""
}

// containsAny reports whether a line contains one of the words, in any case.
func containsAny(line string, words ...string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(line, strings.ToLower(word))
	})
}

// lastPath returns the last absolute path in a line, alone or in quotes. The first one may be that
// of the program: "/bin/sh: 1: cannot create /srv/x: …". Package regexp is not used here: with it,
// the init function of this package would run after slow ones of others.
func lastPath(line string) string {
	for i := strings.LastIndexByte(line, '/'); i >= 0; i = strings.LastIndexByte(line[:i], '/') {
		end := " \t:'\"),"
		switch {
		case i == 0 || strings.IndexByte(" \t(", line[i-1]) >= 0:
		case line[i-1] == '\'' || line[i-1] == '"':
			end = line[i-1 : i]
		default:
			continue
		}
		path := line[i:]
		if n := strings.IndexAny(path, end); n >= 0 {
			path = path[:n]
		}
		return path
	}
	return ""
}

// refusal returns what is missing for a path.
func (g *grants) refusal(path string) (Refusal, bool) {
	real := place(path)
	within := func(folders []string) bool {
		return slices.ContainsFunc(folders, func(f string) bool { return isWithin(real, f) })
	}
	if within(g.hidden) || within(g.fixed) {
		return Refusal{}, false
	}
	r := Refusal{Key: "read", Value: path, Secret: within(g.secrets)}
	granted := g.granted(path)
	_, err := os.Stat(path)
	r.Missing = err != nil
	switch {
	case granted&write != 0:
		return Refusal{}, false
	case granted&read != 0 || r.Missing && !r.Secret:
		r.Key = "write"
	}
	// Who writes there can change the system.
	return r, r.Key == "read" || !within(programFolders)
}

// granted returns what the trees grant for a path.
func (g *grants) granted(path string) (a access) {
	real := place(path)
	for _, t := range g.trees {
		applies := !slices.ContainsFunc(g.secrets, func(s string) bool {
			return isWithin(real, s) && !(t.named && isWithin(t.path, s))
		})
		if applies && isWithin(real, t.path) {
			a |= t.access
		}
	}
	return a
}

// String returns the refusal as the line of a TOML table: write = ["/srv/data"].
func (r Refusal) String() string {
	value := quote(r.Value)
	if r.Key != "network" || r.Value != "all" {
		value = "[" + value + "]"
	}
	return r.Key + " = " + value
}

// quote returns a text of TOML.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
