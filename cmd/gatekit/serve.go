package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"sync"

	"gatekit/core/config"
	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/transport"
)

// serve runs a configuration until ctx ends or, when it is served on stdio, the client is gone: who
// started Gatekit owns it.
func (p *program) serve(ctx context.Context, c *config.Config) error {
	defer runtime.KeepAlive(tune())
	g, err := openGate(ctx, c, p.log)
	if err != nil {
		return p.refuse(ctx, c.Listen.Stdio, err)
	}
	var front *transport.Front
	if c.Listen.HTTP != "" {
		if front, err = g.listen(c); err != nil {
			return p.refuse(ctx, c.Listen.Stdio, errors.Join(err, g.close()))
		}
	}
	admin, err := g.admin(c)
	if err != nil {
		if front != nil {
			err = errors.Join(err, front.Close())
		}
		return p.refuse(ctx, c.Listen.Stdio, errors.Join(err, g.close()))
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var parts sync.WaitGroup
	failed := make(chan error, 2)
	if c.Listen.Stdio {
		p.log.Info("serving the client on stdio", "servers", len(c.Servers), "audit", c.Audit.File)
		if terminal(os.Stdin) {
			p.log.Warn("stdin is a terminal: a client starts this command and speaks MCP with " +
				"it; to try it by hand run: gatekit demo")
		}
		parts.Go(func() {
			failed <- g.serveStdio(ctx, c.Limits.MessageBytes)
			stop(errors.New("the client is gone"))
		})
	}
	if front != nil {
		p.log.Info("listening", "url", fmt.Sprintf("http://%s%s", front.Addr(), c.Listen.Path),
			"servers", len(c.Servers), "audit", c.Audit.File)
		parts.Go(func() {
			failed <- front.Serve(ctx)
			stop(errors.New("the listener has ended"))
		})
	}
	if admin != nil {
		p.log.Info("operators can ask", "metrics", fmt.Sprintf("http://%s/metrics", admin.Addr()),
			"also", "/healthz, /readyz")
		parts.Go(func() {
			if err := admin.Serve(ctx); err != nil {
				// which is no reason to stop
				p.log.Error("operators can no longer ask", "error", err)
			}
		})
	}
	if c.File != "" {
		parts.Go(func() { g.watch(ctx) })
	}

	<-ctx.Done()
	p.log.Info("shutting down", "reason", context.Cause(ctx))
	err = g.endSessions() // or the streams of HTTP clients would hold up their listener
	parts.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return errors.Join(err, g.close())
}

// serveStdio serves the client on our stdin and stdout until it is gone or ctx ends.
func (g *gate) serveStdio(ctx context.Context, maxMessage int) error {
	pipe := transport.Stdio(os.Stdin, os.Stdout, maxMessage)
	err := g.front.ServePipe(ctx, pipe, "")
	if ctx.Err() != nil {
		err = nil // what the pipe says then is that we left
	}
	return errors.Join(err, pipe.Close())
}

// listen binds the address. What is refused there is recorded like any other refusal.
func (g *gate) listen(c *config.Config) (*transport.Front, error) {
	var endpoint transport.Endpoint = g.front
	if g.telemetry != nil {
		endpoint = traced{g.front, g.telemetry}
	}
	return transport.Listen(transport.FrontOptions{
		Addr:           c.Listen.HTTP,
		Path:           c.Listen.Path,
		SSE:            c.Listen.SSE,
		AllowedOrigins: c.Listen.AllowedOrigins,
		AllowedHosts:   c.Listen.AllowedHosts,
		Insecure:       c.Listen.Insecure,
		Endpoint:       endpoint,
		Log:            g.log,
		Limits:         transport.FrontLimits{Message: c.Limits.MessageBytes},
		Refused: func(ctx context.Context, r *http.Request, status int, reason string) []byte {
			if err := g.event(ctx, "refuse", fmt.Sprintf("HTTP %d to %s: %s", status, r.RemoteAddr,
				reason), nil); err != nil {
				g.log.Error("record a refused request", "error", err)
			}
			return mcp.NewError("", mcp.CodeInvalidRequest, reason, nil).Append(nil)
		},
	})
}

// refuse tells why Gatekit did not start: on stderr, and, where a client waits on stdio, in answer
// to what it asks, so that its user sees it.
func (p *program) refuse(ctx context.Context, stdio bool, reason error) error {
	fmt.Fprintln(os.Stderr, reason)
	if stdio && !terminal(os.Stdin) {
		pipe := transport.Stdio(os.Stdin, os.Stdout, 0)
		if err := downstream.Refuse(ctx, pipe, reason); err != nil && ctx.Err() == nil {
			p.log.Warn("tell the client why", "error", err)
		}
		pipe.Close()
	}
	return errReported
}

// terminal says whether a person is at the other end.
func terminal(f *os.File) bool {
	i, err := f.Stat()
	if err != nil || i.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(i, null)
}
