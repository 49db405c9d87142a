package peers

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// OIDCProvider starts an oidc-provider, a certified authorization server, which ends with the test.
// It returns its issuer. The access tokens of a login are valid for some seconds, refreshed ones
// for others. env is added to its environment; test/e2e/credentials/provider.mjs describes the
// variables. event gets each event; it may be nil.
func OIDCProvider(t *testing.T, seconds, refreshed int, event func(string),
	env ...string) (issuer string) {
	t.Helper()
	library := Node(t).Path("oidc-provider", "lib", "index.js")
	script := filepath.Join(Top(), "test", "e2e", "credentials", "provider.mjs")
	cmd := exec.Command("node", script, library, fmt.Sprint(seconds), fmt.Sprint(refreshed))
	cmd.Env = append(cmd.Environ(), env...)
	return RunIssuer(t, cmd, event)
}

// RunIssuer runs an authorization server until the test ends. The first line that it prints is its
// issuer, which RunIssuer returns. Each further line is an event.
func RunIssuer(t *testing.T, cmd *exec.Cmd, event func(string)) (issuer string) {
	t.Helper()
	cmd.Stderr = io.Discard // warnings that it is not for production
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		issuer = lines.Text()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			if event != nil {
				event(lines.Text())
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
		cmd.Wait()
	})
	if !strings.HasPrefix(issuer, "http://") {
		t.Fatalf("%s did not start, and printed %q", filepath.Base(cmd.Path), issuer)
	}
	return issuer
}
