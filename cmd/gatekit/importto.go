package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"gatekit/core/clientfiles"
)

// fromGateway writes a configuration from the configuration of another gateway.
func (o *importOptions) fromGateway(out io.Writer) error {
	foreign, err := readForeign(o.from)
	if err != nil {
		return err
	}
	c := newConfigurationText()
	c.comment("Written by gatekit import from " + filepath.Base(o.from) + " (" + foreign.kind +
		").")
	c.comment("gatekit check starts each server once; gatekit run serves them.")
	for _, lost := range foreign.lost {
		c.comment("not carried over: " + lost)
	}
	lost := len(foreign.lost)
	for _, s := range foreign.servers {
		c.server(s)
		lost += len(s.lost)
	}
	c.defaults()
	if _, err := c.write(o.to); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s: %s of %s\n", printable(displayPath(o.to)),
		plural(len(foreign.servers), "server"), foreign.kind)
	if lost > 0 {
		fmt.Fprintf(out, "%s not carried over; comments in the file name them\n",
			plural(lost, "setting"))
	}
	o.printNext(out, len(c.secrets))
	return nil
}

// printNext prints what to do with a new configuration.
func (o *importOptions) printNext(out io.Writer, secrets int) {
	if secrets > 0 {
		fmt.Fprintf(out, "the values of variables and headers are in %s; do not commit them\n",
			printable(displayPath(filepath.Join(filepath.Dir(o.to), secretsFolder))))
	}
	fmt.Fprintf(out, "next: gatekit check --config %s\n", shellQuote(displayPath(o.to)))
}

// toConfiguration writes one configuration for the servers of the clients. Then it replaces these
// servers in the clients' files by one, if the user agrees.
func (o *importOptions) toConfiguration(cmd *cobra.Command, files []clientfiles.File,
	program string) error {
	out := cmd.OutOrStdout()
	c := newConfigurationText()
	c.comment("Written by gatekit import --to from the files of your clients.")
	servers, left := clientServers(files)
	if len(servers) == 0 {
		return fmt.Errorf("%w in the files of clients\nhint: gatekit clients lists what is there",
			errNoServers)
	}
	for _, s := range servers {
		c.server(s)
	}
	c.defaults()
	if _, err := c.write(o.to); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s: %s\n", printable(displayPath(o.to)),
		plural(len(servers), "server"))
	for _, l := range left {
		fmt.Fprintf(out, "left out: %s %q: %s\n", l.Client, printable(l.Server),
			oneLine(l.Reason))
	}
	o.printNext(out, len(c.secrets))
	abs, err := filepath.Abs(o.to)
	if err != nil {
		return err
	}
	plan, byHand := planOne(files, &oneGatekit{program: program, config: abs})
	for _, l := range byHand {
		fmt.Fprintf(out, "stays in its file: %s %q: %s\n", l.Client, printable(l.Server),
			oneLine(l.Reason))
	}
	byHandHint := func() {
		fmt.Fprintf(out, "in each client, replace the servers by this one:\n  %s run --config %s\n",
			shellQuote(program), shellQuote(abs))
	}
	if len(plan.changes) == 0 {
		byHandHint()
		return nil
	}
	fmt.Fprintln(out)
	plan.print(out)
	if !o.yes && !confirmed(cmd, fmt.Sprintf("Write these changes of %s?",
		plural(len(plan.changes), "file"))) {
		fmt.Fprintln(out, "the files of the clients stay as they are")
		byHandHint()
		return nil
	}
	store, err := openImports()
	if err != nil {
		return err
	}
	defer store.close()
	id, err := store.apply(plan, program)
	if err != nil {
		return err
	}
	plan.printResult(out, id)
	if len(byHand) > 0 {
		byHandHint()
	}
	return plan.failure()
}

// oneGatekit is the server that replaces those of a client: gatekit run with a configuration.
type oneGatekit struct {
	program, config string
}

