package sink_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/octetcounting"
	"github.com/leodido/go-syslog/v4/rfc5424"

	"gatekit/audit"
	"gatekit/audit/sink"
)

// server is a syslog receiver with a parser of RFC 5424.
type server struct {
	t   testing.TB
	url string

	mu      sync.Mutex
	got     []*rfc5424.SyslogMessage
	conns   []net.Conn
	arrived chan struct{} // gets a value for each message
	quit    func()        // closes the listener and all connections
}

// certificate returns the TLS configurations of a server at 127.0.0.1 and of a client that trusts
// the server.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	client = &tls.Config{RootCAs: x509.NewCertPool()}
	client.RootCAs.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates}, client
}

// listenSyslog starts a server on a network: udp, tcp, unixgram or unix. With a TLS configuration,
// the server uses TLS over tcp. The server closes a connection after limit messages, without
// reading the messages after them. If limit is 0, there is no limit.
func listenSyslog(t testing.TB, network, address string, secure *tls.Config, limit int) *server {
	t.Helper()
	s := &server{t: t, arrived: make(chan struct{}, 1<<16)}
	switch network {
	case "udp", "unixgram":
		conn, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		s.quit = func() { conn.Close() }
		go func() {
			buf := make([]byte, 1<<16)
			for {
				n, _, err := conn.ReadFrom(buf)
				if err != nil {
					return
				}
				m, err := rfc5424.NewParser().Parse(buf[:n])
				s.take(m, err)
			}
		}()
		s.url = "udp://" + conn.LocalAddr().String()
	default:
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		if s.url = "tcp://" + l.Addr().String(); secure != nil {
			l, s.url = tls.NewListener(l, secure), "tls://"+l.Addr().String()
		}
		s.quit = func() {
			l.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range s.conns {
				c.Close()
			}
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s.mu.Lock()
				s.conns = append(s.conns, c)
				s.mu.Unlock()
				go s.serve(c, limit)
			}
		}()
	}
	if strings.HasPrefix(network, "unix") {
		s.url = "unix://" + address
	}
	t.Cleanup(func() { s.quit() })
	return s
}

func (s *server) serve(c net.Conn, limit int) {
	defer c.Close()
	n := 0
	var in io.Reader = c
	octetcounting.NewParser(syslog.WithMaxMessageLength(1<<20),
		syslog.WithListener(func(r *syslog.Result) {
			if n++; limit > 0 && n > limit {
				c.Close()
				return
			}
			if r.Error == nil || !errors.Is(r.Error, io.EOF) && r.Message != nil {
				s.take(r.Message, r.Error)
			}
		})).Parse(in)
}

