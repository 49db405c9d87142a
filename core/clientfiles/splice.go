package clientfiles

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// edit replaces doc[start:end] by text.
type edit struct {
	start, end int
	text       string
}

// applyEdits returns doc with all edits. Two edits must not overlap.
func applyEdits(doc string, edits []edit) (string, error) {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	var out strings.Builder
	at := 0
	for _, e := range edits {
		if e.start < at || e.end < e.start || e.end > len(doc) {
			return "", errors.New("two changes overlap")
		}
		out.WriteString(doc[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.WriteString(doc[at:])
	return out.String(), nil
}

// Change is the change of one entry.
type Change struct {
	// Entry is the index of the entry in Document.Entries.
	Entry int
	// Words are the words before the old command: the program, and its first arguments.
	Words []string
}

// Original is an entry before a change, as Unwrap needs it.
type Original struct {
	// Path is the place of the entry in the file.
	Path []string
	// Name is the name of the server.
	Name string
	// Words are the words that Wrap has put before the command.
	Words []string
	// Command is the command as the file had it, with its quotes; "" if the command was an item of
	// a list, and has been left in place.
	Command string
	// CommandText is the command without quotes.
	CommandText string
	// Args is the key of the arguments that Wrap has inserted; "" if the entry had the key.
	Args string
	// NullArgs is the value of the arguments that Wrap has replaced, such as null; "" if the
	// arguments were a list.
	NullArgs string
}

// Wrap returns the content with the changes, and what Unwrap needs to undo each of them. Entries
// that have a Beyond cannot be changed. Nothing else in the content differs.
func (d *Document) Wrap(changes []Change) ([]byte, []Original, error) {
	var edits []edit
	var originals []Original
	var paths [][]string
	for _, c := range changes {
		e := &d.Entries[c.Entry]
		if e.Beyond != "" || e.command == nil || len(c.Words) < 2 {
			return nil, nil, fmt.Errorf("the server %q cannot be wrapped: %s", e.Name, e.Beyond)
		}
		more, o := d.wrapEdits(e, c.Words)
		edits, originals = append(edits, more...), append(originals, o)
		paths = append(paths, e.path)
	}
	return d.changed(edits, paths, func(after *Document) error {
		for i, c := range changes {
			want := slices.Concat(c.Words, d.Entries[c.Entry].Command)
			e := after.entry(paths[i])
			if e == nil || !slices.Equal(e.Command, want) {
				return fmt.Errorf("the command of %q would not be as planned", originals[i].Name)
			}
		}
		return nil
	}, originals)
}

// wrapEdits returns the two splices that put words before the command of an entry.
func (d *Document) wrapEdits(e *Entry, words []string) ([]edit, Original) {
	f := d.place.Format
	o := Original{Path: e.path, Name: e.Name, Words: words, CommandText: e.Command[0]}
	if e.command.kind == list {
		return []edit{d.insertItems(e.command, words, "")}, o
	}
	o.Command = e.command.raw
	if f == YAML {
		o.Command = d.text[d.bom:][e.command.start:e.command.end]
	}
	edits := []edit{{e.command.start, e.command.end, quote(f, words[0])}}
	moved := o.Command
	if f == YAML { // a plain scalar may mean something else in a list
		moved = quote(f, e.command.text)
	}
	if e.args != nil && e.args.kind == list {
		return append(edits, d.insertItems(e.args, words[1:], moved)), o
	}
	list := "[" + strings.Join(append(quoteAll(f, words[1:]), moved), ", ") + "]"
	if e.args != nil { // null
		o.NullArgs = d.text[d.bom:][e.args.start:e.args.end]
		return append(edits, edit{e.args.start, e.args.end, list}), o
	}
	key := d.place.Shape.args()
	if e.holder != e.entry {
		key = "args"
	}
	if f == JSON {
		o.Args = ", " + quote(f, key) + ": " + list
		edits[0].text += o.Args
		return edits, o
	}
	m := e.holder.members[slices.IndexFunc(e.holder.members, func(m member) bool {
		return m.value == e.command
	})]
	between := ": "
	if f == TOML {
		between = " = "
	}
	o.Args = m.dotted + key + between + list + ", "
	if m.block {
		o.Args = m.dotted + key + between + list + d.newLine(m.start)
	}
	return append(edits, edit{m.start, m.start, o.Args}), o
}

func quoteAll(f Format, words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(f, w)
	}
	return out
}

// insertItems returns the edit that puts words, and then a raw item, before the items of a list.
func (d *Document) insertItems(v *value, words []string, moved string) edit {
	items := quoteAll(d.place.Format, words)
	if moved != "" {
		items = append(items, moved)
	}
	if len(v.dashes) > 0 {
		at := v.dashes[0]
		var b strings.Builder
		for _, i := range items {
			b.WriteString("- " + i + d.newLine(at))
		}
		return edit{at, at, b.String()}
	}
	text := strings.Join(items, ", ")
	if len(v.items) == 0 {
		return edit{v.start + 1, v.start + 1, text}
	}
	return edit{v.items[0].start, v.items[0].start, text + ", "}
}

// newLine returns a line break, as the file has it, with the indentation of the text at an offset.
func (d *Document) newLine(at int) string {
	text := d.text[d.bom:]
	start := strings.LastIndexAny(text[:at], "\n\r") + 1
	var b strings.Builder
	b.WriteString("\n")
	if strings.Contains(text, "\r\n") {
		b.Reset()
		b.WriteString("\r\n")
	}
	for _, r := range text[start:at] {
		if r != '\t' {
			r = ' ' // also for the dash of a list before the first key
		}
		b.WriteRune(r)
	}
	return b.String()
}

// entry returns the entry at a path, or nil.
func (d *Document) entry(path []string) *Entry {
	for i := range d.Entries {
		if slices.Equal(d.Entries[i].path, path) {
			return &d.Entries[i]
		}
	}
	return nil
}

// changed returns the content with the edits. It checks that the commands and arguments of the
// entries at paths are the only difference, and that check accepts the new content.
func (d *Document) changed(edits []edit, paths [][]string, check func(*Document) error,
	originals []Original) ([]byte, []Original, error) {
	text, err := applyEdits(d.text[d.bom:], edits)
	if err != nil {
		return nil, nil, err
	}
	content := []byte(d.text[:d.bom] + text)
	after, err := Parse(d.place, content)
	if err != nil {
		return nil, nil, fmt.Errorf("the changed file would not parse: %w", err)
	}
	s := d.place.Shape
	skip := func(path []string) bool {
		return slices.ContainsFunc(paths, func(p []string) bool {
			if len(path) <= len(p) || !slices.Equal(path[:len(p)], p) {
				return false
			}
			key := path[len(p)]
			return key == s.command() || key == s.args()
		})
	}
	if !equal(d.root, after.root, nil, skip) {
		return nil, nil, errors.New("the change would change more than a command and its arguments")
	}
	if err := check(after); err != nil {
		return nil, nil, err
	}
	return content, originals, nil
}

// Unwrap undoes changes of Wrap, in content that may have changed since. It undoes an entry if its
// command still begins with the words of the change and the old command. It returns the content,
// and for each other entry the reason why it stays as it is, by the index in originals.
func (d *Document) Unwrap(originals []Original) (content []byte, kept map[int]string, err error) {
	var edits []edit
	var paths [][]string
	kept = map[int]string{}
	want := map[int][]string{}
	for i, o := range originals {
		e := d.entry(o.Path)
		words := append(slices.Clone(o.Words), o.CommandText)
		switch {
		case e == nil && len(o.Path) > 0 && d.namedEntry(o) != nil:
			e = d.namedEntry(o) // an item of a list that has moved
		case e == nil:
			kept[i] = "the client's file no longer has it"
			continue
		}
		if !hasPrefix(e.Command, words) {
			kept[i] = "its command has changed since"
			continue
		}
		if e.Beyond != "" {
			kept[i] = e.Beyond
			continue
		}
		edits = append(edits, d.unwrapEdits(e, o)...)
		paths = append(paths, e.path)
		want[i] = e.Command[len(o.Words):]
	}
	if len(edits) == 0 {
		return []byte(d.text), kept, nil
	}
	content, _, err = d.changed(edits, paths, func(after *Document) error {
		n := 0
		for i := range originals {
			if words, ok := want[i]; ok {
				e := after.entry(paths[n])
				if n++; e == nil || !slices.Equal(e.Command, words) {
					return fmt.Errorf("the command of %q would not be as before", originals[i].Name)
				}
			}
		}
		return nil
	}, nil)
	return content, kept, err
}

// namedEntry returns the entry with the name of an original in the same list.
func (d *Document) namedEntry(o Original) *Entry {
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.Name == o.Name && len(e.path) == len(o.Path) &&
			slices.Equal(e.path[:len(e.path)-1], o.Path[:len(o.Path)-1]) {
			return e
		}
	}
	return nil
}

func hasPrefix(words, prefix []string) bool {
	return len(words) >= len(prefix) && slices.Equal(words[:len(prefix)], prefix)
}

// unwrapEdits returns the splices that remove the words of Wrap.
func (d *Document) unwrapEdits(e *Entry, o Original) []edit {
	text := d.text[d.bom:]
	if e.command.kind == list {
		return []edit{d.removeItems(e.command, len(o.Words))}
	}
	edits := []edit{{e.command.start, e.command.end, o.Command}}
	if o.Args != "" && len(e.args.items) == len(o.Words) {
		// Remove the key, if nobody has written it anew.
		if d.place.Format == JSON && strings.HasPrefix(text[e.command.end:], o.Args) {
			edits[0].end += len(o.Args)
			return edits
		}
		m := e.holder.members[slices.IndexFunc(e.holder.members, func(m member) bool {
			return m.value == e.args
		})]
		if d.place.Format != JSON && strings.HasPrefix(text[m.start:], o.Args) {
			return append(edits, edit{m.start, m.start + len(o.Args), ""})
		}
	}
	if o.NullArgs != "" && len(e.args.items) == len(o.Words) {
		return append(edits, edit{e.args.start, e.args.end, o.NullArgs})
	}
	return append(edits, d.removeItems(e.args, len(o.Words)))
}

// removeItems returns the edit that removes the first n items of a list.
func (d *Document) removeItems(v *value, n int) edit {
	if n < len(v.items) {
		if len(v.dashes) > 0 {
			return edit{v.dashes[0], v.dashes[n], ""}
		}
		return edit{v.items[0].start, v.items[n].start, ""}
	}
	if len(v.dashes) > 0 {
		return edit{v.dashes[0], v.items[n-1].end, "[]"}
	}
	inserted := edit{v.items[0].start, v.items[n-1].end, ""}
	if rest := strings.TrimLeft(d.text[d.bom+inserted.end:], " \t\r\n"); strings.HasPrefix(rest,
		",") {
		return edit{v.start + 1, v.end - 1, ""} // with the comma after the last item
	}
	return inserted
}
