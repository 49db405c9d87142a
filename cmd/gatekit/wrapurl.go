package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/config"
)

// checkURLFlags returns an error if --url is empty, or is set together with a command or with a
// flag that needs a command.
func (o *wrapOptions) checkURLFlags(cmd *cobra.Command, args []string) error {
	if o.url == "" {
		return errors.New("--url is empty: name the URL of a server, such as " +
			"https://example.com/mcp")
	}
	if len(args) > 0 {
		return fmt.Errorf("wrap takes a command or --url, but got both: %q and %q", args[0], o.url)
	}
	for _, flag := range []string{"env", "cwd", "sandbox", "read", "write", "network"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s needs a command: Gatekit does not start the server of --url",
				flag)
		}
	}
	for _, h := range o.headers {
		if name, _, ok := strings.Cut(h, "="); !ok || name == "" {
			return errors.New("--header must be NAME=VALUE, such as " +
				"'Authorization=Bearer ${env:TOKEN}'") // h may be a secret
		}
	}
	return nil
}

// remoteServer returns the configuration of the server of --url.
func (o *wrapOptions) remoteServer() (*config.Config, error) {
	headers := map[string]string{}
	for _, h := range o.headers {
		name, value, _ := strings.Cut(h, "=")
		headers[name] = value
	}
	name := remoteName(o.url)
	c, err := config.WrapURL(name, o.url, headers)
	if err != nil {
		return nil, fmt.Errorf("connect to server %q: %w", name, err)
	}
	return c, nil
}

// remoteName returns the name of a server that is reached by a URL: its host. All characters of the
// name are valid in the name of a server.
func remoteName(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "server"
	}
	name := notInNames.ReplaceAllString(strings.ToLower(u.Hostname()), "-")
	name = strings.TrimLeft(name, "-0123456789")
	return cmp.Or(strings.TrimRight(name[:min(len(name), maxServerName)], "-"), "server")
}
