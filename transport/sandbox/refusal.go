package sandbox

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Refusal is a missing grant, by an error message of the process.
type Refusal struct {
	Key   string // of the settings: read, write or network
	Value string // a path, or "all"
	// Missing is set if the path does not exist. It must, to be granted.
	Missing bool
	// Secret is set if the path is a known place of keys or passwords.
	Secret bool
}

// Refusal returns what would let the process do what it was refused, by a line that it wrote to
// stderr. It returns false if the line says nothing about that, or if the sandbox did not refuse it
// or never grants it. The process may write any text, so the result is no proof.
func (b *Sandbox) Refusal(line string) (Refusal, bool) {
	if b.rules == nil || !refusalWords.MatchString(line) {
		return Refusal{}, false
	}
	// The first path may be that of the program: "/bin/sh: 1: cannot create /srv/x: …".
	if all := refusedPath.FindAllStringSubmatch(line, maxPaths); len(all) > 0 {
		return b.grants.refusal(filepath.Clean(strings.Join(all[len(all)-1][1:], "")))
	}
	r := Refusal{Key: "network", Value: "all"}
	return r, b.grants.noNetwork && networkWords.MatchString(line)
}

const maxPaths = 16 // in one line

var (
	refusalWords = regexp.MustCompile(
		`EACCES|EPERM|EAI_AGAIN|(?i:permission denied|not permitted|name resolution)`)
	networkWords = regexp.MustCompile(
		`EAI_AGAIN|(?i:connect|getaddrinfo|dial |name resolution|network|socket)`)
	// refusedPath matches an absolute path, alone or in quotes.
	refusedPath = regexp.MustCompile(`'(/[^']+)'|"(/[^"]+)"|(?:^|[\s(])(/[^\s:'"),]+)`)
)

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
	var granted access
	for _, t := range g.trees {
		applies := !r.Secret || t.named && slices.ContainsFunc(g.secrets, func(s string) bool {
			return isWithin(t.path, s)
		})
		if applies && isWithin(real, t.path) {
			granted |= t.access
		}
	}
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

// String returns the refusal as the line of a TOML table: write = ["/srv/data"].
func (r Refusal) String() string {
	value := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(r.Value) + `"`
	if r.Key != "network" {
		value = "[" + value + "]"
	}
	return r.Key + " = " + value
}
