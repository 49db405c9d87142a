package valkey_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/shared"
	"gatekit/test/redistest"
	"gatekit/transport/valkey"
)

var aKey = shared.Key{Kind: "task", Principal: "token:ci", Name: "a"}

// swap calls Swap, which must succeed.
func swap(t *testing.T, s *valkey.Store, k shared.Key, was uint64, value string) uint64 {
	t.Helper()
	g, err := s.Swap(t.Context(), k, was, []byte(value), 0)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// requireValue checks the value of a key; "" means none.
func requireValue(t *testing.T, s *valkey.Store, k shared.Key, want string) {
	t.Helper()
	v, _, err := s.Get(t.Context(), k)
	if err != nil || string(v) != want {
		t.Fatalf("Get(%v) = %q, %v; want %q", k, v, err, want)
	}
}

// requireUnavailable calls every method, and checks that each returns ErrUnavailable.
func requireUnavailable(t *testing.T, s *valkey.Store) {
	t.Helper()
	lease := shared.Lease{Name: "x", Keys: []shared.Key{aKey}}
	for name, call := range map[string]func() error{
		"Get":  func() error { _, _, err := s.Get(t.Context(), aKey); return err },
		"Take": func() error { _, _, err := s.Take(t.Context(), aKey); return err },
		"Swap": func() error {
			_, err := s.Swap(t.Context(), aKey, 0, []byte("x"), 0)
			return err
		},
		"List": func() error { _, err := s.List(t.Context(), "k", 0); return err },
		"Admit": func() error {
			_, err := s.Admit(t.Context(), shared.Admission{})
			return err
		},
		"Renew":   func() error { return s.Renew(t.Context(), lease, time.Second) },
		"Release": func() error { return s.Release(t.Context(), lease) },
		"Track": func() error {
			_, err := s.Track(t.Context(), aKey, shared.Change{})
			return err
		},
		"Check": func() error { return s.Check(t.Context()) },
	} {
		if err := call(); !errors.Is(err, shared.ErrUnavailable) || errors.Is(err, shared.ErrLost) {
			t.Errorf("%s: got the error %v, want ErrUnavailable", name, err)
		}
	}
}

// useBrokenConnections makes calls without the server, until the store has most probably noticed
// that each of its connections is broken: it notices that of a connection when a call uses it, and
// a call uses any of a few.
func useBrokenConnections(t *testing.T, s *valkey.Store) {
	t.Helper()
	for range 100 {
		if _, _, err := s.Get(t.Context(), aKey); !errors.Is(err, shared.ErrUnavailable) {
			t.Fatalf("Get: got the error %v, want ErrUnavailable", err)
		}
	}
}

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 seconds: %s", what)
		}
	}
}

func TestUnsuitableServers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		settings []string
		change   func(o *valkey.Options)
		want     string // "" means that the server can be used
	}{
		{"default", nil, func(*valkey.Options) {}, ""},
		{"evicts", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
			func(*valkey.Options) {}, `set maxmemory-policy noeviction, not "allkeys-lru"`},
		{"no append-only file", []string{"--appendonly", "no"}, func(*valkey.Options) {},
			"it forgets everything when it restarts; set appendonly yes, or"},
		{"tokens without an append-only file", []string{"--appendonly", "no"},
			func(o *valkey.Options) { o.Durable = true }, "it forgets tokens when it restarts"},
		{"tokens", nil, func(o *valkey.Options) { o.Durable = true }, ""},
		{"no replicas", nil, func(o *valkey.Options) { o.Copies = 1 },
			"it has 0 replicas, and shared.copies = 1"},
		{"cluster mode", []string{"--cluster-enabled", "yes"}, func(*valkey.Options) {},
			"it runs in cluster mode"},
		{"no password", []string{"--requirepass", "secret"}, func(*valkey.Options) {}, "NOAUTH"},
		{"another password", []string{"--requirepass", "secret"},
			func(o *valkey.Options) { o.Password = "wrong-one" }, "WRONGPASS"},
		{"the password", []string{"--requirepass", "secret"},
			func(o *valkey.Options) { o.Password = "secret" }, ""},
		{"a user", []string{"--user", "gatekit", "on", ">secret", "~gatekit:*", "+@all",
			"-@dangerous", "+info"},
			func(o *valkey.Options) { o.User, o.Password = "gatekit", "secret" }, ""},
		{"a user with other keys",
			[]string{"--user", "gatekit", "on", ">secret", "~other:*", "+@all"},
			func(o *valkey.Options) { o.User, o.Password = "gatekit", "secret" },
			"NOPERM"},
		{"nobody listens", nil, func(o *valkey.Options) { o.Address = "127.0.0.1:1" },
			"connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t, tt.settings...)
			o := options(t, server.Addr)
			tt.change(&o)
			s, err := valkey.Open(t.Context(), o)
			if err == nil {
				defer s.Close()
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got the error %v, want none", err)
			case tt.want != "" && (!errors.Is(err, shared.ErrUnavailable) ||
				!strings.Contains(err.Error(), tt.want)):
				t.Errorf("got the error %v, want one with %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "wrong-one"):
				t.Error("the error shows the password")
			}
		})
	}
	replica := redistest.StartReplica(t, redistest.Start(t))
	_, err := valkey.Open(t.Context(), options(t, replica.Addr))
	if err == nil || !strings.Contains(err.Error(), `its role is "slave"`) {
		t.Errorf("a replica: got the error %v", err)
	}
}

