package clientfiles

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxFileSize is the largest file that is read, in bytes. Claude Code keeps its history in the file
// that also has its servers.
const MaxFileSize = 64 << 20

// Document is the content of a client's file, with the servers in it. It does not change: Wrap and
// Unwrap return new content.
type Document struct {
	// Entries holds the servers, in the order of the file.
	Entries []Entry

	place Place
	text  string
	bom   int // bytes of a byte order mark before the text
	root  *value
}

// Entry is a server in a client's file.
type Entry struct {
	// Name is the name that the client gives the server.
	Name string
	// In is the key that the entries are below, such as mcpServers, or
	// projects./home/me/app.mcpServers. It is for people.
	In string
	// Command is the command with its arguments; nil for a server that is reached by a URL.
	Command []string
	// URL is the address of a server that is not started by a command, as the file has it.
	URL string
	// Env holds the names of the variables that the entry sets or passes on, sorted.
	Env []string
	// IsDisabled is true if the client does not start the server.
	IsDisabled bool
	// Beyond is the reason why the command of the entry cannot be changed; "" if it can.
	Beyond string
	// Cwd is the folder in which the client starts the server; "" if the entry does not say.
	Cwd string
	// Others holds the other keys of the entry, in the order of the file.
	Others []string

	path    []string // of the entry in the file: keys, and numbers of items
	entry   *value
	command *value
	args    *value
	// the object with the command: the entry or, in one old shape, the value of its key "command"
	holder *value
	secret []*value // values that may be secrets: of variables and headers
}

// HasBoth is the Beyond of an entry with a command and a URL. Gemini CLI, for example, uses the
// URL, also if Gatekit is in front of the command.
const HasBoth = "it has a command and a URL, and clients differ in which of them they use"

