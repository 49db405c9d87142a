package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gatekit/core/hostlist"
	"gatekit/transport/ssrfguard"
)

const (
	maxFirstBytes = 64 << 10 // bytes that may be needed to find the host
	httpsPort     = 443
	httpPort      = 80
	// encryptedHello is the extension of TLS that hides the name of the real host.
	encryptedHello = 0xfe0d
	tlsHandshake   = 22
)

// readFirst reads the bytes of a connection that name the host, and returns them for forwarding. It
// returns an error if they name another one. It returns what it has read of a protocol that names
// no host.
func readFirst(r io.Reader, host string, port uint16) ([]byte, error) {
	var read bytes.Buffer
	in := bufio.NewReaderSize(io.TeeReader(io.LimitReader(r, maxFirstBytes), &read), 4<<10)
	first, err := in.Peek(1)
	switch {
	case err != nil:
		return nil, err
	case first[0] == tlsHandshake && port != httpPort:
		err = checkTLS(in, host)
	case port == httpsPort:
		return nil, errors.New("the first bytes are not TLS, which port 443 needs")
	case port == httpPort:
		err = checkHTTP(in, host)
	case startsLikeHTTP(in):
		err = checkHTTP(in, host)
	}
	return read.Bytes(), err
}

// errChecked ends a handshake whose first message is all that matters.
var errChecked = errors.New("checked")

// checkTLS reads the first message of TLS.
func checkTLS(in io.Reader, host string) error {
	config := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config,
		error) {
		_, isAddress := netip.ParseAddr(host)
		switch name := hostlist.Normalize(hello.ServerName); {
		case slices.Contains(hello.Extensions, encryptedHello):
			return nil, errors.New("TLS has an encrypted server name, which cannot be checked")
		case hello.ServerName == "" && isAddress != nil:
			return nil, errors.New("TLS has no server name")
		case hello.ServerName != "" && !isSameHost(name, host):
			return nil, fmt.Errorf("the server name of TLS is %s",
				printable(hello.ServerName))
		}
		return nil, errChecked
	}}
	err := tls.Server(readOnlyConn{in}, config).Handshake()
	switch {
	case errors.Is(err, errChecked):
		return nil
	case err == nil:
		return errors.New("the first message of TLS cannot be read")
	}
	return err
}

// readOnlyConn is a connection that is only read. What is written is dropped.
type readOnlyConn struct{ in io.Reader }

func (c readOnlyConn) Read(p []byte) (int, error)     { return c.in.Read(p) }
func (readOnlyConn) Write(p []byte) (int, error)      { return len(p), nil }
func (readOnlyConn) Close() error                     { return nil }
func (readOnlyConn) LocalAddr() net.Addr              { return nil }
func (readOnlyConn) RemoteAddr() net.Addr             { return nil }
func (readOnlyConn) SetDeadline(time.Time) error      { return nil }
func (readOnlyConn) SetReadDeadline(time.Time) error  { return nil }
func (readOnlyConn) SetWriteDeadline(time.Time) error { return nil }

// startsLikeHTTP reports whether the first line, after empty ones, is a request line of HTTP. It
// reads no more than it needs to know: the client may wait for an answer to a shorter line.
func startsLikeHTTP(in *bufio.Reader) bool {
	line, empty := 0, true // where the line begins, and whether it has no bytes yet
	for n := 1; n <= in.Size(); n++ {
		b, err := in.Peek(n)
		if err != nil {
			return false
		}
		switch c := b[n-1]; {
		case empty && (c == '\r' || c == '\n'):
			line = n
		case c == '\n':
			return bytes.Contains(b[line:n], []byte(" HTTP/"))
		case c == '\r':
		case c < ' ' || c > '~':
			return false // binary
		default:
			empty = false
		}
	}
	return true // the line is too long for anything but a URL
}

// checkHTTP reads the first request up to its body.
func checkHTTP(in *bufio.Reader, host string) error {
	request, err := http.ReadRequest(in)
	if err != nil {
		return fmt.Errorf("the first bytes are not a request of HTTP/1: %w", err)
	}
	if request.ProtoMajor != 1 || !strings.HasPrefix(request.RequestURI, "/") &&
		request.RequestURI != "*" {
		return errors.New("the request is for a proxy, or not HTTP/1")
	}
	name := request.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	} else {
		name = hostlist.Normalize(name)
	}
	switch {
	case request.Host == "":
		return errors.New("the request has no header Host")
	case !isSameHost(name, host):
		return fmt.Errorf("the header Host is %s", printable(request.Host))
	}
	return nil
}

// isSameHost reports whether a name in a message is the host. All names of this machine are one.
func isSameHost(name, host string) bool {
	return name == host || ssrfguard.IsLoopback(name) && ssrfguard.IsLoopback(host)
}

// printable returns a text of the process for a record: at most 253 bytes, without control
// characters.
func printable(text string) string {
	if len(text) > 253 {
		text = text[:253] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '?'
		}
		return r
	}, strings.TrimSuffix(text, "."))
}
