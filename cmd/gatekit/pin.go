package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/pins"
)

func (p *program) pin() *cobra.Command {
	var path, from string
	var yes, update bool
	as := &pinnedFor{}
	c := &cobra.Command{
		Use:   "pin [SERVER…]",
		Short: "Approve what servers declare, and write it into gatekit.lock",
		Long: `Pin starts each server of the configuration, or the named servers, as gatekit check
does. It compares what a server declares with the lock file: how the server is started, its
instructions, tools, prompts and resource templates. Pin shows everything that is new or has
changed, and asks whether you approve it. Then it writes the whole definitions into the lock file.

The lock file is gatekit.lock beside the configuration, or file in [pins]. Commit it: a later change
is then a difference in version control, and gatekit pin verify fails in CI.

Each change has a class:

  promise     an annotation promises less: a tool that only read may now write
  text        a description, a title or the instructions
  shape       a schema, or a member that Gatekit does not know
  launch      the command, its arguments, the names of its variables, or the URL
  new         an item that is not in the lock
  gone        an item that the server no longer lists
  package     the package or its version
  decoration  icons, _meta, version, capabilities, or an annotation that promises more

The classes promise to new are held back until you approve them: gatekit pin verify fails, and with
[pins] in the configuration, gatekit run hides them from clients and refuses their use. The keys
first, changed and package in [pins] change this. The others are only shown. A running Gatekit reads
the lock file again when it changes. With first = "locked", pin shows what has changed, and never
writes.

Pin also warns if a new or changed tool or prompt has the name of another server's in the lock, or a
name that looks like it, and if a text names a tool, a prompt or the prefix of another server.

Pin starts each server twice. Texts that differ, recent dates and paths below the server's folders
become holes such as ${date} in the lock. A hole accepts only a date, a time, a number, a UUID, or
a path of at most 64 characters without blanks.

Below a change, a line "injection:" has what the plugin injection finds in the new words.

With --as, pin asks the servers as the principal does, with its login (gatekit auth login), and adds
what it sees. Items that only others see stay in the lock.

A server that npx or npm exec starts is installed first: the version of the command line, without
running scripts, in your state folder. The lock gets the version and the integrity (SHA-512) of the
package. From then on, gatekit run starts the server from there, without the network. If the command
line names no exact version, the newest one is installed, and stays until gatekit pin --update. With
install = "none" in [pins], the command is started as it is.

With --from, pin starts no server. It checks that the configuration starts the package and version,
or uses the URL, that a server.json of the MCP registry has, and approves this launch. The file has
no tools: they wait until you approve them.`,
		Example: `  gatekit pin
  gatekit pin jira --as token:ann
  gatekit pin files --from server.json
  gatekit pin github --yes
  gatekit pin github --update`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if from != "" {
				return p.pinFrom(cmd, path, args, from, yes)
			}
			return p.runPin(cmd, path, args, as, yes, update)
		},
	}
	configFlag(c, &path)
	as.flag(c)
	c.Flags().BoolVar(&yes, "yes", false, "approve everything without a question")
	c.Flags().BoolVar(&update, "update", false,
		"install the newest release of packages without an exact version")
	c.Flags().StringVar(&from, "from", "",
		"approve only the launch, as a `server.json` of the MCP registry has it")
	c.MarkFlagsMutuallyExclusive("as", "from")
	c.MarkFlagsMutuallyExclusive("update", "from")
	c.AddCommand(p.pinDiff(), p.pinVerify(), p.pinShow(), p.pinDecide(true), p.pinDecide(false))
	return c
}

// pinInputs reads the configuration and the lock file.
func (p *program) pinInputs(cmd *cobra.Command, path string,
	names []string) (*config.Config, []config.Server, *pins.Lock, error) {
	cfg, err := p.loadForReport(cmd, path, false)
	if err != nil {
		return nil, nil, nil, err
	}
	servers, err := namedServers(cfg, names)
	if err != nil {
		return nil, nil, nil, err
	}
	if cfg.Pins == nil { // so that servers are started from the packages that the lock has
		keys := pinsOf(cfg)
		cfg.Pins = &keys
	}
	lock, err := pins.Read(cfg.Pins.File)
	return cfg, servers, lock, err
}

