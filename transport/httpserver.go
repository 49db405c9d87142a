package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/conn"
	"gatekit/core/downstream"
)

// Endpoint is who answers requests: a *downstream.Front. The reply is dead when the method has
// returned; a stream that is to live must be served within it. ctx ends when the client drops the
// connection, or when the front is shut down.
type Endpoint interface {
	Post(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply)
	Get(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply)
	Delete(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply)
	ServePipe(ctx context.Context, p conn.Pipe, principal string) error
}

// HTTPServerOptions say how Gatekit listens.
type HTTPServerOptions struct {
	Addr string // "127.0.0.1:7777"
	Path string // of the endpoint; "" is /mcp
	SSE  bool   // serve the 2024-11-05 transport, too, at /sse and /messages

	AllowedOrigins []string // as browsers send them: "https://app.example.com"
	AllowedHosts   []string // beside the loopback names, with or without port
	Insecure       bool     // listen on an address that others can reach, without authentication

	Endpoint Endpoint
	// RecordRefusal is told of every request that is refused here, to record it, and may answer the
	// body that the client gets: a JSON-RPC error. reason holds no credential. It is required: what
	// is not recorded does not happen. (What net/http does not take for a request, it refuses by
	// itself.)
	RecordRefusal func(ctx context.Context, r *http.Request, status int,
		reason string) (body []byte)
	Log *slog.Logger // nil: nothing is logged

	Limits HTTPServerLimits
}

// HTTPServerLimits are what clients can make us hold; the zero value of each is its default.
type HTTPServerLimits struct {
	Message int // bytes of one body; 16 MiB
	// bytes of all bodies whose requests are not answered yet; 16 messages
	Bodies      int
	Connections int           // 4096; further ones wait to be accepted
	Streams     int           // open event streams; half of Connections
	Request     time.Duration // for a whole request to arrive; 60 s
	Header      time.Duration // for its header block; 10 s
	Idle        time.Duration // between two requests on one connection; 2 min
	Write       time.Duration // for a client to take an answer or an event; 30 s
	Shutdown    time.Duration // for requests in flight when Serve's context ends; 5 s
}

// headerBytes is what net/http reads at most for a header block: MaxHeaderBytes and 4 KiB more.
const headerBytes = 32<<10 - 4<<10

// keepAlive is how long a stream is silent at most; many proxies drop one that is for a minute.
const keepAlive = 15 * time.Second

func (l HTTPServerLimits) orDefaults() HTTPServerLimits {
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt(&l.Message, defaultMessage)
	orInt(&l.Bodies, 16*l.Message)
	orInt(&l.Connections, 4096)
	orInt(&l.Streams, max(1, l.Connections/2))
	orTime(&l.Request, time.Minute)
	orTime(&l.Header, 10*time.Second)
	orTime(&l.Idle, 2*time.Minute)
	orTime(&l.Write, 30*time.Second)
	orTime(&l.Shutdown, 5*time.Second)
	return l
}

// HTTPServer is the HTTP side towards clients.
type HTTPServer struct {
	o        HTTPServerOptions
	log      *slog.Logger
	hosts    hosts
	listener net.Listener

	bodies  atomic.Int64 // bytes
	streams atomic.Int64
	serving sync.WaitGroup // handlers; added to with mu held and while not stopped

	mu      sync.Mutex
	stopped bool
	pipes   map[string]*ssePipe // by session id, of the 2024-11-05 transport
}

// ListenHTTP binds the address. Serve then answers.
//
// An address that is not loopback is refused unless Insecure says so, since whoever reaches it can
// use every server behind it.
func ListenHTTP(o HTTPServerOptions) (*HTTPServer, error) {
	if o.Endpoint == nil || o.RecordRefusal == nil {
		return nil, errors.New("transport: FrontOptions without Endpoint or Refused")
	}
	if o.Path == "" {
		o.Path = "/mcp"
	}
	if !strings.HasPrefix(o.Path, "/") {
		return nil, fmt.Errorf("listen on %s: path %q must begin with /", o.Addr, o.Path)
	}
	o.Limits = o.Limits.orDefaults()
	addr, err := net.ResolveTCPAddr("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w\nhint: write it as 127.0.0.1:7777", o.Addr, err)
	}
	loopback := addr.IP.IsLoopback()
	if !loopback && !o.Insecure {
		return nil, fmt.Errorf("listen on %s: not a loopback address, and there is no "+
			"authentication: whoever reaches it could use every server\nhint: listen on "+
			"127.0.0.1:%d, or set [listen] insecure = true if something before Gatekit "+
			"authenticates", o.Addr, addr.Port)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", o.Addr, err)
	}
	f := &HTTPServer{
		o:     o,
		log:   o.Log,
		hosts: newHosts(o.AllowedHosts, loopback),
		listener: &limited{Listener: l, slots: make(chan struct{}, o.Limits.Connections),
			closed: make(chan struct{})},
		pipes: map[string]*ssePipe{},
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	return f, nil
}

