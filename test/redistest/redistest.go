// Package redistest starts Debian's redis-server for tests. If there is none, the test is skipped;
// with GATEKIT_TEST_REQUIRE=1 it fails.
package redistest

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"gatekit/test/peers"
)

// Server is a running server. It ends with the test.
type Server struct {
	Addr string // host:port
	// Password is the password of the default user; "" means none.
	Password string

	args    []string
	dir     string // with its files
	process *exec.Cmd
	exited  chan struct{} // closed when process has ended
}

// startTimeout bounds the start of a server, and each command. It is long enough for a busy
// machine.
const startTimeout = 2 * time.Minute

// Start starts a server with settings, such as "--appendonly", "no". Without settings, it forgets
// no keys, and has an append-only file, so that it keeps its data when it is killed.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		const hint = "apt-get install redis-server"
		if os.Getenv("GATEKIT_TEST_REQUIRE") == "1" {
			t.Fatalf("GATEKIT_TEST_REQUIRE=1, but %v\nhint: %s", err, hint)
		}
		t.Skipf("%v\nhint: %s", err, hint)
	}
	s := &Server{Addr: peers.FreeAddress(t), // reserved also while the server does not run
		dir: t.TempDir()}
	_, port, _ := net.SplitHostPort(s.Addr)
	s.args = append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--loglevel", "warning",
		"--repl-diskless-sync-delay", "0"}, settings...)
	if i := slices.Index(settings, "--requirepass"); i >= 0 {
		s.Password = settings[i+1]
	}
	s.start(t)
	t.Cleanup(s.kill)
	return s
}

// FreeAddress returns a loopback address for a further port of a server. It stays reserved until
// the test ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return peers.FreeAddress(t)
}

// StartReplica starts a replica of a server, and returns when it has all data.
func StartReplica(t testing.TB, primary *Server, settings ...string) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(primary.Addr)
	settings = append([]string{"--replicaof", host + " " + port}, settings...)
	if primary.Password != "" {
		settings = append(settings, "--masterauth", primary.Password)
	}
	s := Start(t, settings...)
	s.waitForPrimary(t, primary)
	return s
}

// waitForPrimary waits until the server has all data of its primary, and the primary knows that.
func (s *Server) waitForPrimary(t testing.TB, primary *Server) {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	var info string
	s.waitFor(t, "its primary", func() bool {
		info = primary.Do(t, "INFO", "replication")
		return strings.Contains(s.Do(t, "INFO", "replication"), "master_link_status:up") &&
			strings.Contains(info, "port="+port+",state=online")
	})
	// For a second, the primary may send nothing to a replica that is online.
	client, err := primary.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all := int64(strings.Count(info, "state=online"))
	results := client.DoMulti(context.Background(),
		client.B().Set().Key("redistest").Value("").Build(),
		client.B().Del().Key("redistest").Build(),
		client.B().Wait().Numreplicas(all).Timeout(startTimeout.Milliseconds()).Build())
	if n, err := results[2].ToInt64(); err != nil || n < all {
		t.Fatalf("%d of %d replicas of %s have its data: %v", n, all, primary.Addr, err)
	}
}

// Follow makes the server a replica of another one, and returns when it has all data.
func (s *Server) Follow(t testing.TB, primary *Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(primary.Addr)
	s.Do(t, "REPLICAOF", host, port)
	s.waitForPrimary(t, primary)
}

// start starts the process, and waits until it answers.
func (s *Server) start(t testing.TB) {
	t.Helper()
	var output bytes.Buffer
	s.process = exec.Command("redis-server", s.args...)
	s.process.Stdout, s.process.Stderr = &output, &output
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	s.exited = make(chan struct{})
	go func(p *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = p.Wait()
	}(s.process, s.exited)
	s.waitFor(t, "its first answer", func() bool {
		select {
		case <-s.exited:
			t.Fatalf("redis-server has ended: %s", output.String())
		default:
		}
		client, err := s.connect()
		if err != nil {
			return false
		}
		defer client.Close()
		text, err := client.Do(context.Background(), client.B().Ping().Build()).ToString()
		return err == nil && text == "PONG"
	})
}

// waitFor waits until is returns true.
func (s *Server) waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("redis-server %s: no %s within %v", s.Addr, what, startTimeout)
		}
	}
}

func (s *Server) connect() (valkey.Client, error) {
	return valkey.NewClient(valkey.ClientOption{InitAddress: []string{s.Addr},
		Password: s.Password, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		AlwaysRESP2: true, Dialer: net.Dialer{Timeout: startTimeout},
		ConnWriteTimeout: startTimeout})
}

// Do sends one command, and returns the answer as text. An error of the server fails the test.
func (s *Server) Do(t testing.TB, command ...string) string {
	t.Helper()
	client, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answer, err := client.Do(context.Background(),
		client.B().Arbitrary(command...).Build()).ToMessage()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	if text, err := answer.ToString(); err == nil {
		return text
	}
	if n, err := answer.ToInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	return answer.String()
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.kill()
}

func (s *Server) kill() {
	_ = s.process.Process.Kill()
	<-s.exited
}

// Restart starts the server again, at the same address and with its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.kill()
	s.start(t)
}

// RestartEmpty starts the server again, at the same address and without its data.
func (s *Server) RestartEmpty(t testing.TB) {
	t.Helper()
	s.kill()
	if err := os.RemoveAll(filepath.Join(s.dir, "appendonlydir")); err != nil {
		t.Fatal(err)
	}
	s.start(t)
}
