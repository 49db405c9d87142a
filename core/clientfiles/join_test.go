package clientfiles_test

import (
	"strings"
	"testing"

	"gatekit/core/clientfiles"
)

// TestServersAreJoinedAndSplit replaces servers by one, and undoes this after another change.
func TestServersAreJoinedAndSplit(t *testing.T) {
	command := []string{"/opt/gatekit", "run", "--config", "/home/me/gatekit.toml"}
	for _, c := range []struct {
		name                string
		format              clientfiles.Format
		shape               clientfiles.Shape
		keys                [][]string
		before, after, undo string
		stays               string // the name of a server that is not replaced
	}{
		{name: "JSON with comments", format: clientfiles.JSON, keys: [][]string{{"s"}},
			before: "{\n\t\"s\": { // all\n\t\t\"a\": { \"command\": \"x\" }, // a\n\t\t\"b\": { " +
				"\"type\": \"stdio\", \"command\": \"y\" },\n\t\t\"keep\": {\"command\": " +
				"\"z\"},\n" +
				"\t\t\"c\": { \"url\": \"https://x.example\" }, // c\n\t},\n\t\"t\": 1\n}\n",
			after: "{\n\t\"s\": { // all\n\t\t\"gatekit\": { \"type\": \"stdio\", \"command\": " +
				"\"/opt/gatekit\", \"args\": [\"run\", \"--config\", " +
				"\"/home/me/gatekit.toml\"] },\n" +
				"\t\t\"keep\": {\"command\": \"z\"}, // c\n\t},\n\t\"t\": 1\n}\n",
			undo: "{\n\t\"s\": { // all\n\t\t\"a\": { \"command\": \"x\" },\n\t\t\"b\": { " +
				"\"type\": \"stdio\", \"command\": \"y\" },\n\t\t\"c\": { \"url\": " +
				"\"https://x.example\" },\n" +
				"\t\t\"keep\": {\"command\": \"z\"}, // c\n\t},\n\t\"t\": 2\n}\n",
			stays: "keep"},
		{name: "a name that is taken", format: clientfiles.JSON, keys: [][]string{{"s"}},
			before: `{"s":{"gatekit":{"command":"z"},"a":{"command":"x","tools":["t"]}},"t": 1}`,
			after: `{"s":{"gatekit":{"command":"z"},"gatekit-2": { "command": "/opt/gatekit", ` +
				`"args": ["run", "--config", "/home/me/gatekit.toml"], "tools": ["*"] }},"t": 1}`,
			undo:  `{"s":{"gatekit":{"command":"z"},"a":{"command":"x","tools":["t"]}},"t": 2}`,
			stays: "gatekit"},
		{name: "the projects of Claude Code", format: clientfiles.JSON,
			keys: [][]string{{"s"}, {"p", "*", "s"}},
			before: `{"s":{"a":{"command":"x"}},"p":{"/home/me":{"s":{"b":{"command":"y"}}}},` +
				`"t": 1}`,
			after: `{"s":{"gatekit": { "command": "/opt/gatekit", "args": ["run", "--config", ` +
				`"/home/me/gatekit.toml"] }},"p":{"/home/me":{"s":{"gatekit": { "command": ` +
				`"/opt/gatekit", "args": ["run", "--config", "/home/me/gatekit.toml"] }}}},"t": 1}`,
			undo: `{"s":{"a":{"command":"x"}},"p":{"/home/me":{"s":{"b":{"command":"y"}}}},"t": 2}`},
		{name: "a command that is one list", format: clientfiles.JSON, shape: clientfiles.Array,
			keys:   [][]string{{"s"}},
			before: `{"s":{"r":{"type":"remote","url":"https://x.example"}},"t": 1}`,
			after: `{"s":{"gatekit": { "type": "local", "command": ["/opt/gatekit", "run", ` +
				`"--config", "/home/me/gatekit.toml"] }},"t": 1}`,
			undo: `{"s":{"r":{"type":"remote","url":"https://x.example"}},"t": 2}`},
		{name: "TOML", format: clientfiles.TOML, keys: [][]string{{"s"}},
			before: "t = 1 # top\n\n# a\n[s.a]\ncommand = 'x' # x\n\n[s.a.env]\nK = 'v'\n\n" +
				"# kept\n[s.keep]\ncommand = 'z'\n\n[s.\"b c\"]\ncommand = 'y'\n\n[last]\nu = 1\n",
			after: "t = 1 # top\n\n# a\n[s.gatekit]\ncommand = \"/opt/gatekit\"\nargs = [" +
				"\"run\", " +
				"\"--config\", \"/home/me/gatekit.toml\"]\n\n# kept\n[s.keep]\ncommand = 'z'\n\n" +
				"[last]\nu = 1\n",
			undo: "t = 2 # top\n\n# a\n[s.a]\ncommand = 'x' # x\n\n[s.a.env]\nK = 'v'\n\n" +
				"[s.\"b c\"]\ncommand = 'y'\n\n# kept\n[s.keep]\ncommand = 'z'\n\n[last]\nu = 1\n",
			stays: "keep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			place := clientfiles.Place{Format: c.format, Shape: c.shape, Keys: c.keys}
			d, err := clientfiles.Parse(place, []byte(c.before))
			if err != nil {
				t.Fatal(err)
			}
			var moved []int
			for i, e := range d.Entries {
				if e.Name != c.stays {
					moved = append(moved, i)
				}
			}
			after, joined, err := d.Join(moved, "gatekit", command)
			if err != nil || string(after) != c.after {
				t.Fatalf("Join returned %v and\n%s\nwant\n%s", err, after, c.after)
			}
			now := strings.NewReplacer(`"t": 1`, `"t": 2`, "t = 1", "t = 2").Replace(string(after))
			d, err = clientfiles.Parse(place, []byte(now))
			if err != nil {
				t.Fatal(err)
			}
			got, kept, err := d.Split(joined)
			if err != nil || len(kept) > 0 || string(got) != c.undo {
				t.Errorf("Split returned %v, %v and\n%s\nwant\n%s", err, kept, got, c.undo)
			}
		})
	}
}

