package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/policies"
	"gatekit/transport/auth"
	"gatekit/transport/console"
)

// isConsoleOn reports whether a configuration has a console.
func isConsoleOn(c *config.Config) bool {
	return c.Admin.HTTP != "" && c.Admin.Console != "" && c.Admin.Console != "off"
}

// newConsole returns the console of the admin listener, or nil if the configuration has none.
func (g *gateway) newConsole(c *config.Config, pages []console.Page) (*console.Console, error) {
	if !isConsoleOn(c) {
		return nil, nil
	}
	return console.New(console.Options{Scope: console.Scope(c.Admin.Console), Pages: pages,
		Log: g.log})
}

// newPublicConsole returns the console of the listener for clients, to which users log in at their
// issuer. It returns nil if the configuration has none.
func (g *gateway) newPublicConsole(c *config.Config, a *auth.Authenticator,
	pages []console.Page) (*console.Console, error) {
	if !c.Listen.Console {
		return nil, nil
	}
	login := &console.Login{
		PublicURL:     c.Listen.PublicURL,
		Begin:         beginUserLogin(a),
		Scope:         func(p *identity.Principal) console.Scope { return consoleScope(c, p) },
		Revoked:       func(p *identity.Principal) bool { return a.Revoked(p) != nil },
		RecordRefusal: g.recording.refusedPage,
		RecordOpened: func(ctx context.Context, p *identity.Principal, scope console.Scope) error {
			return g.recording.events.RecordEvent(context.WithoutCancel(ctx),
				&mcp.Message{Principal: p}, "console", fmt.Sprintf("opened with the scope %q by a "+
					"login at %s", scope, p.Issuer()), nil)
		},
	}
	for _, i := range c.Listen.Auth.Issuers {
		if i.Login != nil {
			login.Issuers = append(login.Issuers, i.Issuer)
		}
	}
	return console.New(console.Options{Pages: pages, Login: login, Log: g.log})
}

// consoleScope returns the scope that the roles of the configuration give a principal, or "".
func consoleScope(c *config.Config, p *identity.Principal) console.Scope {
	roles := c.Listen.Auth.Roles
	switch {
	case roles == nil || p == nil:
		return ""
	case config.HasRole(roles.ConsoleApprove, p.ID(), p.Groups()):
		return console.ScopeApprove
	case config.HasRole(roles.ConsoleRead, p.ID(), p.Groups()):
		return console.ScopeRead
	}
	return ""
}

// describeViewer names a viewer of the console in the reasons of records.
func describeViewer(v console.Viewer) string {
	if v.Principal != "" {
		return fmt.Sprintf("%s of %s", v.Session, display.EscapeLine(v.Principal,
			maxApprovalName))
	}
	return describeUser(v.Session)
}

// describeUser names the user who approves with a command or a session, in the reasons of records.
func describeUser(by string) string { return fmt.Sprintf("%s, user id %d", by, os.Geteuid()) }

// openConsole returns the URL with a one-time code that opens the console, and the scope that its
// token will have.
func (s *controlServer) openConsole(scope string) (url, granted string, err error) {
	if s.console == nil {
		return "", "", errors.New("this process has no console\nhint: set [admin] http = " +
			`"127.0.0.1:7778" and console = "read" or "approve", and restart it`)
	}
	allowed := console.ScopeRead
	if scope == string(console.ScopeApprove) && s.config.Admin.Console == scope {
		allowed = console.ScopeApprove
	}
	if err := s.gateway.recording.event(context.Background(), "console", fmt.Sprintf(
		"opened with the scope %q by %s", allowed, describeUser("gatekit console")),
		nil); err != nil {
		return "", "", fmt.Errorf("record that the console is opened: %w", err)
	}
	return fmt.Sprintf("http://%s%s#%s", s.consoleAddr, console.Prefix,
		s.console.NewCode(allowed)), string(allowed), nil
}

