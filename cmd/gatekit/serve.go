package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"gatekit/core/config"
	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/transport"
	"gatekit/transport/auth"
	"gatekit/transport/console"
)

// serve runs a configuration until ctx ends. On stdio, it also ends when the client disconnects,
// because this client started Gatekit.
func (p *program) serve(ctx context.Context, c *config.Config) error {
	growHeap()
	hangup := make(chan os.Signal, 1) // from now on the signal does not end the process
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	stopSignal := make(chan os.Signal, 1)
	signal.Notify(stopSignal, syscall.SIGUSR1)
	defer signal.Stop(stopSignal)
	early := startEarly(c, p.log)
	var closing sync.WaitGroup
	defer closing.Wait()
	g, err := openGateway(ctx, c, p.log, early)
	if err != nil {
		closing.Go(early.close) // at the same time, refuse tells the client the reason
		return p.refuse(ctx, c.Listen.Stdio, err)
	}
	g.onReload = p.masked.add // before anything watches the configuration
	l := &listeners{gateway: g, config: c, hangup: hangup, stopSignal: stopSignal,
		control: &controlServer{gateway: g, config: c, log: p.log}}
	if err := startAll(ctx, l.components()); err != nil {
		err = errors.Join(err, g.close())
		closing.Go(early.close)
		return p.refuse(ctx, c.Listen.Stdio, err)
	}
	err = l.serve(ctx)
	err = errors.Join(err, l.control.stop(), g.close())
	early.close()
	return err
}

// listeners holds the listeners for clients and operators. All listeners are bound before the first
// of them serves.
type listeners struct {
	gateway *gateway
	config  *config.Config
	hangup  <-chan os.Signal // delivers SIGHUP
	// delivers SIGUSR1
	stopSignal <-chan os.Signal
	clients    *transport.HTTPServer  // nil when there is no [listen] http
	auth       *auth.Authenticator    // nil when there is no [listen.auth]
	admin      *transport.AdminServer // nil when there is no [admin] http
	console    *console.Console       // nil when there is no [admin] console
	public     *console.Console       // nil when there is no [listen] console
	pages      []console.Page         // of both; set by bindAdmin
	control    *controlServer
}

// components returns the listeners in the order in which they are bound. As soon as clients can
// connect, operators can, too. If one listener cannot be bound, startAll stops the listeners before
// it. If all are bound, l.serve ends the listeners for clients and operators, and program.serve
// stops the control server.
func (l *listeners) components() []component {
	return []component{
		&funcComponent{l.bindAdmin, l.releaseAdmin},
		&funcComponent{l.bindClients, l.releaseClients},
		l.control,
	}
}

func (l *listeners) bindClients(ctx context.Context) (err error) {
	if l.config.Listen.HTTP != "" {
		if l.config.Listen.Auth != nil {
			l.control.revocations, err = openRevocations(l.config.Audit.File)
			if err != nil {
				return err
			}
			l.control.sharedRevocations, err = openSharedRevocations(ctx, l.gateway.sharedStore(),
				l.control.revocations, l.gateway.recording.events, l.gateway.log)
			if err != nil {
				return err
			}
		}
		l.auth, err = newAuthenticator(l.config, l.control.revocations,
			l.gateway.exchanges.Load, l.gateway.log)
		if err != nil {
			return err
		}
		l.gateway.auth.Store(l.auth)
		if l.config.Listen.HasConnectPages() {
			pages, err := l.gateway.newPages(l.config, l.auth)
			if err != nil {
				return err
			}
			l.gateway.pages.Store(pages)
		}
		if l.public, err = l.gateway.newPublicConsole(l.config, l.auth, l.pages); err != nil {
			return err
		}
		l.control.publicConsole = l.public
		l.clients, err = l.gateway.listen(l.config, l.auth, l.public)
		l.gateway.clients.Store(l.clients)
	}
	return err
}

func (l *listeners) releaseClients() error {
	if l.clients == nil {
		return nil
	}
	return l.clients.Close()
}

func (l *listeners) bindAdmin(context.Context) (err error) {
	if isConsoleOn(l.config) || l.config.Listen.Console {
		l.pages = consolePages(l.gateway, l.config)
	}
	if l.config.Admin.HTTP == "" {
		return nil
	}
	if l.console, err = l.gateway.newConsole(l.config, l.pages); err != nil {
		return err
	}
	if l.admin, err = l.gateway.listenAdmin(l.config, l.console); err != nil {
		return err
	}
	l.control.console, l.control.consoleAddr = l.console, l.admin.Addr().String()
	return nil
}

func (l *listeners) releaseAdmin() error {
	if l.admin == nil {
		return nil
	}
	return l.admin.Close()
}

