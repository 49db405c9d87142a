package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// The maximum number of open connections of an AdminServer, without and with a console. Each viewer
// of a console has a stream and fetches pages beside it.
const (
	maxAdminConnections   = 32
	maxConsoleConnections = 128
)

// consolePrefix begins the paths that the console serves.
const consolePrefix = "/console/"

// AdminServerOptions configure an AdminServer.
type AdminServerOptions struct {
	Addr  string                  // "127.0.0.1:7778"; a loopback address
	Pages map[string]http.Handler // by path: "/metrics"
	// Console serves all requests below /console/, with every method. It authenticates its clients.
	// nil: there is no console.
	Console http.Handler
	// by path: commands, which get POST requests; each must authenticate the operator
	Commands map[string]http.Handler
	Log      *slog.Logger // nil: nothing is logged
	// Setting names what sets Addr, in hints. Default: [admin] http.
	Setting string
}

// AdminServer serves pages to operators and their tools. It answers GET and HEAD requests for
// pages, and POST requests for commands. The requests must come from this machine, with a Host
// header that is a loopback name. So it refuses the requests of a web site whose host name resolves
// to 127.0.0.1 (DNS rebinding). AdminServer sends no CORS headers, so pages of other origins cannot
// read its answers. Only the console gets requests with other methods.
type AdminServer struct {
	o        AdminServerOptions
	hosts    allowedHosts
	listener *limitedListener
}

// ListenAdmin returns a server that listens on the address, which must be a loopback address. Serve
// accepts and serves the connections.
func ListenAdmin(o AdminServerOptions) (*AdminServer, error) {
	addr, err := net.ResolveTCPAddr("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for operators on %q: %w\nhint: write it as 127.0.0.1:7778",
			o.Addr, err)
	}
	if !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("listen for operators on %s: not a loopback address, and the "+
			"pages of the admin endpoint have no authentication\nhint: listen on 127.0.0.1:%d",
			o.Addr, addr.Port)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for operators on %s: %w%s", o.Addr, err,
			hintInUse(err, cmp.Or(o.Setting, "[admin] http")))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	connections := maxAdminConnections
	if o.Console != nil {
		connections = maxConsoleConnections
	}
	return &AdminServer{o: o, hosts: newAllowedHosts(nil, true),
		listener: newLimitedListener(l, connections, minIdle, o.Log)}, nil
}

// hintInUse returns a hint if another process listens on the address, and "" for other errors. The
// parameter key is the key of the configuration that has the address.
func hintInUse(err error, key string) string {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ""
	}
	return "\nhint: another process listens on this port, perhaps another Gatekit; end that " +
		"process, or set " + key + " to another port"
}

// Addr returns the address that the server listens on.
func (a *AdminServer) Addr() net.Addr { return a.listener.Addr() }

// Serve serves requests until ctx ends. Then it waits at most one second for the answers that are
// in progress, and returns.
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
		ConnState:         a.listener.stateChanged,
		ErrorLog:          slog.NewLogLogger(a.o.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(a.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve operators on %s: %w", a.o.Addr, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(alive, time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		drop()
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve operators on %s: %w", a.o.Addr, err)
	}
	return nil
}

// Close stops listening on the address. It is needed only if Serve is not called.
func (a *AdminServer) Close() error { return a.listener.Close() }

// ServeHTTP implements http.Handler.
func (a *AdminServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	page, command := a.o.Pages[r.URL.Path], a.o.Commands[r.URL.Path]
	switch {
	case !a.hosts.allows(r.Host):
		http.Error(w, hostNotAllowed(r), http.StatusForbidden)
	case a.o.Console != nil && strings.HasPrefix(r.URL.Path, consolePrefix):
		a.o.Console.ServeHTTP(w, r)
	case command != nil && r.Method == http.MethodPost:
		command.ServeHTTP(w, r)
	case page == nil && command != nil:
		w.Header().Set("Allow", "POST")
		http.Error(w, "only POST is allowed", http.StatusMethodNotAllowed)
	case page == nil && a.o.Pages == nil:
		http.Error(w, "no such page: try "+consolePrefix, http.StatusNotFound)
	case page == nil:
		http.Error(w, "no such page: try /metrics, /healthz or /readyz", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
	default:
		page.ServeHTTP(w, r)
	}
}