func TestOldServersAreRefused(t *testing.T) {
	good := "redis_version:7.0.0\r\nredis_mode:standalone\r\nrole:master\r\n" +
		"maxmemory_policy:noeviction\r\nconnected_slaves:0\r\naof_enabled:1\r\n"
	for text, want := range map[string]string{good: "",
		strings.Replace(good, "7.0.0", "6.2.14", 1):           `it has the version "6.2.14"`,
		strings.Replace(good, "7.0.0", "10.1", 1):             "",
		strings.Replace(good, "7.0.0", "", 1):                 `it has the version ""`,
		strings.Replace(good, "noeviction", "", 1):            "it forgets keys when its memory is",
		strings.Replace(good, "slaves:0", "", 1):              "it has  replicas",
		strings.Replace(good, "enabled:1", "enabled:0", 1):    "it forgets everything when it",
		strings.Replace(good, "aof_enabled", "", 1):           "it forgets everything when it",
		strings.Replace(good, "redis_mode:standalone", "", 1): `its mode is ""`,
		strings.Replace(good, "standalone", "sentinel", 1):    `its mode is "sentinel"`,
		strings.Replace(good, "redis_mode:standalone",
			"server_mode:cluster", 1): "it runs in cluster mode", // Valkey 8.1
		strings.Replace(good, "redis_mode", "server_mode", 1): "",
	} {
		got := strings.Join(valkey.Unsuitable(text), "; ")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%q is refused because of %q, want %q", text, got, want)
		}
	}
}

// A server that restarts with its file has lost nothing. Without it, it has lost everything.
func TestRestartedServer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		restart func(*redistest.Server, testing.TB)
		lost    bool
	}{
		{"with its file", (*redistest.Server).Restart, false},
		{"without its file", (*redistest.Server).RestartEmpty, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			s := open(t, options(t, server.Addr))
			swap(t, s, aKey, 0, "x")
			server.Kill(t)
			requireUnavailable(t, s)
			useBrokenConnections(t, s)
			tt.restart(server, t)
			var err error
			eventually(t, "an answer of the new process", func() bool {
				_, _, err = s.Get(t.Context(), aKey)
				return !errors.Is(err, shared.ErrUnavailable)
			})
			if errors.Is(err, shared.ErrLost) != tt.lost || s.Lost().IsZero() == tt.lost {
				t.Errorf("got the error %v, and the loss at %v; want lost %v", err, s.Lost(),
					tt.lost)
			}
			requireValue(t, s, aKey, map[bool]string{true: "", false: "x"}[tt.lost])
		})
	}
}

