package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/transport/credentials"
	"gatekit/transport/tokenstore"
)

// loginEvent is a change of a login that a command makes. It holds no token.
type loginEvent struct {
	Server    string `json:"server"`
	Principal string `json:"principal,omitempty"`
	Action    string `json:"action,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Error     string `json:"error,omitempty"`
}

// record writes the event to an audit log.
func (e *loginEvent) record(events *pipeline.Pipeline) error {
	var err error
	if e.Error != "" {
		err = errors.New(e.Error)
	}
	return events.RecordEvent(context.Background(), &mcp.Message{Server: e.Server,
		Principal: identity.FromID(e.Principal)}, e.Action, e.Reason, err)
}

// loginRecorder returns a function that records changes of the logins at a server. The process that
// writes the audit log of the configuration records them. If no such process runs, the function
// does it itself. by is the command that makes the changes.
func loginRecorder(c *config.Config, server, by string) func(principal, action, reason string,
	err error) error {
	return func(principal, action, reason string, err error) error {
		e := &loginEvent{Server: server, Principal: principal, Action: action,
			Reason: fmt.Sprintf("%s, by %s, user id %d", reason, by, os.Geteuid())}
		if err != nil {
			e.Error = err.Error()
		}
		_, err = callControl(c.Audit.File, controlRequest{Command: "record-login", Login: e})
		if errors.Is(err, errNoProcess) {
			err = recordInNew(c.Audit.File, c.Audit.Key, e.record)
		}
		return err
	}
}

// useLogin lets a running Gatekit, and all replicas, use a changed login at once. Without this,
// they would notice the change within some seconds.
func useLogin(ctx context.Context, c *config.Config, state shared.Values, server,
	principal string) error {
	_, err := callControl(c.Audit.File, controlRequest{Command: "use-login",
		Login: &loginEvent{Server: server, Principal: principal}})
	switch {
	case !errors.Is(err, errNoProcess):
		return err
	case state != nil:
		return announceLogin(ctx, state, loginChange{Server: server, Principal: principal})
	}
	return nil
}

// loginActions are the actions that a command may record.
var loginActions = []string{credentials.ActionLogin, credentials.ActionLogout,
	credentials.ActionRefreshed, credentials.ActionRegistered, credentials.ActionRejected}

// serverOf returns the server that an event is about.
func (s *controlServer) serverOf(e *loginEvent) (*server, error) {
	if e == nil {
		return nil, errors.New("the request has no login")
	}
	list := *s.gateway.servers.Load()
	i := slices.IndexFunc(list, func(s *server) bool {
		return s.config.Name == e.Server && s.config.HasLogins()
	})
	if i < 0 {
		return nil, fmt.Errorf("the running Gatekit has no server %q that users log in to\nhint: "+
			"its configuration is another one; restart it if it needs a restart", e.Server)
	}
	return list[i], nil
}

// recordLogin records a change of a login in the log of a running Gatekit.
func (s *controlServer) recordLogin(e *loginEvent) error {
	if _, err := s.serverOf(e); err != nil {
		return err
	}
	if !slices.Contains(loginActions, e.Action) {
		return fmt.Errorf("no login has the action %q", e.Action)
	}
	return e.record(s.gateway.recording.events)
}

// useLogin makes a running Gatekit use a changed login.
func (s *controlServer) useLogin(e *loginEvent) error {
	server, err := s.serverOf(e)
	if err != nil {
		return err
	}
	s.gateway.loginChanged(server.config.Name, e.Principal)
	return nil
}

// useLogin uses a changed login of a principal at a server. The processes that have its token end.
func (g *gateway) useLogin(server, principal string) {
	tokens := g.credentialsOf(server)
	if tokens == nil {
		return
	}
	affects := func(p string) bool { return tokens.IsShared() || p == principal }
	tokens.Forget(principal)
	for _, s := range *g.servers.Load() {
		uses := s.tokens != nil && slices.Contains(s.config.EnvTokens(), server)
		if uses {
			s.tokens.end(affects)
		}
		if uses || s.config.Name == server {
			g.proxy.UseNewCredentials(s.config.Name, affects)
		}
	}
}

// serversWithLogins returns the names of the servers of the default configuration that users log in
// to.
func serversWithLogins() (names []string) {
	c, err := loadConfig("")
	if err != nil {
		return nil
	}
	for _, s := range c.Servers {
		if s.HasLogins() {
			names = append(names, s.Name)
		}
	}
	return names
}

// serverWithLogins returns the server of a configuration that users log in to.
func serverWithLogins(c *config.Config, name string) (config.Server, error) {
	i := slices.IndexFunc(c.Servers, func(s config.Server) bool { return s.Name == name })
	switch {
	case i < 0:
		return config.Server{}, fmt.Errorf("%s has no server %q", c.File, name)
	case !c.Servers[i].HasLogins():
		return config.Server{}, fmt.Errorf("nobody logs in to the server %q\nhint: set "+
			`[server.%s.auth] type = "oauth" or "id_jag" in %s`, name, name, c.File)
	}
	return c.Servers[i], nil
}

// checkPrincipal returns an error if no client can be the principal, or if all principals share one
// login.
func checkPrincipal(c *config.Config, s config.Server, principal string) error {
	a := c.Listen.Auth
	knows := func(name string, isKnown func() bool) bool {
		return a != nil && principal != name && strings.HasPrefix(principal, name) && isKnown()
	}
	isPrincipal := knows("token:", func() bool {
		return slices.ContainsFunc(a.Tokens, func(t config.StaticToken) bool {
			return "token:"+t.Subject == principal
		})
	}) || knows("cert:", func() bool { return a.MTLS != nil }) ||
		knows("local:", func() bool { return a.Anonymous && principal == "local:anonymous" }) ||
		a != nil && slices.ContainsFunc(a.Issuers, func(i config.Issuer) bool {
			return knows(i.Issuer+"#", func() bool { return true })
		})
	switch {
	case s.Auth.Per == "gatekit" && principal != "":
		return fmt.Errorf("all principals share one login at the server %q\nhint: leave out "+
			"--principal", s.Name)
	case s.Auth.Per == "gatekit":
		return nil
	case principal == "" && a != nil && !c.Listen.Stdio:
		return fmt.Errorf("all clients of %s authenticate themselves, so a login needs a "+
			"principal\nhint: name it with --principal, as the error of the client or gatekit "+
			"audit show does", c.File)
	case principal == "":
		return nil
	case len(principal) > identity.MaxIDBytes || !isPrincipal:
		return fmt.Errorf("no client can be the principal %s\nhint: a principal is "+
			"ISSUER#SUBJECT, token:SUBJECT, cert:NAME or local:anonymous, and [listen.auth] of %s "+
			"must have it", display.Quote(principal, maxApprovalName), c.File)
	}
	return nil
}

// describeLogins returns who is logged in to a server.
func describeLogins(ctx context.Context, c *config.Config, s config.Server) string {
	state, closeState, err := dialShared(ctx, c)
	defer closeState()
	var store tokenstore.Store
	if err == nil {
		store, err = openTokens(c, state)
	}
	if err != nil {
		return "the logins cannot be read: " + err.Error()
	}
	records, err := tokenstore.All(store)
	records = slices.DeleteFunc(records, func(r tokenstore.Record) bool {
		return r.Kind != tokenstore.Login || r.Server != s.Name ||
			s.Auth.Per == "gatekit" && r.Principal != ""
	})
	var text string
	switch isLocal := slices.ContainsFunc(records, func(r tokenstore.Record) bool {
		return r.Principal == ""
	}); {
	case len(records) == 0:
		text = "nobody is logged in: gatekit auth login " + s.Name
	case s.Auth.Per == "gatekit":
		text = "Gatekit is logged in, for all principals"
	case isLocal && len(records) == 1:
		text = "the local user is logged in"
	case isLocal:
		text = fmt.Sprintf("the local user and %s are logged in", plural(len(records)-1,
			"principal"))
	default:
		text = fmt.Sprintf("logged in: %s", plural(len(records), "principal"))
	}
	if err != nil {
		text += "; some logins cannot be read: " + err.Error()
	}
	return text
}
