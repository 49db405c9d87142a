package transport

import (
	"cmp"
	"context"
	"crypto/tls"
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
	"gatekit/core/display"
	"gatekit/core/downstream"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/transport/auth"
	"gatekit/transport/cluster"
)

// Endpoint serves the requests that pass the checks of an HTTPServer; *downstream.Endpoint
// implements it. A method returns when its answer or stream has ended. After that, nobody may use
// the reply. ctx ends when the client drops the connection or the server shuts down.
type Endpoint interface {
	Post(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply)
	Get(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply)
	Delete(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply)
	ServePipe(ctx context.Context, p conn.Pipe, principal *identity.Principal) error
	// EndPrincipal ends the sessions of a principal, and cancels their calls.
	EndPrincipal(principal string)
}

// HTTPServerOptions configure an HTTPServer.
type HTTPServerOptions struct {
	Addr string // "127.0.0.1:7777"
	Path string // of the endpoint; "" is /mcp
	SSE  bool   // also serve the HTTP+SSE transport of 2024-11-05, at /sse and /messages

	AllowedOrigins []string // values of the Origin header: "https://app.example.com"
	AllowedHosts   []string // with or without port; the loopback names are always allowed

	// TLS is the configuration of an encrypted listener; nil: connections are not encrypted.
	TLS *tls.Config
	// Authenticator decides who sends a request. nil: every request comes from the one local user.
	// An address that other machines can reach needs it.
	Authenticator Authenticator
	// Metadata tells clients where to log in. It is served without authentication; nil: none.
	Metadata *auth.Metadata
	// Cluster forwards requests to other replicas behind the same address; nil: there are none.
	Cluster Cluster
	// Documents are served without authentication.
	Documents []Document
	// Pages are served without authentication; the first that serves a path gets it.
	Pages []Pages
	// Ready returns nil if clients should be sent here. /readyz calls it, for anybody and as often
	// as it is asked, so Ready must not wait. nil: always.
	Ready func() error

	Endpoint Endpoint
	// RecordRefusal is required. It records a request that the HTTPServer refuses.
	RecordRefusal func(ctx context.Context, r *http.Request, refusal Refusal)
	// RefusalBody returns the body of the answer to a refused request. nil: the answer has none.
	RefusalBody func(Refusal) []byte
	Log         *slog.Logger // nil: nothing is logged

	Limits HTTPServerLimits
}

// Refusal is a request that an HTTPServer refuses. Neither text contains a credential. If net/http
// cannot parse a request, net/http refuses it without a Refusal.
type Refusal struct {
	Status    int
	Reason    string // for the client
	Detail    string // for the operator; "" if it is the reason
	Principal string // ID of the principal, if the request was authenticated
	Request   mcp.ID // id of the JSON-RPC request, if the body was parsed and has one request
}

// HTTPServerLimits bound the memory, connections and time that clients can use. The default of a
// field that is 0 follows the semicolon in its comment.
type HTTPServerLimits struct {
	Message int // bytes of one body; 16 MiB
	// bytes of all bodies whose requests are not answered yet; 16 times Message
	Bodies int
	// open connections; 4096. When the limit is reached, a new connection takes the place of an
	// idle connection or is refused
	Connections int
	// how long a connection must have been idle before a new one takes its place; 1 s
	MinIdle  time.Duration
	Streams  int           // open event streams; half of Connections
	Request  time.Duration // for a whole request to arrive; 60 s
	Header   time.Duration // for the header block to arrive; 10 s
	Idle     time.Duration // between two requests on one connection; 2 min
	Write    time.Duration // for a client to take an answer or an event; 30 s
	Shutdown time.Duration // for requests in progress when Serve's context ends; 5 s
}

// headerBytes is the value of MaxHeaderBytes. net/http accepts 4 KiB more, so that the limit is
// 32 KiB.
const headerBytes = 32<<10 - 4<<10

// keepAliveInterval is the time without an event after which a comment is sent on a stream. Many
// proxies close a stream on which nothing is sent for a minute.
const keepAliveInterval = 15 * time.Second

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
	orInt(&l.Message, defaultMaxMessage)
	orInt(&l.Bodies, 16*l.Message)
	orInt(&l.Connections, 4096)
	orInt(&l.Streams, max(1, l.Connections/2))
	orTime(&l.MinIdle, minIdle)
	orTime(&l.Request, time.Minute)
	orTime(&l.Header, 10*time.Second)
	orTime(&l.Idle, 2*time.Minute)
	orTime(&l.Write, 30*time.Second)
	orTime(&l.Shutdown, 5*time.Second)
	return l
}

