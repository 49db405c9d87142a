package sessions

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// metric returns the value of a series of /metrics. The parameter series is the name of the metric,
// with the labels as /metrics writes them.
func metric(t *testing.T, url, series string) int {
	t.Helper()
	r, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\d+)$`).FindSubmatch(body)
	if m == nil {
		t.Fatalf("/metrics has no series %s:\n%s", series, body)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// TestProcessesOfVanishedClientsEnd uses 200 legacy clients. Each connects, lists the tools of two
// servers, and vanishes without ending its session. An older version of Gatekit kept two processes
// for each client.
func TestProcessesOfVanishedClientsEnd(t *testing.T) {
	harness.Long(t, "connects 200 clients")
	const clients, atOnce, limit = 200, 10, 30
	address := peers.FreeAddress(t)
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+harness.ScriptedServer("bag")+
		fmt.Sprintf("[admin]\nhttp = %q\n[limits]\nprocesses = %d\n"+
			"server_idle = \"2s\"\n", address, limit))
	admin := "http://" + address
	processes := func() int { return len(harness.ProcessesWith(g.Mark)) }
	if n := processes(); n != 0 {
		t.Fatalf("%d servers run before a client needs a server, want 0", n)
	}

	stays := g.Client("2025-11-25") // its session is used again later; its stream stays open
	harness.Request(t, stays, "logging/setLevel", `{"level":"error"}`)
	quiet := func() *mcptest.Client { // its session is used again later; it opens no stream
		conn := mcptest.NewHTTP(g.URL)
		conn.NoStream = true
		c := mcptest.NewClient(conn, "2025-11-25")
		t.Cleanup(func() { c.Close() })
		harness.Handshake(t, c)
		return c
	}()
	harness.CallTool(t, quiet, "box__echo", ``)
	harness.Request(t, quiet, "logging/setLevel", `{"level":"error"}`)
	harness.Request(t, quiet, "resources/subscribe", `{"uri":"box+test://box/a"}`)

	memory := func() (gatekit, servers int) { // MiB
		gatekit = harness.ResidentBytes(g.Cmd.Process.Pid) >> 20
		for _, pid := range harness.ProcessesWith(g.Mark) {
			servers += harness.ResidentBytes(pid)
		}
		return gatekit, servers >> 20
	}
	before, _ := memory()

	var peak, failed atomic.Int64
	var peakGatekit, peakServers int
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range clients {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			conn := mcptest.NewHTTP(g.URL)
			conn.NoStream = i%2 == 0
			c := mcptest.NewClient(conn, "2025-11-25")
			defer conn.Vanish()
			if m, err := c.Open(harness.Context(t)); err != nil || m.Error != nil {
				t.Errorf("client %d got no session: %s, %v", i, m.Raw, err)
				return
			}
			if m, err := c.Call(harness.Context(t), "tools/list", `{}`); err != nil ||
				m.Error != nil {
				failed.Add(1)
			}
		})
		if i%atOnce == 0 {
			peak.Store(max(peak.Load(), int64(processes())))
			gatekit, servers := memory()
			peakGatekit, peakServers = max(peakGatekit, gatekit), max(peakServers, servers)
		}
	}
	all.Wait()
	peak.Store(max(peak.Load(), int64(processes())))
	t.Logf("%d clients came and vanished: at most %d processes, %d lists failed", clients,
		peak.Load(), failed.Load())
	// A process that is being ended may still run for a moment.
	if peak.Load() > limit+atOnce {
		t.Errorf("up to %d processes ran, want at most %d", peak.Load(), limit+atOnce)
	}
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d clients got no list, want a list for each client", n, clients)
	}

	// Only the client with an open stream still needs its process.
	box := `gatekit_server_processes{gatekit_server="box"}`
	harness.WaitUntilAtMost(t, "processes of the server box", 1, func() int {
		return metric(t, admin, box)
	})
	if n := metric(t, admin, `gatekit_server_processes_ended_total{gatekit_server="box"}`); n == 0 {
		t.Error("gatekit_server_processes_ended_total is 0 for the server box, want 1 or more")
	}

	after, left := memory()
	t.Logf("memory of Gatekit: %d MiB before, at most %d MiB meanwhile, %d MiB after; of the "+
		"servers: at most %d MiB, then %d MiB", before, peakGatekit, after, peakServers, left)
	if left > peakServers/2 {
		t.Errorf("the servers use %d MiB after the clients have vanished, want less than half of "+
			"%d MiB", left, peakServers)
	}

	harness.CallTool(t, stays, "box__echo", ``)
	m := harness.CallTool(t, quiet, "box__echo", ``)
	if n := metric(t, admin, box); n != 2 {
		t.Errorf("%d processes run after a request of the quiet session, want 2: %s", n, m.Raw)
	}
	// The process of the quiet session was ended. The next process got the session's state.
	g.WantRecords("- - - box - ended", "- - - box - resumed",
		"to_server request initialize box - own", "to_server request logging/setLevel box - own",
		"to_server request resources/subscribe box test://box/a own",
		"to_server request tools/call box echo pass")
}

// TestIdleServerWithKeepIsNotEnded uses clients that open no stream. When their servers are idle,
// Gatekit ends the processes of one server, but not those of the server with keep = true.
func TestIdleServerWithKeepIsNotEnded(t *testing.T) {
	address := peers.FreeAddress(t)
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+harness.ScriptedServer("kept")+
		"keep = true\n"+fmt.Sprintf("[admin]\nhttp = %q\n[limits]\nserver_idle = \"1s\"\n",
		address))
	admin := "http://" + address
	for _, revision := range harness.Revisions {
		conn := mcptest.NewHTTP(g.URL)
		conn.NoStream = true
		c := mcptest.NewClient(conn, revision)
		t.Cleanup(func() { c.Close() })
		harness.Handshake(t, c)
		harness.CallTool(t, c, "box__echo", ``)
		harness.CallTool(t, c, "kept__echo", ``)
	}
	before := metric(t, admin, `gatekit_server_processes{gatekit_server="kept"}`)
	harness.WaitUntilAtMost(t, "processes of the server box", 0, func() int {
		return metric(t, admin, `gatekit_server_processes{gatekit_server="box"}`)
	})
	if n := metric(t, admin, `gatekit_server_processes{gatekit_server="kept"}`); n != before {
		t.Errorf("%d processes of the kept server run, want %d", n, before)
	}
	g.WantRecords("- - - box - ended")
}
