package clientfiles

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Joined describes how Join has replaced servers by one server, as Split needs it.
type Joined struct {
	// In is the place of the servers in the file, such as mcpServers.
	In []string
	// Name is the name of the one server, and Command is its command.
	Name    string
	Command []string
	// Names are the names of the servers that it has replaced, and Texts are their texts.
	Names []string
	Texts []string
}

// Join returns the content with one server instead of the entries, which are indexes in
// Document.Entries. Entries in different places of the file, such as the projects of Claude Code,
// are replaced by one server in each place. The name of the new server is name, or name with a
// number if the place has a server of this name that stays.
//
// The first of the entries is replaced, and the others are removed, with the comments between an
// entry and the one before it. Every other byte of the content stays. YAML files, lists of servers
// and inline tables of TOML cannot be changed in this way; the error says so.
func (d *Document) Join(entries []int, name string, command []string) ([]byte, []Joined, error) {
	var all []Joined
	var edits []edit
	var paths [][]string
	for _, group := range d.places(entries) {
		first := group[0]
		j := Joined{In: first.path[:len(first.path)-1], Command: command}
		gone := func(name string) bool {
			return slices.ContainsFunc(group, func(e *Entry) bool { return e.Name == name })
		}
		j.Name = name
		for n := 2; d.entry(pathOf(j.In, j.Name)) != nil && !gone(j.Name); n++ {
			j.Name = fmt.Sprintf("%s-%d", name, n)
		}
		for i, e := range group {
			at, err := d.extent(e.path)
			if err != nil {
				return nil, nil, fmt.Errorf("the server %q %w", e.Name, err)
			}
			j.Names = append(j.Names, e.Name)
			j.Texts = append(j.Texts, d.text[d.bom:][at.start:at.end])
			if i == 0 {
				edits = append(edits, edit{at.start, at.end, d.oneServer(j, group)})
			} else {
				edits = append(edits, edit{at.before, at.end, ""})
			}
			paths = append(paths, e.path)
		}
		paths = append(paths, pathOf(j.In, j.Name))
		all = append(all, j)
	}
	content, err := d.joined(edits, paths, func(after *Document) error {
		for _, j := range all {
			for _, gone := range j.Names {
				if gone != j.Name && after.entry(pathOf(j.In, gone)) != nil {
					return fmt.Errorf("the server %q would stay", gone)
				}
			}
			e := after.entry(pathOf(j.In, j.Name))
			if e == nil || e.Beyond != "" || !slices.Equal(e.Command, command) {
				return fmt.Errorf("the command of %q would not be as planned", j.Name)
			}
		}
		return nil
	})
	return content, all, err
}

// Split undoes changes of Join, in content that may have changed since. It undoes a change if the
// one server still has the command of the change. It returns the content, and for each other change
// the reason why it stays, by the index in all.
func (d *Document) Split(all []Joined) (content []byte, kept map[int]string, err error) {
	var edits []edit
	var paths [][]string
	kept = map[int]string{}
	for i, j := range all {
		e := d.entry(pathOf(j.In, j.Name))
		switch {
		case e == nil:
			kept[i] = "the client's file no longer has it"
			continue
		case !slices.Equal(e.Command, j.Command):
			kept[i] = "its command has changed since"
			continue
		}
		at, err := d.extent(e.path)
		if err != nil {
			kept[i] = "it " + err.Error()
			continue
		}
		var texts []string
		for n, text := range j.Texts {
			path := pathOf(j.In, j.Names[n])
			if j.Names[n] != j.Name && d.entry(path) != nil {
				continue // somebody has added it again
			}
			texts, paths = append(texts, text), append(paths, path)
		}
		if len(texts) == 0 {
			kept[i] = "the servers that it has replaced are in the file again"
			continue
		}
		between := "\n\n"
		if d.place.Format == JSON {
			between = "," + d.newLine(at.start)
		}
		edits = append(edits, edit{at.start, at.end, strings.Join(texts, between)})
		paths = append(paths, e.path)
	}
	if len(edits) == 0 {
		return []byte(d.text), kept, nil
	}
	content, err = d.joined(edits, paths, func(*Document) error { return nil })
	return content, kept, err
}

func pathOf(in []string, name string) []string { return append(slices.Clone(in), name) }

// places returns the entries by their place in the file.
func (d *Document) places(entries []int) (groups [][]*Entry) {
	for _, i := range slices.Sorted(slices.Values(entries)) {
		e := &d.Entries[i]
		in := e.path[:len(e.path)-1]
		n := slices.IndexFunc(groups, func(g []*Entry) bool {
			return slices.Equal(g[0].path[:len(g[0].path)-1], in)
		})
		if n < 0 {
			groups = append(groups, nil)
			n = len(groups) - 1
		}
		groups[n] = append(groups[n], e)
	}
	return groups
}

