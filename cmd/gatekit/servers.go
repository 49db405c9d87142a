package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"gatekit/core/bridge"
	"gatekit/core/config"
	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
	"gatekit/plugins/builtin/secrets"
	"gatekit/transport"
	"gatekit/transport/credentials"
)

// server is the component of one configured server. Gatekit starts its process, or calls its URL,
// when the first client needs it. Only the server of gatekit wrap has a process before that.
type server struct {
	gateway            *gateway
	config             config.Server
	early              *earlyServer        // the process that the server already has; may be nil
	*upstream.Upstream                     // set by start
	credentials        *credentials.Server // set by start; nil if the server needs no tokens
	questions          *loginQuestions     // set by start; nil if users do not log in to the server
	tokens             *tokenProcesses     // set by start; nil if its env has no tokens of users
}

// forProxy returns the server as the proxy uses it: always the same one.
func (s *server) forProxy() proxy.Upstream {
	if s.questions != nil {
		return s.questions
	}
	return s.Upstream
}

func (s *server) start(context.Context) error {
	g := s.gateway
	if a := s.config.Auth; a != nil && a.Type == "exchange" {
		g.exchanges.Store(true)
	}
	event := func(principal, action, reason string, err error) error {
		return g.recording.credentialsEvent(s.config.Name, principal, action, reason, err)
	}
	var err error
	s.credentials, err = newCredentials(s.config, g.active.config, g.sharedStore(), event)
	if err != nil {
		return err
	}
	o, err := upstreamOptions(s.config, g.active.config, g.masked.mask, g.log, s.credentials)
	if err != nil {
		return err
	}
	o.Processes = g.processes
	o.Event = func(action, reason string, err error) {
		g.recording.serverEvent(s.config.Name, action, reason, err)
	}
	if g.recording.telemetry != nil {
		o.Observer = g.recording.telemetry.ServerObserver(s.config.Name)
	}
	o.Pipeline = func() *pipeline.Pipeline { return g.proxy.Pipeline() }
	if g.dialServer != nil {
		o.Dial = upstream.Dial{Pipe: g.dialServer}
	}
	if s.early != nil {
		o.Dial.Pipe = s.early.dial(o.Dial.Pipe)
	}
	if s.config.Sandbox != nil {
		o.Dial.Pipe = g.recordConfinement(s.config.Name, o.Dial.Pipe)
	}
	loginAt := []string{s.config.Name}
	if names := s.config.EnvTokens(); len(names) > 0 {
		loginAt = names
		s.tokens = newTokenProcesses(s.config, g.active.config, g.log, g.credentialsOf)
		if s.config.Sandbox != nil {
			s.tokens.wrapSpawn(func(dial dialFunc) dialFunc {
				return g.recordConfinement(s.config.Name, dial)
			})
		}
		o.Dial.PipeFor = s.tokens.pipeFor
	}
	s.Upstream = upstream.New(o)
	if s.config.HasLogins() || s.tokens != nil {
		s.questions = &loginQuestions{Upstream: s.Upstream, servers: loginAt,
			credentials:    g.credentialsOf,
			hasConnectTool: s.config.Auth == nil || s.config.Auth.ConnectTool,
			patience:       g.active.config.Limits.ReverseTimeout,
			log:            g.log, goroutines: taskgroup.New(),
			loggedIn: g.loginChanged,
			pages:    g.pages.Load, pending: map[loginKey]*pendingLogin{}}
	}
	return nil
}

func (s *server) stop() error {
	if s.questions != nil {
		s.questions.goroutines.Close()
	}
	err := s.Close()
	if s.credentials != nil {
		s.credentials.Close()
	}
	return err
}

// sameAs reports whether two servers have the same settings. It ignores the position in the file,
// and the settings that only the proxy and the pins read.
func (s *server) sameAs(other *server) bool {
	a, b := s.config, other.config
	for _, c := range []*config.Server{&a, &b} {
		c.Position, c.Timeout, c.MaxTimeout, c.Methods = config.Position{}, 0, 0, nil
		c.Pins = nil
	}
	return reflect.DeepEqual(a, b)
}

// upstreamOptions returns the options for a server, without the functions that report its events.
// tokens may be nil.
func upstreamOptions(s config.Server, c *config.Config, mask func(string) string,
	log *slog.Logger, tokens *credentials.Server) (upstream.Options, error) {
	d, err := dialer(s, c, mask, log, tokens)
	limits := c.Limits
	return upstream.Options{
		Name:    s.Name,
		Version: version(),
		Dial:    d,
		Era:     s.Era,
		Restart: s.Restart,
		Keep:    s.Keep,
		Bridge: bridge.New(bridge.Options{Version: version(), Rounds: limits.Rounds,
			InputRequests: limits.ReverseRequests, CapabilitySets: limits.CapabilitySets,
			FurtherSessions: limits.FurtherSessions, Log: log}),
		Limits:          messageLimits(limits),
		ReverseRequests: limits.ReverseRequests,
		ServerIdle:      limits.ServerIdle,
		Log:             log,
	}, err
}

// dialer returns the functions that connect to a server: to a child process, or over HTTP. If
// tokens is not nil, the requests over HTTP have its tokens.
func dialer(s config.Server, c *config.Config, mask func(string) string,
	log *slog.Logger, tokens *credentials.Server) (upstream.Dial, error) {
	if s.Command != "" {
		return upstream.Dial{Pipe: func(ctx context.Context) (conn.PipeCloser, error) {
			command, err := childCommand(s, c, log)
			if err != nil {
				return nil, err
			}
			return spawn(ctx, command)
		}}, nil
	}
	remote, err := transport.NewHTTPClient(transport.HTTPClientOptions{Name: s.Name, URL: s.URL,
		Headers: revealed(s.Headers), MaxMessage: c.Limits.MessageBytes, Log: log, Mask: mask})
	if err != nil {
		return upstream.Dial{}, err
	}
	if tokens != nil { // the 2024-11-05 transport has no authorization
		return upstream.Dial{HTTP: tokens.Over(remote)}, nil
	}
	return upstream.Dial{HTTP: remote, SSE: func(ctx context.Context) (conn.PipeCloser, error) {
		pipe, err := remote.OpenSSE(ctx)
		if err != nil {
			return nil, err
		}
		return pipe, nil
	}}, nil
}

