package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/transport"
)

func (p *program) sandbox() *cobra.Command {
	c := &cobra.Command{
		Use:   "sandbox",
		Short: "Find out what a server needs in a sandbox",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(p.sandboxLearn())
	return c
}

func (p *program) sandboxLearn() *cobra.Command {
	var env []string
	var output string
	c := &cobra.Command{
		Use:   "learn [flags] COMMAND [ARG…]",
		Short: "Run a server and print the table [server.NAME.sandbox] that it needs",
		Long: `Learn runs a server without a sandbox, and observes which files it opens and which
addresses it connects to (Linux). When the server has ended, learn prints the table that it needs
for the level strict, to stderr or to the file of --output.

The server uses stdin and stdout of learn. Write "gatekit sandbox learn --output FILE" in front of
the command in your client's configuration, use all tools of the server, and end the client. What
the server does not do meanwhile is not in the table. Remove what the server should not have: a
hostile server can ask for anything.

As with strict, HOME and TMPDIR are private folders, which are removed at the end, and the server
gets only the environment variables that gatekit help wrap describes. What strict grants by itself
is not in the table.`,
		Example: `  gatekit sandbox learn --output sandbox.toml node /srv/server/index.js`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("learn needs the command of a server, such as: gatekit sandbox " +
					"learn node /srv/server/index.js")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := serverName(args)
			variables, err := serverEnvironment(name, env)
			if err != nil {
				return err
			}
			path := args[0]
			if strings.ContainsRune(path, filepath.Separator) {
				if path, err = filepath.Abs(path); err != nil {
					return err
				}
			}
			command := transport.Command{Name: name, Path: path, Args: args[1:],
				Env: revealed(variables), Log: p.log, Redact: redactOutput,
				Sandbox: &transport.Sandbox{}}
			if state, err := stateFolder(); err == nil {
				command.Sandbox.Hidden = []string{state}
			}
			needs, err := transport.Learn(cmd.Context(), command, os.Stdin, os.Stdout)
			if err != nil {
				return err
			}
			table := fmt.Sprintf("[server.%s.sandbox]\n%s", name, needs.Table())
			if output == "" {
				_, err = fmt.Fprint(cmd.ErrOrStderr(), table)
				return err
			}
			return os.WriteFile(output, []byte(table), 0o600)
		},
	}
	c.Flags().SetInterspersed(false) // flags after the command belong to the command
	c.Flags().StringArrayVar(&env, "env", nil,
		"environment variable for the server: `KEY` or KEY=VALUE; may be repeated")
	c.Flags().StringVar(&output, "output", "", "`file` for the table (default: stderr)")
	return c
}

// serverEnvironment returns the variables of the flags --env of a command for one server.
func serverEnvironment(server string, env []string) (map[string]config.Secret, error) {
	variables := map[string]config.Secret{}
	for _, e := range env {
		key, value, hasValue := strings.Cut(e, "=")
		if !hasValue {
			var ok bool
			if value, ok = os.LookupEnv(key); !ok {
				return nil, fmt.Errorf("start server %q: --env %s: the variable is not "+
					"set\nhint: set it in the client's configuration, or write --env %s=VALUE",
					server, key, key)
			}
		}
		variables[key] = config.Secret(value)
	}
	return variables, nil
}