// joined is like changed, but the entries at paths may be there or not.
func (d *Document) joined(edits []edit, paths [][]string, check func(*Document) error) ([]byte,
	error) {
	text, err := applyEdits(d.text[d.bom:], edits)
	if err != nil {
		return nil, err
	}
	content := []byte(d.text[:d.bom] + text)
	after, err := Parse(d.place, content)
	if err != nil {
		return nil, fmt.Errorf("the changed file would not parse: %w", err)
	}
	skip := func(path []string) bool {
		return slices.ContainsFunc(paths, func(p []string) bool { return slices.Equal(p, path) })
	}
	if !equal(d.root, after.root, nil, skip) {
		return nil, errors.New("the change would change more than the servers")
	}
	return content, check(after)
}

// extent is the place of an entry's text.
type extent struct {
	start, end int
	before     int // the end of the text before it, so that the comma goes with the entry
}

// extent returns the place of the text of the entry at a path, with its name.
func (d *Document) extent(path []string) (extent, error) {
	switch d.place.Format {
	case YAML:
		return extent{}, errors.New("is in a YAML file: replace it by hand")
	case TOML:
		return d.tableExtent(path)
	}
	v := d.root
	for _, key := range path[:len(path)-1] {
		v = v.member(key)
	}
	if v == nil || v.kind != object {
		return extent{}, errors.New("is an item of a list: replace it by hand")
	}
	i := slices.IndexFunc(v.members, func(m member) bool { return m.name == path[len(path)-1] })
	m := v.members[i]
	at := extent{m.start, m.value.end, m.start}
	if i > 0 {
		at.before = v.members[i-1].value.end
	}
	return at, nil
}

// tableExtent returns the place of a table of TOML with its header and the tables below it.
func (d *Document) tableExtent(path []string) (at extent, err error) {
	doc := d.text[d.bom:]
	var p unstable.Parser
	p.Reset([]byte(doc))
	found, isOver, inside := false, false, false
	end := 0 // of the expression before
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.Comment {
			continue
		}
		if e.Kind == unstable.Table || e.Kind == unstable.ArrayTable {
			var keys []string
			offset := -1
			for i := e.Key(); i.Next(); {
				keys = append(keys, string(i.Node().Data))
				if offset < 0 {
					offset = int(i.Node().Raw.Offset)
				}
			}
			start := strings.LastIndexByte(doc[:offset], '\n') + 1
			inside = len(keys) >= len(path) && slices.Equal(keys[:len(path)], path)
			if inside && isOver {
				return at, errors.New("is written in several places: replace it by hand")
			}
			if inside && !found {
				found, at.start, at.before = true, start, end
			}
			isOver = found && !inside
			rest := strings.IndexAny(doc[offset:]+"\n", "\r\n")
			end = offset + rest
		} else {
			end = lineEnd(doc, int(e.Raw.Offset+e.Raw.Length))
		}
		if inside {
			at.end = end
		}
	}
	if !found {
		return at, errors.New("is not written as a table with a header: replace it by hand")
	}
	return at, p.Error()
}

// lineEnd returns the end of the line that an offset is in.
func lineEnd(doc string, at int) int { return at + strings.IndexAny(doc[at:]+"\n", "\r\n") }

// oneServer returns the text of the server that replaces a group of entries.
func (d *Document) oneServer(j Joined, group []*Entry) string {
	f, s := d.place.Format, d.place.Shape
	quoted := quoteAll(f, j.Command)
	if f == TOML {
		var path []string
		for _, key := range pathOf(j.In, j.Name) {
			path = append(path, tomlKey(key))
		}
		return fmt.Sprintf("[%s]\ncommand = %s\nargs = [%s]", strings.Join(path, "."), quoted[0],
			strings.Join(quoted[1:], ", "))
	}
	// Some clients want to know the type, and which tools to use.
	var kind, tools string
	for _, e := range group {
		if e.entry.member("tools") != nil {
			tools = `, "tools": ["*"]`
		}
		switch t := e.entry.member("type"); {
		case t == nil || kind != "" && e.Command == nil:
		case e.Command != nil:
			kind = `"type": ` + t.raw + `, `
		case s.isArray():
			kind = `"type": "local", `
		default:
			kind = `"type": "stdio", `
		}
	}
	command := fmt.Sprintf(`"command": %s, "args": [%s]`, quoted[0], strings.Join(quoted[1:], ", "))
	if s.isArray() {
		command = fmt.Sprintf(`"command": [%s]`, strings.Join(quoted, ", "))
	}
	return fmt.Sprintf("%s: { %s%s%s }", quote(f, j.Name), kind, command, tools)
}

// tomlKey returns a key as TOML writes it.
func tomlKey(key string) string {
	for _, r := range key {
		if r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') &&
			(r < 'a' || r > 'z') {
			return quote(TOML, key)
		}
	}
	return key
}