// childCommand returns the command of a server that is a child process. It verifies an installed
// package, so it must be called for each process.
func childCommand(s config.Server, c *config.Config, log *slog.Logger) (transport.Command, error) {
	program, err := programOf(s, c)
	if err != nil {
		return transport.Command{}, fmt.Errorf("start server %q: %w", s.Name, err)
	}
	command := transport.Command{
		Name: s.Name, Path: program.path, Args: program.args, Dir: s.Cwd, Env: revealed(s.Env),
		MaxMessage: c.Limits.MessageBytes, Log: log, Overflow: stderrFolder(),
		Redact: redactOutput, Sandbox: confinement(s, c),
	}
	if command.Sandbox != nil && program.folder != "" {
		command.Sandbox.Readable = []string{program.folder}
	}
	return command, nil
}

// spawn starts a child process.
func spawn(ctx context.Context, command transport.Command) (conn.PipeCloser, error) {
	child, err := transport.Spawn(ctx, command)
	if err != nil {
		return nil, err // without this, the interface would hold a nil *Child
	}
	return child, nil
}

// newTokenProcesses returns the processes of a server whose env has tokens of users.
func newTokenProcesses(s config.Server, c *config.Config, log *slog.Logger,
	of func(server string) *credentials.Server) *tokenProcesses {
	return &tokenProcesses{config: s, credentials: of, spawn: spawn,
		command: func() (transport.Command, error) { return childCommand(s, c, log) }}
}

// credentialsOf returns the credentials for a server of the active configuration, or nil.
func (g *gateway) credentialsOf(name string) *credentials.Server {
	if s := g.serverNamed(name); s != nil {
		return s.credentials
	}
	return nil
}

// serverNamed returns the server of the active configuration with a name, or nil.
func (g *gateway) serverNamed(name string) *server {
	if list := g.servers.Load(); list != nil {
		for _, s := range *list {
			if s.config.Name == name {
				return s
			}
		}
	}
	return nil
}

func messageLimits(l config.Limits) mcp.Limits {
	return mcp.Limits{Bytes: l.MessageBytes, Depth: l.Depth, Tokens: l.Tokens, Batch: l.Batch}
}

// stderrFolder returns the folder for the stderr output of servers and plugins. Only output
// with too many lines for the log is written there. If the user has no state folder, stderrFolder
// returns "".
func stderrFolder() string {
	dir, err := stateFolder()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "stderr")
}

// redactTimeout limits the search for secrets in the last stderr lines of a server.
const redactTimeout = 2 * time.Second

// redactOutput returns the text that a server wrote, with placeholders instead of secrets.
func redactOutput(text string) string {
	ctx, cancel := context.WithTimeout(context.Background(), redactTimeout)
	defer cancel()
	redacted, err := secrets.RedactText(ctx, text)
	if err != nil {
		return fmt.Sprintf("(left out: it could not be searched for secrets: %v)", err)
	}
	return redacted
}

// describeExit returns a text about how the process of a server ended, with the last lines of its
// stderr and what the operator can do. For other errors, it returns "".
func describeExit(cause error) string {
	exit, ok := errors.AsType[*transport.ExitError](cause)
	switch {
	case !ok:
		return ""
	case exit.Stderr == "":
		return "it " + exit.Reason + " and wrote nothing to stderr"
	}
	text := "it " + exit.Reason + "; the end of its stderr:\n" + exit.Stderr
	if exit.Hint != "" {
		text += "\nhint: " + exit.Hint
	}
	return text
}

// revealed returns secrets as plain strings, for headers and environment variables.
func revealed(secrets map[string]config.Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for k, v := range secrets {
		out[k] = string(v)
	}
	return out
}

// checkCommands returns an error if the programs of all servers are missing, which is a common
// mistake of new users. If at least one program is found, Gatekit starts, and only the tools of the
// other servers are missing.
func checkCommands(servers []config.Server) error {
	var missing []error
	for _, s := range servers {
		if _, ownPath := s.Env["PATH"]; s.Command == "" || ownPath {
			return nil
		}
		_, err := exec.LookPath(s.Command)
		if err == nil || errors.Is(err, exec.ErrDot) {
			return nil
		}
		missing = append(missing, fmt.Errorf("start server %q: %w", s.Name, err))
	}
	return fmt.Errorf("%w\nhint: is the program installed? Desktop clients run Gatekit with a "+
		"short PATH: write the whole path of the command", errors.Join(missing...))
}

// publishServers makes the servers of the active configuration, ordered by name, and its pins
// visible to health checks and telemetry. It ends the processes that have a token of a server whose
// settings have changed.
func (g *gateway) publishServers() {
	servers := slices.SortedFunc(slices.Values(g.active.servers), func(a, b *server) int {
		return cmp.Compare(a.config.Name, b.config.Name)
	})
	before := g.servers.Swap(&servers)
	if before != nil {
		for _, s := range servers {
			if s.tokens != nil && slices.ContainsFunc(s.config.EnvTokens(), func(name string) bool {
				return !slices.Contains(*before, g.serverNamed(name))
			}) {
				s.tokens.end(func(string) bool { return true })
			}
		}
	}
	g.pins.Store(g.active.pins.guard)
}
