package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/shared"
	"gatekit/transport/credentials"
	"gatekit/transport/tokenstore"
)

// loginTimeout limits a login, and logoutTimeout the revocation of tokens.
const (
	loginTimeout  = 10 * time.Minute
	logoutTimeout = time.Minute
)

// maxLoginText bounds, in characters, the texts of servers that are printed.
const maxLoginText = 4000

// loginCommand holds what login and logout have in common.
type loginCommand struct {
	config    string
	principal string

	c      *config.Config
	server config.Server
	tokens *credentials.Server
	state  shared.Values // of [shared]; nil without it
	close  func()
}

func (l *loginCommand) flags(c *cobra.Command) {
	configFlag(c, &l.config)
	c.Flags().StringVar(&l.principal, "principal", "",
		"whose login it is: an `id` as in the audit log (default: the local user)")
}

// open reads the configuration and opens the credentials of the server with the given name. The
// caller must call l.close.
func (l *loginCommand) open(p *program, cmd *cobra.Command, name string) error {
	var err error
	if l.c, err = p.loadForReport(cmd, l.config, false); err != nil {
		return err
	}
	if l.server, err = serverWithLogins(l.c, name); err != nil {
		return err
	}
	state, closeState, err := dialShared(cmd.Context(), l.c)
	if err != nil {
		return err
	}
	l.tokens, err = newCredentials(l.server, l.c, state,
		loginRecorder(l.c, name, cmd.CommandPath()))
	if err != nil {
		closeState()
		return err
	}
	l.state = state
	l.close = func() {
		l.tokens.Close()
		closeState()
	}
	return nil
}

// oneServer checks that a command gets the name of one server.
func oneServer(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes the name of one server", cmd.Name())
	}
	return nil
}

func (p *program) authLogin() *cobra.Command {
	l := &loginCommand{}
	var port uint16
	var onDevice bool
	c := &cobra.Command{
		Use:   "login SERVER",
		Short: "Log in to a server",
		Long: `Login logs you in to a server with [server.SERVER.auth] type = "oauth" or "id_jag".
It prints the address of a page of the server's authorization server, or of your identity provider.
Open it in a browser on this machine, and log in there. Gatekit never sees your password. The page
sends the browser back to a port of this machine, where login waits for it.

With --device, the browser can be on any device: login prints the address of a page and a code to
enter there. Not all authorization servers offer this. Never enter a code that somebody sent you.

The tokens are encrypted and stored in the folder of [tokens]. Only requests of the principal use
them, and only the server gets them. Without --principal, the login is that of the local user: of
clients over stdio, and of all clients without [listen.auth]. With per = "gatekit", all principals
use it. A running Gatekit uses the login at once. With [shared], the tokens are in the shared state,
and all replicas use them.

The login is recorded in the audit log before it takes effect.`,
		Example: `  gatekit auth login github
  gatekit auth login github --device
  gatekit auth login github --principal 'https://login.example#ann'`,
		Args: oneServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.open(p, cmd, args[0]); err != nil {
				return err
			}
			defer l.close()
			if err := checkPrincipal(l.c, l.server, l.principal); err != nil {
				return err
			}
			if onDevice {
				return l.loginOnDevice(cmd)
			}
			return l.login(cmd, port)
		},
	}
	l.flags(c)
	c.Flags().Uint16Var(&port, "port", 0, "`port` of this machine to which the authorization "+
		"server sends the browser (default: a free one)")
	c.Flags().BoolVar(&onDevice, "device", false, "log in with a browser on any device, by a code")
	c.MarkFlagsMutuallyExclusive("port", "device")
	return c
}

