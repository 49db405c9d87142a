package clientfiles_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"gatekit/core/clientfiles"
)

var update = flag.Bool("update", false, "write the actual results into testdata/clients")

// machine returns a Linux machine with its home in dir, and the project dir/project.
func machine(dir string) clientfiles.Machine {
	return clientfiles.Machine{OS: "linux", Home: dir, Project: filepath.Join(dir, "project"),
		Getenv: func(string) string { return "" }}
}

// plan returns the changes that wrap every server of a document that can be wrapped.
func plan(d *clientfiles.Document) (changes []clientfiles.Change) {
	for i, e := range d.Entries {
		if e.Beyond != "" || e.Command == nil {
			continue
		}
		words := []string{"/opt/gatekit", "wrap"}
		for _, name := range e.Env {
			words = append(words, "--env", name)
		}
		changes = append(changes, clientfiles.Change{Entry: i, Words: words})
	}
	return changes
}

// describe returns a line for each server of a document.
func describe(d *clientfiles.Document) string {
	var b strings.Builder
	for _, e := range d.Entries {
		fmt.Fprintf(&b, "%s | %s | %q %s env=%v", e.In, e.Name, e.Command, e.URL, e.Env)
		if e.IsDisabled {
			b.WriteString(" disabled")
		}
		if e.Beyond != "" {
			b.WriteString(" beyond: " + e.Beyond)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestClientsFilesAreWrappedAndRestored finds the files of each client of the table, as its public
// documentation shows them, wraps the servers in them, and undoes this. Each fixture has the files
// before and after, and what is found in them.
func TestClientsFilesAreWrappedAndRestored(t *testing.T) {
	for _, client := range clientfiles.Clients() {
		t.Run(client.ID, func(t *testing.T) {
			fixture := filepath.Join("testdata", "clients", client.ID+".txtar")
			archive, err := txtar.ParseFile(fixture)
			if err != nil {
				t.Fatal(err)
			}
			home, before := t.TempDir(), map[string][]byte{}
			var kept []txtar.File
			for _, f := range archive.Files {
				name, ok := strings.CutPrefix(f.Name, "before/")
				if !ok {
					continue
				}
				kept = append(kept, f)
				before[name] = f.Data
				file := filepath.Join(home, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			files := machine(home).Files(client)
			if len(files) != len(before) {
				t.Errorf("found %d files, want %d", len(files), len(before))
			}
			got := map[string]string{}
			for _, f := range files {
				name, _ := filepath.Rel(home, f.Path)
				if f.Err != nil {
					t.Errorf("%s: %v", name, f.Err)
					continue
				}
				after, originals, err := f.Document.Wrap(plan(f.Document))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				got["after/"+name] = string(after)
				got["servers/"+name] = describe(f.Document)
				if len(originals) == 0 {
					t.Errorf("%s: no server was wrapped", name)
				}
				wrapped, err := clientfiles.Parse(f.Place, after)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				restored, left, err := wrapped.Unwrap(originals)
				if err != nil || len(left) > 0 || !bytes.Equal(restored, before[name]) {
					t.Errorf("%s: undo left %v, error %v, and\n%s", name, left, err, restored)
				}
			}
			if *update {
				archive.Files = kept
				for _, name := range slices.Sorted(func(yield func(string) bool) {
					for name := range got {
						if !yield(name) {
							return
						}
					}
				}) {
					archive.Files = append(archive.Files, txtar.File{Name: name,
						Data: []byte(got[name])})
				}
				if err := os.WriteFile(fixture, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, f := range archive.Files {
				if !strings.HasPrefix(f.Name, "before/") && got[f.Name] != string(f.Data) {
					t.Errorf("%s: got\n%s\nwant\n%s", f.Name, got[f.Name], f.Data)
				}
				delete(got, f.Name)
			}
			for name := range got {
				t.Errorf("the fixture has no %s", name)
			}
		})
	}
}

// TestUnusableFilesAreNamedAndRefused parses files that must not be changed.
func TestUnusableFilesAreNamedAndRefused(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 2000)
	for _, c := range []struct {
		name   string
		format clientfiles.Format
		doc    string
		want   string // in the error
	}{
		{"cut JSON", clientfiles.JSON, `{"s": {`, "unexpected EOF"},
		{"JSON with a missing comma", clientfiles.JSON, "{\n \"s\": {}\n \"t\": 1}", "line 3"},
		{"a doubled key on the way", clientfiles.JSON, `{"s": {}, "s": {}}`, `key "s" twice`},
		{"a doubled server", clientfiles.JSON, `{"s": {"a": {"command": "x"}, "a": {}}}`,
			`key "a" twice`},
		{"a doubled command", clientfiles.JSON, `{"s": {"a": {"command": "x", "command": "y"}}}`,
			`server "a" has the key "command" twice`},
		{"deep JSON", clientfiles.JSON, deep, "nest more than 1000"},
		{"deep arrays after a comment", clientfiles.JSON, "// \" {\n/* \" */" +
			strings.Repeat("[", 2000), "nest more than 1000"},
		{"no UTF-8", clientfiles.JSON, "{\"s\": \"\xff\"}", "not UTF-8"},
		{"a key in another case", clientfiles.JSON, `{"s": {"a": {"command": "g", "Command": "x"}}}`,
			`server "a" has the key "Command"`},
		{"invalid TOML", clientfiles.TOML, "[s\n", "line 1"},
		{"a table twice", clientfiles.TOML, "[s.a]\ncommand='x'\n[s.a]\n", "line 3"},
		{"invalid YAML", clientfiles.YAML, "s: [", "line 1"},
		{"two YAML documents", clientfiles.YAML, "s: {}\n---\ns: {}\n", "several YAML documents"},
	} {
		place := clientfiles.Place{Format: c.format, Keys: [][]string{{"s"}}}
		d, err := clientfiles.Parse(place, []byte(c.doc))
		if d != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Parse returned %v, %v, want an error with %q", c.name, d, err, c.want)
		}
	}
}

// TestCommandsThatCannotBeSplicedAreLeftAlone has servers that must not be wrapped, and the reason.
func TestCommandsThatCannotBeSplicedAreLeftAlone(t *testing.T) {
	for _, c := range []struct {
		format    clientfiles.Format
		doc, want string
	}{
		{clientfiles.JSON, `{"s": {"a": {"command": "npx -y @a/b"}}}`, "whole command line"},
		{clientfiles.JSON, `{"s": {"a": {"command": "/Program Files/a b"}}}`, ""},
		{clientfiles.JSON, `{"s": {"a": {"command": "a b", "args": ["x"]}}}`, ""},
		{clientfiles.JSON, `{"s": {"a": {"command": "x", "args": "y"}}}`, "not a list of strings"},
		{clientfiles.JSON, `{"s": {"a": {"command": "x", "args": ["y", 1]}}}`, "not a list"},
		{clientfiles.JSON, `{"s": {"a": {"command": 1}}}`, "the command is not a string"},
		{clientfiles.JSON, `{"s": {"a": {"command": ""}}}`, "the command is not a string"},
		{clientfiles.JSON, `{"s": {"a": {"command": "x", "env": {"A=B": "c"}}}}`,
			`"A=B" is not the name of a variable`},
		{clientfiles.JSON, `{"s": {"a": {"command": "x", "envFile": ".env"}}}`, "envFile"},
		{clientfiles.JSON, `{"s": {"a": {"enabled": true}}}`, "neither a command nor a URL"},
		{clientfiles.JSON, `{"s": {"a": {"command": "x", "httpUrl": "https://x.example"}}}`,
			"a command and a URL"},
		{clientfiles.YAML, "s:\n  a: &a {command: x}\n", "it has a YAML anchor"},
		{clientfiles.YAML, "b: &b x\ns:\n  a: {command: *b}\n", "the command is not a string"},
		{clientfiles.YAML, "s:\n  a:\n    command: |\n      x\n", "written over several lines"},
		{clientfiles.YAML, "s:\n  a: {command: !!str x}\n", "it has a YAML tag"},
		{clientfiles.YAML, "b: &b {command: x}\ns:\n  a:\n    <<: *b\n    command: y\n",
			"YAML merge key"},
	} {
		place := clientfiles.Place{Format: c.format, Keys: [][]string{{"s"}}}
		d, err := clientfiles.Parse(place, []byte(c.doc))
		if err != nil || len(d.Entries) != 1 {
			t.Errorf("%s: got %v, want one server", c.doc, err)
			continue
		}
		e := d.Entries[0]
		if got := e.Beyond; (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: the reason is %q, want %q", c.doc, got, c.want)
		}
		_, _, err = d.Wrap([]clientfiles.Change{{Entry: 0, Words: []string{"g", "wrap"}}})
		if (err == nil) != (c.want == "") {
			t.Errorf("%s: Wrap returned %v", c.doc, err)
		}
	}
}

// TestUndoAfterAChangeByTheClient undoes changes in files that the client has written anew, as
// Claude Code does with each start.
func TestUndoAfterAChangeByTheClient(t *testing.T) {
	place := clientfiles.Place{Format: clientfiles.JSON, Keys: [][]string{{"s"}}}
	before := `{"s":{"a":{"command":"x","args":["y"]},"b":{"command":"z"},"c":{"command":"q"}}}`
	d, err := clientfiles.Parse(place, []byte(before))
	if err != nil {
		t.Fatal(err)
	}
	_, originals, err := d.Wrap(plan(d))
	if err != nil {
		t.Fatal(err)
	}
	now := `{
  "count": 2,
  "s": {
    "c": {"command": "/opt/gatekit", "args": ["run"]},
    "a": {
      "command": "/opt/gatekit",
      "args": [
        "wrap",
        "x",
        "y"
      ]
    },
    "b": {
      "command": "/opt/gatekit",
      "args": [
        "wrap",
        "z",
      ],
    }
  }
}`
	want := `{
  "count": 2,
  "s": {
    "c": {"command": "/opt/gatekit", "args": ["run"]},
    "a": {
      "command": "x",
      "args": [
        "y"
      ]
    },
    "b": {
      "command": "z",
      "args": [],
    }
  }
}`
	d, err = clientfiles.Parse(place, []byte(now))
	if err != nil {
		t.Fatal(err)
	}
	got, kept, err := d.Unwrap(originals)
	if err != nil || string(got) != want {
		t.Errorf("Unwrap returned %v and\n%s\nwant\n%s", err, got, want)
	}
	if len(kept) != 1 || !strings.Contains(kept[2], "its command has changed since") {
		t.Errorf("Unwrap left %v, want the third server", kept)
	}
}

// TestSecretsAreMasked checks that the text for a terminal has no value of a variable or a header.
func TestSecretsAreMasked(t *testing.T) {
	for _, c := range []struct {
		format    clientfiles.Format
		doc, want string
	}{
		{clientfiles.JSON, `{"s": {"a": {"command": "x", "env": {"K": "hush"}},` +
			` "b": {"url": "https://x.example", "headers": {"Authorization": "Bearer hush"}}}}`,
			`{"s": {"a": {"command": "x", "env": {"K": "…"}},` +
				` "b": {"url": "https://x.example", "headers": {"Authorization": "…"}}}}`},
		{clientfiles.JSON, `{"s": {"a": {"command": "x", "env": {"PIN": 1234, "N": null}}}}`,
			`{"s": {"a": {"command": "x", "env": {"PIN": "…", "N": null}}}}`},
		{clientfiles.YAML, "s:\n  a:\n    command: x\n    env:\n      PIN: 1234\n      KEY: |\n" +
			"        -----BEGIN-----\n\n         hush\n      B: two\n        lines\n    args: []\n",
			"s:\n  a:\n    command: x\n    env:\n      PIN: \"…\"\n      KEY: \"…\"\n" +
				"      B: \"…\"\n    args: []\n"},
		{clientfiles.YAML, "s:\n  a:\n    command: x\n    env:\n      KEY: >-\r\n        hush\r\n",
			"s:\n  a:\n    command: x\n    env:\n      KEY: \"…\"\r\n"},
		{clientfiles.TOML, "[s.a]\ncommand = 'x'\n[s.a.env]\nPIN = 1234\nK = \"\"\"\nhush\"\"\"\n",
			"[s.a]\ncommand = 'x'\n[s.a.env]\nPIN = \"…\"\nK = \"…\"\n"},
	} {
		place := clientfiles.Place{Format: c.format, Keys: [][]string{{"s"}}}
		d, err := clientfiles.Parse(place, []byte(c.doc))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Masked(); got != c.want {
			t.Errorf("Masked returned\n%q\nwant\n%q", got, c.want)
		}
	}
}

// TestLongLinesAreReadOnce parses a file that would take hours if each value of a line were looked
// for from the beginning of the line.
func TestLongLinesAreReadOnce(t *testing.T) {
	doc := "s: [" + strings.Repeat("1,", 1<<19) + "{name: a, command: x}]\n"
	place := clientfiles.Place{Format: clientfiles.YAML, Keys: [][]string{{"s"}}}
	d, err := clientfiles.Parse(place, []byte(doc))
	if err != nil || len(d.Entries) != 1 {
		t.Fatalf("Parse returned %v, want one server", err)
	}
	after, _, err := d.Wrap(plan(d))
	if want := `{name: a, args: ["wrap", "x"], command: "/opt/gatekit"}]`; err != nil ||
		!bytes.HasSuffix(bytes.TrimSpace(after), []byte(want)) {
		t.Errorf("Wrap returned %v and %q, want %q at the end", err, after[len(after)-90:], want)
	}
}

// TestHugeProjectsAreNotRead has a project whose files would fill the memory.
func TestHugeProjectsAreNotRead(t *testing.T) {
	home := t.TempDir()
	folder := filepath.Join(home, "project", ".continue", "mcpServers")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	content := []byte("mcpServers: [{name: a, command: x}]\n#" + strings.Repeat(" ", 400<<10))
	for i := range 4 {
		file := filepath.Join(folder, fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := slices.IndexFunc(clientfiles.Clients(), func(c clientfiles.Client) bool {
		return c.ID == "continue"
	})
	var read int
	for _, f := range machine(home).Files(clientfiles.Clients()[i]) {
		if f.Err == nil {
			read++
		} else if !strings.Contains(f.Err.Error(), "larger than 1048576 bytes together") {
			t.Errorf("%s: %v, want that it is too large", f.Path, f.Err)
		}
	}
	if read != 2 {
		t.Errorf("%d files were read, want the first two", read)
	}
}

// TestFilesAreWrittenThroughLinks replaces the content of a file behind a symbolic link, as
// managers of dotfiles make it, and refuses files that somebody else manages.
func TestFilesAreWrittenThroughLinks(t *testing.T) {
	home := t.TempDir()
	dotfiles := filepath.Join(home, "dotfiles", "mcp.json")
	link := filepath.Join(home, ".cursor", "mcp.json")
	content := `{"mcpServers": {"a": {"command": "x"}}}`
	for _, file := range []string{dotfiles, link} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dotfiles, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dotfiles/mcp.json", link); err != nil {
		t.Fatal(err)
	}
	find := func() clientfiles.File {
		t.Helper()
		for _, c := range clientfiles.Clients() {
			if files := machine(home).Files(c); c.ID == "cursor" && len(files) == 1 {
				return files[0]
			}
		}
		t.Fatal("the file of Cursor is not found")
		return clientfiles.File{}
	}
	f := find()
	if err := f.Replace([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != "../dotfiles/mcp.json" {
		t.Errorf("the link leads to %q (%v), want the dotfiles", target, err)
	}
	info, err := os.Stat(dotfiles)
	if err != nil || info.Mode() != 0o640 || info.Size() != 2 {
		t.Errorf("the target has mode %v and %d bytes (%v), want 0640 and 2", info.Mode(),
			info.Size(), err)
	}
	if err := f.Replace([]byte("[]")); err == nil {
		t.Error("Replace of a file that has changed returned nil, want an error")
	}
	if err := f.Again().Replace([]byte("[]")); err != nil {
		t.Errorf("Replace of the file as it is now returned %v", err)
	}
	if err := os.Chmod(dotfiles, 0o440); err != nil {
		t.Fatal(err)
	}
	if err := find().Replace([]byte("{}")); err == nil ||
		!strings.Contains(err.Error(), "is not writable") {
		t.Errorf("Replace of a read-only file returned %v, want an error", err)
	}
}

// TestVariablesMoveFiles checks the templates of paths.
func TestVariablesMoveFiles(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"c/.claude.json", "x/goose/config.yaml",
		"Library/Application Support/Claude/claude_desktop_config.json", "codex/one.config.toml",
		"codex/config.toml"} {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := machine(home)
	m.OS = "darwin"
	m.Getenv = func(name string) string {
		return map[string]string{"CLAUDE_CONFIG_DIR": home + "/c", "XDG_CONFIG_HOME": home + "/x",
			"CODEX_HOME": home + "/codex"}[name]
	}
	var got []string
	for _, c := range clientfiles.Clients() {
		for _, f := range m.Files(c) {
			name, _ := filepath.Rel(home, f.Path)
			got = append(got, c.ID+" "+name)
		}
	}
	want := []string{"claude-desktop Library/Application Support/Claude/claude_desktop_config.json",
		"claude-code c/.claude.json", "codex codex/config.toml", "codex codex/one.config.toml",
		"goose x/goose/config.yaml"}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%q\nwant\n%q", got, want)
	}
}