// HTTPServer receives the HTTP requests of clients. It checks Host, Origin, method, content type
// and size, authenticates the request, and hands it to an Endpoint.
type HTTPServer struct {
	o        HTTPServerOptions
	log      *slog.Logger
	hosts    allowedHosts
	listener *limitedListener

	bodyBytes atomic.Int64 // bytes that count towards Limits.Bodies
	streams   atomic.Int64 // open event streams
	// streamsRefused counts refused streams since the start; streamsFull is true if the last
	// request for a stream was refused
	streamsRefused atomic.Int64
	streamsFull    atomic.Bool
	handlers       sync.WaitGroup // running handlers; beginHandler adds them while mu is held

	mu       sync.Mutex
	stopped  bool
	ssePipes map[string]*sseServerPipe // pipes of the 2024-11-05 transport, by session id

	open openRequests

	draining atomic.Bool // set by BeginDrain
}

// ListenHTTP returns a server that listens on the address. Serve accepts and serves the
// connections.
//
// ListenHTTP refuses an address that is not a loopback address, if there is no Authenticator.
// Anyone who can reach such an address could use every MCP server behind Gatekit.
func ListenHTTP(o HTTPServerOptions) (*HTTPServer, error) {
	if o.Endpoint == nil || o.RecordRefusal == nil {
		return nil, errors.New("transport: HTTPServerOptions without Endpoint or RecordRefusal")
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
	if !loopback && o.Authenticator == nil {
		return nil, fmt.Errorf("listen on %s: not a loopback address, and there is no "+
			"authentication: whoever reaches it could use every server\nhint: listen on "+
			"127.0.0.1:%d, or add [listen.auth]", o.Addr, addr.Port)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w%s", o.Addr, err, hintInUse(err, "[listen] http"))
	}
	s := &HTTPServer{
		o:        o,
		log:      o.Log,
		hosts:    newAllowedHosts(o.AllowedHosts, loopback),
		ssePipes: map[string]*sseServerPipe{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.listener = newLimitedListener(l, o.Limits.Connections, o.Limits.MinIdle, s.log)
	return s, nil
}

// HTTPServerStats are counts of connections and streams, for the operator of an HTTPServer.
type HTTPServerStats struct {
	Connections        int   // open now
	ConnectionsRefused int64 // since the start
	Streams            int   // open event streams
	StreamsRefused     int64 // since the start
}

// Stats returns the current counts.
func (s *HTTPServer) Stats() HTTPServerStats {
	stats := HTTPServerStats{Streams: int(s.streams.Load()),
		StreamsRefused: s.streamsRefused.Load()}
	stats.Connections, stats.ConnectionsRefused = s.listener.counts()
	return stats
}

// Addr returns the address that the server listens on.
func (s *HTTPServer) Addr() net.Addr { return s.listener.Addr() }

// Serve serves requests until ctx ends. Then it accepts no more requests and waits up to
// Limits.Shutdown for the requests in progress. After that it drops the connections that are left.
// Serve returns when the last handler has returned. The Endpoint should end its streams when ctx
// ends. Otherwise Serve waits for the whole Limits.Shutdown.
func (s *HTTPServer) Serve(ctx context.Context) error {
	requestCtx, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler:           s,
		BaseContext:       func(net.Listener) context.Context { return requestCtx },
		Protocols:         protocols,
		TLSConfig:         s.o.TLS,
		MaxHeaderBytes:    headerBytes,
		ReadHeaderTimeout: s.o.Limits.Header,
		// net/http removes this deadline when the body has been read, so calls may take longer
		ReadTimeout: s.o.Limits.Request,
		IdleTimeout: s.o.Limits.Idle,
		ConnState:   s.listener.stateChanged,
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		// No WriteTimeout: it would end long streams. Every write has a deadline of its own.
	}
	shutdownDone := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shutdownDone)
		shutdownCtx, cancel := context.WithTimeout(requestCtx, s.o.Limits.Shutdown)
		defer cancel()
		if server.Shutdown(shutdownCtx) != nil {
			cancelRequests()
			server.Close()
		}
	})
	var err error
	if s.o.TLS == nil {
		err = server.Serve(s.listener)
	} else {
		err = server.ServeTLS(s.listener, "", "")
	}
	if stop() { // ctx has not ended, so server.Serve has failed
		cancelRequests()
		server.Close()
	} else {
		<-shutdownDone
		err = nil
	}
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.handlers.Wait()
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.o.Addr, err)
	}
	return nil
}

// Close stops listening on the address. It is needed only if Serve is not called.
func (s *HTTPServer) Close() error { return s.listener.Close() }

// beginHandler counts one more running handler. If the server has stopped, it returns false
// instead.
func (s *HTTPServer) beginHandler() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.handlers.Add(1)
	}
	return !s.stopped
}

