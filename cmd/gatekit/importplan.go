package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"gatekit/core/clientfiles"
)

// lookPath returns the absolute path of a program.
func lookPath(name string) (string, error) {
	file, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(file)
}

// findClientFiles returns the files of the clients with these ids, or of all clients. With a
// project, it also returns the files in this folder.
func findClientFiles(ids []string, project string) (files []clientfiles.File, err error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find the files of clients: %w", err)
	}
	m := clientfiles.Machine{OS: runtime.GOOS, Home: home, Getenv: os.Getenv}
	if project != "" {
		if m.Project, err = filepath.Abs(project); err != nil {
			return nil, err
		}
		if i, err := os.Stat(m.Project); err != nil || !i.IsDir() {
			return nil, fmt.Errorf("--project %s is not a folder", project)
		}
	}
	for _, c := range clientfiles.Clients() {
		if len(ids) == 0 || slices.Contains(ids, c.ID) {
			files = append(files, m.Files(c)...)
		}
	}
	return files, nil
}

// entryState is how a server in a client's file is connected.
type entryState struct {
	// state is wrapped (gatekit wrap starts it), gatekit (it is Gatekit), unwrapped (import can
	// wrap it) or beyond (import cannot).
	state  string
	reason string // of beyond
}

const (
	stateWrapped   = "wrapped"
	stateGatekit   = "gatekit"
	stateUnwrapped = "unwrapped"
	stateBeyond    = "beyond"
)

// stateOf returns the state of a server in a file.
func stateOf(f clientfiles.File, e clientfiles.Entry) entryState {
	word := gatekitCommand(e.Command)
	if word != "" && filepath.IsAbs(e.Command[0]) {
		if _, err := os.Stat(e.Command[0]); errors.Is(err, fs.ErrNotExist) {
			return entryState{stateBeyond, "it is wrapped, but there is no " + e.Command[0]}
		}
	}
	switch {
	case e.Beyond == clientfiles.HasBoth:
		return entryState{stateBeyond, e.Beyond}
	case word == "wrap":
		return entryState{stateWrapped, ""}
	case word == "run":
		return entryState{stateGatekit, ""}
	case word != "":
		return entryState{stateBeyond, "gatekit " + word + " checks no messages"}
	case f.Place.Beyond != "":
		return entryState{stateBeyond, f.Place.Beyond}
	case e.Beyond != "":
		return entryState{stateBeyond, e.Beyond}
	case e.Command == nil:
		return entryState{stateBeyond, "the client connects to its URL; gatekit help wrap shows " +
			"how to put gatekit wrap --url before it"}
	}
	return entryState{stateUnwrapped, ""}
}

// gatekitCommand returns the first argument of a command that is Gatekit, such as wrap. It returns
// "" for any other command. The flag --log-level, which may stand before the argument, is skipped.
func gatekitCommand(command []string) string {
	if len(command) == 0 || programName(command[0]) != "gatekit" && !isOwnProgram(command[0]) {
		return ""
	}
	for i := 1; i < len(command); i++ {
		switch word := command[i]; {
		case word == "--log-level":
			i++
		case !strings.HasPrefix(word, "-"):
			return word
		}
	}
	return "help"
}

