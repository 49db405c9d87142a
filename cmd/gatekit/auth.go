package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/transport/auth"
)

func (p *program) auth() *cobra.Command {
	c := &cobra.Command{
		Use:   "auth",
		Short: "Log in to servers, and make and explain the tokens of clients",
		Long: `Users log in to servers with [server.NAME.auth] type = "oauth" or "id_jag". The
commands login, list and logout manage these logins.

Clients of an HTTP listener with [listen.auth] send an access token of an issuer, or a static token.
The command token makes static tokens, and explain shows why a token is accepted or refused.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(p.authLogin(), p.authList(), p.authLogout(), authToken(), p.authExplain(),
		authRevoke())
	return c
}

var tokenName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

func authToken() *cobra.Command {
	return &cobra.Command{
		Use:   "token NAME",
		Short: "Make a static token",
		Long: `Token makes a static token for a client that cannot log in, such as a job. It prints
the token once, and the table for gatekit.toml. The table has only a digest: whoever reads it cannot
use the token. Gatekit accepts the token after a restart with this table.`,
		Example: `  gatekit auth token ci`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !tokenName.MatchString(args[0]) {
				return errors.New("token takes one name, of a-z, 0-9 and \"-\", such as ci")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			token, digest := auth.NewStaticToken(args[0])
			_, err := fmt.Fprintf(cmd.OutOrStdout(), `# The token. It is shown only now:
%s

# The table for gatekit.toml:
[listen.auth.token.%s]
sha256 = "%x"
`, token, args[0], digest)
			return err
		},
	}
}

// explainedCheck is one check as gatekit auth explain --json prints it.
type explainedCheck struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (p *program) authExplain() *cobra.Command {
	var path string
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain",
		Short: "Show each check of a token",
		Long: `Explain reads a token on stdin and checks it as a running Gatekit with the same
configuration does. It prints one line for each check. It fetches the keys of the issuer, and asks
the issuer about the token if the configuration says so. It never prints the token.`,
		Example: `  gatekit auth explain < token.txt
  pbpaste | gatekit auth explain --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.loadForReport(cmd, path, asJSON)
			if err != nil {
				return err
			}
			if cfg.Listen.Auth == nil {
				return fmt.Errorf("%s has no [listen.auth], so no token is checked", cfg.File)
			}
			revoked, err := revocationsOf(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			a, err := newAuthenticator(cfg, revoked, nil, p.log)
			if err != nil {
				return err
			}
			b, err := io.ReadAll(io.LimitReader(os.Stdin, 64<<10))
			if err != nil {
				return fmt.Errorf("read the token on stdin: %w", err)
			}
			token := strings.TrimSpace(string(b))
			if scheme, rest, ok := strings.Cut(token, " "); ok && strings.EqualFold(scheme,
				"Bearer") {
				token = rest
			}
			checks, ok := a.Explain(cmd.Context(), token)
			if err := printChecks(cmd.OutOrStdout(), checks, asJSON); err != nil {
				return err
			}
			if !ok {
				return errReported
			}
			return nil
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each check")
	return c
}

// printChecks prints one line for each check.
func printChecks(out io.Writer, checks []auth.Check, asJSON bool) error {
	color := paletteFor(out)
	width := 0
	for _, c := range checks {
		width = max(width, len(c.Name))
	}
	for _, c := range checks {
		one := explainedCheck{Check: c.Name, OK: c.Err == nil, Result: c.Detail}
		if c.Err != nil {
			one.Error = c.Err.Error()
		}
		var err error
		switch {
		case asJSON:
			err = printJSON(out, one)
		case one.OK:
			_, err = fmt.Fprintf(out, "%s    %-*s  %s\n", color.good("ok"), width, one.Check,
				printable(one.Result))
		default:
			_, err = fmt.Fprintf(out, "%s  %-*s  %s\n", color.bad("FAIL"), width, one.Check,
				printable(one.Error))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
