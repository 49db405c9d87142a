package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"gatekit/core/hostlist"
	"gatekit/transport/ssrfguard"
)

const (
	maxConnections = 128
	maxRefusals    = 256 // different refusals that are recorded one by one
	dialTimeout    = 30 * time.Second
	idleTimeout    = 15 * time.Minute
	firstTimeout   = 30 * time.Second // for the first bytes, once the first of them has come
)

// Options configure a Relay.
type Options struct {
	Hosts hostlist.List
	// Networks holds networks that hosts may be in beside the public internet. An address in Hosts
	// may be anywhere, and so may localhost. The addresses of cloud metadata services are refused
	// in any case.
	Networks []netip.Prefix
	// Record is called when a connection is open, before the first byte is sent, and again when it
	// is closed, and when something is refused. If it returns an error for an open connection, the
	// connection is closed. Many goroutines may call it.
	Record   func(Event) error
	Resolver *net.Resolver // nil: the resolver of the system
}

// Kind says what happened.
type Kind int

// The kinds of events.
const (
	Connected Kind = iota // a connection to a host is open
	Closed                // a connection is closed
	// Refused: a connection, or a name, was refused. It may be an open connection, over which
	// nothing was sent.
	Refused
)

// Event is something that the process did in its network.
type Event struct {
	Kind Kind
	// Host is the host that the process wanted: a name, or an address. Text that is no name has no
	// control characters.
	Host string
	Port uint16 // 0 if the process asked for the addresses of the host
	// Address is the address that the Relay connected to. It is not valid if it connected to none.
	Address        netip.AddrPort
	Sent, Received int64  // bytes to and from the host
	Reason         string // why it was refused; or why it was closed, if not by the two ends
	// Unlisted is set if the host, on this port, is not on the list.
	Unlisted bool
}

// Relay serves the network of one process.
type Relay struct {
	o           Options
	names       *names
	cancel      context.CancelFunc
	goroutines  sync.WaitGroup
	connections chan struct{} // has one element for each connection

	mu       sync.Mutex      // guards refusals and more
	refusals map[string]bool // of different hosts, ports and reasons
	more     int             // refusals that were not recorded
}

// Serve starts a Relay with the sockets of the network of a process (see sandbox.Sandbox.Network).
// It takes the sockets over, also if it returns an error. The Relay ends with Close.
func Serve(sockets []*os.File, o Options) (*Relay, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Relay{o: o, names: newNames(o.Hosts), cancel: cancel, refusals: map[string]bool{},
		connections: make(chan struct{}, maxConnections)}
	for i, s := range sockets {
		if err := r.serve(ctx, s); err != nil {
			for _, s := range sockets[i:] {
				s.Close()
			}
			r.Close()
			return nil, fmt.Errorf("serve the network of the process: %w", err)
		}
	}
	return r, nil
}

// serve serves one socket in a goroutine.
func (r *Relay) serve(ctx context.Context, socket *os.File) error {
	if l, err := net.FileListener(socket); err == nil {
		socket.Close()
		context.AfterFunc(ctx, func() { l.Close() })
		r.goroutines.Go(func() { r.accept(ctx, l) })
		return nil
	}
	p, err := net.FilePacketConn(socket)
	if err != nil {
		return err
	}
	socket.Close()
	udp, ok := p.(*net.UDPConn)
	if !ok {
		p.Close()
		return fmt.Errorf("a socket is a %T", p)
	}
	context.AfterFunc(ctx, func() { udp.Close() })
	r.goroutines.Go(func() { r.resolve(udp) })
	return nil
}

// Close ends all connections. It returns when the last event has been recorded.
func (r *Relay) Close() {
	r.cancel()
	r.goroutines.Wait()
	r.mu.Lock()
	more := r.more
	r.more = 0
	r.mu.Unlock()
	if more > 0 {
		r.o.Record(Event{Kind: Refused, Reason: fmt.Sprintf(
			"further refusals, which were like recorded ones or too many: %d", more)})
	}
}

// refuse records a refusal. Refusals that are equal to an earlier one are only counted.
func (r *Relay) refuse(e Event) {
	e.Kind = Refused
	key := e.Host + "\x00" + strconv.Itoa(int(e.Port)) + "\x00" + e.Reason
	r.mu.Lock()
	isNew := !r.refusals[key] && len(r.refusals) < maxRefusals
	if isNew {
		r.refusals[key] = true
	} else {
		r.more++
	}
	r.mu.Unlock()
	if isNew {
		r.goroutines.Go(func() { r.o.Record(e) }) // DNS does not wait for the audit log
	}
}

// resolve reads queries of DNS and writes the answers, until the socket is closed.
func (r *Relay) resolve(udp *net.UDPConn) {
	query, oob := make([]byte, maxQuery), make([]byte, 128)
	for {
		n, oobSize, flags, peer, err := udp.ReadMsgUDPAddrPort(query, oob)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil || flags != 0: // flags: the query is too large
			continue
		}
		answer, refused := r.names.answer(query[:n])
		if answer != nil {
			// The control message has the address that the query was sent to. Sent back, it makes
			// that the address that the answer comes from.
			udp.WriteMsgUDPAddrPort(answer, oob[:oobSize], peer)
		}
		if refused != "" {
			r.refuse(Event{Host: refused, Unlisted: true, Reason: "the name is not on the list"})
		}
	}
}

