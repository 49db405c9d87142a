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

// SyslogOptions say which receiver there is, and how it is spoken to.
type SyslogOptions struct {
	URL      string // unix:///dev/log, udp://HOST:514, tcp://HOST:601, tls://HOST:6514
	TLS      TLS
	Facility string // audit, auth, authpriv, daemon, user, local0 to local7
	Encoder  format.Encoder
}

// facilities are those of RFC 5424 that a program may be of, at the places of their numbers.
var facilities = []string{"", "user", "", "daemon", "auth", "", "", "", "", "", "authpriv", "", "",
	"audit", "", "", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"}

// NewSyslog answers a receiver that sends each record as a message of RFC 5424: over TCP and TLS
// with its length before it (RFC 6587, RFC 5425), over UDP and to a socket of this machine as a
// datagram. The message's MSGID is the action, its sequenceId the record's seq, its severity what
// was done: err, warning, notice or info. A checkpoint is {"checkpoint":"…"} with the MSGID
// checkpoint.
func NewSyslog(o SyslogOptions) (Receiver, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	facility := slices.Index(facilities, o.Facility)
	if facility <= 0 {
		return nil, fmt.Errorf("there is no facility %q", o.Facility)
	}
	s := &syslog{form: o.Encoder, facility: facility, address: u.Host, networks: []string{u.Scheme},
		pid: strconv.Itoa(os.Getpid())}
	switch u.Scheme {
	case "unix":
		s.address, s.networks = u.Path, []string{"unixgram", "unix"}
	case "tls":
		s.networks = []string{"tcp"}
		if s.tls, err = o.TLS.config(); err != nil {
			return nil, err
		}
		s.tls.ServerName = u.Hostname()
	case "udp", "tcp":
	default:
		return nil, fmt.Errorf("%s is no syslog receiver", o.URL)
	}
	host, _ := os.Hostname()
	s.host = cmp.Or(token(host, 255), "-")
	return s, nil
}

type syslog struct {
	form     format.Encoder
	facility int
	networks []string // to be tried in this order
	address  string
	tls      *tls.Config // nil for none
	host     string
	pid      string

	conn   net.Conn  // nil when there is none
	stream bool      // conn is one, not of datagrams
	end    *ending   // of a stream
	window []written // to streams, oldest first
	buf    []byte
	line   []byte
}

// ending is that of a connection.
type ending struct {
	heard chan struct{} // closed when the receiver has closed it, or we have
	at    time.Time     // then
}

// written is a batch that a receiver's system took. Whether the receiver had read it when it went
// away nobody says, so what it got in the minute before is written again on the next connection.
type written struct {
	at    time.Time
	bytes []byte
}

const (
	windowTime  = time.Minute
	windowBytes = batchBytes
)

// keep adds a batch to the window, which is bounded.
func (s *syslog) keep(batch []byte) {
	s.window = append(s.window, written{time.Now(), bytes.Clone(batch)})
	size := 0
	for i := len(s.window) - 1; i >= 0; i-- {
		if size += len(s.window[i].bytes); i < len(s.window)-1 && (size > windowBytes ||
			time.Since(s.window[i].at) > windowTime) {
			s.window = slices.Clone(s.window[i+1:])
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
	if s.end.over() { // while there was nothing to send, which is no failure
		s.Close()
	}
	s.buf = s.buf[:0]
	if s.conn == nil {
		before := s.end
		if err := s.dial(ctx); err != nil {
			return err
		}
		for _, w := range s.window {
			if before.over() && before.at.Sub(w.at) < windowTime {
				s.buf = append(s.buf, w.bytes...)
			}
		}
	}
	again := len(s.buf)
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
		s.line = formOf(s.form, b.Short).Append(s.line[:0], r)
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
	if err := s.arrived(ctx); err != nil {
		return err
	}
	s.keep(s.buf[again:])
	return nil
}

// add adds a message to those of a stream, or sends it as a datagram.
func (s *syslog) add(at time.Time, severity int, id string, seq uint64, text []byte) error {
	from := len(s.buf)
	s.buf = fmt.Appendf(s.buf, "<%d>1 %s %s gatekit %s %s ", s.facility<<3|severity,
		at.UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, s.pid, cmp.Or(token(id, 32), "-"))
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
	// no datagram is that large
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
			s.end = &ending{heard: make(chan struct{})}
			go s.end.hear(conn)
		}
		return nil
	}
	return fmt.Errorf("reach the syslog receiver: %w", errors.Join(errs...))
}

// hear reads what a receiver never says, to know when it goes: else a whole batch could be written
// to nobody. It ends with conn.
func (e *ending) hear(conn net.Conn) {
	io.Copy(io.Discard, conn)
	e.at = time.Now()
	close(e.heard)
}

// over says whether the connection has ended. Of no connection it is false.
func (e *ending) over() bool {
	if e == nil {
		return false
	}
	select {
	case <-e.heard:
		return true
	default:
		return false
	}
}

var errEnded = errors.New("the syslog receiver has closed the connection")

// arrived waits until the receiver's system has what was written, where ours can tell.
func (s *syslog) arrived(ctx context.Context) error {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		n, known := unacknowledged(s.conn)
		if !known || n == 0 {
			break
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-s.end.heard:
			t.Stop()
			return errEnded
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("the syslog receiver does not take what was written: %w", ctx.Err())
		}
	}
	// what was on its way is lost with the connection, and looks as if it had arrived
	if s.end.over() {
		return errEnded
	}
	return nil
}

func (s *syslog) Close() error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	if s.conn = nil; s.stream {
		<-s.end.heard
	}
	if cap(s.buf) > 4*batchBytes {
		s.buf = nil
	}
	return err
}

// severity is how much a record asks to be looked at.
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

// token is a text as a field of a header can have it: printable ASCII without blanks.
func token(s string, max int) string {
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
