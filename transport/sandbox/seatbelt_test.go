package sandbox

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the profiles into testdata")

// The profiles cannot be run here, so a change of their text must be seen.
func TestSeatbeltProfiles(t *testing.T) {
	secrets := []string{"/Users/me/.ssh", "/Users/me/Library/Keychains"}
	hidden := []string{"/Users/me/work/log/audit.jsonl"}
	fixed := []string{"/Users/me/work/gatekit.toml"}
	guard := grants{list: true, secrets: secrets, hidden: hidden, fixed: fixed, trees: []grant{
		{"/", read | execute, false}, {"/Users/me/work", read | write | execute, false},
		{"/Users/me/.ssh/known_hosts", read | execute, true}, {"/dev/null", read | write, false}}}
	strict := grants{strict: true, secrets: secrets, hidden: hidden, fixed: fixed, trees: []grant{
		{"/usr", read | execute, false}, {"/private/tmp/gatekit-sandbox-1", read | write, false},
		{`/Users/me/a "b" \\ c`, read | write, true},
		{"/Users/me/work", read | write | execute, true}}}
	with := func(g grants, noNetwork, listen bool) grants {
		g.noNetwork, g.listen = noNetwork, listen
		return g
	}
	for name, g := range map[string]grants{"guard": guard, "guard-none": with(guard, true, false),
		"strict-all": strict, "strict-none": with(strict, true, false),
		"strict-listen": with(strict, true, true)} {
		file := filepath.Join("testdata", name+".sb")
		got := seatbeltProfile(g)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from %s; go test -update writes it:\n%s", name, file, got)
		}
		if open, closed := strings.Count(got, "("), strings.Count(got, ")"); open != closed {
			t.Errorf("%s has %d opening and %d closing parentheses", name, open, closed)
		}
	}
}

// The last rule for a file holds.
func TestOrderOfSeatbeltRules(t *testing.T) {
	profile := seatbeltProfile(grants{secrets: []string{"/h/.ssh"}, hidden: []string{"/h/w/log"},
		trees: []grant{{"/", read | execute, false}, {"/h/.ssh/named", read, true},
			{"/h/w", read | write, false}}})
	const deny = "(deny file-read-data file-write* process-exec file-map-executable\n  (subpath "
	last := -1
	for _, rule := range []string{"(allow file-read*\n  (subpath \"/\")", deny + "\"/h/.ssh\")",
		"(allow file-read*\n  (subpath \"/h/.ssh/named\")",
		deny + "\"/h/w/log\")",
		"(deny file-write-unlink\n  (literal \"/h/w\")"} {
		at := strings.Index(profile, rule)
		if at <= last {
			t.Errorf("%q is at %d, want it after %d:\n%s", rule, at, last, profile)
		}
		last = at
	}
}