// When the primary fails, its replica takes over, and the address leads to it. If each change
// waited for the replica, nothing is lost. A replica without the last change is noticed.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind %v", behind), func(t *testing.T) {
			t.Parallel()
			primary := redistest.Start(t)
			replica := redistest.StartReplica(t, primary)
			relay := redistest.StartRelay(t, primary)
			o := options(t, relay.Addr)
			if o.Timeout = 8 * time.Second; !behind { // for a busy machine
				o.Copies = 1
			}
			s := open(t, o)
			g := swap(t, s, aKey, 0, "one")
			if _, err := s.Track(t.Context(), aKey, shared.Change{Labels: []string{"private"},
				Counts: map[string]int{"": 1}}); err != nil {
				t.Fatal(err)
			}
			if behind {
				eventually(t, "the replica has the value", func() bool {
					return replica.Do(t, "DBSIZE") == "3"
				})
				replica.Do(t, "REPLICAOF", "NO", "ONE") // does not get the next change
				swap(t, s, aKey, g, "two")
			}
			primary.Kill(t)
			requireUnavailable(t, s)
			useBrokenConnections(t, s)
			if !behind {
				replica.Do(t, "REPLICAOF", "NO", "ONE")
			}
			relay.Switch(t, replica)
			var err error
			eventually(t, "an answer of the new primary", func() bool {
				_, _, err = s.Get(t.Context(), aKey)
				return !errors.Is(err, shared.ErrUnavailable)
			})
			if errors.Is(err, shared.ErrLost) != behind {
				t.Errorf("got the error %v, want lost %v", err, behind)
			}
			requireValue(t, s, aKey, "one")
			known, err := s.Track(t.Context(), aKey, shared.Change{})
			if err != nil || len(known.Labels) != 1 || known.Counts[""] != 1 {
				t.Errorf("the new primary knows %+v, %v", known, err)
			}
			if _, err := s.Swap(t.Context(), shared.Key{Kind: "n"}, 0, []byte("x"),
				0); !errors.Is(err, shared.ErrUnavailable) && !behind {
				t.Errorf("without the copy: got the error %v, want ErrUnavailable", err)
			}
		})
	}
}

// A primary that became a replica refuses writes, and keeps its connections. The address leads new
// connections to the new primary.
func TestDemotedPrimary(t *testing.T) {
	old := redistest.Start(t)
	next := redistest.StartReplica(t, old)
	var target atomic.Pointer[string]
	target.Store(&old.Addr)
	s := open(t, options(t, listen(t, func(c net.Conn) {
		relay(c, *target.Load())
	})))
	g := swap(t, s, aKey, 0, "x")
	eventually(t, "the replica has the value", func() bool { return next.Do(t, "DBSIZE") == "2" })
	target.Store(&next.Addr)
	next.Do(t, "REPLICAOF", "NO", "ONE")
	host, port, _ := net.SplitHostPort(next.Addr)
	old.Do(t, "REPLICAOF", host, port)
	// The store has several connections, and makes some of them only now. None of those that lead
	// to the old primary may stay.
	eventually(t, "fifty writes in a row", func() bool {
		for range 50 {
			if _, _, err := s.Take(t.Context(), shared.Key{Kind: "none"}); err != nil {
				if !errors.Is(err, shared.ErrUnavailable) {
					t.Fatalf("got the error %v, want ErrUnavailable", err)
				}
				return false
			}
		}
		return true
	})
	swap(t, s, aKey, g, "y")
	requireValue(t, s, aKey, "y")
}

// While the address of a demoted primary leads nowhere, a call takes no longer than its timeout: it
// does not wait for the new connection.
func TestDemotedPrimaryWithoutSuccessor(t *testing.T) {
	t.Parallel()
	old := redistest.Start(t)
	var demoted atomic.Bool
	gaveUp := make(chan struct{})
	var once sync.Once
	o := options(t, listen(t, func(c net.Conn) {
		if !demoted.Load() {
			relay(c, old.Addr)
			return
		}
		defer c.Close()
		io.Copy(io.Discard, c) // never answers
		once.Do(func() { close(gaveUp) })
	}))
	o.Timeout = 10 * time.Second // also for the new connection
	s := open(t, o)
	take := func() error {
		_, _, err := s.Take(t.Context(), shared.Key{Kind: "none"})
		return err
	}
	for range 50 { // so that all connections are made
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	demoted.Store(true)
	old.Do(t, "REPLICAOF", "127.0.0.1", "1")
	if err := take(); !errors.Is(err, shared.ErrUnavailable) ||
		!strings.Contains(err.Error(), "READONLY") {
		t.Fatalf("got the error %v, want ErrUnavailable with READONLY", err)
	}
	if _, _, err := s.Get(t.Context(), aKey); err != nil {
		t.Errorf("a read from the old primary: %v", err)
	}
	select {
	case <-gaveUp:
		t.Error("the calls waited until the new connection had failed")
	default:
	}
	<-gaveUp // so the connection was tried
}

// A connection may take as long as a call, also if that is longer than a connection usually takes.
func TestSlowConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, options(t, listen(t, func(c net.Conn) {
		time.Sleep(2500 * time.Millisecond)
		relay(c, server.Addr)
	})))
	requireValue(t, s, aKey, "")
}

