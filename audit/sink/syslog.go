package sink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/audit"
	"gatekit/audit/format"
)

// SyslogOptions configure a syslog receiver.
type SyslogOptions struct {
	URL      string      // unix:///dev/log, udp://HOST:514, tcp://HOST:601, tls://HOST:6514
	TLS      *tls.Config // nil trusts the certificate authorities of the system
	Facility string      // audit, auth, authpriv, daemon, user, local0 to local7
	Encoder  format.Encoder
}

// facilities are the facilities of RFC 5424 that a program may use. The index of a facility is its
// number.
var facilities = []string{"", "user", "", "daemon", "auth", "", "", "", "", "", "authpriv", "", "",
	"audit", "", "", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"}

// NewSyslog returns a receiver that sends each record as a message of RFC 5424. Over TCP, TLS or a
// local stream socket, messages are framed with octet counting (RFC 6587, RFC 5425). Over UDP or a
// local datagram socket, each message is a datagram. The MSGID is the action, and sequenceId is the
// record's seq. The severity is err, warning, notice or info, depending on the action. A checkpoint
// is {"checkpoint":"…"} with the MSGID checkpoint.
func NewSyslog(o SyslogOptions) (Receiver, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	facility := slices.Index(facilities, o.Facility)
	if facility <= 0 {
		return nil, fmt.Errorf("unknown syslog facility %q", o.Facility)
	}
	s := &syslog{encoder: o.Encoder, facility: facility, address: u.Host,
		networks: []string{u.Scheme},
		pid:      strconv.Itoa(os.Getpid())}
	switch u.Scheme {
	case "unix":
		s.address, s.networks = u.Path, []string{"unixgram", "unix"}
	case "tls":
		s.networks = []string{"tcp"}
		if s.tls = o.TLS.Clone(); s.tls == nil {
			s.tls = &tls.Config{}
		}
		s.tls.ServerName = u.Hostname()
	case "udp", "tcp":
	default:
		return nil, fmt.Errorf("unknown scheme in syslog URL %s", o.URL)
	}
	host, _ := os.Hostname()
	s.host = cmp.Or(headerToken(host, 255), "-")
	return s, nil
}

type syslog struct {
	encoder  format.Encoder
	facility int
	networks []string // tried in this order
	address  string
	tls      *tls.Config // nil without TLS
	host     string
	pid      string

	conn      net.Conn    // nil when not connected
	stream    bool        // conn is a byte stream; if false, conn carries datagrams
	peerClose *peerClose  // of the last stream; nil before the first stream
	recent    []sentBatch // batches that were sent over streams in the last minute, oldest first
	buf       []byte
	line      []byte
}

// peerClose observes when a connection ends.
type peerClose struct {
	done chan struct{} // closed when the receiver or Gatekit has closed the connection
	at   time.Time     // when done was closed; not set before that
}

// sentBatch is a batch that the receiver's operating system has acknowledged. If the connection
// ends, Gatekit does not know whether the receiver itself has read the batch. So the batches of the
// last minute before the end are sent again over the next connection.
type sentBatch struct {
	at    time.Time
	bytes []byte
}

const (
	resendWindow = time.Minute
	resendBytes  = batchBytes
)

// remember adds a batch to s.recent, and drops the oldest batches, so that s.recent is bounded in
// time and size.
func (s *syslog) remember(batch []byte) {
	s.recent = append(s.recent, sentBatch{time.Now(), bytes.Clone(batch)})
	size := 0
	for i := len(s.recent) - 1; i >= 0; i-- {
		if size += len(s.recent[i].bytes); i < len(s.recent)-1 && (size > resendBytes ||
			time.Since(s.recent[i].at) > resendWindow) {
			s.recent = slices.Clone(s.recent[i+1:])
			return
		}
	}
}

func (s *syslog) Send(ctx context.Context, b Batch) (err error) {
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.peerClose.isClosed() {
		s.Close() // the connection ended while there was nothing to send, which is no failure
	}
	s.buf = s.buf[:0]
	if s.conn == nil {
		previous := s.peerClose
		if err := s.dial(ctx); err != nil {
			return err
		}
		for _, sent := range s.recent {
			if previous.isClosed() && previous.at.Sub(sent.at) < resendWindow {
				s.buf = append(s.buf, sent.bytes...)
			}
		}
	}
	resentBytes := len(s.buf)
	conn := s.conn
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if b.Checkpoint != nil {
		text, _ := json.Marshal(map[string]string{"checkpoint": string(b.Checkpoint)})
		if err := s.add(time.Now(), 6, "checkpoint", 0, text); err != nil {
			return err
		}
	}
	for i := range b.Records {
		r := &b.Records[i]
		s.line = encoderOf(s.encoder, b.Short).Append(s.line[:0], r)
		if err := s.add(r.Time, severity(r), r.Action, r.Seq, bytes.TrimRight(s.line,
			"\r\n")); err != nil {
			return err
		}
	}
	if !s.stream {
		return nil
	}
	if _, err := conn.Write(s.buf); err != nil {
		return fmt.Errorf("write to the syslog receiver: %w", err)
	}
	if err := s.waitAcknowledged(ctx); err != nil {
		return err
	}
	s.remember(s.buf[resentBytes:])
	return nil
}

// add appends a message to the buffer of a stream, or sends it as a datagram.
func (s *syslog) add(at time.Time, severity int, id string, seq uint64, text []byte) error {
	from := len(s.buf)
	s.buf = fmt.Appendf(s.buf, "<%d>1 %s %s gatekit %s %s ", s.facility<<3|severity,
		at.UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, s.pid, cmp.Or(headerToken(id, 32),
			"-"))
	if seq == 0 {
		s.buf = append(s.buf, '-')
	} else {
		s.buf = fmt.Appendf(s.buf, `[meta sequenceId="%d"]`, (seq-1)%(1<<31-1)+1)
	}
	s.buf = append(append(s.buf, ' '), text...)
	if s.stream {
		s.buf = slices.Insert(s.buf, from, []byte(strconv.Itoa(len(s.buf)-from)+" ")...)
		return nil
	}
	// EMSGSIZE means that the message is too large for a datagram
	if _, err := s.conn.Write(s.buf); errors.Is(err, syscall.EMSGSIZE) {
		return &RejectedError{Err: fmt.Errorf("write to the syslog receiver: %w", err)}
	} else if err != nil {
		return fmt.Errorf("write to the syslog receiver: %w", err)
	}
	s.buf = s.buf[:0]
	return nil
}

func (s *syslog) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var errs []error
	for _, network := range s.networks {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, s.address)
		if err == nil && s.tls != nil {
			secure := tls.Client(conn, s.tls)
			if err = secure.HandshakeContext(ctx); err != nil {
				conn.Close()
			}
			conn = secure
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s.conn, s.stream = conn, network == "tcp" || network == "unix"; s.stream {
			s.peerClose = &peerClose{done: make(chan struct{})}
			go s.peerClose.waitForClose(conn)
		}
		return nil
	}
	return fmt.Errorf("connect to the syslog receiver: %w", errors.Join(errs...))
}