// login logs the principal in.
func (l *loginCommand) login(cmd *cobra.Command, port uint16) error {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), loginTimeout,
		fmt.Errorf("nobody logged in within %s", loginTimeout))
	defer cancel()
	callback := &loginCallback{port: port}
	defer callback.close()
	n, err := l.tokens.BeginLogin(ctx, l.principal, callback.listen)
	if err != nil {
		return fmt.Errorf("begin the login at the server %q: %w", l.server.Name, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Open this page in a browser on this machine, and log in:\n\n"+
		"  %s\n\nThe page is of %s.\n", display.EscapeLine(n.URL, maxLoginText),
		describeAsker(n.Issuer, n.Scopes))
	var r *tokenstore.Record
	if err := callback.wait(ctx, n.Matches, func(query url.Values) (err error) {
		r, err = n.Finish(ctx, query)
		return err
	}); err != nil {
		return fmt.Errorf("log in to the server %q: %w", l.server.Name, err)
	}
	return l.reportLogin(cmd, r)
}

// loginOnDevice logs the principal in with a browser on another device.
func (l *loginCommand) loginOnDevice(cmd *cobra.Command) error {
	ctx := cmd.Context()
	n, err := l.tokens.BeginDeviceLogin(ctx, l.principal)
	if err != nil {
		return fmt.Errorf("begin the login at the server %q: %w", l.server.Name, err)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "Open this page in a browser on any device, and enter the code %s:\n\n"+
		"  %s\n\n", display.EscapeLine(n.Code, maxLoginText),
		display.EscapeLine(n.URL, maxLoginText))
	if n.CompleteURL != "" {
		fmt.Fprintf(out, "Or open this one, which has the code already:\n\n  %s\n\n",
			display.EscapeLine(n.CompleteURL, maxLoginText))
	}
	fmt.Fprintf(out, "The page is of %s. The code is valid until %s.\n",
		describeAsker(n.Issuer, n.Scopes), n.Expires.Local().Format(time.TimeOnly))
	r, err := n.Finish(ctx)
	if err != nil {
		return fmt.Errorf("log in to the server %q: %w", l.server.Name, err)
	}
	return l.reportLogin(cmd, r)
}

// describeAsker returns the authorization server of a login, and the scopes that it is asked for.
func describeAsker(issuer string, scopes []string) string {
	text := issuer
	if len(scopes) > 0 {
		text += ", and asks for the scopes " + strings.Join(scopes, " ")
	}
	return display.EscapeLine(text, maxLoginText)
}

// reportLogin makes a running Gatekit use a login, and prints it.
func (l *loginCommand) reportLogin(cmd *cobra.Command, r *tokenstore.Record) error {
	if err := useLogin(cmd.Context(), l.c, l.state, l.server.Name, r.Principal); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the running Gatekit uses the login only after some "+
			"seconds: %v\n", err)
	}
	out := cmd.OutOrStdout()
	_, err := fmt.Fprintf(out, "%s in to %s as %s\n", paletteFor(out).good("logged"), l.server.Name,
		describePrincipal(l.server.Auth, r.Principal))
	return err
}

// describePrincipal returns who uses a login. a may be nil.
func describePrincipal(a *config.ServerAuth, principal string) string {
	switch {
	case principal != "":
		return display.EscapeLine(principal, maxApprovalName)
	case a != nil && a.Per == "gatekit":
		return "Gatekit"
	}
	return "the local user"
}

func (p *program) authLogout() *cobra.Command {
	l := &loginCommand{}
	c := &cobra.Command{
		Use:   "logout SERVER",
		Short: "Revoke and remove a login",
		Long: `Logout removes the login of a principal at a server. If the authorization server can
revoke tokens, it is asked to revoke them first. If that fails, the tokens are removed all the same,
and the exit code is 1. A running Gatekit stops using them at once. With [shared], all replicas do
so within a second.

The logout is recorded in the audit log before it takes effect.`,
		Example: `  gatekit auth logout github
  gatekit auth logout github --principal 'https://login.example#ann'`,
		Args: oneServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.open(p, cmd, args[0]); err != nil {
				return err
			}
			defer l.close()
			ctx, cancel := context.WithTimeout(cmd.Context(), logoutTimeout)
			defer cancel()
			if l.tokens.IsShared() {
				l.principal = ""
			}
			who := describePrincipal(l.server.Auth, l.principal)
			err := l.tokens.Logout(ctx, l.principal)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is not logged in to %s\nhint: gatekit auth list shows all "+
					"logins", who, l.server.Name)
			}
			if useErr := useLogin(ctx, l.c, l.state, l.server.Name,
				l.principal); useErr != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "the running Gatekit notices the logout only "+
					"after some seconds: %v\n", useErr)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "logged out of %s: %s\n", l.server.Name, who)
			return err
		},
	}
	l.flags(c)
	return c
}

