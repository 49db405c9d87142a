package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
)

func (p *program) wrap() *cobra.Command {
	o := wrapping{era: choice{"auto", []string{"auto", "legacy", "modern"}}}
	c := &cobra.Command{
		Use:   "wrap [flags] -- COMMAND [ARG…]",
		Short: "Put Gatekit before one server, without a configuration",
		Long: `Wrap starts one server over stdio and serves it on stdio under its own names: write it in front of the command that a
client starts, and nothing changes for the client but that every message is judged and recorded.

  { "mcpServers": { "files": {
      "command": "gatekit",
      "args": ["wrap", "--env", "TOKEN", "--", "npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/data"],
      "env": { "TOKEN": "…" } } } }

The server gets PATH, HOME, LANG and TMPDIR of the environment and what --env names, and nothing else. The audit log is a file of its own for each process,
in gatekit/audit in your state folder ($XDG_STATE_HOME, or ~/.local/state), unless --audit names one.

These rules are in force unless --no-default-rules says otherwise. They refuse what no honest server or client sends, and change nothing:

  roots/traversal    paths that climb without looking like it: ..%2f..%2fetc. Before server-filesystem, whose folders are known from its command, or with --root: paths
                     that lead out of the folders and of the client's roots
  elicitation/gate   forms that ask for passwords, keys or codes, or hold links; pages that are not https, have a user in their URL, or look like another's
  sampling/gate      questions to the client's model with other servers' context, and more than 60 of them a minute

--rule adds one of the library as it is without settings, and makes a default one as strict as that (then --root names all of the roots); --policy adds Rego of
yours. With --shadow they only say in the audit log what they would do. There are no plugins unless --plugin adds one, with its own defaults: what they take out
of a file is missing when the file is written back, and each costs some 300 µs a call. What needs settings needs a file (gatekit help run), where these rules are

  [policy]
  rules = ["elicitation/gate", "roots/traversal", "sampling/gate"]

  [policy.config."elicitation/gate"]
  loopback = true # a server that runs here may show pages of this machine

  [policy.config."roots/traversal"]
  anywhere = true # or: roots = ["/srv/data"]

  [policy.config."sampling/gate"]
  servers = ["*"]
  context = ["none", "thisServer"]
  tools = true
  per_minute = 60`,
		Example: `  gatekit wrap -- npx -y @modelcontextprotocol/server-everything
  gatekit wrap --env GITHUB_TOKEN --audit github.jsonl -- github-mcp-server stdio
  gatekit wrap --rule tools/readonly --plugin secrets -- npx -y @modelcontextprotocol/server-filesystem /srv/data`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("wrap needs the command of a server, after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := o.config(args)
			if err != nil {
				return p.refuse(cmd.Context(), true, err)
			}
			return p.serve(cmd.Context(), cfg)
		},
	}
	c.Flags().SetInterspersed(false) // what follows the command is the command's
	c.Flags().StringVar(&o.audit,
		"audit", "", "audit log `file` (default: a new one in your state folder)")
	c.Flags().Var(&o.era, "era", "the `era` of what the server speaks: auto, legacy or modern")
	c.Flags().StringArrayVar(&o.env, "env", nil,
		"environment variable the server gets: `KEY`, as it is here, or KEY=VALUE; may be repeated")
	c.Flags().StringVar(&o.cwd, "cwd", "", "working `folder` of the server (default: this one)")
	c.Flags().StringArrayVar(&o.roots, "root", nil,
		"`folder` that paths must stay in; may be repeated")
	c.Flags().StringArrayVar(&o.rules, "rule", nil,
		"`rule` of the library to add, of gatekit policy list; may be repeated")
	c.Flags().BoolVar(&o.noDefaultRules, "no-default-rules", false,
		"only the rules and policies that --rule, --root and --policy name")
	c.Flags().StringArrayVar(&o.policies, "policy", nil,
		"`file` (.rego, or a folder or bundle of such) to add; may be repeated")
	c.Flags().BoolVar(&o.shadow, "shadow", false,
		"refuse and change nothing by rules and policies, and record what they would do")
	c.Flags().StringArrayVar(&o.plugins, "plugin", nil,
		"`plugin` to add, of gatekit plugin list; may be repeated")
	return c
}

// wrapping is the flags of wrap.
type wrapping struct {
	audit, cwd string
	env        []string
	era        choice

	roots, rules, policies, plugins []string
	noDefaultRules, shadow          bool
}

func (o *wrapping) config(command []string) (*config.Config, error) {
	c := config.Wrap(serverName(command[0]), command[0], command[1:]...)
	s := &c.Servers[0]
	s.Era = o.era.value
	if err := o.place(s); err != nil {
		return nil, fmt.Errorf("start server %q: %w", s.Name, err)
	}
	for _, e := range o.env {
		key, value, given := strings.Cut(e, "=")
		if !given {
			var ok bool
			if value, ok = os.LookupEnv(key); !ok {
				return nil, fmt.Errorf("start server %q: --env %s: it is not set in the "+
					"environment\nhint: set it in the client's configuration, or write --env "+
					"%s=VALUE", s.Name, key, key)
			}
		}
		s.Env[key] = config.Secret(value)
	}
	if err := o.judges(c, command); err != nil {
		return nil, err
	}
	c.Audit.File = o.audit
	if o.audit == "" {
		dir, err := stateFolder()
		if err != nil {
			return nil, fmt.Errorf(
				"find a place for the audit log: %w\nhint: name one with --audit", err)
		}
		// one for all processes, so that one public key is enough for all their logs
		c.Audit.Key = filepath.Join(dir, "audit", "gatekit.key")
		c.Audit.File = filepath.Join(dir, "audit", fmt.Sprintf("%s-%s-%d.jsonl", s.Name,
			time.Now().UTC().Format("20060102T150405Z"), os.Getpid()))
	}
	return c, nil
}

// place makes the paths of a server absolute: they are relative to our working folder, also where
// the server's is another.
func (o *wrapping) place(s *config.Server) (err error) {
	if strings.ContainsRune(s.Command, filepath.Separator) {
		if s.Command, err = filepath.Abs(s.Command); err != nil {
			return err
		}
	}
	if o.cwd == "" {
		return nil
	}
	if s.Cwd, err = filepath.Abs(o.cwd); err != nil {
		return err
	}
	if i, err := os.Stat(s.Cwd); err != nil || !i.IsDir() {
		return fmt.Errorf("its working folder %s is no folder\nhint: correct --cwd, which is "+
			"taken from the folder that Gatekit runs in", s.Cwd)
	}
	return nil
}

// stateFolder is Gatekit's own in the user's state folder.
func stateFolder() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "gatekit"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "gatekit"), nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// serverName is what the record calls the server of a command: the program, as a server may be
// named.
func serverName(command string) string {
	name := strings.TrimSuffix(strings.ToLower(filepath.Base(command)), ".exe")
	name = strings.Trim(notInNames.ReplaceAllString(name, "-"), "-0123456789")
	if name == "" {
		return "server"
	}
	return name
}