// relay connects a client with the server at an address until one of them ends.
func relay(c net.Conn, addr string) {
	defer c.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	go io.Copy(server, c)
	io.Copy(c, server)
}

// listen serves connections at an address until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// The address leads to a server with another protocol.
func TestOtherProtocol(t *testing.T) {
	addr := listen(t, func(c net.Conn) {
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
	})
	if _, err := valkey.Open(t.Context(), options(t, addr)); !errors.Is(err,
		shared.ErrUnavailable) {
		t.Errorf("got the error %v, want ErrUnavailable", err)
	}
}

// TestTLS connects with the right and with a wrong authority.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{"cert.pem": certificate,
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	addr := redistest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(addr)
	redistest.Start(t, "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", filepath.Join(dir, "cert.pem"),
		"--tls-key-file", filepath.Join(dir, "key.pem"),
		"--tls-ca-cert-file", filepath.Join(dir, "cert.pem"))
	o := options(t, addr)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	o.TLS = &tls.Config{RootCAs: roots}
	s := open(t, o)
	swap(t, s, aKey, 0, "x")
	requireValue(t, s, aKey, "x")
	o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	if _, err := valkey.Open(t.Context(), o); !errors.Is(err, shared.ErrUnavailable) ||
		!strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("with another authority: got the error %v", err)
	}
}

// A write that fewer copies have than demanded is an error, although it was carried out.
func TestMissingCopies(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	o := options(t, primary.Addr)
	o.Copies = 1
	s := open(t, o)
	calls := map[string]func() error{
		"Take": func() error { _, _, err := s.Take(t.Context(), aKey); return err },
		"Track": func() error {
			_, err := s.Track(t.Context(), aKey, shared.Change{Labels: []string{"l"}})
			return err
		},
		"Swap": func() error {
			_, err := s.Swap(t.Context(), shared.Key{Kind: "n"}, 0, nil, 0)
			return err
		},
	}
	for name, call := range calls { // the server then knows the scripts
		if err := call(); err != nil {
			t.Fatalf("%s with a copy: %v", name, err)
		}
	}
	replica.Kill(t)
	eventually(t, "Check returns an UnsuitableError", func() bool {
		return errors.As(s.Check(t.Context()), new(*valkey.UnsuitableError))
	})
	var waiting sync.WaitGroup // for the copy, for most of the timeout
	for name, call := range calls {
		waiting.Go(func() {
			if err := call(); !errors.Is(err, shared.ErrUnavailable) ||
				!strings.Contains(err.Error(), "0 of 1 copies") {
				t.Errorf("%s: got the error %v, want ErrUnavailable with the copies", name, err)
			}
		})
	}
	waiting.Wait()
	if _, err := s.Track(t.Context(), aKey,
		shared.Change{Counts: map[string]int{"": 1}}); err != nil {
		t.Errorf("a count waits for copies: %v", err)
	}
}

// A failure costs no call for each connection that waited for copies before it.
func TestBrokenConnectionsOfCopies(t *testing.T) {
	primary := redistest.Start(t)
	redistest.StartReplica(t, primary)
	relay := redistest.StartRelay(t, primary)
	o := options(t, relay.Addr)
	o.Copies = 1
	s := open(t, o)
	relay.Delay(t, 100*time.Millisecond) // so that each call needs a connection
	const connections = 20
	var calls sync.WaitGroup
	for range connections {
		calls.Go(func() { _, _, _ = s.Take(t.Context(), aKey) })
	}
	calls.Wait()
	relay.Heal()
	relay.Switch(t, primary)
	denied := 0
	eventually(t, "a call has copies again", func() bool {
		_, _, err := s.Take(t.Context(), aKey)
		if err != nil {
			denied++
		}
		return err == nil
	})
	for range connections {
		if _, _, err := s.Take(t.Context(), aKey); err != nil {
			denied++
		}
	}
	if denied > connections/2 {
		t.Errorf("%d calls were denied after %d connections broke", denied, connections)
	}
}