// listedLogin is a login as gatekit auth list --json prints it.
type listedLogin struct {
	Server    string     `json:"server"`
	Principal string     `json:"principal"`
	Issuer    string     `json:"issuer"`
	Client    string     `json:"client"`
	Scopes    []string   `json:"scopes"`
	Saved     time.Time  `json:"saved"`
	Expires   *time.Time `json:"expires,omitempty"` // of the access token; absent if unknown
	State     string     `json:"state"`             // valid, refreshable, expired or unreadable
	Error     string     `json:"error,omitempty"`
}

func (p *program) authList() *cobra.Command {
	var path string
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the logins at servers",
		Long: `List prints each login: the server, the principal, the authorization server, the
scopes, and the state. It never prints a token. These are the states:

  valid        the access token can be used
  refreshable  the access token has expired, and the next request gets a new one
  expired      the principal has to log in again
  unreadable   the login was stored with another key, or its file is damaged`,
		Example: `  gatekit auth list
  gatekit auth list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.loadForReport(cmd, path, asJSON)
			if err != nil {
				return err
			}
			state, closeState, err := dialShared(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer closeState()
			store, err := openTokens(cfg, state)
			if err != nil {
				return err
			}
			records, listErr := tokenstore.All(store)
			if err := printLogins(cmd, cfg, store, records, asJSON); err != nil {
				return err
			}
			return listErr
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each login")
	return c
}

// printLogins prints the logins among the records, ordered by server and principal.
func printLogins(cmd *cobra.Command, c *config.Config, store tokenstore.Store,
	records []tokenstore.Record, asJSON bool) error {
	records = slices.DeleteFunc(records, func(r tokenstore.Record) bool {
		return r.Kind != tokenstore.Login
	})
	slices.SortFunc(records, func(a, b tokenstore.Record) int {
		return strings.Compare(a.Server+"\x00"+a.Principal, b.Server+"\x00"+b.Principal)
	})
	if len(records) == 0 && !asJSON {
		fmt.Fprintln(cmd.ErrOrStderr(), "nobody is logged in; gatekit auth login SERVER logs in")
		return nil
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, r := range records {
		l := listed(store, r)
		if asJSON {
			if err := printJSON(cmd.OutOrStdout(), l); err != nil {
				return err
			}
			continue
		}
		var auth *config.ServerAuth
		if s, err := serverWithLogins(c, r.Server); err == nil {
			auth = s.Auth
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", display.EscapeLine(l.Server, maxApprovalName),
			describePrincipal(auth, l.Principal), display.EscapeLine(l.Issuer, maxApprovalName),
			describeState(l), display.EscapeLine(strings.Join(l.Scopes, " "), maxApprovalReason))
	}
	return w.Flush()
}

// listed returns a login for gatekit auth list.
func listed(store tokenstore.Store, r tokenstore.Record) listedLogin {
	l := listedLogin{Server: r.Server, Principal: r.Principal, Issuer: r.AuthorizationServer,
		Client: r.ClientID, Scopes: r.Scopes, Saved: r.Saved, State: "valid"}
	if !r.Expiry.IsZero() {
		l.Expires = &r.Expiry
	}
	whole, err := store.Load(r.ID)
	switch {
	case err != nil:
		l.State, l.Error = "unreadable", err.Error()
	case r.Expiry.IsZero() || time.Until(r.Expiry) > 0:
	case whole.Secrets.Refresh != "":
		l.State = "refreshable"
	default:
		l.State = "expired"
	}
	return l
}

// describeState returns the state of a login for a terminal.
func describeState(l listedLogin) string {
	switch {
	case l.State == "unreadable":
		return "unreadable: " + oneLine(l.Error)
	case l.Expires != nil:
		return l.State + " (" + l.Expires.Local().Format(time.DateTime) + ")"
	}
	return l.State
}
