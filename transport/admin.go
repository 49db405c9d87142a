package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// maxAdmin is how many connections an Admin has at a time; further ones wait.
const maxAdmin = 32

// AdminServerOptions say what an operator may ask, and where.
type AdminServerOptions struct {
	Addr  string                  // "127.0.0.1:7778": of this machine, whoever is on it may ask
	Pages map[string]http.Handler // by path
	Log   *slog.Logger            // nil: nothing is logged
}

// AdminServer is a listener for operators and their tools. It answers GET and HEAD, to those on
// this machine who call it by a loopback name: a browser whose page was made to believe that its
// own name is at 127.0.0.1 is refused. No page is told that it may read the answers (CORS).
type AdminServer struct {
	o        AdminServerOptions
	hosts    hosts
	listener net.Listener
}

// ListenAdmin binds the address, which must be a loopback one. Serve then answers.
func ListenAdmin(o AdminServerOptions) (*AdminServer, error) {
	addr, err := net.ResolveTCPAddr("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %q for operators: %w\nhint: write it as 127.0.0.1:7778",
			o.Addr, err)
	}
	if !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("listen on %s for operators: not a loopback address, and nobody "+
			"is asked who they are\nhint: listen on 127.0.0.1:%d", o.Addr, addr.Port)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for operators: %w", o.Addr, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &AdminServer{o: o, hosts: newHosts(nil, true), listener: &limited{Listener: l,
		slots: make(chan struct{}, maxAdmin), closed: make(chan struct{})}}, nil
}

// Addr is where it listens.
func (a *AdminServer) Addr() net.Addr { return a.listener.Addr() }

// Serve answers until ctx ends, and returns when the last answer is given or was not within a
// second.
func (a *AdminServer) Serve(ctx context.Context) error {
	alive, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	server := &http.Server{
		Handler:           a,
		BaseContext:       func(net.Listener) context.Context { return alive },
		MaxHeaderBytes:    headerBytes,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(a.o.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(a.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s for operators: %w", a.o.Addr, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(alive, time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		drop()
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s for operators: %w", a.o.Addr, err)
	}
	return nil
}

// Close gives the address back where Serve was never called.
func (a *AdminServer) Close() error { return a.listener.Close() }

// ServeHTTP implements http.Handler.
func (a *AdminServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	page := a.o.Pages[r.URL.Path]
	switch {
	case !a.hosts.allow(r.Host):
		http.Error(w, fmt.Sprintf("Host %q is not allowed", clip(r.Host)), http.StatusForbidden)
	case page == nil:
		http.Error(w, "there is nothing here", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
	default:
		page.ServeHTTP(w, r)
	}
}