func (p *program) runPin(cmd *cobra.Command, path string, args []string, as *pinnedFor,
	yes, update bool) error {
	who, err := as.principal()
	if err != nil {
		return err
	}
	cfg, servers, lock, err := p.pinInputs(cmd, path, args)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	printer := changePrinter{out, paletteFor(out)}
	answers := bufio.NewReader(cmd.InOrStdin())
	asks := !yes && isTerminal(os.Stdin)
	failed, written, refused, locked := 0, 0, 0, 0
	approve := func(question string) bool {
		if yes || !asks {
			return yes
		}
		fmt.Fprintf(out, "%s [y/N] ", question)
		answer, _ := answers.ReadString('\n')
		return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
	}
	starts := pinStarts{config: cfg, lock: lock, as: who, pin: true, update: update}
	err = p.startServers(cmd.Context(), starts, servers, func(l *liveServer) error {
		if l.err != nil {
			failed++
			fmt.Fprintf(out, "server %q: failed: %s\n", l.name,
				printable(p.masked.mask(l.err.Error())))
			return nil
		}
		old := lock.Servers[l.name]
		changes, err := review(cmd.Context(), as.changesOf(old, l.live), l.live)
		if err != nil {
			return err
		}
		printer.print(l.name, changes, hidesPackage(cfg, l.name))
		if now := l.live.Package; now.Integrity != "" && (old == nil || old.Package != now) {
			fmt.Fprintf(out, "  installed %s@%s, without running scripts\n", now.NPM, now.Version)
		}
		printCrossings(out, lock, l.name, l.live)
		for _, i := range l.unstable {
			fmt.Fprintf(out, "  warning: the %s %s differs at each start in a way that no hole "+
				"accepts, so it will be reported as changed\n", i.Kind(),
				display.EscapeLine(i.Name(), maxHiddenNameBytes))
		}
		switch {
		case old != nil && len(changes) == 0:
			return nil
		case isLocked(cfg, l.name):
			locked++
			return nil
		}
		if !approve(fmt.Sprintf("Approve server %q?", l.name)) {
			refused++
			return nil
		}
		written++
		approved := old.Approve(l.live, l.learned)
		if as.id != "" {
			approved.KeepOthers(old)
		}
		lock.Servers[l.name] = approved
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range unconfigured(cfg, lock) {
		if len(args) > 0 || as.id != "" {
			break
		}
		fmt.Fprintf(out, "server %q: no longer in the configuration\n", name)
		if pinsOf(cfg).First == "locked" {
			locked++
			continue
		}
		if !approve(fmt.Sprintf("Remove server %q from the lock?", name)) {
			refused++
			continue
		}
		written++
		delete(lock.Servers, name)
	}
	if written > 0 {
		if _, err := lock.Write(); err != nil {
			return err
		}
		fmt.Fprintf(out, "wrote %s\n", pinsOf(cfg).File)
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%s could not be pinned", plural(failed, "server"))
	case locked > 0:
		return lockedError(cfg, locked)
	case refused > 0 && !asks:
		return fmt.Errorf("%s not approved\nhint: run gatekit pin in a terminal, or approve "+
			"everything with --yes", plural(refused, "server"))
	case refused > 0:
		return fmt.Errorf("%s not approved", plural(refused, "server"))
	}
	return nil
}

// pinKeys returns the keys of [pins] that apply to a server.
func pinKeys(cfg *config.Config, server string) config.ServerPins {
	p := pinsOf(cfg)
	for _, s := range cfg.Servers {
		if s.Name == server {
			return p.Of(s)
		}
	}
	return p.Of(config.Server{})
}

// isLocked reports whether no command may change what is approved of a server.
func isLocked(cfg *config.Config, server string) bool {
	return pinKeys(cfg, server).First == "locked"
}

// hidesPackage reports whether a server with another package than approved is held back.
func hidesPackage(cfg *config.Config, server string) bool {
	return pinKeys(cfg, server).Package == "hide"
}

func lockedError(cfg *config.Config, servers int) error {
	return fmt.Errorf("%s not approved: %s has first = \"locked\" in [pins], so %s is not "+
		"written\nhint: run gatekit pin with a configuration that has first = \"ask\", and commit "+
		"the lock file", plural(servers, "server"), displayPath(cfg.File),
		displayPath(pinsOf(cfg).File))
}

// changesOf returns the changes from an approved server to live. Without an approved server,
// everything is new.
func changesOf(approved, live *pins.Server) []pins.Change {
	if approved == nil {
		approved = &pins.Server{Start: live.Start, Package: live.Package,
			ServerInfo: live.ServerInfo, Capabilities: live.Capabilities}
	}
	return approved.Compare(live)
}

// unconfigured returns the servers in the lock that are not in the configuration.
func unconfigured(cfg *config.Config, lock *pins.Lock) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(lock.Servers)) {
		if !slices.ContainsFunc(cfg.Servers, func(s config.Server) bool {
			return s.Name == name
		}) {
			names = append(names, name)
		}
	}
	return names
}