// Addr is where it listens.
func (f *HTTPServer) Addr() net.Addr { return f.listener.Addr() }

// Serve answers requests until ctx ends. Then it accepts no more, gives those in flight
// Limits.Shutdown to be answered, drops the rest, and returns when the last handler has. Streams do
// not end by themselves: whoever serves them should end them when ctx ends, or they take the whole
// time.
func (f *HTTPServer) Serve(ctx context.Context) error {
	alive, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler:           f,
		BaseContext:       func(net.Listener) context.Context { return alive },
		Protocols:         protocols,
		MaxHeaderBytes:    headerBytes,
		ReadHeaderTimeout: f.o.Limits.Header,
		// net/http takes it back once the body is read: calls may be long
		ReadTimeout: f.o.Limits.Request,
		IdleTimeout: f.o.Limits.Idle,
		ErrorLog:    slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		// No WriteTimeout: it would end long streams. Every write has a deadline of its own.
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(alive, f.o.Limits.Shutdown)
		defer cancel()
		if server.Shutdown(grace) != nil {
			drop()
			server.Close()
		}
	})
	err := server.Serve(f.listener)
	if stop() { // not our doing
		drop()
		server.Close()
	} else {
		<-stopped
		err = nil
	}
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.serving.Wait()
	if err != nil {
		return fmt.Errorf("serve %s: %w", f.o.Addr, err)
	}
	return nil
}

// Close gives the address back where Serve was never called.
func (f *HTTPServer) Close() error { return f.listener.Close() }

func (f *HTTPServer) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.serving.Add(1)
	}
	return !f.stopped
}

// ServeHTTP checks a request and hands it over.
func (f *HTTPServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.enter() {
		panic(http.ErrAbortHandler)
	}
	defer f.serving.Done()

	var serve http.HandlerFunc
	var methods []string
	switch {
	case r.URL.Path == f.o.Path:
		serve, methods = f.serveEndpoint, []string{http.MethodGet, http.MethodPost,
			http.MethodDelete}
	case f.o.SSE && r.URL.Path == ssePath:
		serve, methods = f.serveSSE, []string{http.MethodGet}
	case f.o.SSE && r.URL.Path == messagesPath:
		serve, methods = f.serveMessages, []string{http.MethodPost}
	}

	if !f.hosts.allow(r.Host) {
		f.refuse(w, r, http.StatusForbidden, fmt.Sprintf("Host %q is not allowed", clip(r.Host)))
		return
	}
	if reason := repeated(r.Header); reason != "" {
		f.refuse(w, r, http.StatusBadRequest, reason)
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if !f.allowOrigin(w.Header(), origin, r.Host) {
			f.refuse(w, r, http.StatusForbidden, fmt.Sprintf("Origin %q is not allowed",
				clip(origin)))
			return
		}
	}
	switch {
	case serve == nil:
		f.refuse(w, r, http.StatusNotFound, fmt.Sprintf("there is nothing at %q", clip(r.URL.Path)))
	case r.Method == http.MethodOptions:
		preflight(w.Header(), r.Header, methods)
		f.write(w, http.StatusNoContent)
	case !slices.Contains(methods, r.Method):
		w.Header().Set("Allow", strings.Join(methods, ", ")+", OPTIONS")
		f.refuse(w, r, http.StatusMethodNotAllowed, fmt.Sprintf("method %q is not allowed",
			clip(r.Method)))
	default:
		serve(w, r)
	}
}

func (f *HTTPServer) serveEndpoint(w http.ResponseWriter, r *http.Request) {
	if !acceptable(r.Header["Accept"]) {
		f.refuse(w, r, http.StatusNotAcceptable,
			"Accept allows neither application/json nor text/event-stream")
		return
	}
	post := downstream.HTTPRequest{Header: r.Header}
	reply := &reply{f: f, w: w, r: r}
	defer reply.end()
	switch r.Method {
	case http.MethodPost:
		body, release, ok := f.body(w, r)
		if !ok {
			reply.sent = true
			return
		}
		defer release()
		post.Body = body
		f.o.Endpoint.Post(r.Context(), post, reply)
	case http.MethodGet:
		f.o.Endpoint.Get(r.Context(), post, reply)
	case http.MethodDelete:
		f.o.Endpoint.Delete(r.Context(), post, reply)
	}
}

