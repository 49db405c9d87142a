package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/config"
	"gatekit/core/pins"
)

// TestWrappedServersThatMayHaveChanged has commands of which gatekit wrap knows that they start the
// same program as before, and others.
func TestWrappedServersThatMayHaveChanged(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"server", "server.js"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]pins.Changed{
		"npx -y a@1.2.3":                 pins.Hide,
		"npx -y @acme/a@1.2.3-rc.1":      pins.Hide,
		"npx -y a":                       pins.Warn,
		"npx -y a@latest":                pins.Warn,
		"npx -y a@^1.2.3":                pins.Warn,
		"npx -y a@1":                     pins.Warn,
		"uvx a==1.0":                     pins.Hide,
		"uvx --from a a":                 pins.Warn,
		"uv tool run a":                  pins.Warn,
		"pnpm dlx a":                     pins.Warn,
		"docker run -i a:1":              pins.Warn,
		"docker run -i a@sha256:" + "ab": pins.Hide,
		"python3 -m a":                   pins.Hide,
		"node " + filepath.Join(dir, "server.js"): pins.Hide,
		"node server.js":             pins.Hide,
		filepath.Join(dir, "server"): pins.Hide,
		"sh -c x":                    pins.Hide,
	} {
		words := strings.Fields(command)
		s := config.Server{Name: "s", Command: words[0], Args: words[1:], Cwd: dir}
		seen := func(approved *pins.Server) pins.GuardedServer {
			g := pins.GuardedServer{Start: pins.Start{Env: []string{"A"}},
				Package: pinnedPackage(s), Changed: wrappedChanged}
			asWrapped(&g, s, approved)
			return g
		}
		first := seen(nil)
		again := seen(&pins.Server{Package: first.Package})
		if again.Changed != want || first.Start.Env != nil {
			t.Errorf("%s: a change leads to %s, want %s (%+v)", command, again.Changed, want,
				first.Package)
		}
		isFile := strings.Contains(command, "server")
		if isFile != (first.Package.SHA256 != "") {
			t.Errorf("%s: the package is %+v, want a digest: %v", command, first.Package, isFile)
		}
		if isFile {
			other := seen(&pins.Server{Package: pins.Source{SHA256: "00"}})
			if other.Changed != pins.Warn {
				t.Errorf("%s: a change of another program leads to %s, want warn", command,
					other.Changed)
			}
		}
		g := pins.GuardedServer{Package: first.Package, Changed: pins.Hide}
		asWrapped(&g, s, &pins.Server{Package: pins.Source{SHA256: "00"}})
		if g.Changed != pins.Hide {
			t.Errorf("%s: with --pins hide, a change leads to %s", command, g.Changed)
		}
	}
}