// Parse parses the content of a file and finds the servers in it. The error says what is wrong with
// the content, and where.
func Parse(place Place, content []byte) (*Document, error) {
	d := &Document{place: place, text: string(content)}
	if len(content) > MaxFileSize {
		return nil, fmt.Errorf("it is larger than %d bytes", MaxFileSize)
	}
	if !utf8.Valid(content) {
		return nil, errors.New("it is not UTF-8")
	}
	if strings.HasPrefix(d.text, "\ufeff") {
		d.bom = len("\ufeff")
	}
	text := d.text[d.bom:]
	if strings.TrimSpace(text) == "" {
		return d, nil
	}
	var err error
	if d.root, err = parse(place.Format, text); err != nil {
		return nil, err
	}
	for _, p := range place.Keys {
		if err := d.find(d.root, p, nil); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func parse(f Format, text string) (*value, error) {
	switch f {
	case TOML:
		return parseTOML(text)
	case YAML:
		return parseYAML(text)
	}
	return parseJSON(text)
}

// find finds the servers below the keys that follow. The key * stands for any key.
func (d *Document) find(v *value, keys, path []string) error {
	if v == nil {
		return nil
	}
	if v.kind == object {
		if key, ok := v.hasDuplicate(); ok {
			return fmt.Errorf("it has the key %q twice, and clients differ in which of them they "+
				"use", key)
		}
	}
	if len(keys) == 0 {
		return d.addEntries(v, path)
	}
	for _, m := range v.members {
		if keys[0] != "*" && keys[0] != m.name {
			continue
		}
		if err := d.find(m.value, keys[1:], append(slices.Clone(path), m.name)); err != nil {
			return err
		}
	}
	return nil
}

// addEntries adds the servers in v, which is an object with a member for each server, or a list.
func (d *Document) addEntries(v *value, path []string) error {
	in := strings.Join(path, ".")
	add := func(name, last string, entry *value) error {
		if entry.kind != object {
			return nil
		}
		if key, ok := entry.hasDuplicate(); ok {
			return fmt.Errorf("the server %q has the key %q twice, and clients differ in which of "+
				"them they use", name, key)
		}
		if key, ok := entry.hasOtherCase(d.place.Shape.command(), d.place.Shape.args()); ok {
			return fmt.Errorf("the server %q has the key %q, which some clients read as %q and "+
				"others ignore", name, key, strings.ToLower(key))
		}
		d.Entries = append(d.Entries, d.newEntry(name, in, append(slices.Clone(path), last), entry))
		return nil
	}
	if v.kind == list {
		for i, item := range v.items {
			if err := add(item.member("name").string(), fmt.Sprint(i), item); err != nil {
				return err
			}
		}
	}
	for _, m := range v.members {
		if err := add(m.name, m.name, m.value); err != nil {
			return err
		}
	}
	return nil
}

func (d *Document) newEntry(name, in string, path []string, entry *value) Entry {
	s := d.place.Shape
	e := Entry{Name: name, In: in, path: path, entry: entry, holder: entry}
	e.command, e.args = entry.member(s.command()), entry.member(s.args())
	if e.command != nil && e.command.kind == object { // old files of Zed
		e.holder = e.command
		e.command, e.args = e.holder.member("path"), e.holder.member("args")
	}
	for _, key := range s.urls() {
		e.URL = orElse(e.URL, entry.member(key).string())
	}
	e.IsDisabled = isWord(entry.member("disabled"), "true") ||
		isWord(entry.member("enabled"), "false")
	e.Cwd = orElse(entry.member("cwd").string(), entry.member("working_dir").string())
	e.Others = otherKeys(entry, s)
	e.readEnvironment(s)
	switch {
	case s.isArray() && e.command != nil:
		words, ok := e.command.texts()
		if !ok || len(words) == 0 {
			e.Beyond = "the command is not a list of strings"
		}
		e.Command, e.args = words, nil
	case e.command != nil:
		words, ok := e.args.texts()
		if e.args != nil && !ok && !isWord(e.args, "null", "~") {
			e.Beyond = "the arguments are not a list of strings"
		}
		if e.command.kind != text || e.command.text == "" {
			e.Beyond = "the command is not a string"
			e.Command = []string{e.command.raw}
			break
		}
		e.Command = append([]string{e.command.text}, words...)
	case e.URL == "":
		e.Beyond = orElse(s.noCommand(entry), "it has neither a command nor a URL")
	}
	if e.command != nil && e.Beyond == "" {
		e.Beyond = e.cannotSplice()
	}
	if e.command != nil && e.URL != "" {
		e.Beyond = HasBoth
	}
	return e
}

// otherKeys returns the keys of an entry that are not about how the server is started or reached.
func otherKeys(entry *value, s Shape) (others []string) {
	known := slices.Concat(s.urls(), s.envNames(), []string{s.command(), s.args(), "name", "type",
		"transport", "description", "enabled", "disabled", "cwd", "working_dir", "env", "envs",
		"environment", "headers", "http_headers", "requestOptions"})
	for _, m := range entry.members {
		if !slices.Contains(known, m.name) {
			others = append(others, m.name)
		}
	}
	return others
}

// cannotSplice returns the reason why the command of an entry cannot be changed, or "".
func (e *Entry) cannotSplice() string {
	// An anchor of the entry makes other entries change with it.
	for _, v := range []*value{e.entry, e.holder, e.command, e.args} {
		if v != nil && v.fixed != "" {
			return "its command cannot be changed, because " + v.fixed
		}
	}
	for _, key := range []string{"envFile", "env_file"} {
		if e.entry.member(key) != nil {
			return key + " names variables in another file, which Gatekit would not pass on: " +
				"put gatekit wrap before the command, with --env for each variable"
		}
	}
	// A path may have blanks. The first word of a command line is a name.
	if first, _, ok := strings.Cut(e.Command[0], " "); ok && len(e.Command) == 1 &&
		!strings.ContainsAny(first, `/\`) {
		return "the command is a whole command line: write its words as command and arguments"
	}
	return ""
}

// readEnvironment reads the names of the variables that an entry sets.
func (e *Entry) readEnvironment(s Shape) {
	for _, key := range []string{"env", "envs", "environment", "headers", "http_headers",
		"requestOptions"} {
		v := e.holder.member(key)
		if v == nil {
			continue
		}
		e.secret = append(e.secret, v)
		if key == "headers" || key == "http_headers" || key == "requestOptions" {
			continue
		}
		for _, m := range v.members {
			if !isWord(m.value, "null", "~") {
				e.Env = append(e.Env, m.name)
			}
		}
	}
	for _, key := range s.envNames() {
		v := e.entry.member(key)
		if v == nil {
			continue
		}
		for _, item := range v.items {
			if name := orElse(item.string(), item.member("name").string()); name != "" {
				e.Env = append(e.Env, name)
			}
		}
	}
	slices.Sort(e.Env)
	e.Env = slices.Compact(e.Env)
	for _, name := range e.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			e.Beyond = fmt.Sprintf("%q is not the name of a variable", name)
		}
	}
}

// isWord reports whether a value is one of these words, without quotes.
func isWord(v *value, words ...string) bool {
	return v != nil && v.kind == other && slices.Contains(words, v.raw)
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Masked returns the text of the file for a terminal: the values of variables and of headers, which
// may be secrets, are replaced.
func (d *Document) Masked() string {
	var edits []edit
	for _, e := range d.Entries {
		for _, v := range e.secret {
			edits = append(edits, d.maskEdits(v)...)
		}
	}
	text, err := applyEdits(d.text[d.bom:], edits)
	if err != nil {
		return "" // cannot happen: values do not overlap
	}
	return text
}

// maskEdits returns the edits that replace the texts and numbers in a value.
func (d *Document) maskEdits(v *value) (edits []edit) {
	for _, i := range v.items {
		edits = append(edits, d.maskEdits(i)...)
	}
	for _, m := range v.members {
		if m.value.end < 0 && m.value.start >= 0 && m.value.kind == text {
			edits = append(edits, edit{m.value.start, d.endBelow(m), `"…"`})
			continue
		}
		edits = append(edits, d.maskEdits(m.value)...)
	}
	if isSecret := v.kind == text || v.kind == other && !isWord(v, "null", "~", "true", "false",
		""); isSecret && v.start >= 0 && v.end > v.start {
		edits = append(edits, edit{v.start, v.end, `"…"`})
	}
	return edits
}

// endBelow returns the end of a YAML value over several lines: the end of the lines that are empty
// or further to the right than its key.
func (d *Document) endBelow(m member) int {
	doc := d.text[d.bom:]
	column := m.start - strings.LastIndexAny(doc[:m.start], "\r\n") - 1
	end := m.value.start + strings.IndexAny(doc[m.value.start:]+"\n", "\r\n")
	for next := end; next < len(doc); {
		line := strings.TrimLeft(doc[next:], "\r\n")
		if line == "" {
			break
		}
		start := len(doc) - len(line)
		if i := strings.IndexAny(line, "\r\n"); i >= 0 {
			line = line[:i]
		}
		blanks := len(line) - len(strings.TrimLeft(line, " \t"))
		next = start + len(line)
		if blanks < len(line) && blanks <= column {
			break
		}
		end = next
	}
	return end
}

// Values returns the variables that the entry sets, with their values.
func (e *Entry) Values() map[string]string {
	return e.strings("env", "envs", "environment")
}

// Headers returns the HTTP headers that the client sends to the server.
func (e *Entry) Headers() map[string]string { return e.strings("headers", "http_headers") }

func (e *Entry) strings(keys ...string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		v := e.holder.member(key)
		if v == nil {
			continue
		}
		for _, m := range v.members {
			switch {
			case m.value.kind == text:
				out[m.name] = m.value.text
			case m.value.kind == other && !isWord(m.value, "null", "~"):
				out[m.name] = m.value.raw
			}
		}
	}
	return out
}