// accept serves connections until the listener is closed.
func (r *Relay) accept(ctx context.Context, l net.Listener) {
	for {
		client, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case r.connections <- struct{}{}:
			r.goroutines.Go(func() {
				defer func() { <-r.connections }()
				r.relay(ctx, client.(*net.TCPConn))
			})
		default:
			to := destination(client)
			reset(client)
			r.refuse(Event{Host: r.names.name(to), Port: to.Port(), Reason: fmt.Sprintf(
				"there are %d connections already", maxConnections)})
		}
	}
}

// destination returns the address that the process connected to.
func destination(c net.Conn) netip.AddrPort {
	to := c.LocalAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
}

// reset closes a connection so that the process sees an error.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// relay serves one connection of the process.
func (r *Relay) relay(ctx context.Context, client *net.TCPConn) {
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	to := destination(client)
	e := Event{Host: r.names.name(to), Port: to.Port()}
	fail := func(err error) {
		reset(client)
		if ctx.Err() == nil {
			e.Reason = printable(err.Error())
			r.refuse(e)
		}
	}
	switch {
	case e.Host == "":
		e.Host, e.Unlisted = to.Addr().String(), true
		fail(errors.New("the address is not on the list, and does not come from the DNS of the " +
			"sandbox"))
		return
	case !r.o.Hosts.Allows(e.Host, e.Port):
		e.Unlisted = true
		fail(errors.New("the host is not on the list with this port"))
		return
	}
	var first []byte
	checked := e.Port == httpsPort || e.Port == httpPort // before anything is sent outside
	if checked {
		var err error
		first, err = r.readFirst(client, e.Host, e.Port)
		if err != nil {
			if len(first) > 0 || !errors.Is(err, io.EOF) {
				fail(err)
			}
			return
		}
	}
	server, err := r.dial(ctx, e.Host, e.Port)
	if err != nil {
		fail(err)
		return
	}
	defer server.Close()
	stopServer := context.AfterFunc(ctx, func() { server.Close() })
	defer stopServer()
	e.Address = server.RemoteAddr().(*net.TCPAddr).AddrPort()
	e.Kind = Connected
	if err := r.o.Record(e); err != nil {
		reset(client)
		return
	}
	e.Kind = Closed
	e.Sent, e.Received, err = r.copyBoth(client, server, first, func() ([]byte, error) {
		if checked {
			return nil, nil
		}
		return r.readFirst(client, e.Host, e.Port)
	})
	switch {
	case ctx.Err() != nil:
		e.Reason = "the process ended"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		// One of the two ends has closed the connection before it had read everything.
	case err != nil:
		e.Reason = printable(err.Error())
		if errors.As(err, new(refusal)) {
			e.Kind = Refused
		}
	}
	r.o.Record(e)
}

// refusal is the error for first bytes that do not fit the host.
type refusal struct{ error }

// readFirst reads the first bytes of the process within a limited time, and checks them.
func (r *Relay) readFirst(client *net.TCPConn, host string, port uint16) ([]byte, error) {
	client.SetReadDeadline(time.Now().Add(idleTimeout))
	first, err := readFirst(&patientReader{client}, host, port)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("the first bytes are not complete")
	}
	return first, err
}

// patientReader reads from a connection. After the first read, the others must follow soon.
type patientReader struct{ *net.TCPConn }

func (r *patientReader) Read(p []byte) (int, error) {
	n, err := r.TCPConn.Read(p)
	r.SetReadDeadline(time.Now().Add(firstTimeout))
	return n, err
}

// dial connects to a host. Its address is checked when it is connected to.
func (r *Relay) dial(ctx context.Context, host string, port uint16) (*net.TCPConn, error) {
	networks := slices.Clone(r.o.Networks)
	if addr, err := netip.ParseAddr(host); err == nil {
		networks = append(networks, netip.PrefixFrom(addr, addr.BitLen()))
	} else if ssrfguard.IsLoopback(host) {
		networks = append(networks, netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("::1/128"))
	}
	c, err := ssrfguard.Dialer(networks, dialTimeout, r.o.Resolver).DialContext(ctx, "tcp",
		net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// copyBoth copies between a client and a server until both have ended, or one has failed. first is
// sent to the server first, and then what readMore returns. It returns the bytes in each direction.
func (r *Relay) copyBoth(client, server *net.TCPConn, first []byte,
	readMore func() ([]byte, error)) (sent, received int64, err error) {
	var once sync.Once
	fail := func(reason error) {
		once.Do(func() { err = reason })
		reset(client)
		server.Close()
	}
	active := func() {
		deadline := time.Now().Add(idleTimeout)
		client.SetDeadline(deadline)
		server.SetDeadline(deadline)
	}
	active()
	var wg sync.WaitGroup
	wg.Go(func() {
		received = copyOne(client, server, active, fail)
	})
	more, checkErr := readMore()
	switch {
	case checkErr == nil:
		active() // readMore has set other deadlines
		n, err := server.Write(append(first, more...))
		if sent = int64(n); err != nil {
			fail(err)
			break
		}
		sent += copyOne(server, client, active, fail)
	case errors.Is(checkErr, io.EOF) && len(more) == 0:
		server.CloseWrite()
	default:
		fail(refusal{checkErr})
	}
	wg.Wait()
	return sent, received, err
}

// copyOne copies until from ends, and then ends to. active is called after each read.
func copyOne(to, from *net.TCPConn, active func(), fail func(error)) (copied int64) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			active()
			written, writeErr := to.Write(buffer[:n])
			copied += int64(written)
			if writeErr != nil {
				fail(writeErr)
				return copied
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			to.CloseWrite()
			return copied
		case err != nil:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("nothing was sent for %s", idleTimeout)
			}
			fail(err)
			return copied
		}
	}
}