// A full server refuses what is new, and carries nothing out by half.
func TestFullServer(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, options(t, server.Addr))
	g := swap(t, s, aKey, 0, "before")
	limit := shared.Limit{Key: shared.Key{Kind: "open"}, Concurrent: 1}
	if _, err := s.Admit(t.Context(), shared.Admission{Limits: []shared.Limit{limit}, Lease: "x",
		TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for name, ttl := range map[string]time.Duration{"all": 0, "one": time.Second} {
		k := shared.Key{Kind: "stop", Name: name, Listed: true}
		if _, err := s.Swap(t.Context(), k, 0, []byte("x"), ttl); err != nil {
			t.Fatal(err)
		}
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "1mb")
	if _, err := s.Swap(t.Context(), aKey, g, []byte("after"), 0); !errors.Is(err,
		shared.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a swap: got the error %v, want ErrUnavailable with OOM", err)
	}
	if _, _, err := s.Take(t.Context(), aKey); !errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("Take: got the error %v, want ErrUnavailable", err)
	}
	requireValue(t, s, aKey, "before")
	next := open(t, options(t, server.Addr)) // a replica that starts now
	for _, store := range []*valkey.Store{s, next} {
		// the other value may have expired by now
		if l, err := store.List(t.Context(), "stop", 0); err != nil || len(l.Entries) == 0 {
			t.Errorf("List: got %d values and the error %v", len(l.Entries), err)
		}
	}
	eventually(t, "the listing is without the expired value", func() bool {
		l, err := s.List(t.Context(), "stop", 0)
		return err == nil && len(l.Entries) == 1
	})
	if err := s.Release(t.Context(), shared.Lease{Name: "x",
		Keys: []shared.Key{limit.Key}}); err != nil {
		t.Errorf("a release, which frees memory: %v", err)
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	if _, err := s.Swap(t.Context(), aKey, g, []byte("after"), 0); err != nil {
		t.Errorf("with memory again: %v", err)
	}
}

// Slow and silent servers cost no more than the timeout, and calls work again afterwards.
func TestSlowServer(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.StartRelay(t, server)
	o := options(t, relay.Addr)
	o.Timeout = 100 * time.Millisecond
	var s *valkey.Store
	eventually(t, "a connection", func() bool { // on a busy machine, not the first
		var err error
		s, err = valkey.Open(t.Context(), o)
		return err == nil
	})
	defer s.Close()
	works := func() bool { _, _, err := s.Get(t.Context(), aKey); return err == nil }
	eventually(t, "the first call", works)
	relay.Delay(t, time.Second)
	requireUnavailable(t, s)
	if _, _, err := s.Get(t.Context(), aKey); err == nil ||
		!strings.Contains(err.Error(), "no answer within 100ms") {
		t.Errorf("slow: got the error %v", err)
	}
	relay.Delay(t, 0)
	eventually(t, "a call after the delay", works)
	relay.Silence(t, true)
	requireUnavailable(t, s)
	relay.Silence(t, false)
	eventually(t, "a call after the silence", works)
	if !s.Lost().IsZero() {
		t.Error("a slow server counts as lost")
	}
}

// Values that somebody changes on the server are errors.
func TestChangedValues(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, options(t, server.Addr))
	swap(t, s, aKey, 0, "mine")
	other := shared.Key{Kind: "task", Principal: "token:ci", Name: "b"}
	swap(t, s, other, 0, "other")
	listed := shared.Key{Kind: "stop", Name: "all", Listed: true}
	listed2 := shared.Key{Kind: "stop", Name: "one", Listed: true}
	swap(t, s, listed, 0, "x")
	swap(t, s, listed2, 0, "y")
	server.Do(t, "EVAL", `
		local keys = redis.call('KEYS', '*value*')
		local last
		for _, k in ipairs(keys) do
			if last then redis.call('COPY', last, k, 'REPLACE') end
			last = k
		end
		return #keys`, "0")
	moved := 0
	for _, k := range []shared.Key{aKey, other, listed, listed2} {
		if _, _, err := s.Get(t.Context(), k); errors.Is(err, shared.ErrUnavailable) {
			moved++
		}
	}
	if moved != 3 {
		t.Errorf("%d of 3 values in the place of others are errors", moved)
	}
	if _, err := s.List(t.Context(), "stop", 0); !errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("List: got the error %v, want ErrUnavailable", err)
	}
	o := options(t, server.Addr)
	var err error
	if o.Ring, err = shared.NewRing([]byte(strings.Repeat("z", 32))); err != nil {
		t.Fatal(err)
	}
	if v, _, err := open(t, o).Get(t.Context(), aKey); err != nil || v != nil {
		t.Errorf("with another state key: got %q, %v, want nothing", v, err)
	}
}

