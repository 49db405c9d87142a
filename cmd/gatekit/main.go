// Gatekit stands between MCP clients and MCP servers: every message, in both directions, is judged
// and recorded before it moves, and otherwise left as it is. `gatekit help` says what it can do;
// this package only wires the others together.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"gatekit/core/config"
)

// Exit codes.
const (
	exitFailed = 1 // the command did not do, or the check did not find, what was asked for
	exitUsage  = 2 // the command line makes no sense
)

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	ctx, stop := signalled()
	defer stop()
	p := &program{}
	root := p.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "gatekit:", printable(err.Error())) // names in it may be anybody's
	}
	if !p.started {
		fmt.Fprintln(os.Stderr, `hint: run "gatekit help" or "gatekit help COMMAND"`)
		return exitUsage
	}
	return exitFailed
}

// errReported ends a command whose user has seen what went wrong.
var errReported = errors.New("failed")

// signalled is a context that the first SIGINT or SIGTERM ends; the second ends the process,
// whatever it is waiting for.
func signalled() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	// A client that is gone leaves our stdout and stderr without a reader. To write there must be
	// an error like others, not our sudden death: there are processes to end and a last record to
	// write. (To ignore the signal would make the children ignore it, too.)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	go func() {
		for n := 0; ; n++ {
			s, ok := <-c
			switch {
			case !ok:
				return
			case n > 0:
				os.Exit(exitFailed)
			}
			cancel(fmt.Errorf("got %s", s))
		}
	}()
	return ctx, func() {
		signal.Stop(broken)
		signal.Stop(c)
		close(c)
		cancel(nil)
	}
}

// program is what the subcommands share.
type program struct {
	level   slog.LevelVar
	log     *slog.Logger
	started bool // the command line was good; what fails now is no wrong usage
}

func (p *program) root() *cobra.Command {
	level := choice{"info", []string{"debug", "info", "warn", "error"}}
	root := &cobra.Command{
		Use:   "gatekit",
		Short: "Check and record every message between MCP clients and servers",
		Long: `Gatekit stands between MCP clients and MCP servers. A client sees one server, and a server sees one
client. Gatekit checks every message against plugins and policies and records it in the audit log
before it forwards it. Messages that are neither denied nor modified are forwarded unchanged.

See it work, without any setup:      gatekit demo
Put it in front of one server:       gatekit wrap -- npx -y @modelcontextprotocol/server-everything
Put it in front of several servers:  gatekit run --config gatekit.toml
Check a configuration:               gatekit check --config gatekit.toml
List the built-in plugins:           gatekit plugin list
List the rules of the library:       gatekit policy list
See what happened:                   gatekit audit show
Verify the audit log:                gatekit audit verify

Commands that need a configuration take --config. Without it, they read gatekit.toml in the working
folder, or else gatekit/gatekit.toml in your configuration folder.

Exit codes: 0 for success, 1 for a failure, 2 for a wrong command line.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			p.started = true
			p.level.UnmarshalText([]byte(level.value)) // it knows all that can be chosen
			p.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &p.level}))
		},
	}
	root.SetVersionTemplate("gatekit {{.Version}}\n")
	root.PersistentFlags().Var(&level,
		"log-level", "lowest `level` to log to stderr: debug, info, warn or error")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(p.run(), p.wrap(), p.check(), p.plugin(), p.policy(), p.approve(), p.audit(),
		p.demo(), demoServer(), p.version())
	return root
}

// noArgs is the Args of a command that takes none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q", cmd.Name(), args[0])
	}
	return nil
}

// choice is the value of a flag that must be one of some words.
type choice struct {
	value string
	of    []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "word" }
func (c *choice) Set(s string) error {
	s = strings.ToLower(s)
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
	}
	c.value = s
	return nil
}

// logAs logs as a configuration wants it, but for the level where the command line has one.
func (p *program) logAs(cmd *cobra.Command, c config.Log) {
	if !cmd.Flag("log-level").Changed {
		p.level.UnmarshalText([]byte(c.Level))
	}
	if c.Format == "json" {
		p.log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: &p.level}))
	}
}

// quietly leaves what servers say out of the log of a command whose user wants an answer, unless
// the user wants it.
func (p *program) quietly(cmd *cobra.Command) {
	if !cmd.Flag("log-level").Changed {
		p.level.Set(slog.LevelWarn)
	}
}