func (p *program) pinDiff() *cobra.Command {
	var path string
	var asJSON bool
	with := &pinComparison{}
	c := &cobra.Command{
		Use:   "diff [SERVER…]",
		Short: "Show what has changed since gatekit pin",
		Long: `Diff starts each server, or the named servers, and shows the differences to the lock
file: removed words as [-…-] and added words as {+…+}. It writes nothing.

Below a change, a line "injection:" has what the plugin injection finds in the new words. What it
finds in the approved text as well is not shown.

With --shared, diff shows the differences to what the replicas approve: the lock file, and what they
have trusted or approved since ([shared]).

With --json, diff prints one JSON object for each server.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := p.comparePins(cmd, path, args, with, func(*pins.Lock, string) error {
				return nil // without a lock file, everything is new
			})
			if err != nil {
				return err
			}
			if err := r.print(cmd, asJSON, false); err != nil {
				return err
			}
			if r.failed > 0 {
				return fmt.Errorf("%s could not be started", plural(r.failed, "server"))
			}
			return nil
		},
	}
	configFlag(c, &path)
	with.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each server")
	return c
}

// pinnedFor is the principal that servers are asked for.
type pinnedFor struct{ id string }

func (f *pinnedFor) flag(c *cobra.Command) {
	c.Flags().StringVar(&f.id, "as", "", "ask the servers as `PRINCIPAL` does, with its login")
}

// principal returns the principal, or nil for Gatekit itself.
func (f *pinnedFor) principal() (*identity.Principal, error) {
	if f.id == "" {
		return nil, nil
	}
	a, err := identity.ParseID(f.id)
	if err != nil {
		return nil, fmt.Errorf("--as: %w", err)
	}
	return identity.New(a)
}

// changesOf returns the changes from an approved server to live. For a principal, it leaves out the
// items that the principal does not see.
func (f *pinnedFor) changesOf(approved, live *pins.Server) []pins.Change {
	return slices.DeleteFunc(changesOf(approved, live), func(c pins.Change) bool {
		return f.id != "" && c.Class == pins.Gone
	})
}

func (p *program) pinShow() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "show [SERVER…]",
		Short: "Show what is in the lock file",
		Long: `Show prints the servers in the lock file, with the number of their items. If servers
are named, it prints each of their items with its digest. It starts no server.

If the configuration has [shared], show adds what the replicas approve together.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(path)
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			lock, err := pins.Read(pinsOf(cfg).File)
			if err != nil {
				return err
			}
			shared, done, err := sharedPinsOf(cmd, path)
			if err != nil {
				return err
			}
			defer done()
			if lock = shared.Effective(lock); lock.IsNew() && len(lock.Servers) == 0 {
				return fmt.Errorf("there is no %s\nhint: run gatekit pin", pinsOf(cfg).File)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			names := args
			if len(args) == 0 {
				names = slices.Sorted(maps.Keys(lock.Servers))
			}
			for _, name := range names {
				s := lock.Servers[name]
				if s == nil {
					return fmt.Errorf("server %q is not in %s\nhint: run gatekit pin %[1]s", name,
						pinsOf(cfg).File)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", name, plural(len(s.Items()), "item"),
					display.EscapeLine(s.Start.String(), maxPinnedText))
				for _, i := range s.Items() {
					if len(args) == 0 {
						break
					}
					varies := ""
					if n := len(i.Varies()); n > 0 {
						varies = plural(n, "text") + " with holes"
					}
					fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", i.Kind(), display.EscapeLine(i.Name(),
						maxHiddenNameBytes), i.Digest()[:len("sha256:")+12], varies)
				}
			}
			return w.Flush()
		},
	}
	configFlag(c, &path)
	return c
}

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

// Unwrap returns the error.
func (e *exitError) Unwrap() error { return e.error }

// exitCode returns the exit code for the error of a command that was started.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailed
}
