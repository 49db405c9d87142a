// Gatekit stands between MCP clients and MCP servers. It checks and records every message, in both
// directions, before it forwards the message. Messages that are neither denied nor modified are
// forwarded unchanged. `gatekit help` describes the commands. This package only connects the other
// packages.
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
	"github.com/spf13/pflag"

	"gatekit/core/config"
)

// Exit codes.
const (
	exitFailed = 1 // the command or the check failed
	exitUsage  = 2 // the command line is wrong
)

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	ctx, stop := contextWithSignals()
	defer stop()
	p := &program{}
	root := p.root()
	root.SetArgs(args)
	out := &checkedOutput{w: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err == nil {
		p.started = true // a failure of the output is no usage error
	}
	err = out.result(err)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errReported) {
		// The error may contain text from a client or server.
		fmt.Fprintln(os.Stderr, "gatekit:", printable(p.masked.mask(err.Error())))
	}
	if !p.started {
		if !strings.Contains(err.Error(), "\nhint: ") {
			fmt.Fprintln(os.Stderr, `hint: run "gatekit help" or "gatekit help COMMAND"`)
		}
		return exitUsage
	}
	return exitCode(err)
}

// errReported is returned by a command that has already printed its error.
var errReported = errors.New("failed")

// contextWithSignals returns a context that ends at the first SIGINT or SIGTERM. The second signal
// ends the process at once.
func contextWithSignals() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	// After a client has exited, nobody reads our stdout and stderr. A write to them must fail with
	// an error, but must not end the process: Gatekit still has to end its child processes and to
	// write the last record. So Gatekit catches SIGPIPE. It does not ignore SIGPIPE, because then
	// its child processes would ignore the signal, too.
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

// program holds the state that the commands share.
type program struct {
	level   slog.LevelVar
	log     *slog.Logger
	masked  masked
	started bool // the command line was accepted, so later failures are not usage errors
}

func (p *program) root() *cobra.Command {
	level := choice{"info", []string{"debug", "info", "warn", "error"}}
	root := group(&cobra.Command{
		Use:   "gatekit",
		Short: "Check and record every message between MCP clients and servers",
		Long: `Gatekit stands between MCP clients and MCP servers. A client sees one server, and a
server sees one client. Gatekit checks every message against plugins and policies and records it in
the audit log before forwarding it. Messages that are neither denied nor modified are forwarded
unchanged.

See it work, without any setup:      gatekit demo
Put it in front of your clients:     gatekit import
Put it in front of one server:       gatekit wrap npx -y @modelcontextprotocol/server-everything
Write a configuration:               gatekit init
Put it in front of several servers:  gatekit run --config gatekit.toml
Check a configuration:               gatekit check --config gatekit.toml
Approve what servers declare:        gatekit pin
List the built-in plugins:           gatekit plugin list
List the rules of the library:       gatekit policy list
See what happened:                   gatekit audit show
See it in a browser:                 gatekit console
Verify the audit log:                gatekit audit verify

Commands that need a configuration take --config. Without it, they read gatekit.toml in the working
folder, or else gatekit/gatekit.toml in your configuration folder.

Exit codes: 0 for success, 1 for a failure, 2 for a wrong command line.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			p.started = true
			p.level.UnmarshalText([]byte(level.value)) // cannot fail: choice allows only levels
			p.log = slog.New(slog.NewTextHandler(os.Stderr, p.logOptions()))
		},
	})
	root.SetVersionTemplate("gatekit {{.Version}}\n")
	root.PersistentFlags().Var(&level,
		"log-level", "lowest `level` to log to stderr: debug, info, warn or error")
	root.SetHelpCommand(helpCommand())
	root.AddCommand(p.run(), p.wrap(), p.importClients(), p.clients(), p.initConfig(), p.check(),
		p.doctor(), p.attack(), p.pin(), p.plugin(), p.policy(), p.approve(), p.allow(),
		p.console(), p.audit(), p.canary(), p.auth(), p.stopCommand(), p.resumeCommand(),
		p.sandbox(), p.demo(), demoServer(), p.version())
	completeValues(root)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if word, ok := f.Value.(*choice); ok {
			_ = root.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(word.allowed,
				cobra.ShellCompDirectiveNoFileComp))
		}
	})
	wrapHelp(root)
	return root
}

// noArgs checks that a command gets no arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q", cmd.Name(), args[0])
	}
	return nil
}

// choice is the value of a flag that takes one of several words.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "word" }
func (c *choice) Set(s string) error {
	s = strings.ToLower(s)
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = s
	return nil
}

// setLogFormat applies the log settings of a configuration. The flag --log-level overrides the
// level in the configuration.
func (p *program) setLogFormat(cmd *cobra.Command, cfg *config.Config) {
	c := cfg.Log
	if !cmd.Flag("log-level").Changed {
		p.level.UnmarshalText([]byte(c.Level))
	}
	if c.Format == "json" {
		p.log = slog.New(slog.NewJSONHandler(os.Stderr, p.logOptions()))
	}
}

// logWarningsOnly hides informational log lines, such as the lines that servers print. Commands
// that print a result call it. The flag --log-level overrides it.
func (p *program) logWarningsOnly(cmd *cobra.Command) {
	if !cmd.Flag("log-level").Changed {
		p.level.Set(slog.LevelWarn)
	}
}
