// Package shared tests the state that replicas share with the gatekit binary and a real
// redis-server.
package shared

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/peers"
	"gatekit/test/redistest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// sharedTable returns [listen] state_key and [shared] for a server. It comes first in the
// configuration, because harness.StartHTTP begins [listen]. Without a timeout among the settings,
// there is one for a busy machine.
func sharedTable(address string, settings ...string) string {
	if !slices.ContainsFunc(settings, func(s string) bool {
		return strings.HasPrefix(s, "timeout")
	}) {
		settings = append(settings, `timeout = "5s"`)
	}
	return fmt.Sprintf("state_key = %q\n[shared]\nurl = \"redis://%s\"\n%s\n",
		strings.Repeat("k", 32), address, strings.Join(settings, "\n"))
}

// admin is the configuration of an admin endpoint, and its address.
func admin(t *testing.T) (config, address string) {
	t.Helper()
	address = peers.FreeAddress(t)
	return fmt.Sprintf("[admin]\nhttp = %q\n", address), "http://" + address
}

// page returns the status and the text of a page.
func page(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, _ := io.ReadAll(response.Body)
	return fmt.Sprint(response.StatusCode, " ", string(b))
}

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(harness.Patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", harness.Patience, what)
		}
	}
}

// outage is a time without the server. It has the time of its begin.
type outage time.Time

// kill kills the server.
func kill(t *testing.T, server *redistest.Server) outage {
	t.Helper()
	server.Kill(t)
	return outage(time.Now())
}

// isShort reports whether the replicas serve what needs nothing of the server. Ten seconds after
// they have heard of it last, they stop everything. On a busy machine, a test may come so late.
func (o outage) isShort() bool { return time.Since(time.Time(o)) < 7*time.Second }

// run runs a command of gatekit in the folder of g. It returns its output, and whether it
// succeeded.
func run(t *testing.T, g *harness.Gatekit, args ...string) (output string, ok bool) {
	t.Helper()
	return runIn(t, g, nil, args...)
}

// runIn is run with more variables of the environment.
func runIn(t *testing.T, g *harness.Gatekit, env []string, args ...string) (output string,
	ok bool) {
	t.Helper()
	c := exec.Command(peers.Gatekit(t), args...)
	c.Dir, c.Env = g.Dir, append(os.Environ(), env...)
	b, err := c.CombinedOutput()
	return string(b), err == nil
}

// Gatekit does not start with a server that could forget what it must not, and says why. gatekit
// check says the same, and doctor as well.
func TestUnsuitableServerIsRefused(t *testing.T) {
	evicting := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	good := redistest.Start(t, "--requirepass", "t0ps3cret")
	good.Do(t, "ACL", "SETUSER", "gatekit", "on", ">t0ps3cret", "~gatekit:*", "+@all",
		"-@dangerous", "+info")
	for _, tt := range []struct{ name, config, want string }{
		{"evicts", sharedTable(evicting.Addr), "set maxmemory-policy noeviction"},
		{"no copies", sharedTable(good.Addr, `password = "t0ps3cret"`, "copies = 1"),
			"it has 0 replicas, and shared.copies = 1"},
		{"wrong password", sharedTable(good.Addr, `password = "wr0ngs3cret"`), "WRONGPASS"},
		{"no password", sharedTable(good.Addr), "check shared.user and shared.password"},
		{"keys of others", sharedTable(good.Addr, `user = "gatekit"`, `password = "t0ps3cret"`,
			`prefix = "other:"`, `timeout = "5s"`), "needs ~other:* +@all -@dangerous +info"},
		{"away", sharedTable("127.0.0.1:1"), "connection refused"},
		{"good", sharedTable(good.Addr, `password = "t0ps3cret"`, `timeout = "5s"`), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := harness.Prepare(t, "[listen]\nhttp = \"127.0.0.1:0\"\n"+tt.config+
				harness.ScriptedServer("box"))
			output, ok := run(t, g, "check")
			line := "ok [shared] server " + good.Addr + ": version "
			if tt.want != "" {
				line = "FAIL [shared] "
			}
			if flat := strings.Join(strings.Fields(output), " "); ok != (tt.want == "") ||
				!strings.Contains(flat, line) || !strings.Contains(flat, tt.want) {
				t.Errorf("check has the result %t, want %q and %q:\n%s", ok, line, tt.want, output)
			}
			if keys := good.Do(t, "DBSIZE"); keys != "0" {
				t.Errorf("check has written %s keys", keys)
			}
			if strings.Contains(output, "s3cret") {
				t.Errorf("check shows the password:\n%s", output)
			}
			if tt.want == "" {
				return
			}
			if output, ok := run(t, g, "run"); ok || !strings.Contains(output, tt.want) ||
				strings.Contains(output, "s3cret") {
				t.Errorf("run has the result %t, want an error with %q:\n%s", ok, tt.want, output)
			}
		})
	}
}

// While the server is away, /readyz of [admin] fails. That of the listener, by which a load
// balancer sends clients to others, fails only when no call would pass: all replicas lose the
// server together, and calls that need nothing of it pass for ten seconds.
func TestReadyzFailsWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	table, address := admin(t)
	g := harness.StartHTTP(t, sharedTable(server.Addr, `timeout = "5s"`)+table+
		harness.ScriptedServer("box"))
	ready := func() string { return page(t, address+"/readyz") }
	if got := ready(); !strings.HasPrefix(got, "200") ||
		!strings.Contains(got, "ok    shared: available") {
		t.Errorf("/readyz is %s", got)
	}
	client := g.Client("2025-11-25") // could not connect when everything is stopped
	server.Kill(t)
	eventually(t, "/readyz fails", func() bool { return strings.HasPrefix(ready(), "503") })
	if got := ready(); !strings.Contains(got, "FAIL  shared: shared state is not available") {
		t.Errorf("/readyz is %s", got)
	}
	public := strings.TrimSuffix(g.URL, "/mcp") + "/readyz" // for load balancers, and anybody
	eventually(t, "/readyz of the listener fails", func() bool {
		got := page(t, public)
		if strings.Contains(got, "shared") || strings.Contains(got, server.Addr) {
			t.Errorf("/readyz of the listener tells why: %s", got)
		}
		return strings.HasPrefix(got, "503")
	})
	m := harness.Request(t, client, "tools/call", `{"name":"box__progress","arguments":{}}`)
	if !strings.Contains(string(m.Error), "stopped by an operator (Gatekit)") {
		t.Errorf("/readyz of the listener failed, and a call got %s", m.Raw)
	}
	server.Restart(t)
	eventually(t, "/readyz is good again", func() bool {
		return strings.HasPrefix(ready(), "200") && strings.HasPrefix(page(t, public), "200")
	})
	g.WantRecords("to_server request tools/call box progress deny")
}