// ServeHTTP checks a request and serves it.
func (s *HTTPServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.beginHandler() {
		panic(http.ErrAbortHandler)
	}
	defer s.handlers.Done()

	if s.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	serve, methods := s.handlerAt(r.URL.Path)
	if probe := s.probeAt(r.URL.Path); probe != nil && serve == nil {
		s.serveProbe(w, r, probe)
		return
	}
	if !s.hosts.allows(r.Host) {
		s.refuse(w, r, http.StatusForbidden, hostNotAllowed(r))
		return
	}
	if s.o.Metadata != nil && slices.Contains(s.o.Metadata.Paths(), r.URL.Path) {
		// the deadline of an earlier answer on this connection may be over
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.Limits.Write))
		s.o.Metadata.ServeHTTP(w, r)
		return
	}
	if d := s.documentAt(r.URL.Path); d != nil {
		s.serveDocument(w, r, d)
		return
	}
	if p := s.pagesAt(r.URL.Path); p != nil {
		servePage(w, r, p)
		return
	}
	if reason := repeatedHeader(r.Header); reason != "" {
		s.refuse(w, r, http.StatusBadRequest, reason)
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if !s.allowOrigin(w.Header(), origin, r.Host) {
			s.refuse(w, r, http.StatusForbidden,
				"Origin "+display.Quote(origin, maxQuoted)+" is not allowed")
			return
		}
	}
	switch {
	case serve == nil:
		s.refuse(w, r, http.StatusNotFound,
			"nothing is served at "+display.Quote(r.URL.Path, maxQuoted))
	case r.Method == http.MethodOptions:
		writePreflight(w.Header(), r.Header, methods)
		s.write(w, http.StatusNoContent)
	case !slices.Contains(methods, r.Method):
		w.Header().Set("Allow", strings.Join(methods, ", ")+", OPTIONS")
		s.refuse(w, r, http.StatusMethodNotAllowed,
			"method "+display.Quote(r.Method, maxQuoted)+" is not allowed")
	default:
		principal, ok := s.authenticate(w, r)
		if ok {
			s.serveAs(w, r, sender{principal: principal}, serve)
		}
	}
}

// sender describes where a request that has passed the checks comes from.
type sender struct {
	principal *identity.Principal
	forwarded *cluster.Forwarded // nil if the client sent the request here
}

// handler serves a request of a sender.
type handler func(w http.ResponseWriter, r *http.Request, from sender)

// handlerAt returns what serves a path to clients, and with which methods. It returns nil if
// nothing does.
func (s *HTTPServer) handlerAt(path string) (handler, []string) {
	switch {
	case path == s.o.Path:
		return s.serveEndpoint, []string{http.MethodGet, http.MethodPost, http.MethodDelete}
	case s.o.SSE && path == ssePath:
		return s.serveSSE, []string{http.MethodGet}
	case s.o.SSE && path == messagesPath:
		return s.serveMessages, []string{http.MethodPost}
	}
	return nil, nil
}

// serveAs serves a request of an authenticated sender, unless the principal was revoked.
func (s *HTTPServer) serveAs(w http.ResponseWriter, r *http.Request, from sender, serve handler) {
	if s.o.Authenticator != nil {
		var remove func()
		r, remove = s.open.add(r, from.principal.ID())
		defer remove()
		// From here on, EndPrincipal ends the request. It may have been called just before.
		if refused := s.o.Authenticator.Revoked(from.principal); refused != nil {
			s.refuseUnauthenticated(w, r, refused)
			return
		}
	}
	serve(w, r, from)
}

// serveEndpoint serves a request to the MCP endpoint.
func (s *HTTPServer) serveEndpoint(w http.ResponseWriter, r *http.Request, from sender) {
	principal := from.principal
	if !downstream.AcceptsReply(r.Header) {
		s.refuse(w, r, http.StatusNotAcceptable,
			"Accept allows neither application/json nor text/event-stream")
		return
	}
	request := downstream.HTTPRequest{Header: r.Header, Principal: principal,
		StreamsEnd: principal.Expiry()}
	if s.o.Authenticator != nil {
		request.Challenge = func(scopes []string) http.Header {
			return s.o.Authenticator.Challenge(principal, scopes)
		}
	}
	reply := &reply{server: s, w: w, r: r}
	defer reply.end()
	if from.forwarded != nil {
		request.Via = from.forwarded.Via
	} else if s.o.Cluster != nil {
		request.Forward = func(id string, body []byte, request mcp.ID) bool {
			owner, isOther := s.o.Cluster.Owner(id)
			if !isOther {
				return false
			}
			reply.sent = true
			if r.Method == http.MethodGet { // as at the owner, it is a stream
				if s.beginStream(w, r) != nil {
					return true
				}
				defer s.endStream()
			}
			err := s.tryForward(w, r, owner, body, principal)
			if errors.Is(err, cluster.ErrGone) && r.Header.Get(mcp.HeaderSessionID) == "" {
				reply.sent = false
				return false // the parked call exists no more, as if its ticket had expired
			}
			if err != nil {
				s.refuseForward(w, r, principal, request, err)
			}
			return true
		}
	}
	switch r.Method {
	case http.MethodPost:
		body, release, ok := s.readBodyOf(w, r, from)
		if !ok {
			reply.sent = true // readBodyOf has answered the request
			return
		}
		defer release()
		request.Body = body
		s.o.Endpoint.Post(r.Context(), request, reply)
	case http.MethodGet:
		s.o.Endpoint.Get(r.Context(), request, reply)
	case http.MethodDelete:
		s.o.Endpoint.Delete(r.Context(), request, reply)
	}
}