// planOne returns the changes that replace the servers in files by one, and the servers that a
// person has to replace.
func planOne(files []clientfiles.File, one *oneGatekit) (p *importPlan, byHand []leftServer) {
	p = &importPlan{}
	for _, f := range files {
		if f.Err != nil {
			continue // it was left out of the configuration
		}
		c := &fileChange{file: f, program: one.program, one: one}
		err := c.planOne()
		if err == nil && len(c.joined) > 0 {
			p.changes = append(p.changes, c)
		}
		for _, e := range f.Document.Entries {
			reason := staysInFile(f, e)
			if reason == "" && err != nil {
				reason = err.Error()
			}
			if reason != "" && inConfiguration(f, e) == "" {
				byHand = append(byHand, leftServer{Client: f.Client.ID, File: f.Path,
					Server: e.Name, Reason: reason})
			}
		}
	}
	return p, byHand
}

// planOne makes the content in which one server replaces the servers that are in the configuration.
func (c *fileChange) planOne() (err error) {
	var replaced []int
	for i, e := range c.file.Document.Entries {
		if inConfiguration(c.file, e) == "" && staysInFile(c.file, e) == "" {
			replaced = append(replaced, i)
		}
	}
	c.content, c.joined = c.file.Content, nil
	if len(replaced) == 0 {
		return nil
	}
	content, joined, err := c.file.Document.Join(replaced, "gatekit", []string{c.one.program, "run",
		"--config", c.one.config})
	if err == nil {
		c.content, c.joined = content, joined
	}
	return err
}

// staysInFile returns the reason why a server that is in the configuration stays in the client's
// file, too; "" if it does not.
func staysInFile(f clientfiles.File, e clientfiles.Entry) string {
	switch {
	case f.Place.Beyond != "":
		return f.Place.Beyond
	case f.Place.Scope == clientfiles.Project:
		return "the file is shared with others, who do not have the configuration"
	case e.IsDisabled:
		return "it is switched off"
	case e.Command == nil && len(e.Headers()) == 0:
		return "the client may be logged in to it: log in with gatekit auth login, or remove the " +
			"server from the configuration"
	}
	return ""
}

// clientVariable matches what clients replace in their files: ${NAME} of most clients, $NAME of
// Gemini CLI, and {env:NAME} and {file:PATH} of opencode.
var clientVariable = regexp.MustCompile(`\$\{|\{(env|file):|^\$[A-Za-z_]`)

// inConfiguration returns the reason why a configuration cannot have a server; "" if it can.
func inConfiguration(f clientfiles.File, e clientfiles.Entry) string {
	state := stateOf(f, e)
	values := e.Values()
	texts := slices.Concat(e.Command, []string{e.URL, e.Cwd}, slices.Collect(maps.Values(values)),
		slices.Collect(maps.Values(e.Headers())))
	switch {
	case state.state == stateWrapped || state.state == stateGatekit:
		return "it is behind Gatekit already; gatekit import undo restores it"
	case e.Command == nil && e.URL == "":
		return e.Beyond
	case e.Command != nil && state.state == stateBeyond:
		return state.reason
	case slices.ContainsFunc(texts, clientVariable.MatchString):
		return "it has variables that only the client replaces (such as ${…})"
	case len(values) < len(e.Env):
		return "it passes on variables of the client's environment"
	}
	return ""
}

// clientServers returns the servers in the files of clients that a configuration can have. Two
// entries with the same name and the same settings are one server.
func clientServers(files []clientfiles.File) (servers []foreignServer, left []leftServer) {
	seen := map[string]bool{}
	for _, f := range files {
		if f.Err != nil {
			left = append(left, leftServer{Client: f.Client.ID, Server: f.Path,
				Reason: f.Err.Error()})
			continue
		}
		for _, e := range f.Document.Entries {
			if reason := inConfiguration(f, e); reason != "" {
				left = append(left, leftServer{Client: f.Client.ID, File: f.Path, Server: e.Name,
					Reason: reason})
				continue
			}
			s := foreignServer{name: e.Name, command: e.Command, isOff: e.IsDisabled}
			if e.Command != nil {
				s.cwd, s.env = e.Cwd, e.Values()
			} else {
				s.url, s.headers = e.URL, e.Headers()
			}
			for _, key := range e.Others {
				s.lost = append(s.lost, f.Client.ID+": "+key)
			}
			// fmt prints maps in the order of their keys.
			key := fmt.Sprintf("%q", []any{s.name, s.command, s.cwd, s.env, s.url, s.headers,
				s.isOff})
			if !seen[key] {
				servers = append(servers, s)
			}
			seen[key] = true
		}
	}
	return servers, left
}
