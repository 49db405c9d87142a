package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Options configure a Replica. All fields but State, Describe, Meet and Log are required.
type Options struct {
	Name      string // of this replica, in the records of the others: "gatekit-0"
	Listen    string // address for the other replicas: "0.0.0.0:7443"
	Advertise string // address by which the others reach it: "gatekit-0.gatekit:7443"
	// TLS has the certificate of this replica, and in RootCAs the cluster's CA. Every certificate
	// that the CA has signed is that of a replica. The certificate must be valid for the host of
	// Advertise, for servers and for clients.
	TLS *tls.Config
	// StateKey is the same in all replicas.
	StateKey []byte
	// State describes the configuration and the policies of this replica, in at most 200 bytes. The
	// replicas compare it when they forward requests. It must not contain secrets, and is called
	// often. nil: there is none.
	State func() string
	// RecordRefusal records a request that is refused.
	RecordRefusal func(ctx context.Context, r *http.Request, status int, reason string)
	// Describe returns what the other replicas are told about this one, such as its audit log; nil
	// for nothing. Two replicas tell each other at most once in five minutes, with a request that
	// is forwarded. Meet gets what another replica tells. Both are set, or none.
	Describe func() []byte
	Meet     func(about []byte)
	Log      *slog.Logger // nil: nothing is logged
}

// Replica is this process as a part of a cluster. It makes ids, forwards requests to other
// replicas, and serves those that others forward. It is safe for many goroutines.
type Replica struct {
	o        Options
	log      *slog.Logger
	keys     keys
	listener net.Listener
	server   *tls.Config // for connections from other replicas
	client   *tls.Config // for connections to other replicas
	owners   owners
	conns    serverConns
	buffers  sync.Pool // of *[answerBuffer]byte
	nonces   usedNonces
	told     toldReplicas
	peers    peers
}

// Times and numbers of the connections from other replicas.
const (
	headerTimeout   = 10 * time.Second // for the handshake of TLS, and then for each header
	idleTimeout     = 2 * time.Minute  // longer than keepTime of the other replicas
	shutdownTimeout = 5 * time.Second
	// Each request that is forwarded, and each stream, has a connection of its own. Further
	// connections wait, and the replicas that open them give up after openTimeout.
	maxConnections = 8192
)

// maxHeaderBytes bounds the headers that another replica sends. The claims of a principal are in
// one of them.
const maxHeaderBytes = 1 << 20

// Listen returns a replica that listens for the others. Serve accepts their connections.
func Listen(o Options) (*Replica, error) {
	switch {
	case o.Name == "" || o.Listen == "" || o.Advertise == "" || o.RecordRefusal == nil:
		return nil, errors.New("cluster: Options without Name, Listen, Advertise or RecordRefusal")
	case o.TLS == nil || len(o.TLS.Certificates) == 0 || o.TLS.RootCAs == nil:
		return nil, errors.New("cluster: Options without a certificate or a CA")
	case len(o.StateKey) < 32:
		return nil, errors.New("cluster: the state key has fewer than 32 bytes")
	}
	k, err := deriveKeys(o.StateKey)
	if err != nil {
		return nil, err
	}
	r := &Replica{o: o, log: o.Log, keys: k}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.client = o.TLS.Clone()
	r.client.MinVersion = tls.VersionTLS13
	r.client.NextProtos = []string{"http/1.1"}
	// Both ends are replicas: small records for the first answers of a browser are no use here.
	r.client.DynamicRecordSizingDisabled = true
	r.server = r.client.Clone()
	r.server.ClientAuth, r.server.ClientCAs = tls.RequireAndVerifyClientCert, o.TLS.RootCAs
	system := net.ListenConfig{KeepAliveConfig: keepAlive, Control: limitUnacknowledged}
	if r.listener, err = system.Listen(context.Background(), "tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("listen for other replicas on %s: %w", o.Listen, err)
	}
	return r, nil
}

// Addr returns the address that the replica listens on.
func (r *Replica) Addr() net.Addr { return r.listener.Addr() }

// Close stops listening. It is needed only if Serve is not called.
func (r *Replica) Close() error {
	r.owners.close()
	return r.listener.Close()
}

// Leave asks the other replicas to use no connection to this one for another request. Without it,
// this replica would close connections on which requests arrive, and the system then also drops the
// answers on their way. Call Leave a moment before the context of Serve ends.
func (r *Replica) Leave() { r.conns.leave() }

// Serve serves what other replicas forward until ctx ends. Then it waits a few seconds for the
// requests in progress, and drops the rest.
func (r *Replica) Serve(ctx context.Context, h Handler) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.accept(w, req, h)
		}),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnContext:       withConn,
		ConnState:         r.conns.stateChanged,
		Protocols:         protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timeout, cancelTimeout := context.WithTimeout(requests, shutdownTimeout)
		defer cancelTimeout()
		if server.Shutdown(timeout) != nil {
			cancel()
			server.Close()
		}
	})
	err := server.Serve(serverListener{netutil.LimitListener(r.listener, maxConnections), r.server,
		&r.conns})
	r.owners.close()
	if stop() {
		return fmt.Errorf("serve other replicas on %s: %w", r.o.Listen, err)
	}
	<-ended
	r.conns.lingering.Wait()
	return nil
}
