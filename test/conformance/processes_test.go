package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/test/peers"
	"gatekit/transport/auth"
)

// process is a server in another process.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer  // read it after ended is closed
	ended  chan struct{} // closed when the process has ended
	err    error         // how the process ended
}

// startProcess starts a server process and waits until it listens on the address.
func startProcess(cmd *exec.Cmd, address string) (*process, error) {
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

// stop sends SIGTERM, waits for the process and returns how it ended. If the process does not end,
// SIGQUIT makes it print its goroutines.
func (p *process) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(2*time.Minute, func() { p.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%s ended with %w\n%s", p.cmd, p.err, &p.stderr)
	}
	return nil
}

// startEverythingServer starts the go-sdk's conformance server over HTTP and returns its URL. Each
// run has its own server, since some scenarios change it.
func startEverythingServer(t *testing.T, flags []string) string {
	t.Helper()
	address := peers.FreeAddress(t)
	p, err := startProcess(exec.Command(peers.Tool(t, "everything-server"),
		append([]string{"-http", address}, flags...)...), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop() }) // always an error: the signal ends the server
	return "http://" + address + "/mcp"
}

// serverNames has the servers' names in gatekit's configuration, in order.
var serverNames = []string{"everything", "other"}

// gatekitCommand returns the command of a gatekit in front of one server (with prefix = "never") or
// two servers. Its files are in dir.
func gatekitCommand(binary, dir, address string, tables ...string) (*exec.Cmd, error) {
	cmd := exec.Command(binary, "run")
	cmd.Dir = dir
	config := fmt.Sprintf("[listen]\nhttp = %q\n\n[audit]\nfile = \"audit.jsonl\"\n", address)
	if len(tables) == 1 {
		config += "\n[names]\nprefix = \"never\"\n"
	}
	for i, table := range tables {
		config += fmt.Sprintf("\n[server.%s]\n%s\n", serverNames[i], table)
	}
	return cmd, os.WriteFile(filepath.Join(dir, "gatekit.toml"), []byte(config), 0o644)
}

// startGatekit starts gatekit in front of the servers and returns its URL. When the test is over,
// gatekit must end without an error and its audit log must be valid.
func startGatekit(t *testing.T, tables ...string) string {
	t.Helper()
	return startGatekitIn(t, t.TempDir(), tables...)
}

// startGatekitIn is startGatekit with a folder for gatekit's files.
func startGatekitIn(t *testing.T, dir string, tables ...string) string {
	t.Helper()
	address := peers.FreeAddress(t)
	cmd, err := gatekitCommand(peers.Gatekit(t), dir, address, tables...)
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(cmd, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		} else if t.Failed() {
			t.Logf("gatekit's stderr:\n%s", &p.stderr)
		}
		checkAuditLog(t, dir)
	})
	return "http://" + address + "/mcp"
}

// startGatekitWithBearer starts gatekit with a listener that wants a token, in front of a server.
// It returns gatekit's URL and the variables with which the suite sends the token. When the test is
// over, the audit log must name the principal of the token in each record of a message, and must
// not have the token.
func startGatekitWithBearer(t *testing.T, table string) (url string, env []string) {
	t.Helper()
	token, digest := auth.NewStaticToken("suite")
	dir := t.TempDir()
	// after gatekit has ended
	t.Cleanup(func() {
		if checkPrincipal(t, dir, "token:suite", token) == 0 {
			t.Error("the audit log has no call")
		}
	})
	url = startGatekitIn(t, dir, fmt.Sprintf("%s\n[listen.auth.token.suite]\nsha256 = \"%x\"\n",
		table, digest))
	r, err := http.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token, got status %d; want 401", r.StatusCode)
	}
	return url, bearer(token)
}

// bearer returns the variables with which the suite sends a token.
func bearer(token string) (env []string) {
	return []string{"GATEKIT_CONFORMANCE_TOKEN=" + token, "NODE_OPTIONS=--import " +
		filepath.Join(peers.Top(), "test", "conformance", "bearer.mjs")}
}

// checkAuditLog fails the test unless the audit log in dir is valid and has records of both
// directions.
func checkAuditLog(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err == nil {
		err = audit.Verify(bytes.NewReader(b))
	}
	if err != nil {
		t.Errorf("the audit log in %s: %v", dir, err)
	}
	if !bytes.Contains(b, []byte(`"to_server"`)) || !bytes.Contains(b, []byte(`"to_client"`)) {
		t.Errorf("the audit log in %s is %.500s, want records of both directions", dir, b)
	}
}

// checkPrincipal fails the test unless all records of messages in the audit log in dir are of one
// principal. The log must not have the secret part of the token. It returns the number of records
// of tools/call.
func checkPrincipal(t *testing.T, dir, principal, token string) (calls int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if secret := token[strings.LastIndex(token, "_")+1:]; bytes.Contains(b, []byte(secret)) {
		t.Error("the audit log has the token")
	}
	for line := range bytes.Lines(b) {
		var r struct{ Kind, Method, Principal, Action string }
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if r.Method == "" || r.Action == "refuse" || r.Action == "own" && r.Principal == "" {
			continue // an event, a request without a token, or Gatekit's own at the start
		}
		if r.Principal != principal {
			t.Errorf("a record has the principal %q, want %q: %.500s", r.Principal, principal,
				line)
		}
		if r.Method == "tools/call" {
			calls++
		}
	}
	return calls
}

// Environment variables of clientThroughGatekit.
const (
	envDir     = "GATEKIT_CONFORMANCE_DIR"     // gatekit's working folder
	envGatekit = "GATEKIT_CONFORMANCE_BINARY"  // the gatekit binary
	envAddress = "GATEKIT_CONFORMANCE_ADDRESS" // gatekit's address
	envClient  = "GATEKIT_CONFORMANCE_CLIENT"  // the client program
	envEra     = "GATEKIT_CONFORMANCE_ERA"     // the era of the client
)

// clientThroughGatekit is the client of one scenario: it starts gatekit in front of the suite's
// server and runs the go-sdk's client against it.
func clientThroughGatekit(server string) (err error) {
	address := os.Getenv(envAddress)
	cmd, err := gatekitCommand(os.Getenv(envGatekit), os.Getenv(envDir), address,
		fmt.Sprintf("url = %q", server))
	if err != nil {
		return err
	}
	p, err := startProcess(cmd, address)
	if err != nil {
		return err
	}
	defer func() {
		if e := p.stop(); e != nil {
			err = e
		}
	}()
	front := httptest.NewServer(restrictToEra(os.Getenv(envEra), "http://"+address))
	defer front.Close()
	// This timeout is shorter than the suite's own timeout. At its timeout, the suite would kill
	// this process but not gatekit.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	client := exec.CommandContext(ctx, os.Getenv(envClient), front.URL+"/mcp")
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	return client.Run()
}