func (p *program) console() *cobra.Command {
	var config, fleet, addr string
	var print, readOnly, asJSON bool
	c := &cobra.Command{
		Use:   "console",
		Short: "Open the console of a running Gatekit, or of several logs, in a browser",
		Long: `Console opens a page in your browser that shows the traffic, what waits for an
approval, servers, tools, pins, policies and the audit log of a running "gatekit run". It shows what
the audit log holds, and nothing more. The configuration needs:

  [admin]
  http = "127.0.0.1:7778"
  console = "read" # or "approve": requests and pins can be approved in the console

The command gets a one-time code from the running process, through a socket that only you can use,
and opens a URL that ends in this code. The code is valid for a minute, and once. The browser
exchanges it for a token that is valid for eight hours, until the tab is closed or Gatekit ends.
Each opening is recorded in the audit log (event "console").

Every program that runs as you can do what you can do with this command, and with gatekit approve.

Gatekit listens on a loopback address only. To use the console from another machine, forward the
port, run console --print there, and open the URL here:

  ssh -L 7778:127.0.0.1:7778 HOST gatekit console --print

With --fleet DIR, console needs no running Gatekit. It serves a console of its own until Ctrl-C:
the traffic, the records, the figures and the verification of all logs in the folders of DIR, one
folder for each replica, as gatekit audit verify --fleet takes them. The logs may grow meanwhile.
This console changes and records nothing, and listens on a loopback address, with a code and a token
as above. Explain uses the policies of the configuration.`,
		Example: `  gatekit console
  gatekit console --print
  gatekit console --read --config /etc/gatekit/gatekit.toml
  gatekit console --fleet logs
  gatekit console --fleet logs --addr 127.0.0.1:7790 --print`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("fleet") {
				return (&fleetConsole{dir: fleet, addr: addr, print: print, json: asJSON,
					policies: func(ctx context.Context) (*policies.Stage, error) {
						return p.configuredPolicies(ctx, config)
					}}).run(p, cmd)
			}
			if cmd.Flags().Changed("addr") {
				return errors.New("--addr needs --fleet: the address of a running Gatekit is " +
					"[admin] http in its configuration")
			}
			c, err := loadConfig(config)
			if err != nil {
				return reportMistakes(cmd, err, asJSON)
			}
			if !isConsoleOn(c) {
				return fmt.Errorf("%s turns the console off\nhint: set [admin] http = "+
					`"127.0.0.1:7778" and console = "read" or "approve", and restart gatekit run`,
					c.File)
			}
			scope := c.Admin.Console
			if readOnly {
				scope = string(console.ScopeRead)
			}
			response, err := callControl(c.Audit.File, controlRequest{Command: "console",
				Scope: scope})
			if errors.Is(err, errNoProcess) {
				return fmt.Errorf("no running Gatekit writes the audit log %s\nhint: start it "+
					"with gatekit run --config %s", c.Audit.File, c.File)
			}
			if err != nil {
				return err
			}
			return (&consoleURL{address: "http://" + c.Admin.HTTP + console.Prefix,
				url: response.URL, scope: response.Scope}).show(cmd, print, asJSON)
		},
	}
	configFlag(c, &config)
	fleetFlag(c, &fleet)
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "with --fleet: loopback `address` to listen "+
		"on; port 0 is a free port")
	c.Flags().BoolVar(&print, "print", false, "print the URL instead of opening a browser")
	c.Flags().BoolVar(&readOnly, "read", false,
		"open a console that can only read, even if it may approve")
	c.Flags().BoolVar(&asJSON, "json", false,
		"print the URL and its scope as JSON, and open nothing")
	return c
}

// consoleURL is a URL that opens a console.
type consoleURL struct {
	address string // of the console, without a code
	url     string // with a code
	scope   string // of the token
	end     string // how the console ends, for people; may be ""
}

// show opens the URL in a browser, or prints it.
func (u *consoleURL) show(cmd *cobra.Command, print, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		return printJSON(out, struct {
			URL   string `json:"url"`
			Scope string `json:"scope"`
		}{u.url, u.scope})
	}
	if !print {
		if openBrowser(u.url) == nil {
			_, err := fmt.Fprintf(out, "opened the console at %s%s\n", u.address, u.end)
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "no browser can be opened here; open this URL within a "+
			"minute%s:\n", u.end)
	}
	_, err := fmt.Fprintln(out, u.url)
	return err
}

// openBrowser opens a URL in the browser of the user. It returns an error if there is none.
func openBrowser(url string) error {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	} else if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return errors.New("there is no display")
	}
	return exec.Command(opener, url).Run()
}