// waitForClose reads from a receiver that never sends anything, to notice when the receiver closes
// the connection. Otherwise a whole batch could be written after the receiver has closed the
// connection. waitForClose returns when either side has closed conn.
func (p *peerClose) waitForClose(conn net.Conn) {
	io.Copy(io.Discard, conn)
	p.at = time.Now()
	close(p.done)
}

// isClosed reports whether the connection has ended. If p is nil, isClosed returns false.
func (p *peerClose) isClosed() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

var errConnectionClosed = errors.New("the syslog receiver closed the connection")

// waitAcknowledged waits until the receiver's operating system has acknowledged all written bytes.
// If Gatekit's operating system does not report acknowledgements, waitAcknowledged returns at once.
func (s *syslog) waitAcknowledged(ctx context.Context) error {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		n, known := unacknowledged(s.conn)
		if !known || n == 0 {
			break
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-s.peerClose.done:
			t.Stop()
			return errConnectionClosed
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("the syslog receiver does not acknowledge the records: %w",
				ctx.Err())
		}
	}
	// when a connection has ended, Gatekit's system reports no unacknowledged bytes, although data
	// may be lost
	if s.peerClose.isClosed() {
		return errConnectionClosed
	}
	return nil
}

func (s *syslog) Close() error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	if s.conn = nil; s.stream {
		<-s.peerClose.done
	}
	if cap(s.buf) > 4*batchBytes {
		s.buf = nil
	}
	return err
}

// severity returns the syslog severity of a record.
func severity(r *audit.Record) int {
	switch {
	case r.Error != "":
		return 3 // err
	case r.Action == "deny" || r.Action == "ask":
		return 4 // warning
	case r.Action == "pass":
		return 6 // info
	}
	return 5 // notice
}

// headerToken returns s in a form that a header field may have: printable ASCII without spaces, at
// most max bytes.
func headerToken(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r <= ' ' || r >= 0x7f:
			return -1
		}
		return r
	}, s)
	return s[:min(len(s), max)]
}