// Whatever is stored, the server learns no name and no value.
func TestServerLearnsNothing(t *testing.T) {
	dir := t.TempDir()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always",
		"--appenddirname", "aof", "--dir", dir)
	s := open(t, options(t, server.Addr))
	secret := func(what string) string { return "PLAIN-" + what }
	k := shared.Key{Kind: secret("kind"), Principal: secret("principal"), Name: secret("name")}
	swap(t, s, k, 0, secret("value"))
	k.Listed = true
	swap(t, s, k, 0, secret("listed"))
	if _, err := s.Track(t.Context(), k, shared.Change{Labels: []string{secret("label")},
		Counts: map[string]int{secret("count"): 1}, Minute: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admit(t.Context(), shared.Admission{Limits: []shared.Limit{{Key: k, Rate: 1,
		Per: time.Hour, Burst: 9, Concurrent: 9}}, Lease: secret("lease"),
		TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	files, size := 0, 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "PLAIN") {
			t.Errorf("%s has plain text", path)
		}
		files, size = files+1, size+len(b)
		return err
	})
	if err != nil || size < 500 {
		t.Errorf("%d files with %d bytes (%v) were searched", files, size, err)
	}
}

// TestCallsLearnOfALossTogether notices a loss while no copy of the server gets the new epoch. Each
// call looks for the epoch, and waits no longer than the others.
func TestCallsLearnOfALossTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := redistest.StartReplica(t, server)
	o := options(t, server.Addr)
	o.Copies, o.Timeout = 1, 8*time.Second // for a busy machine
	s := open(t, o)
	replica.Kill(t)
	server.Do(t, "FLUSHALL")
	const calls = 10
	before := waitCalls(t, server)
	var running sync.WaitGroup
	for range calls {
		running.Go(func() {
			if _, _, err := s.Get(t.Context(), aKey); !errors.Is(err, shared.ErrUnavailable) {
				t.Errorf("got the error %v, want ErrUnavailable", err)
			}
		})
	}
	running.Wait()
	if n := waitCalls(t, server) - before; n == 0 || n >= calls {
		t.Errorf("%d calls waited for the copy %d times one after the other", calls, n)
	}
}

// waitCalls returns how often a server was asked to wait for its copies.
func waitCalls(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	for line := range strings.Lines(server.Do(t, "INFO", "commandstats")) {
		if text, ok := strings.CutPrefix(line, "cmdstat_wait:calls="); ok {
			number, _, _ := strings.Cut(text, ",")
			n, _ = strconv.Atoi(number)
		}
	}
	return n
}

// TestLossWhileNoReplicaRan restarts all replicas of a server that has lost something meanwhile.
func TestLossWhileNoReplicaRan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		lose     func(t *testing.T, server *redistest.Server)
		keeps    bool // whether the replicas keep what they know
		wantLost bool
	}{
		{"nothing is lost", func(*testing.T, *redistest.Server) {}, true, false},
		{"it was emptied", func(t *testing.T, server *redistest.Server) {
			server.Do(t, "FLUSHALL")
		}, true, true},
		{"it has an older state", func(t *testing.T, server *redistest.Server) {
			server.Do(t, "HINCRBY", "gatekit:test:epoch", "generation", "-1")
		}, true, true},
		{"it was emptied, and nobody knows", func(t *testing.T, server *redistest.Server) {
			server.Do(t, "FLUSHALL")
		}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			o := options(t, server.Addr)
			first := open(t, o)
			swap(t, first, aKey, 0, "x")
			if tt.keeps {
				o.Epoch = first.Epoch()
			}
			first.Close()
			tt.lose(t, server)
			for i := range 2 {
				s := open(t, o)
				if isLost := !s.Lost().IsZero(); isLost != tt.wantLost {
					t.Errorf("replica %d: a loss was noticed: %t, want %t", i, isLost, tt.wantLost)
				}
				// The loss was noticed already: calls work.
				if _, err := s.List(t.Context(), "k", 0); err != nil {
					t.Errorf("replica %d: the first call has the error %v", i, err)
				}
			}
		})
	}
}
