package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"gatekit/core/clientfiles"
)

func (p *program) clients() *cobra.Command {
	var project string
	var asJSON, requireWrapped bool
	c := &cobra.Command{
		Use:   "clients [CLIENT…]",
		Short: "List the servers of the MCP clients on this machine, and which of them are wrapped",
		Long: `Clients lists every server that it finds in the configuration files of MCP clients,
with its state:

  wrapped     gatekit wrap starts it: every message is checked and recorded
  gatekit     it is gatekit run
  unwrapped   the client starts it without Gatekit; gatekit import wraps it
  beyond      import cannot wrap it, for the reason that is shown
  unreadable  the file cannot be read or does not parse

With --require-wrapped, the exit code is 1 unless every server is wrapped or is Gatekit. Servers
that are beyond import and unreadable files count, because nothing checks their messages. Use it in
checks of a fleet of machines.

Clients reads only the files in the table of docs/clients.md. It does not see servers that a user
has added to a client's account on the web, or in the settings of an IDE of JetBrains.`,
		Example: `  gatekit clients
  gatekit clients --project .                # also the files in this folder
  gatekit clients --require-wrapped --json`,
		Args: knownClients,
		ValidArgsFunction: cobra.FixedCompletions(clientIDs(),
			cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := findClientFiles(args, project)
			if err != nil {
				return err
			}
			all := inventory(files)
			out := cmd.OutOrStdout()
			if asJSON {
				err = printInventoryJSON(out, all)
			} else if len(all) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no servers of MCP clients found")
			} else {
				err = printInventory(out, all)
			}
			if err != nil {
				return err
			}
			ungoverned := 0
			for _, s := range all {
				if s.State != stateWrapped && s.State != stateGatekit {
					ungoverned++
				}
			}
			if requireWrapped && ungoverned > 0 {
				return fmt.Errorf("%s not wrapped\nhint: gatekit import wraps the servers that it "+
					"can reach", plural(ungoverned, "server"))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each server")
	c.Flags().BoolVar(&requireWrapped, "require-wrapped", false,
		"exit with 1 if a server is not behind Gatekit")
	c.Flags().StringVar(&project, "project", "",
		"also list the clients' files in the `folder` of a project")
	return c
}

// stateUnreadable is the state of a file that cannot be read or does not parse.
const stateUnreadable = "unreadable"

// listedServer is a server in the inventory.
type listedServer struct {
	Client    string `json:"client"`
	File      string `json:"file"`
	Scope     string `json:"scope"`
	In        string `json:"in,omitempty"`
	Server    string `json:"server,omitempty"`
	Transport string `json:"transport,omitempty"`
	// the package or program of a command, or the URL without user name and query
	Runs     string `json:"runs,omitempty"`
	Disabled bool   `json:"disabled,omitzero"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
}

// inventory lists the servers in files.
func inventory(files []clientfiles.File) (all []listedServer) {
	for _, f := range files {
		base := listedServer{Client: f.Client.ID, File: f.Path, Scope: string(f.Place.Scope)}
		if f.Err != nil {
			base.State, base.Reason = stateUnreadable, f.Err.Error()
			all = append(all, base)
			continue
		}
		for _, e := range f.Document.Entries {
			s, state := base, stateOf(f, e)
			s.In, s.Server, s.Disabled = e.In, e.Name, e.IsDisabled
			s.State, s.Reason = state.state, state.reason
			switch {
			case len(e.Command) > 0:
				s.Transport, s.Runs = "stdio", serverName(e.Command)
			case e.URL != "":
				s.Transport, s.Runs = "http", withoutSecrets(e.URL)
			}
			all = append(all, s)
		}
	}
	return all
}

// withoutSecrets returns a URL without user name, password, query and fragment.
func withoutSecrets(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func printInventory(out io.Writer, all []listedServer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tSERVER\tTRANSPORT\tSTATE\tFILE")
	for _, s := range all {
		state := s.State
		if s.Disabled {
			state += ", disabled"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.Client, oneLine(cmp.Or(s.Server, "-")),
			cmp.Or(s.Transport, "-"), state, oneLine(s.File))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range all {
		if s.Reason != "" {
			fmt.Fprintf(out, "\n%s %s: %s", s.Client, oneLine(cmp.Or(s.Server, s.File)),
				oneLine(s.Reason))
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}

func printInventoryJSON(out io.Writer, all []listedServer) error {
	for _, s := range all {
		if err := json.MarshalWrite(out, s, jsontext.Multiline(false)); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
	}
	return nil
}
