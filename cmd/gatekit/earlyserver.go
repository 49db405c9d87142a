package main

import (
	"context"
	"log/slog"
	"sync"

	"gatekit/core/config"
	"gatekit/core/conn"
)

// earlyServer is the process of the server of gatekit wrap, which starts while Gatekit itself
// starts. Most servers need longer to start than Gatekit, so the client waits for a shorter time.
// Gatekit writes nothing to the process before the gateway is open and a client needs the server.
type earlyServer struct {
	started chan struct{} // closed when pipe and err are set
	pipe    conn.PipeCloser
	err     error

	mu    sync.Mutex
	taken bool // the process belongs to a session, which closes it, or is closed
}

// dialFunc starts a process, or connects to one.
type dialFunc = func(context.Context) (conn.PipeCloser, error)

// startEarly starts the server of gatekit wrap. For other configurations, and for a program that
// does not exist, it returns nil.
func startEarly(c *config.Config, log *slog.Logger) *earlyServer {
	if c.File != "" || len(c.Servers) != 1 || c.Servers[0].Command == "" ||
		checkCommands(c.Servers) != nil {
		return nil
	}
	masks := &masked{}
	masks.add(c)
	dial, err := dialer(c.Servers[0], c, masks.mask, log, nil)
	if err != nil {
		return nil // openGateway reports the error
	}
	return newEarlyServer(dial.Pipe)
}

func newEarlyServer(dial dialFunc) *earlyServer {
	s := &earlyServer{started: make(chan struct{})}
	go func() {
		defer close(s.started)
		s.pipe, s.err = dial(context.Background())
	}()
	return s
}

// dial returns a function that returns the early process once. Every other call of the function
// calls next.
func (s *earlyServer) dial(next dialFunc) dialFunc {
	return func(ctx context.Context) (conn.PipeCloser, error) {
		if !s.take() {
			return next(ctx)
		}
		select {
		case <-s.started:
			return s.pipe, s.err
		case <-ctx.Done():
			s.putBack()
			return nil, context.Cause(ctx)
		}
	}
}

// take reports whether the caller gets the process.
func (s *earlyServer) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := !s.taken
	s.taken = true
	return got
}

func (s *earlyServer) putBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = false
}

// close ends the process, unless a session has it. The server s may be nil. No call of dial may
// follow or run.
func (s *earlyServer) close() {
	if s == nil || !s.take() {
		return
	}
	if <-s.started; s.err == nil {
		s.pipe.Close()
	}
}