// body reads the request's body whole, or refuses the request. release gives its share of
// Limits.Bodies back.
func (f *HTTPServer) body(w http.ResponseWriter,
	r *http.Request) (b []byte, release func(), ok bool) {
	limit := f.o.Limits.Message
	switch {
	case !isJSON(r.Header.Get("Content-Type")):
		f.refuse(w, r, http.StatusUnsupportedMediaType, "Content-Type is not application/json")
		return nil, nil, false
	case r.Header.Get("Content-Encoding") != "":
		f.refuse(w, r, http.StatusUnsupportedMediaType,
			"a body with Content-Encoding is not accepted")
		return nil, nil, false
	case r.ContentLength > int64(limit):
		f.refuse(w, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("a body of %d bytes is over the limit of %d", r.ContentLength, limit))
		return nil, nil, false
	}
	crowded := func() (b []byte, release func(), ok bool) {
		w.Header().Set("Retry-After", "1")
		f.refuse(w, r, http.StatusServiceUnavailable, "too many bytes are in flight")
		return nil, nil, false
	}
	most := int64(f.o.Limits.Bodies)
	if f.bodies.Load()+r.ContentLength > most {
		return crowded()
	}
	// Only what has come counts: else a few clients that announce much and send nothing would keep
	// all others out.
	var share int64
	b, err := readBody(r.Body, r.ContentLength, limit, func(n int) error {
		share += int64(n)
		if f.bodies.Add(int64(n)) > most {
			return errCrowded
		}
		return nil
	})
	release = func() { f.bodies.Add(-share) }
	if err == nil {
		return b, release, true
	}
	release()
	if errors.Is(err, errCrowded) {
		return crowded()
	}
	_, long := errors.AsType[*conn.TooLargeError](err)
	switch {
	case long:
		f.refuse(w, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("a body is over the limit of %d bytes", limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.refuse(w, r, http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive within %s",
			f.o.Limits.Request))
	default:
		f.refuse(w, r, http.StatusBadRequest, "the body did not arrive whole")
	}
	return nil, nil, false
}

var errCrowded = errors.New("too many bytes are in flight")

// bodyAtOnce is what is made room for because a header announces it; beyond that, bytes have to
// come first.
const bodyAtOnce = 128 << 10

// readBody reads a body of length bytes (-1: unknown) and at most limit. It tells came of all bytes
// that have come, before it makes room for more, and ends when that answers an error.
func readBody(r io.Reader, length int64, limit int, came func(n int) error) ([]byte, error) {
	if length > int64(limit) {
		return nil, &conn.TooLargeError{Size: int(length), Limit: limit}
	}
	most := limit + 1 // one byte more shows that there are too many
	size := firstBuffer
	if length >= 0 {
		most, size = int(min(length, int64(most))), bodyAtOnce
	}
	var b []byte
	for n := 0; ; size *= 4 {
		b = append(make([]byte, 0, min(size, most)), b...)
		b = b[:cap(b)]
		more, err := io.ReadFull(r, b[n:])
		n += more
		if tooMany := came(more); tooMany != nil {
			return nil, tooMany
		}
		switch {
		case n > limit:
			return nil, &conn.TooLargeError{Size: n, Limit: limit}
		case int64(n) == length:
			return b, nil
		case length < 0 && (err == io.EOF || err == io.ErrUnexpectedEOF):
			return b[:n], nil
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
	}
}

// refuse answers a request that goes no further.
func (f *HTTPServer) refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	f.log.Debug("refused a request", "method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr,
		"status", status, "reason", reason)
	body := f.o.RecordRefusal(r.Context(), r, status, reason)
	f.write(w, status, body)
}

// limited accepts a bounded number of connections at a time.
type limited struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slot{TCPConn: c.(*net.TCPConn), free: l.slots}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// slot is an accepted connection. It is still a *net.TCPConn to those who ask what it can do.
type slot struct {
	*net.TCPConn
	once sync.Once
	free chan struct{}
}

func (s *slot) Close() error {
	s.once.Do(func() { <-s.free })
	return s.TCPConn.Close()
}