func (s *server) take(m syslog.Message, err error) {
	if err != nil {
		s.t.Errorf("a message is not valid by RFC 5424: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, m.(*rfc5424.SyslogMessage))
	s.arrived <- struct{}{}
}

// wait waits until n more messages have arrived.
func (s *server) wait(n int) {
	s.t.Helper()
	for i := range n {
		select {
		case <-s.arrived:
		case <-time.After(2 * time.Minute):
			s.t.Fatalf("%d messages arrived in two minutes, want %d", i, n)
		}
	}
}

// bodies returns the bodies of the messages that have arrived.
func (s *server) bodies() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.got {
		all = append(all, *m.Message)
	}
	return all
}

func syslogTo(t testing.TB, o sink.SyslogOptions) sink.Receiver {
	t.Helper()
	if o.Facility == "" {
		o.Facility = "audit"
	}
	if o.Encoder == nil {
		o.Encoder = newEncoder(t, "jsonl", 7900)
	}
	r, err := sink.NewSyslog(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestSyslogOverEachTransport(t *testing.T) {
	secure, client := certificate(t)
	folder, err := os.MkdirTemp("", "gk") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	for _, c := range []struct {
		network, address string
		tls              *tls.Config
	}{
		{"udp", "127.0.0.1:0", nil}, {"tcp", "127.0.0.1:0", nil}, {"tcp", "127.0.0.1:0", secure},
		{"unixgram", folder + "/log", nil}, {"unix", folder + "/stream", nil},
	} {
		t.Run(fmt.Sprint(c.network, " tls ", c.tls != nil), func(t *testing.T) {
			s := listenSyslog(t, c.network, c.address, c.tls, 0)
			j := newTestLog(t)
			j.event("pass", "a", nil)
			j.event("deny", "b\n\x1b[31m\u202e", nil)
			j.event("server lost", "c", errors.New("exit status 1"))
			j.event("modify", "ü", nil)
			var b sink.Batch
			for r, err := range (&audit.Reader{File: j.file}).All(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				b.Records = append(b.Records, r)
			}
			r := syslogTo(t, sink.SyslogOptions{URL: s.url, TLS: client,
				Facility: "local3"})
			send(t, r, b, sink.Batch{Checkpoint: []byte("origin\n4\n\n— a b\n")})
			s.wait(5)
			for i, m := range s.got[:4] {
				if *m.Message != string(b.Records[i].Line) {
					t.Errorf("message %d is %s, want %s", i, *m.Message, b.Records[i].Line)
				}
				if !m.Timestamp.Equal(b.Records[i].Time) || *m.Appname != "gatekit" ||
					*m.ProcID != fmt.Sprint(os.Getpid()) || *m.Facility != 19 || m.Hostname == nil {
					t.Errorf("message %d has time %v, app %v, process %v, facility %v and host "+
						"%v; want time %v, app gatekit, this process, facility 19 and a host", i,
						m.Timestamp, *m.Appname, *m.ProcID, *m.Facility, m.Hostname,
						b.Records[i].Time)
				}
				got := fmt.Sprint(*m.Severity, " ", *m.MsgID, " ",
					(*m.StructuredData)["meta"]["sequenceId"])
				if want := []string{"6 pass 1", "4 deny 2", "3 server-lost 3",
					"5 modify 4"}[i]; got != want {
					t.Errorf("message %d is %s, want %s", i, got, want)
				}
			}
			var checkpoint struct{ Checkpoint string }
			if last := s.got[4]; *last.MsgID != "checkpoint" ||
				json.Unmarshal([]byte(*last.Message), &checkpoint) != nil ||
				checkpoint.Checkpoint != "origin\n4\n\n— a b\n" {
				t.Errorf("the last message is %v %v, want the checkpoint", *last.MsgID,
					*last.Message)
			}
		})
	}
}

func TestSyslogMessageLengthIsBounded(t *testing.T) {
	s := listenSyslog(t, "udp", "127.0.0.1:0", nil, 0)
	b := batch(t, "a")
	b.Records[0].Reason = strings.Repeat("x", 100_000)
	b.Records[0].Line = []byte(strings.Repeat("x", 100_000))
	send(t, syslogTo(t, sink.SyslogOptions{URL: s.url}), b)
	s.wait(1)
	if got := s.bodies()[0]; len(got) > 8000 || !strings.Contains(got, `"short":{"bytes":100000,`) {
		t.Errorf("the message has %d bytes, want the short form with at most 8000: %.300s",
			len(got), got)
	}
}

func TestSyslogDisconnectLosesNothing(t *testing.T) {
	secure, client := certificate(t)
	for _, c := range []struct {
		name string
		tls  *tls.Config
	}{{"tcp", nil}, {"tls", secure}} {
		t.Run(c.name, func(t *testing.T) {
			s := listenSyslog(t, "tcp", "127.0.0.1:0", c.tls, 100)
			j := newTestLog(t)
			j.recordMany(600)
			_, stop := start(t, j.options(syslogTo(t, sink.SyslogOptions{URL: s.url,
				TLS: client})))
			// the first receiver closes the connection before it has read everything that its
			// operating system has acknowledged
			s.wait(100)
			address := strings.SplitAfter(s.url, "://")[1]
			s.quit()
			next := listenSyslog(t, "tcp", address, c.tls, 0)
			j.record("after")
			for next.last() < 601 {
				next.wait(1)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			all, last := next.numbers(), 0
			for _, n := range all {
				if n > last+1 {
					t.Errorf("record %d came after record %d, want no gap", n, last)
				}
				last = max(last, n)
			}
			if last < 601 || all[0] != 1 {
				t.Errorf("the receiver has the records %d to %d, want 1 to 601", all[0], last)
			}
		})
	}
}

// last returns the largest sequenceId.
func (s *server) last() int { return slices.Max(append(s.numbers(), 0)) }

// numbers returns the sequenceIds of the messages, in the order of their arrival.
func (s *server) numbers() (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.got {
		n, err := strconv.Atoi((*m.StructuredData)["meta"]["sequenceId"])
		if err != nil {
			s.t.Error(err)
		}
		all = append(all, n)
	}
	return all
}

func TestSyslogReceiverWithUntrustedCertificateGetsNothing(t *testing.T) {
	secure, _ := certificate(t)
	s := listenSyslog(t, "tcp", "127.0.0.1:0", secure, 0)
	r := syslogTo(t, sink.SyslogOptions{URL: s.url})
	if err := r.Send(t.Context(), batch(t, "a")); err == nil || !strings.Contains(err.Error(),
		"certificate") {
		t.Errorf("error %v, want one about the certificate", err)
	}
	if got := s.bodies(); len(got) > 0 {
		t.Errorf("the receiver got %q, want nothing", got)
	}
}

func TestSyslogSendsClientCertificate(t *testing.T) {
	secure, client := certificate(t)
	secure.ClientAuth = tls.RequireAnyClientCert
	client.Certificates = secure.Certificates
	s := listenSyslog(t, "tcp", "127.0.0.1:0", secure, 0)
	send(t, syslogTo(t, sink.SyslogOptions{URL: s.url, TLS: client}), batch(t, "a"))
	s.wait(1)
}

func TestSyslogReceiverThatDoesNotReadTimesOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := syslogTo(t, sink.SyslogOptions{URL: "tcp://" + l.Addr().String(),
		Encoder: newEncoder(t, "jsonl", 0)})
	b := batch(t, "a")
	b.Records[0].Line = make([]byte, 32<<20)
	ctx, cancel := contextFor(t, 300*time.Millisecond)
	defer cancel()
	if err := r.Send(ctx, b); err == nil {
		t.Error("Send returned no error, although the receiver reads nothing")
	}
}

func TestRecordTooLargeForDatagramIsSentInShortForm(t *testing.T) {
	s := listenSyslog(t, "udp", "127.0.0.1:0", nil, 0)
	to, err := sink.NewSyslog(sink.SyslogOptions{URL: s.url, Facility: "local3",
		Encoder: newEncoder(t, "jsonl", 0)})
	if err != nil {
		t.Fatal(err)
	}
	b := batch(t, "a")
	b.Records[0].Line = []byte(`{"seq":1,"reason":"` + strings.Repeat("x", 100_000) + `"}`)
	if err := to.Send(t.Context(), b); !errors.As(err, new(*sink.RejectedError)) {
		t.Errorf("error %v, want a *RejectedError", err)
	}
	b.Short = true
	send(t, to, b)
	s.wait(1)
	if got := s.bodies(); !strings.Contains(got[0], `"short":{"bytes":100021,`) {
		t.Errorf("the receiver got %q, want the short form", got)
	}
}