// isOwnProgram reports whether a command is this program under another name.
func isOwnProgram(command string) bool {
	if !filepath.IsAbs(command) {
		return false
	}
	own, err := os.Executable()
	if err != nil {
		return false
	}
	a, errA := os.Stat(own)
	b, errB := os.Stat(command)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// importPlan holds the changes of the files of clients.
type importPlan struct {
	changes  []*fileChange
	unusable []clientfiles.File // files that cannot be read or do not parse
	left     []leftServer
}

// fileChange is the change of one file.
type fileChange struct {
	file      clientfiles.File
	program   string      // in front of the commands
	one       *oneGatekit // replaces the servers; nil if they are wrapped
	content   []byte      // the new content
	originals []clientfiles.Original
	joined    []clientfiles.Joined
	err       error // of writing the file
}

// planImport returns the changes that wrap the servers in files.
func planImport(files []clientfiles.File, program string) *importPlan {
	p := &importPlan{left: []leftServer{}}
	for _, f := range files {
		if f.Err != nil {
			p.unusable = append(p.unusable, f)
			continue
		}
		for _, e := range f.Document.Entries {
			s := stateOf(f, e)
			if s.state == stateUnwrapped {
				continue
			}
			p.left = append(p.left, leftServer{Client: f.Client.ID, File: f.Path, Server: e.Name,
				State: s.state, Reason: s.reason})
		}
		c := &fileChange{file: f, program: program}
		if f.Place.Scope == clientfiles.Project {
			c.program = "gatekit" // the file is shared with people who have it elsewhere
		}
		if err := c.plan(); err != nil {
			f.Err = err
			p.unusable = append(p.unusable, f)
		} else if len(c.originals) > 0 {
			p.changes = append(p.changes, c)
		}
	}
	return p
}

// plan makes the new content for the current content of the file.
func (c *fileChange) plan() (err error) {
	if c.one != nil {
		return c.planOne()
	}
	var changes []clientfiles.Change
	for i, e := range c.file.Document.Entries {
		if stateOf(c.file, e).state != stateUnwrapped {
			continue
		}
		words := []string{c.program, "wrap"}
		for _, name := range e.Env {
			words = append(words, "--env", name)
		}
		if strings.HasPrefix(e.Command[0], "-") {
			words = append(words, "--")
		}
		changes = append(changes, clientfiles.Change{Entry: i, Words: words})
	}
	if len(changes) == 0 {
		c.content, c.originals = c.file.Content, nil
		return nil
	}
	c.content, c.originals, err = c.file.Document.Wrap(changes)
	return err
}

// count returns the number of servers that the change is about.
func (c *fileChange) count() int {
	n := len(c.originals)
	for _, j := range c.joined {
		n += len(j.Names)
	}
	return n
}

// diff returns the change as a unified diff without the values of variables and headers.
func (c *fileChange) diff() string { return contentDiff(c.file, c.content) }

// contentDiff returns the difference between a file and a new content, without the values of
// variables and headers.
func contentDiff(f clientfiles.File, content []byte) string {
	after, err := clientfiles.Parse(f.Place, content)
	if err != nil {
		return "the new content does not parse: " + err.Error() + "\n" // cannot happen
	}
	return printable(string(diff.Diff(f.Path+" (now)", []byte(f.Document.Masked()),
		f.Path+" (after)", []byte(after.Masked()))))
}

// print prints the plan: the diff of each file, then the files and servers that stay as they are.
func (p *importPlan) print(out io.Writer) {
	colors := paletteFor(out)
	for _, c := range p.changes {
		fmt.Fprintf(out, "%s: %s in %s\n\n", c.file.Client.Name, plural(c.count(), "server"),
			printable(c.file.Path))
		printDiff(out, colors, c.diff())
		fmt.Fprintln(out)
	}
	wrapped, beyond := 0, 0
	for _, l := range p.left {
		if l.State == stateBeyond {
			beyond++
		} else {
			wrapped++
		}
	}
	if wrapped > 0 {
		fmt.Fprintf(out, "behind Gatekit already: %s\n", plural(wrapped, "server"))
	}
	if beyond > 0 {
		fmt.Fprintf(out, "beyond import: %s (gatekit clients has the reasons)\n",
			plural(beyond, "server"))
	}
	for _, f := range p.unusable {
		fmt.Fprintf(out, "%s: %s %s: %s\n", colors.bad("not touched"), f.Client.Name,
			printable(f.Path), oneLine(f.Err.Error()))
	}
}

func printDiff(out io.Writer, colors palette, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "diff "):
			continue
		case strings.HasPrefix(line, "+"):
			line = colors.good(line)
		case strings.HasPrefix(line, "-"):
			line = colors.bad(line)
		}
		fmt.Fprintln(out, line)
	}
}

// nothing reports that no server has to be wrapped.
func (p *importPlan) nothing(to io.Writer, clients []string) error {
	switch {
	case len(p.unusable) > 0:
	case len(p.left) > 0:
		fmt.Fprintln(to, "nothing to import: every server that import can wrap is wrapped")
	case len(clients) > 0:
		fmt.Fprintf(to, "nothing to import: no servers of %s found\n", strings.Join(clients, ", "))
	default:
		fmt.Fprintln(to, "nothing to import: no servers of MCP clients found\nhint: gatekit wrap "+
			"puts Gatekit in front of one server; gatekit help wrap shows how to write it")
	}
	return p.failure()
}

// failure returns an error if a file could not be read or written.
func (p *importPlan) failure() error {
	n := len(p.unusable)
	for _, c := range p.changes {
		if c.err != nil {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s not changed\nhint: mend the file, and import again", plural(n, "file"))
}

// printResult prints what was written, and what to do next.
func (p *importPlan) printResult(out io.Writer, id string) {
	servers, files := 0, 0
	var next []string
	for _, c := range p.changes {
		if c.err != nil {
			fmt.Fprintf(out, "%s: %s %s: %s\n", paletteFor(out).bad("not changed"),
				c.file.Client.Name, printable(c.file.Path), oneLine(c.err.Error()))
			continue
		}
		files++
		servers += c.count()
		if hint := c.file.Client.Name + ": " + c.file.Client.Restart; !slices.Contains(next,
			hint) {
			next = append(next, hint)
		}
	}
	if files == 0 {
		return
	}
	done := "wrapped"
	if p.changes[0].one != nil {
		done = "replaced"
	}
	fmt.Fprintf(out, "%s %s in %s; gatekit import undo %s restores them\n", done,
		plural(servers, "server"), plural(files, "file"), id)
	fmt.Fprintln(out, "next, so that the clients use the changed files:")
	for _, hint := range next {
		fmt.Fprintln(out, "  "+hint)
	}
	fmt.Fprintln(out, "then see what happens: gatekit audit show --follow")
}
