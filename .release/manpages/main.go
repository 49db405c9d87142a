// Manpages writes a manual page for each command of Gatekit, from the text of "gatekit help":
//
//	SOURCE_DATE_EPOCH=1764300000 go run ./manpages BINARY FOLDER
//
// The help is the only source, so a manual page never says anything else than the program. A page
// has the name gatekit-audit-show.1. The date on the pages is SOURCE_DATE_EPOCH.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: manpages BINARY FOLDER")
		os.Exit(2)
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "manpages: SOURCE_DATE_EPOCH must be the time of the commit:", err)
		os.Exit(1)
	}
	w := writer{binary: os.Args[1], folder: os.Args[2],
		date: time.Unix(epoch, 0).UTC().Format("2006-01-02")}
	short := "Check and record every message between MCP clients and servers"
	if err := w.command(nil, short); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

type writer struct{ binary, folder, date string }

// command writes the page of a command, and the pages of its subcommands.
func (w writer) command(path []string, short string) error {
	run := exec.Command(w.binary, append([]string{"help"}, path...)...)
	run.Env = append(os.Environ(), "NO_COLOR=1")
	text, err := run.Output()
	if err != nil {
		return fmt.Errorf("run gatekit help %s: %w", strings.Join(path, " "), err)
	}
	name := strings.Join(append([]string{"gatekit"}, path...), "-")
	p := parse(string(text))
	if p.usage == nil || p.description == nil {
		return fmt.Errorf("the help of %s has no description or no usage", name)
	}
	file := filepath.Join(w.folder, name+".1")
	if err := os.WriteFile(file, []byte(p.roff(name, short, w.date)), 0o644); err != nil {
		return err
	}
	for _, c := range p.commands {
		if c.term == "help" { // its page would repeat this one
			continue
		}
		if err := w.command(append(path[:len(path):len(path)], c.term), c.text); err != nil {
			return err
		}
	}
	return nil
}

// page is the help of a command, in parts.
type page struct {
	description, usage, examples []string
	commands, flags, global      []entry
}

// entry is a subcommand or a flag, and what the help says about it.
type entry struct{ term, text string }

var heading = regexp.MustCompile(`^(Usage|Aliases|Examples|Available Commands|Flags|Global Flags):$`)

// parse takes the help of a command apart. Its parts are those of Cobra.
func parse(text string) page {
	var p page
	parts := map[string][]string{}
	part := ""
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			part = m[1]
			continue
		}
		if strings.HasPrefix(line, `Use "gatekit`) && part != "" {
			break
		}
		parts[part] = append(parts[part], line)
	}
	p.description = parts[""]
	p.usage = indented(parts["Usage"])
	p.examples = parts["Examples"]
	p.commands = entries(parts["Available Commands"], " ")
	p.flags = entries(parts["Flags"], "  ")
	p.global = entries(parts["Global Flags"], "  ")
	return p
}

func indented(lines []string) (found []string) {
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			found = append(found, l)
		}
	}
	return found
}

// entries reads a list with two columns, which the separator and more spaces divide. A line that
// begins further to the right continues the text before it.
func entries(lines []string, separator string) (found []entry) {
	for _, l := range lines {
		line := strings.TrimSpace(l)
		indent := len(l) - len(strings.TrimLeft(l, " "))
		if line == "" {
			continue
		}
		term, text, two := strings.Cut(line, separator)
		switch {
		case indent > 8 && len(found) > 0:
			last := &found[len(found)-1]
			last.text = strings.TrimSpace(last.text + " " + line)
		case two:
			found = append(found, entry{term, strings.TrimSpace(text)})
		default:
			found = append(found, entry{term: line})
		}
	}
	return found
}

// escape returns a text as roff prints it: no character is a command of roff.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `^`, `\(ha`, `~`, `\(ti`, "`", `\(ga`, `'`,
		`\(aq`, `"`, `\(dq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

func (p page) roff(name, short, date string) string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line(`.TH %s 1 %s "" "Gatekit"`, strings.ToUpper(escape(name)), date)
	line(".SH NAME")
	line(`%s \- %s`, escape(name), escape(strings.ToLower(short[:1])+short[1:]))
	line(".SH SYNOPSIS")
	for i, u := range p.usage {
		if i > 0 {
			line(".br")
		}
		line(".B %s", escape(u))
	}
	line(".SH DESCRIPTION")
	text(line, p.description)
	list := func(title string, entries []entry) {
		if entries == nil {
			return
		}
		line(".SH %s", title)
		for _, e := range entries {
			line(".TP")
			line(".B %s", escape(e.term))
			fill(line, e.text)
		}
	}
	list("COMMANDS", p.commands)
	list("OPTIONS", p.flags)
	list(`"GLOBAL OPTIONS"`, p.global)
	if p.examples != nil {
		line(".SH EXAMPLES")
		text(line, p.examples)
	}
	var also []string
	if parent, _, isSub := lastCut(name, "-"); isSub {
		also = append(also, parent)
	}
	for _, c := range p.commands {
		if c.term != "help" {
			also = append(also, name+"-"+c.term)
		}
	}
	if also != nil {
		line(".SH SEE ALSO")
		for i, a := range also {
			comma := ","
			if i == len(also)-1 {
				comma = ""
			}
			line(".BR %s (1)%s", escape(a), comma)
		}
	}
	return b.String()
}

func lastCut(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// text writes paragraphs. A paragraph with an indented line or with two columns keeps its lines.
func text(line func(string, ...any), lines []string) {
	first := true
	for _, paragraph := range strings.Split(strings.Trim(strings.Join(lines, "\n"), "\n"), "\n\n") {
		if strings.TrimSpace(paragraph) == "" {
			continue
		}
		if !first {
			line(".PP")
		}
		first = false
		asIs := false
		for l := range strings.SplitSeq(paragraph, "\n") {
			asIs = asIs || strings.Contains(l, "  ")
		}
		if !asIs {
			fill(line, paragraph)
			continue
		}
		line(".nf")
		for l := range strings.SplitSeq(strings.Trim(paragraph, "\n"), "\n") {
			line("%s", escape(l))
		}
		line(".fi")
	}
}

// fill writes words as lines of at most 78 bytes. man(1) fills them again.
func fill(line func(string, ...any), text string) {
	now := ""
	for _, word := range strings.Fields(text) {
		switch longer := now + " " + word; {
		case now == "":
			now = word
		case len(escape(longer)) > 78:
			line("%s", escape(now))
			now = word
		default:
			now = longer
		}
	}
	if now != "" {
		line("%s", escape(now))
	}
}