// readRequestBody reads the whole body of the request. If it refuses the request, ok is false. The
// caller must call release when it no longer uses the body. Until then, the bytes of the body count
// towards Limits.Bodies.
func (s *HTTPServer) readRequestBody(w http.ResponseWriter,
	r *http.Request) (b []byte, release func(), ok bool) {
	limit := s.o.Limits.Message
	switch {
	case !isJSON(r.Header.Get("Content-Type")):
		s.refuse(w, r, http.StatusUnsupportedMediaType, "Content-Type is not application/json")
		return nil, nil, false
	case r.Header.Get("Content-Encoding") != "":
		s.refuse(w, r, http.StatusUnsupportedMediaType,
			"a body with Content-Encoding is not accepted")
		return nil, nil, false
	case r.ContentLength > int64(limit):
		s.refuse(w, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("a body of %d bytes is over the limit of %d", r.ContentLength, limit))
		return nil, nil, false
	}
	refuseBusy := func() (b []byte, release func(), ok bool) {
		w.Header().Set("Retry-After", "1")
		s.refuse(w, r, http.StatusServiceUnavailable, "too many bytes are in flight")
		return nil, nil, false
	}
	maxBytes := int64(s.o.Limits.Bodies)
	if s.bodyBytes.Load()+r.ContentLength > maxBytes {
		return refuseBusy()
	}
	// Only bytes that have arrived count. Otherwise a few clients that announce large bodies and
	// send nothing could block all other clients.
	var counted int64
	b, err := readBody(r.Body, r.ContentLength, limit, func(n int) error {
		counted += int64(n)
		if s.bodyBytes.Add(int64(n)) > maxBytes {
			return errTooManyBodyBytes
		}
		return nil
	})
	release = func() { s.bodyBytes.Add(-counted) }
	if err == nil {
		return b, release, true
	}
	release()
	if errors.Is(err, errTooManyBodyBytes) {
		return refuseBusy()
	}
	_, tooLarge := errors.AsType[*conn.TooLargeError](err)
	switch {
	case tooLarge:
		s.refuse(w, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("a body is over the limit of %d bytes", limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.refuse(w, r, http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive within %s",
			s.o.Limits.Request))
	default:
		s.refuse(w, r, http.StatusBadRequest, "the body is incomplete")
	}
	return nil, nil, false
}

var errTooManyBodyBytes = errors.New("too many bytes are in flight")

// initialBodyBuffer is the maximum size of the first buffer for a body, even if the Content-Length
// is larger. The buffer grows only when it is full.
const initialBodyBuffer = 128 << 10

// readBody reads a body of length bytes, or of unknown length if length is -1. The body may have at
// most limit bytes. After each read, readBody calls received with the number of bytes that arrived.
// If received returns an error, readBody returns that error and reads no further.
func readBody(r io.Reader, length int64, limit int, received func(n int) error) ([]byte, error) {
	if length > int64(limit) {
		return nil, &conn.TooLargeError{Size: int(length), Limit: limit}
	}
	maxRead := limit + 1 // one byte more, to detect a body over the limit
	size := initialBufferSize
	if length >= 0 {
		maxRead, size = int(min(length, int64(maxRead))), initialBodyBuffer
	}
	var b []byte
	for n := 0; ; size *= 4 {
		b = append(make([]byte, 0, min(size, maxRead)), b...)
		b = b[:cap(b)]
		got, err := io.ReadFull(r, b[n:])
		n += got
		if err := received(got); err != nil {
			return nil, err
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

// refuse records the refusal of a request and answers the request.
func (s *HTTPServer) refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	s.refuseWith(w, r, Refusal{Status: status, Reason: reason})
}

// refuseWith records a refusal, and writes its status and reason as the answer.
func (s *HTTPServer) refuseWith(w http.ResponseWriter, r *http.Request, refusal Refusal) {
	s.log.Debug("refused a request", "method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr,
		"status", refusal.Status, "reason", cmp.Or(refusal.Detail, refusal.Reason))
	s.o.RecordRefusal(r.Context(), r, refusal)
	var body []byte
	if s.o.RefusalBody != nil {
		body = s.o.RefusalBody(refusal)
	}
	s.write(w, refusal.Status, body)
}