// TestJoinedServersThatChangedStay undoes a change whose server is gone, changed or superfluous.
func TestJoinedServersThatChangedStay(t *testing.T) {
	place := clientfiles.Place{Format: clientfiles.JSON, Keys: [][]string{{"s"}}}
	joined := []clientfiles.Joined{{In: []string{"s"}, Name: "gatekit",
		Command: []string{"g", "run"}, Names: []string{"a"}, Texts: []string{`"a": {"command": "x"}`}}}
	for doc, want := range map[string]string{
		`{"s": {}}`: "no longer has it",
		`{"s": {"gatekit": {"command": "g", "args": ["run", "-v"]}}}`: "has changed since",
		`{"s": {"gatekit": {"command": "g", "args": ["run"]}, "a": {"command": "y"}}}`: "in the " +
			"file again",
	} {
		d, err := clientfiles.Parse(place, []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		got, kept, err := d.Split(joined)
		if err != nil || string(got) != doc || !strings.Contains(kept[0], want) {
			t.Errorf("%s: Split returned %v, %v, %s, want %q", doc, err, kept, got, want)
		}
	}
}

// TestServersThatCannotBeJoined has files that a person has to change.
func TestServersThatCannotBeJoined(t *testing.T) {
	for _, c := range []struct {
		format    clientfiles.Format
		doc, want string
	}{
		{clientfiles.YAML, "s:\n  a: {command: x}\n", "YAML file"},
		{clientfiles.JSON, `{"s": [{"name": "a", "command": "x"}]}`, "item of a list"},
		{clientfiles.TOML, "s.a = {command = 'x'}\n", "table with a header"},
		{clientfiles.TOML, "[[s]]\nname = 'a'\ncommand = 'x'\n", "table with a header"},
		{clientfiles.TOML, "[s.a]\ncommand = 'x'\n[t]\n[s.a.env]\nK = 'v'\n", "several places"},
	} {
		place := clientfiles.Place{Format: c.format, Keys: [][]string{{"s"}}}
		d, err := clientfiles.Parse(place, []byte(c.doc))
		if err != nil || len(d.Entries) != 1 {
			t.Fatalf("%s: %v, want one server", c.doc, err)
		}
		_, _, err = d.Join([]int{0}, "gatekit", []string{"g", "run"})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s: Join returned %v, want an error with %q", c.doc, err, c.want)
		}
	}
}
