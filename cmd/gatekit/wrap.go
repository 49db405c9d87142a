package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
)

func (p *program) wrap() *cobra.Command {
	o := wrapOptions{era: choice{"auto", []string{"auto", "legacy", "modern"}},
		sandboxLevel: choice{"", []string{"off", "guard", "strict"}},
		network:      choice{"", []string{"all", "none"}},
		pins:         choice{"", []string{"off", "warn", "hide"}}}
	c := &cobra.Command{
		Use:   "wrap [flags] COMMAND [ARG…] | wrap [flags] --url URL",
		Short: "Put Gatekit in front of one server, without a configuration",
		Long: `Wrap starts a server and serves it on stdio. The tools keep their names. Write
"gatekit wrap" in front of the command in your client's configuration. The client notices no
difference, but every message is checked and recorded.

  { "mcpServers": { "files": {
      "command": "gatekit",
      "args": ["wrap", "--env", "TOKEN",
               "npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/data"],
      "env": { "TOKEN": "…" } } } }

You may write -- before the command. The server gets only these environment variables: PATH, HOME,
USER, LOGNAME, SHELL, LANG, TERM, TMPDIR and the variables that --env names. Each process writes its
own audit log, in gatekit/audit in your state folder ($XDG_STATE_HOME, or ~/.local/state), unless
--audit names a file.

With --url, Gatekit serves a server that is reached over HTTP. A client that only starts commands
can then use the server, and every message is checked and recorded. In the URL and in the values of
--header, ${env:NAME} and ${file:PATH} stand for secrets, so that the command line has none:

  "command": "gatekit",
  "args": ["wrap", "--url", "https://api.example.com/mcp",
           "--header", "Authorization=Bearer ${env:API_TOKEN}"],
  "env": { "API_TOKEN": "…" }

Some clients replace ${env:NAME} themselves; the header is then the same. A server that wants a
login needs a configuration (gatekit help auth login).

Four rules of the library are active, unless you set --no-default-rules. They deny only messages
that honest servers and clients do not send, and change nothing:

  roots/traversal    denies paths that hide where they lead, such as ..%2f..%2fetc. With --root, it
                     also denies paths that are neither in these folders nor in the client's roots.
                     For server-filesystem, it uses the folders in the command in the same way.
  elicitation/gate   denies forms that ask for passwords, keys or codes, or that contain links, and
                     pages that do not use https, have a user name in the URL, or look like another
                     page.
  sampling/gate      denies requests to the client's model that include the context of other
                     servers, and more than 60 requests a minute.
  tools/schema       denies nothing. The audit log notes arguments and results that do not match
                     the schemas that the server listed for the tool.

--rule adds a rule of the library without settings. A default rule that --rule names loses the
settings below and gets stricter. For roots/traversal, the roots are then only the folders of
--root. --policy adds your own Rego. With --shadow, rules and policies neither deny nor change
messages; the audit log says what they would do.

--plugin adds a plugin with its default settings. No plugin is active by default, for two reasons. A
client that writes a file back would lose the text that a plugin redacted in it. And each plugin
adds about 300 µs to a call.

On Linux, the server is confined (--sandbox guard). It can read neither your keys nor Gatekit's
files. It can write only to the working folder, to the files and folders that the command and --env
name, to the folders of these files, to a private temporary folder and to the caches of package
managers. Grant other places with --read and --write, also a known place of keys. If the system
cannot confine the server, Gatekit says so and starts it nevertheless. With --sandbox guard,
--network none, --net, --memory or --files in the command, it does not start it. With --sandbox
strict, the server can read only programs, libraries and what the flags name, write only to what
--write names, and has no network. With --net HOST, it can connect to this host, on port 443 unless
HOST names another port, and to no other host. --sandbox off lets it do everything that you may do.

What the server declares when you wrap it first is trusted: its tools, prompts, templates and
instructions are written into a lock file in your state folder, one for each command, arguments and
working folder. What changes later is hidden, unless the program has changed, too, or the command
names a package without its exact version (npx -y name): then a change is only reported. Stderr and
the audit log name what has changed, and the command that approves it (gatekit pin approve). --pins
hide hides every change, --pins warn only reports, and --pins off compares nothing.

With --install, a server that npx or npm exec starts is installed when you wrap it first, without
running scripts, in your state folder. The version and the integrity of the package are written into
the lock file. From then on, gatekit wrap starts the server from there: sooner, without the network,
and always the same release. Remove the lock file to install the newest release.

To change settings, write a configuration (gatekit help run). In it, the default rules are:

  [policy]
  rules = ["elicitation/gate", "roots/traversal", "sampling/gate", "tools/schema"]

  [policy.config."elicitation/gate"]
  loopback = true # a server on this machine may open pages of this machine

  [policy.config."roots/traversal"]
  anywhere = true # or: roots = ["/srv/data"]

  [policy.config."sampling/gate"]
  servers = ["*"]
  context = ["none", "thisServer"]
  tools = true
  per_minute = 60

  [policy.config."tools/schema"]
  arguments = "note" # or: "deny"
  results = "note"`,
		Example: `  gatekit wrap npx -y @modelcontextprotocol/server-everything
  gatekit wrap --env GITHUB_TOKEN --audit github.jsonl github-mcp-server stdio
  gatekit wrap --url https://example.com/mcp --header 'Authorization=Bearer ${env:TOKEN}'
  gatekit wrap --rule tools/readonly --plugin secrets \
    npx -y @modelcontextprotocol/server-filesystem /srv/data`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.url != "" || cmd.Flags().Changed("url") {
				return o.checkURLFlags(cmd, args)
			}
			if len(o.headers) > 0 {
				return errors.New("--header needs --url: a command gets variables with --env")
			}
			if len(args) == 0 {
				return errors.New("wrap needs the command of a server, such as: gatekit wrap " +
					"npx -y @modelcontextprotocol/server-everything")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := o.config(args)
			if err == nil && o.install {
				err = p.installWrapped(cmd.Context(), cfg)
			}
			if err != nil {
				return p.refuse(cmd.Context(), true, err)
			}
			p.masked.add(cfg)
			return p.serve(cmd.Context(), cfg)
		},
	}
	c.Flags().SetInterspersed(false) // flags after the command belong to the command
	c.Flags().StringVar(&o.url, "url", "", "`URL` of a server that is reached over HTTP")
	c.Flags().StringArrayVar(&o.headers, "header", nil,
		"HTTP header for the server of --url: `NAME=VALUE`; may be repeated")
	c.Flags().StringVar(&o.audit,
		"audit", "", "audit log `file` (default: a new one in your state folder)")
	c.Flags().Var(&o.era, "era", "protocol `era` of the server: auto, legacy or modern")
	c.Flags().StringArrayVar(&o.env, "env", nil,
		"environment variable for the server: `KEY` or KEY=VALUE; may be repeated")
	c.Flags().StringVar(&o.cwd, "cwd", "",
		"working `folder` of the server (default: the current one)")
	c.Flags().StringArrayVar(&o.roots, "root", nil,
		"`folder` that paths must stay in; may be repeated")
	c.Flags().Var(&o.sandboxLevel, "sandbox",
		"confine the server: `level` off, guard or strict (default: guard, if the system can)")
	c.Flags().StringArrayVar(&o.read, "read", nil,
		"`path` that a confined server may read; may be repeated")
	c.Flags().StringArrayVar(&o.write, "write", nil,
		"`path` that a confined server may read and write; may be repeated")
	c.Flags().Var(&o.network, "network",
		"`network` of a confined server: all or none (default: none with strict, else all)")
	c.Flags().StringArrayVar(&o.hosts, "net", nil,
		"`host` that a confined server may connect to, and to no other: api.example.com, "+
			"*.example.com or example.com:8443; may be repeated")
	c.Flags().Var(&o.memory, "memory", "private `memory` of each process of a confined server, "+
		"such as 512MiB (default: no limit)")
	c.Flags().IntVar(&o.files, "files", 0, "open `files` of each process of a confined server "+
		"(default: no limit of its own)")
	c.Flags().Var(&o.pins, "pins", "`change` of what the server declares: off (not compared), "+
		"warn or hide (default: hide, or warn if the program may have changed)")
	c.Flags().BoolVar(&o.install, "install", false,
		"install the npm package of the server once, and start it from there")
	c.Flags().StringArrayVar(&o.rules, "rule", nil,
		"`rule` of the library to add (see gatekit policy list); may be repeated")
	c.Flags().BoolVar(&o.noDefaultRules, "no-default-rules", false,
		"use only the rules and policies that --rule, --root and --policy name")
	c.Flags().StringArrayVar(&o.policies, "policy", nil,
		"policy `file` to add (.rego, folder or bundle); may be repeated")
	c.Flags().BoolVar(&o.shadow, "shadow", false,
		"record what rules and policies would do, without denying or changing messages")
	c.Flags().StringArrayVar(&o.plugins, "plugin", nil,
		"`plugin` to add (see gatekit plugin list); may be repeated")
	return c
}

