package npmpackage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/transport/npmpackage"
)

func TestParseCommand(t *testing.T) {
	for _, c := range []struct{ command, want string }{ // name version bin node: args
		{"npx -y @acme/server@1.4.2 --x /srv", "@acme/server 1.4.2  node: --x /srv"},
		{"npx server", "server   node:"},
		{"npx --yes -q server@latest -- --x", "server latest  node: -- --x"},
		{"npx -- server --x", "server   node: --x"},
		{"/opt/bin/npx -p @acme/a@^2 run -v", "@acme/a ^2 run /opt/bin/node: -v"},
		{"npx --package=a run", "a  run node:"},
		{"npm exec -y server@1.0.0 -- --x", "server 1.0.0  node: --x"},
		{"npm x server /srv", "server   node: /srv"},
		{"npm exec --package a -- run x", "a  run node: x"},
		{"npm exec server --x", ""}, // an option of npm
		{"npm exec server --x -- y", ""},
		{"npm install server", ""},
		{"npm", ""},
		{"npx", ""},
		{"npx -y", ""},
		{"npx -p", ""},
		{"npx -p a", ""},
		{"npx -p a -p b run", ""},
		{"npx -c server", ""},
		{"npx --registry=http://evil.example server", ""},
		{"npx -y ./server", ""},
		{"npx -y ../server", ""},
		{"npx -y acme/server", ""}, // of GitHub
		{"npx -y github:acme/server", ""},
		{"npx -y https://acme.example/server.tgz", ""},
		{"npx -y server@npm:other@1.0.0", ""},
		{"npx -y server@file:x", ""},
		{"npx -y server@", ""},
		{"npx -y @acme", ""},
		{"npx -y Server", ""},
		{"npx -p a ../run", ""},
		{"bunx server", ""},
		{"node server.js", ""},
	} {
		words := strings.Fields(c.command)
		got, ok := npmpackage.ParseCommand(words[0], words[1:])
		text := ""
		if ok {
			text = strings.TrimSuffix(got.Name+" "+got.Version+" "+got.Bin+" "+got.Node+": "+
				strings.Join(got.Args, " "), " ")
		}
		if text != c.want {
			t.Errorf("%s: got %q, want %q", c.command, text, c.want)
		}
	}
}

func TestCommandUsesPackage(t *testing.T) {
	p := npmpackage.Package{Name: "a", Version: "1.2.3"}
	for spec, want := range map[string]bool{"a@1.2.3": true, "a": true, "a@latest": true,
		"a@^1": true, "a@1.2": true, "a@1.2.4": false, "b@1.2.3": false, "b": false} {
		c, ok := npmpackage.ParseCommand("npx", []string{spec})
		if got := c.Uses(p); !ok || got != want {
			t.Errorf("%s uses %s: %v, want %v", spec, p, got, want)
		}
	}
}

func TestProgramOfAPackage(t *testing.T) {
	const script = "#!/usr/bin/env node\n"
	for _, c := range []struct{ name, manifest, bin, file, want string }{
		{"one program", `{"bin":"cli.js"}`, "", script, "cli.js"},
		{"one program with another name", `{"bin":{"other":"cli.js"}}`, "", script, "cli.js"},
		{"the program with the name of the package", `{"bin":{"b":"x.js","box":"cli.js"}}`, "",
			script, "cli.js"},
		{"several names of one file", `{"bin":{"a":"cli.js","b":"cli.js"}}`, "", script, "cli.js"},
		{"a named program", `{"bin":{"b":"cli.js","box":"x.js"}}`, "b", script, "cli.js"},
		{"a script without a first line for shells", `{"bin":"cli.js"}`, "", "x()\n", "cli.js"},
		{"several programs", `{"bin":{"a":"cli.js","b":"x.js"}}`, "", script, "has no program, or"},
		{"no program", `{}`, "", script, "has no program, or"},
		{"another program", `{"bin":"cli.js"}`, "b", script, `has no program "b"`},
		{"a program outside of the package", `{"bin":"../../cli.js"}`, "", script,
			"is not in the package"},
		{"a script for a shell", `{"bin":"cli.js"}`, "", "#!/bin/sh\n",
			"cli.js is not a script for Node"},
		{"a machine program", `{"bin":"cli.js"}`, "", "\x7fELF\x02",
			"cli.js is not a script for Node"},
		{"a missing file", `{"bin":"x.js"}`, "", script, "no such file"},
		{"a manifest that is no JSON", `{`, "", script, "read the package.json of @acme/box@1.0.0"},
		{"programs that are no texts", `{"bin":[1]}`, "", script, "read the programs of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := &npmpackage.Installed{Dir: t.TempDir(),
				Package: npmpackage.Package{Name: "@acme/box", Version: "1.0.0"}}
			root := filepath.Join(i.Dir, "node_modules", "@acme", "box")
			if err := os.MkdirAll(root, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"package.json": c.manifest,
				"cli.js": c.file} {
				if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := i.Program(c.bin)
			if err == nil && got != filepath.Join(root, c.want) ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// Names and versions of a lock file reach neither npm nor a path before they were checked.
func TestFindChecksWhatTheLockFileHas(t *testing.T) {
	s := npmpackage.Store{Dir: t.TempDir()}
	good := npmpackage.Package{Name: "@acme/box", Version: "1.0.0", Integrity: "sha512-x"}
	if _, err := s.Find(good); !errors.Is(err, npmpackage.ErrNotInstalled) {
		t.Errorf("got %v, want that the package is not installed", err)
	}
	for _, p := range []npmpackage.Package{
		{Name: "../box", Version: "1.0.0", Integrity: "sha512-x"},
		{Name: "box", Version: "latest", Integrity: "sha512-x"},
		{Name: "box", Version: "../1.0.0", Integrity: "sha512-x"},
		{Name: "box", Version: "1.0.0", Integrity: "sha1-x"},
		{Name: "box", Version: "1.0.0"},
	} {
		if _, err := s.Find(p); err == nil || errors.Is(err, npmpackage.ErrNotInstalled) {
			t.Errorf("%+v: got %v, want an error about the release", p, err)
		}
	}
	for _, spec := range [][2]string{{"--global", ""}, {"box", "file:x"}, {"box", " 1"},
		{"git+ssh://x", ""}} {
		if _, err := s.Install(t.Context(), spec[0], spec[1],
			npmpackage.Package{}); err == nil ||
			!strings.Contains(err.Error(), "this is no name and version") {
			t.Errorf("%q: got %v, want an error about the name", spec, err)
		}
	}
	if names, _ := os.ReadDir(s.Dir); len(names) > 0 {
		t.Errorf("the folder has %v, want nothing", names)
	}
}
