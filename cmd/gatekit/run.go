package main

import (
	"github.com/spf13/cobra"
)

func (p *program) run() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "run",
		Short: "Serve the servers of a configuration as one",
		Long: `Run serves all servers of a configuration as one server: on stdio to the client that started it, or over HTTP where [listen]
says so. A server's tools are named server__tool. stdout belongs to the protocol; what Gatekit itself has to say goes to stderr.

The file is watched, and so are the policies that it names and their data. A valid change is applied without dropping sessions ([listen], [audit], [admin], [telemetry], [log] and [limits] need a restart), an
invalid one is reported and the running configuration stays. SIGINT and SIGTERM end all sessions and servers and close the audit log, whose sinks get 5 s for what they have not sent; a second one ends Gatekit at once.

In a client's configuration:

  { "mcpServers": { "gatekit": { "command": "gatekit", "args": ["run", "--config", "/home/me/gatekit.toml"] } } }

When Gatekit cannot start, it answers the client's first request with the reason, so that you see it where you are.`,
		Example: "  gatekit run\n  gatekit run --config /etc/gatekit/gatekit.toml --log-level debug",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(path)
			if err != nil {
				// Where it should have listened is not known then; a client that started us waits
				// on stdio.
				return p.refuse(cmd.Context(), true, err)
			}
			p.logAs(cmd, cfg.Log)
			return p.serve(cmd.Context(), cfg)
		},
	}
	configFlag(c, &path)
	return c
}