// serve serves clients and operators, and watches the configuration, until signalled ends, the
// stdio client disconnects, or the listener for clients fails. If signalled ends and there is a
// [listen] drain, it goes on for this time, and then lets the sessions of HTTP clients end. Then it
// answers the calls in flight, and ends all sessions.
func (l *listeners) serve(signalled context.Context) error {
	g, c := l.gateway, l.config
	// ctx ends later than signalled: when this process has drained.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(signalled))
	defer stop(nil)
	// clientsCtx ends later than ctx: when the calls in flight are answered.
	clientsCtx, dropClients := context.WithCancelCause(context.WithoutCancel(ctx))
	defer dropClients(nil)
	var running sync.WaitGroup
	failed := make(chan error, 3)
	if c.Listen.Stdio {
		g.log.Info("serving client on stdio", "servers", len(c.Servers), "audit", c.Audit.File)
		if isTerminal(os.Stdin) {
			g.log.Warn("stdin is a terminal, but an MCP client is expected to start this " +
				"command; to try Gatekit by hand, run: gatekit demo")
		}
		running.Go(func() {
			failed <- g.serveStdio(clientsCtx, c.Limits.MessageBytes)
			stop(errors.New("the client disconnected"))
		})
	}
	if l.clients != nil {
		scheme := "http"
		if c.Listen.TLS != nil {
			scheme = "https"
		}
		g.log.Info("listening", "url", fmt.Sprintf("%s://%s%s", scheme, l.clients.Addr(),
			c.Listen.Path), "servers", len(c.Servers), "audit", c.Audit.File)
		running.Go(func() {
			failed <- l.clients.Serve(clientsCtx)
			stop(errors.New("the HTTP listener ended"))
		})
	}
	if l.public != nil {
		g.log.Info("console ready", "open", strings.TrimSuffix(c.Listen.PublicURL, "/")+
			console.Prefix)
		defer context.AfterFunc(ctx, l.public.Close)()
	}
	if g.replica != nil {
		g.log.Info("listening for other replicas", "address", g.replica.Addr(),
			"name", c.Cluster.Name, "advertise", c.Cluster.Advertise)
		running.Go(func() {
			failed <- g.replica.Serve(clientsCtx, l.clients)
			stop(errors.New("the listener for other replicas ended"))
		})
	}
	if l.auth != nil {
		running.Go(func() { l.auth.Run(clientsCtx) })
	}
	if s := l.control.sharedRevocations; s != nil {
		s.revoked = l.control.endRevoked
		running.Go(func() { s.follow(clientsCtx) })
	}
	if l.admin != nil {
		g.log.Info("admin endpoint listening",
			"metrics", fmt.Sprintf("http://%s/metrics", l.admin.Addr()),
			"health", "/healthz, /readyz")
		if l.console != nil {
			g.log.Info("console ready", "scope", c.Admin.Console, "open", "gatekit console")
			defer context.AfterFunc(ctx, l.console.Close)()
		}
		running.Go(func() {
			if err := l.admin.Serve(ctx); err != nil { // clients can still be served
				g.log.Error("admin endpoint failed", "error", err)
			}
		})
	}
	running.Go(func() { tune(ctx) })
	running.Go(func() { g.watchStopTriggers(ctx, l.stopSignal) })
	running.Go(func() { g.watchAllowances(ctx) })
	running.Go(func() { g.watchSharedPins(ctx) })
	running.Go(func() {
		if c.File != "" {
			g.watch(ctx, l.hangup)
			return
		}
		if c.Pins != nil {
			running.Go(func() { g.watchWrappedLock(ctx, c.Pins.File) })
		}
		select { // without a file there is nothing else to read again
		case s := <-l.hangup:
			stop(fmt.Errorf("got %s", s))
		case <-ctx.Done():
		}
	})

	select {
	case <-ctx.Done():
	case <-signalled.Done():
		l.leave(ctx, context.Cause(signalled))
	}
	answered, cancel := context.WithTimeout(context.Background(), c.Listen.ShutdownTimeout)
	defer cancel()
	if c.Listen.Drain > 0 && ctx.Err() == nil {
		g.endpoint.EndSessions(answered) // StopAccepting answers calls with an error
		if g.replica != nil {
			g.replica.Leave()
			wait(ctx, leaveTime)
		}
	}
	stop(context.Cause(signalled))
	g.endpoint.StopAccepting() // before the log line, which tells that new calls are refused
	g.log.Info("shutting down", "reason", context.Cause(ctx))
	g.drain(answered, c.Listen.ShutdownTimeout)
	errs := []error{g.endSessions()} // before dropClients: the HTTP listener waits for open streams
	dropClients(context.Cause(ctx))
	running.Wait()
	close(failed)
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leave serves clients for [listen] drain, or until ctx ends. Meanwhile, /readyz tells the balancer
// to send them elsewhere. New sessions are served, too: until the balancer has noticed, a client
// that is refused here fails, and a client that is served only has to initialize again soon.
func (l *listeners) leave(ctx context.Context, reason error) {
	drain := l.config.Listen.Drain
	if drain <= 0 || l.clients == nil {
		return
	}
	l.clients.BeginDrain()
	l.gateway.log.Info("draining: /readyz says no, and clients are still served", "for", drain,
		"reason", reason)
	wait(ctx, drain)
}

// leaveTime is how long a replica answers after its sessions have ended, that they have ended. The
// clients that are at work learn it meanwhile, and no longer send requests here.
const leaveTime = time.Second

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// drain refuses new calls, and waits until the calls in flight are answered or ctx ends, after
// timeout. The calls that remain are answered with an error.
func (g *gateway) drain(ctx context.Context, timeout time.Duration) {
	if n := g.endpoint.Drain(ctx); n > 0 {
		g.log.Warn("calls ended before they were answered", "calls", n, "waited", timeout)
	}
}

// serveStdio serves the client on our stdin and stdout until the client disconnects or ctx ends.
func (g *gateway) serveStdio(ctx context.Context, maxMessage int) error {
	pipe := transport.NewStdioPipe(os.Stdin, os.Stdout, maxMessage)
	err := g.endpoint.ServePipe(ctx, pipe, nil)
	if ctx.Err() != nil {
		err = nil // the pipe reports only the end of ctx
	}
	return errors.Join(err, pipe.Close())
}

// listen binds the address for HTTP clients. The requests that the listener refuses are recorded.
// The authenticator and the console may be nil.
func (g *gateway) listen(c *config.Config, a *auth.Authenticator,
	public *console.Console) (*transport.HTTPServer, error) {
	encryption, err := listenerTLS(c)
	if err != nil {
		return nil, err
	}
	var endpoint transport.Endpoint = g.endpoint
	if g.recording.telemetry != nil {
		endpoint = tracedEndpoint{g.endpoint, g.recording.telemetry}
	}
	o := transport.HTTPServerOptions{
		Addr:           c.Listen.HTTP,
		Path:           c.Listen.Path,
		SSE:            c.Listen.SSE,
		AllowedOrigins: c.Listen.AllowedOrigins,
		AllowedHosts:   allowedHosts(c),
		TLS:            encryption,
		Endpoint:       endpoint,
		Log:            g.log,
		Limits: transport.HTTPServerLimits{Message: c.Limits.MessageBytes,
			Connections: connectionsWithin(c.Limits.Connections, g.log), Streams: c.Limits.Streams},
		RecordRefusal: func(ctx context.Context, r *http.Request, refusal transport.Refusal) {
			g.recording.refusedRequest(ctx, r.RemoteAddr, refusal)
		},
		RefusalBody: func(r transport.Refusal) []byte {
			return mcp.NewError(r.Request, mcp.CodeInvalidRequest, r.Reason, nil).Append(nil)
		},
	}
	if a != nil { // an interface that holds a nil pointer is not nil
		o.Authenticator, o.Metadata = a, a.Metadata()
	}
	if pages := g.pages.Load(); pages != nil {
		o.Pages = append(o.Pages, pages)
	}
	if public != nil {
		o.Pages = append(o.Pages, public)
	}
	if g.replica != nil {
		o.Cluster = g.replica
	}
	o.Ready = newReadiness(g.canServe).current
	if o.Documents, err = publicDocuments(c); err != nil {
		return nil, err
	}
	return transport.ListenHTTP(o)
}

// refuse reports on stderr why Gatekit did not start. If a client waits on stdio, refuse also
// answers the first request of this client with the reason. So the user sees the reason in the
// client.
func (p *program) refuse(ctx context.Context, stdio bool, reason error) error {
	if text := p.masked.mask(reason.Error()); text != reason.Error() {
		reason = errors.New(text)
	}
	fmt.Fprintln(os.Stderr, reason)
	if stdio && !isTerminal(os.Stdin) {
		pipe := transport.NewStdioPipe(os.Stdin, os.Stdout, 0)
		if err := downstream.RefuseAll(ctx, pipe, reason); err != nil && ctx.Err() == nil {
			p.log.Warn("start failure not sent to the client", "error", err)
		}
		pipe.Close()
	}
	return errReported
}

// isTerminal reports whether f is a terminal, at which a person may read and type.
func isTerminal(f *os.File) bool {
	i, err := f.Stat()
	if err != nil || i.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(i, null)
}
