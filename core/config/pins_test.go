package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/core/config"
)

func TestMistakesInPins(t *testing.T) {
	t.Setenv("GATEKIT_TEST_EMPTY", "")
	for _, tt := range []struct{ name, table, want string }{
		{"an unknown kind of definition", `what = ["tools", "tool"]`,
			`4:18: pins.what[1] must be one of "tools", "prompts", "templates", "resources", ` +
				`"instructions", not "tool"`},
		{"a kind whose variable is not set", `what = ["${env:GATEKIT_TEST_NOT_SET}"]`,
			"4:9: pins.what[0]: ${env:GATEKIT_TEST_NOT_SET} is not set in the environment"},
		{"a kind that is no text", `what = [1]`,
			"4:9: pins.what[0] must be a string, not an integer"},
		{"an unknown word", `changed = "no"`,
			`4:1: pins.changed must be one of "hide", "keep", "warn", not "no"`},
		{"an unknown word for a server", "[server.a.pins]\nchanged = \"no\"",
			`5:1: server.a.pins.changed must be one of "hide", "keep", "warn", not "no"`},
		{"unknown words for new items and packages", "first = \"never\"\npackage = \"keep\"",
			`4:1: pins.first must be one of "ask", "trust", "locked", not "never"` + "\n" +
				`5:1: pins.package must be one of "warn", "hide", not "keep"`},
		{"unknown packages to install", "install = \"all\"\n[server.a.pins]\ninstall = \"yes\"",
			`4:1: pins.install must be one of "npm", "none", not "all"` + "\n" +
				`6:1: server.a.pins.install must be one of "npm", "none", not "yes"`},
		{"a plugin with the name of the stage", "[[plugin]]\nname = \"pins\"\nuse = \"secrets\"",
			`5:1: plugin "pins": name must not be "pins": with [pins], the audit log has that ` +
				`name for the comparison with the lock file`},
		{"an empty path", `file = ""`, "4:1: pins.file is empty"},
		{"a path whose variable is not set", `file = "${env:GATEKIT_TEST_NOT_SET}"`,
			"4:1: pins.file: ${env:GATEKIT_TEST_NOT_SET} is not set in the environment"},
		{"a path whose variable is empty", `file = "${env:GATEKIT_TEST_EMPTY}"`,
			`4:1: pins.file is empty, because "${env:GATEKIT_TEST_EMPTY}" is empty: give it a ` +
				`value, or remove the key`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, server+"[pins]\n"+tt.table)
			if got := strings.Join(mistakes(t, err), "\n"); got != tt.want {
				t.Errorf("got the mistakes %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPinsAreTheSameWithoutATable(t *testing.T) {
	c, err := load(t, server+"[pins]\n")
	if err != nil {
		t.Fatal(err)
	}
	without := config.DefaultPins(filepath.Dir(c.File))
	if c.Pins.File != without.File || !filepath.IsAbs(without.File) ||
		!slices.Equal(c.Pins.What, without.What) || len(without.What) == 0 {
		t.Errorf("got %+v with an empty table and %+v without one, want the same", *c.Pins, without)
	}
	c, err = load(t, server+"[pins]\nfile = \"x/own.lock\"\nwhat = [\"resources\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(c.File), "x/own.lock"); c.Pins.File != want ||
		!slices.Equal(c.Pins.What, []string{"resources"}) {
		t.Errorf("got %+v, want the file %s and only resources", *c.Pins, want)
	}
}

func TestPinsOfAServer(t *testing.T) {
	c, err := load(t, server+"[server.a.pins]\nchanged = \"warn\"\nfirst = \"locked\"\n"+
		"[server.other]\ncommand = \"x\"\n[server.other.pins]\npackage = \"warn\"\n"+
		"install = \"none\"\n"+
		"[pins]\npackage = \"hide\"\n")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []config.ServerPins{
		{First: "locked", Changed: "warn", Package: "hide", Install: "npm"},
		{First: "ask", Changed: "hide", Package: "warn", Install: "none"},
	} {
		if got := c.Pins.Of(c.Servers[i]); got != want {
			t.Errorf("got %+v for server %s, want %+v", got, c.Servers[i].Name, want)
		}
	}
	_, err = load(t, server+"[server.a.pins]\nchanged = \"warn\"\n")
	const want = `server.a.pins needs a table [pins]: without it, gatekit run does not read ` +
		`the lock file`
	if got := strings.Join(mistakes(t, err), "\n"); !strings.HasSuffix(got, want) {
		t.Errorf("got the mistakes %q, want %q", got, want)
	}
}
