package main

import (
	"github.com/spf13/cobra"
)

func (p *program) run() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "run",
		Short: "Serve the servers of a configuration as one server",
		Long: `Run serves all servers of a configuration as one server: on stdio to the client that
started it, or over HTTP if [listen] sets http. Tools are named server__tool. Only MCP messages go
to stdout; the log goes to stderr.

Gatekit watches the configuration, and the policy files and data files that it names. It applies a
valid change without ending sessions. It rejects an invalid change, and the previous configuration
stays active. After SIGHUP, it reads the files at once. Changes of [listen], [audit], [admin],
[telemetry], [log] and [limits] need a restart.

After SIGINT or SIGTERM, Gatekit serves HTTP clients for [listen] drain, 0 by default, while
/readyz says no. Then it refuses new calls, and waits at most [listen] shutdown_timeout for the
calls in flight. It answers the remaining calls with an error, ends all sessions and servers,
and closes the audit log. The audit sinks then have 5 s to send their remaining records. A second
signal ends Gatekit at once.

In the configuration of a client:

  { "mcpServers": { "gatekit": {
      "command": "gatekit", "args": ["run", "--config", "/home/me/gatekit.toml"] } } }

When Gatekit cannot start, it answers the client's first request with the reason.`,
		Example: `  gatekit run
  gatekit run --config /etc/gatekit/gatekit.toml --log-level debug`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(path)
			if err != nil {
				// [listen] is unknown without a configuration, so a client may wait on stdio.
				return p.refuse(cmd.Context(), true, err)
			}
			p.masked.add(cfg)
			p.setLogFormat(cmd, cfg)
			return p.serve(cmd.Context(), cfg)
		},
	}
	configFlag(c, &path)
	return c
}
