package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/config"
)

func (p *program) initConfig() *cobra.Command {
	o := initOptions{}
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a gatekit.toml in four questions, and check it",
		Long: `Init writes a configuration for gatekit run and checks it, as gatekit check does. It
asks four questions:

  1. Which servers? Those of the clients on this machine, or one command.
  2. In which folders must paths stay? Without an answer, anywhere, but disguised paths are denied.
  3. Should secrets in messages be replaced (plugin "secrets")?
  4. Should Gatekit listen on 127.0.0.1:7777, for several clients, or serve only the client that
     starts it?

With --yes, it asks nothing: it takes the servers of the clients, or else a server of gatekit demo
for you to replace, allows paths anywhere, replaces secrets, and serves the client that starts it.

Init never overwrites a file. The values of variables and headers go to files of their own in
gatekit-secrets, beside the configuration.`,
		Example: `  gatekit init
  gatekit init --yes
  gatekit init --config /etc/gatekit/gatekit.toml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.runInit(cmd, o)
		},
	}
	c.Flags().StringVarP(&o.file, "config", "c", "gatekit.toml", "`file` to write")
	c.Flags().BoolVar(&o.yes, "yes", false, "ask nothing")
	return c
}

// initOptions holds the flags of init.
type initOptions struct {
	file string
	yes  bool
}

// answers are the answers to the questions of init.
type answers struct {
	servers []foreignServer
	folders []string
	secrets bool
	http    bool
}

func (p *program) runInit(cmd *cobra.Command, o initOptions) error {
	out := cmd.OutOrStdout()
	if _, err := os.Lstat(o.file); err == nil {
		return fmt.Errorf("%s exists already\nhint: gatekit check --config %s checks it",
			displayPath(o.file), shellQuote(displayPath(o.file)))
	}
	files, err := findClientFiles(nil, "")
	if err != nil {
		return err
	}
	found, left := clientServers(files)
	a := answers{servers: found, secrets: true}
	if !o.yes {
		if a, err = askInit(bufio.NewReader(cmd.InOrStdin()), out, found); err != nil {
			return err
		}
	}
	isDemo := len(a.servers) == 0
	if isDemo {
		program, err := ownProgram()
		if err != nil {
			return err
		}
		a.servers = []foreignServer{{name: "files", command: []string{program, "demo-server",
			"files"}, remarks: []string{"A server of gatekit demo: write the command of your " +
			"server here."}}}
	}
	c := a.configuration()
	cfg, err := c.write(o.file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s: %s\n", printable(displayPath(o.file)),
		plural(len(cfg.Servers), "server"))
	if !isDemo && o.yes {
		for _, l := range left {
			fmt.Fprintf(out, "left out: %s %q: %s\n", l.Client, printable(l.Server),
				oneLine(l.Reason))
		}
	}
	return p.checkNew(cmd, cfg, o.file)
}

// checkNew checks a new configuration and prints what to do next.
func (p *program) checkNew(cmd *cobra.Command, cfg *config.Config, file string) error {
	out := cmd.OutOrStdout()
	p.logWarningsOnly(cmd)
	p.masked.add(cfg)
	r := &checkReport{out: out, mask: p.masked.mask, color: paletteFor(out)}
	p.checkAll(cmd.Context(), r, cfg, nil)
	if err := r.result(); err != nil {
		fmt.Fprintf(out, "next: mend what failed, then: gatekit check --config %s\n",
			shellQuote(displayPath(file)))
		return err
	}
	if cfg.Listen.HTTP != "" {
		fmt.Fprintf(out, "next: gatekit run --config %s, and in your clients the URL http://%s%s\n",
			shellQuote(displayPath(file)), cfg.Listen.HTTP, cfg.Listen.Path)
		return nil
	}
	program, err := ownProgram()
	if err != nil {
		program = "gatekit"
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "next: in your client, the command: %s run --config %s\n",
		shellQuote(program), shellQuote(abs))
	return nil
}

// configuration returns the configuration for the answers.
func (a answers) configuration() *configurationText {
	c := newConfigurationText()
	c.comment("Written by gatekit init. gatekit.toml.example in the repository has every key.")
	if a.http {
		c.text.WriteString("\n[listen]\nhttp = \"127.0.0.1:7777\"\n")
	}
	for _, s := range a.servers {
		c.server(s)
	}
	if a.secrets {
		c.text.WriteString("\n[[plugin]]\nname = \"secrets\"\nuse = \"secrets\"\n" +
			"config = { action = \"redact\" }\n")
	}
	c.folders = a.folders
	c.defaults()
	return c
}

// askInit asks the four questions.
func askInit(in *bufio.Reader, out io.Writer, found []foreignServer) (a answers, err error) {
	ask := func(question string) (string, error) {
		fmt.Fprintf(out, "%s ", question)
		line, err := in.ReadString('\n')
		if err != nil && line == "" {
			fmt.Fprintln(out)
			return "", fmt.Errorf("nothing was written: no answer to %q\nhint: gatekit init --yes "+
				"asks nothing", question)
		}
		return strings.TrimSpace(line), nil
	}
	agrees := func(answer string, otherwise bool) bool {
		switch strings.ToLower(answer) {
		case "":
			return otherwise
		case "y", "yes":
			return true
		}
		return false
	}
	question := "1. The command of a server, such as npx -y @modelcontextprotocol/server-memory, " +
		"or nothing for a server of gatekit demo:"
	if len(found) > 0 {
		var names []string
		for _, s := range found {
			names = append(names, oneLine(s.name))
		}
		question = fmt.Sprintf("1. The command of a server, or nothing for %s of your clients "+
			"(%s):", plural(len(found), "server"), strings.Join(names, ", "))
	}
	answer, err := ask(question)
	if err != nil {
		return a, err
	}
	a.servers = found
	if command := strings.Fields(answer); len(command) > 0 {
		a.servers = []foreignServer{{name: serverName(command), command: command}}
	}
	answer, err = ask("2. Folders that paths must stay in, or nothing for anywhere:")
	if err != nil {
		return a, err
	}
	for _, folder := range strings.Fields(answer) {
		abs, err := filepath.Abs(folder)
		if err != nil {
			return a, err
		}
		if i, err := os.Stat(abs); err != nil || !i.IsDir() {
			return a, fmt.Errorf("nothing was written: %s is not a folder", folder)
		}
		a.folders = append(a.folders, abs)
	}
	a.folders = slices.Compact(a.folders)
	if answer, err = ask("3. Replace secrets in messages? [Y/n]"); err != nil {
		return a, err
	}
	a.secrets = agrees(answer, true)
	answer, err = ask("4. Listen on 127.0.0.1:7777 for several clients? [y/N]")
	a.http = agrees(answer, false)
	return a, err
}