// wrapOptions holds the flags of wrap.
type wrapOptions struct {
	audit, cwd string
	env        []string
	era        choice

	url     string
	headers []string

	sandboxLevel, network choice
	read, write           []string
	hosts                 []string // of --net
	memory                byteCount
	files                 int

	pins    choice
	install bool

	roots, rules, policies, plugins []string
	noDefaultRules, shadow          bool
}

func (o *wrapOptions) config(command []string) (*config.Config, error) {
	c, err := o.server(command)
	if err != nil {
		return nil, err
	}
	s := &c.Servers[0]
	s.Era = o.era.value
	if err := o.addRules(c, command); err != nil {
		return nil, err
	}
	if err := o.addPins(c); err != nil {
		return nil, fmt.Errorf("start server %q: %w", s.Name, err)
	}
	c.Audit.File = o.audit
	if o.audit == "" {
		dir, err := stateFolder()
		if err != nil {
			return nil, fmt.Errorf(
				"find a place for the audit log: %w\nhint: name one with --audit", err)
		}
		// All processes use one key, so that one public key verifies all their logs.
		c.Audit.Key = filepath.Join(dir, "audit", "gatekit.key")
		c.Audit.File = filepath.Join(dir, "audit", fmt.Sprintf("%s-%s-%d.jsonl", s.Name,
			time.Now().UTC().Format("20060102T150405Z"), os.Getpid()))
	}
	return c, nil
}

// server returns the configuration of the server that is started by a command or reached by --url.
func (o *wrapOptions) server(command []string) (*config.Config, error) {
	if o.url != "" {
		return o.remoteServer()
	}
	c := config.Wrap(serverName(command), command[0], command[1:]...)
	s := &c.Servers[0]
	if err := o.makePathsAbsolute(s); err != nil {
		return nil, fmt.Errorf("start server %q: %w", s.Name, err)
	}
	var err error
	if s.Env, err = serverEnvironment(s.Name, o.env); err != nil {
		return nil, err
	}
	if s.Sandbox, err = o.sandbox(); err != nil {
		return nil, fmt.Errorf("start server %q: %w", s.Name, err)
	}
	return c, nil
}

// makePathsAbsolute makes the paths of a server absolute. They are relative to the working folder
// of Gatekit, not to the working folder of the server.
func (o *wrapOptions) makePathsAbsolute(s *config.Server) (err error) {
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
		return fmt.Errorf("working folder %s is not a folder\nhint: correct --cwd; relative "+
			"paths start at the folder in which Gatekit runs", s.Cwd)
	}
	return nil
}

// stateFolder returns Gatekit's folder in the state folder of the user.
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
