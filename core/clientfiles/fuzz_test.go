package clientfiles

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzSpliceJSON, FuzzSpliceTOML and FuzzSpliceYAML wrap the servers of any file. Outside of the
// commands and arguments, the result must have every byte of the file, and undo must restore it.
func FuzzSpliceJSON(f *testing.F) { fuzzSplice(f, JSON) }

// FuzzSpliceTOML is described at FuzzSpliceJSON.
func FuzzSpliceTOML(f *testing.F) { fuzzSplice(f, TOML) }

// FuzzSpliceYAML is described at FuzzSpliceJSON.
func FuzzSpliceYAML(f *testing.F) { fuzzSplice(f, YAML) }

// seeds are files with unusual forms, by their format.
var seeds = map[Format][]string{
	JSON: {
		"\ufeff{\"s\":{\"a\":{\"command\":\"x\",\"args\":null}}}",
		`{"s":{"a":{"args":[ ],"command":"\u00e9\ud83d\ude00 \ud800"},"b":{"command":"-x"}}}`,
		"{\"s\":{\r\n\"a\":{\r\n\"command\" /*c*/ : /*d*/ \"x\" /*e*/,\r\n},\r\n},}\r\n",
		`{"s":[{"name":"a","command":"x","args":["y",]},{"name":"a","command":"z"}]}`,
		`{"s":{"a":{"command":["x","y"]},"b":{"command":{"path":"x","args":[]}}}}`,
		`{"s":{"a":{"command":"x","command":"y"}}}`, "// only a comment", "",
	},
	TOML: {
		"s = { a = { command = '''x''' }, b = {command=\"y\",args=[]} }",
		"[[s]]\nname=\"a\"\ncommand=\"x\"\r\n[[s]]\ncommand=\"y\" # c\nargs=[\n'z',\n]\n",
		"s.a.command = \"x\"\ns.\"b c\".command = \"\"\"\ny\"\"\"\n[s.d]\n\tcommand='q'",
		"[s]\n[s.a]\ncommand = [\"x\", \"y\"]\n[s.a.env]\nA='1'",
	},
	YAML: {
		"s:\n  a: {command: x, args: [y, z]}\n  b:\n    command: 'it''s'\n    args: ~\n",
		"s:\n- name: a\n  command: \"x\\\"\"\n  args:\n  - y # c\n  - \"z\"\r\n- command: q\n",
		"s: &s\n  a: &a\n    command: x\n  b: *a\n  c:\n    <<: *a\n    args: []\n",
		"s:\n  a:\n    command: |\n      x\n    args:\n    - - y\n",
		"s:\n  b:\n    command: x\n    args:\n",
		"%YAML 1.1\n---\ns:\n  \u00e9\u2028: {command: \u00e9, args: [\n  \u00e9 ] } # c\n...\n",
		"{s: {a: {command: x}}}", "s:\n  ? a\n  : command: x\n    args: !!seq [y]\n",
	},
}

func fuzzSplice(f *testing.F, format Format) {
	for _, s := range seeds[format] {
		f.Add(s, false)
		f.Add(s, true)
	}
	fixtures, _ := filepath.Glob("testdata/clients/*.txtar")
	for _, name := range fixtures {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if strings.HasPrefix(file.Name, "before/") {
				f.Add(string(file.Data), false)
			}
		}
	}
	f.Fuzz(func(t *testing.T, doc string, array bool) {
		place := Place{Format: format, Keys: [][]string{{"s"}, {"mcpServers"}, {"servers"},
			{"mcp_servers"}, {"extensions"}, {"mcp"}, {"projects", "*", "mcpServers"}}}
		if array {
			place.Shape = Array
		}
		before, err := Parse(place, []byte(doc))
		if err != nil {
			return
		}
		var changes []Change
		for i, e := range before.Entries {
			if e.Beyond == "" && e.Command != nil {
				changes = append(changes, Change{i, []string{"/g k/\"\\\u00e9\u0007", "wrap"}})
			}
		}
		content, originals, err := before.Wrap(changes)
		if err != nil {
			return // nothing is written
		}
		after, err := Parse(place, content)
		if err != nil {
			t.Fatalf("the result does not parse: %v\n%s", err, content)
		}
		inserted := map[int]string{}
		for i, c := range changes {
			inserted[c.Entry] = originals[i].Args
		}
		got := withoutCommands(after, changes, inserted)
		want := withoutCommands(before, changes, nil)
		if got != want {
			t.Errorf("without commands and arguments, the file is\n%q\nand was\n%q", got, want)
		}
		restored, kept, err := after.Unwrap(originals)
		if err != nil || len(kept) > 0 || !bytes.Equal(restored, []byte(doc)) {
			t.Errorf("undo left %v, error %v, and\n%q\nwant\n%q", kept, err, restored, doc)
		}
	})
}

// withoutCommands returns a file without the values of the commands and arguments of changed
// entries, and without the keys that were inserted.
func withoutCommands(d *Document, changes []Change, inserted map[int]string) string {
	text := d.text[d.bom:]
	var edits []edit
	for _, c := range changes {
		e := d.Entries[c.Entry]
		edits = append(edits, edit{e.command.start, listEnd(e.command), ""})
		if args := inserted[c.Entry]; args != "" {
			at := strings.Index(text[edits[len(edits)-1].end:], args)
			edits[len(edits)-1].end += len(args)
			if d.place.Format != JSON || at != 0 {
				edits[len(edits)-1].end -= len(args)
				start := strings.LastIndex(text[:e.command.start], args)
				edits = append(edits, edit{start, start + len(args), ""})
			}
			continue
		}
		if e.args != nil {
			edits = append(edits, edit{e.args.start, listEnd(e.args), ""})
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.start - b.start })
	out, err := applyEdits(text, edits)
	if err != nil {
		return err.Error()
	}
	return d.text[:d.bom] + out
}

// listEnd returns the end of a value. A YAML block sequence ends with its last item.
func listEnd(v *value) int {
	if v.end >= 0 {
		return v.end
	}
	return v.items[len(v.items)-1].end
}
