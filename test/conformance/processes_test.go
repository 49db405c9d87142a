package conformance

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/test/peers"
)

// process is a server in another process.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer  // to be read when it has ended
	ended  chan struct{} // closed then
	err    error         // how it ended
}

// serve starts a server and waits until it listens on the address.
func serve(cmd *exec.Cmd, address string) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	alive := func() bool {
		select {
		case <-p.ended:
			return false
		default:
			return true
		}
	}
	if !peers.Listening(address, alive) {
		cmd.Process.Kill()
		<-p.ended
		return nil, fmt.Errorf("%s does not listen on %s: %v\n%s", cmd, address, p.err, &p.stderr)
	}
	return p, nil
}

// end asks the process to end and answers how it did.
func (p *process) end() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(2*time.Minute, func() { p.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%s ended with %w\n%s", p.cmd, p.err, &p.stderr)
	}
	return nil
}

// everythingServer starts the go-sdk's conformance server over HTTP and answers its URL. Each run
// has its own, since some scenarios change it.
func everythingServer(t *testing.T, flags []string) string {
	t.Helper()
	address := peers.FreeAddress(t)
	p, err := serve(exec.Command(peers.Tool(t, "everything-server"),
		append([]string{"-http", address}, flags...)...), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end() }) // it knows no other end than the signal
	return "http://" + address + "/mcp"
}

// aliases are the servers' names in gatekit's configuration, in order.
var aliases = []string{"everything", "other"}

// gatekitCommand is gatekit in front of one server, whose names it leaves as they are, or of two;
// with its files in dir.
func gatekitCommand(binary, dir, address string, tables ...string) (*exec.Cmd, error) {
	cmd := exec.Command(binary, "run")
	cmd.Dir = dir
	config := fmt.Sprintf("[listen]\nhttp = %q\n\n[audit]\nfile = \"audit.jsonl\"\n", address)
	if len(tables) == 1 {
		config += "\n[names]\nprefix = \"never\"\n"
	}
	for i, table := range tables {
		config += fmt.Sprintf("\n[server.%s]\n%s\n", aliases[i], table)
	}
	return cmd, os.WriteFile(filepath.Join(dir, "gatekit.toml"), []byte(config), 0o644)
}

// startGatekit starts gatekit in front of the servers and answers its URL. When the test is over,
// it must end well and its audit log must hold.
func startGatekit(t *testing.T, tables ...string) string {
	t.Helper()
	dir, address := t.TempDir(), peers.FreeAddress(t)
	cmd, err := gatekitCommand(peers.Gatekit(t), dir, address, tables...)
	if err != nil {
		t.Fatal(err)
	}
	p, err := serve(cmd, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.end(); err != nil {
			t.Error(err)
		} else if t.Failed() {
			t.Logf("gatekit's stderr:\n%s", &p.stderr)
		}
		verify(t, dir)
	})
	return "http://" + address + "/mcp"
}

// verify wants the audit log in dir to hold together, and something in it.
func verify(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err == nil {
		err = audit.Verify(bytes.NewReader(b))
	}
	if err != nil {
		t.Errorf("the audit log in %s: %v", dir, err)
	}
	if !bytes.Contains(b, []byte(`"to_server"`)) || !bytes.Contains(b, []byte(`"to_client"`)) {
		t.Errorf("the audit log in %s does not show both directions: %.500s", dir, b)
	}
}

// What the environment tells clientThroughGatekit.
const (
	viaDir     = "GATEKIT_CONFORMANCE_DIR"     // for gatekit to run in
	viaGatekit = "GATEKIT_CONFORMANCE_BINARY"  // of gatekit
	viaAddress = "GATEKIT_CONFORMANCE_ADDRESS" // for gatekit to listen on
	viaClient  = "GATEKIT_CONFORMANCE_CLIENT"  // the program to run
	viaEra     = "GATEKIT_CONFORMANCE_ERA"     // that it is to speak to gatekit
)

// clientThroughGatekit is the client of one scenario: it starts a gatekit in front of the suite's
// server and has the go-sdk's client use it.
func clientThroughGatekit(server string) (err error) {
	address := os.Getenv(viaAddress)
	cmd, err := gatekitCommand(os.Getenv(viaGatekit), os.Getenv(viaDir), address,
		fmt.Sprintf("url = %q", server))
	if err != nil {
		return err
	}
	p, err := serve(cmd, address)
	if err != nil {
		return err
	}
	defer func() {
		if e := p.end(); e != nil {
			err = e
		}
	}()
	front := httptest.NewServer(onlyEra(os.Getenv(viaEra), "http://"+address))
	defer front.Close()
	// Sooner than the suite loses patience: it would kill this process and leave gatekit behind.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	client := exec.CommandContext(ctx, os.Getenv(viaClient), front.URL+"/mcp")
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	return client.Run()
}
