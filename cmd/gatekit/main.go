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
		fmt.Fprintln(os.Stderr, `hint: "gatekit help" and "gatekit help COMMAND" say what can be written`)
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
		Short: "Judge and record every message between MCP clients and servers",
		Long: `Gatekit stands between MCP clients and MCP servers. A client sees one server, a server sees one client; every message
passes one pipeline and is in the audit log before it moves. What nothing refuses or changes arrives byte for byte.

See it work, without any setup:       gatekit demo
Put it before one server:             gatekit wrap -- npx -y @modelcontextprotocol/server-everything
Put it before several:                gatekit run --config gatekit.toml
Find what is wrong with a file:       gatekit check --config gatekit.toml
See what comes with it:               gatekit plugin list
See what was done, and that it is so: gatekit audit show, gatekit audit verify

Commands that need a configuration take --config; without it they read gatekit.toml in the working folder, then
gatekit/gatekit.toml in your configuration folder. They exit with 0 when all is good, 1 when something failed, 2 when the command line is wrong.`,
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
		"log-level", "least `level` that is logged to stderr: debug, info, warn or error")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(p.run(), p.wrap(), p.check(), p.plugin(), p.policy(), p.approve(), p.audit(),
		p.demo(), demoServer(), p.version())
	return root
}

// noArgs is the Args of a command that takes none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, and got %q", cmd.Name(), args[0])
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
