package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

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

// toConfiguration writes one configuration for the servers of the clients. It does not change the
// clients' files.
func (o *importOptions) toConfiguration(out io.Writer, files []clientfiles.File,
	program string) error {
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
	fmt.Fprintf(out, "then, in each client, replace these servers by this one:\n  %s run --config "+
		"%s\n", shellQuote(program), shellQuote(abs))
	return nil
}

// clientServers returns the servers in the files of clients that a configuration can have. Two
// entries with the same name and command are one server.
func clientServers(files []clientfiles.File) (servers []foreignServer, left []leftServer) {
	seen := map[string]bool{}
	for _, f := range files {
		if f.Err != nil {
			left = append(left, leftServer{Client: f.Client.ID, Server: f.Path,
				Reason: f.Err.Error()})
			continue
		}
		for _, e := range f.Document.Entries {
			omit := func(reason string) {
				left = append(left, leftServer{Client: f.Client.ID, File: f.Path, Server: e.Name,
					Reason: reason})
			}
			state := stateOf(f, e)
			values := e.Values()
			text := strings.Join(e.Command, "\x00") + "\x00" + e.URL
			for _, v := range values {
				text += "\x00" + v
			}
			switch {
			case state.state == stateWrapped || state.state == stateGatekit:
				omit("it is behind Gatekit already; gatekit import undo restores it")
				continue
			case e.Command == nil && e.URL == "":
				omit(e.Beyond)
				continue
			case e.Command != nil && state.state == stateBeyond:
				omit(state.reason)
				continue
			case strings.Contains(text, "${"):
				omit("it has variables that only the client replaces (${…})")
				continue
			case len(values) < len(e.Env):
				omit("it passes on variables of the client's environment")
				continue
			}
			if key := e.Name + "\x00" + text; seen[key] {
				continue
			} else {
				seen[key] = true
			}
			s := foreignServer{name: e.Name, command: e.Command, url: e.URL, isOff: e.IsDisabled}
			if e.Command != nil {
				s.url, s.env = "", values
			} else {
				s.headers = e.Headers()
			}
			servers = append(servers, s)
		}
	}
	return servers, left
}
