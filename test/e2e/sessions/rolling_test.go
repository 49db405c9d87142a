package sessions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// probedReplicas are replicas behind a balancer that sends clients only to those whose /readyz says
// yes, in turn.
type probedReplicas struct {
	URL string // of the balancer

	mu    sync.Mutex
	all   []*harness.Gatekit
	ready []bool
	next  int
}

// pick returns the next replica that is ready.
func (r *probedReplicas) pick() *harness.Gatekit {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.all {
		r.next = (r.next + 1) % len(r.all)
		if r.ready[r.next] {
			break
		}
	}
	return r.all[r.next]
}

// replica returns replica i, and whether clients are sent there.
func (r *probedReplicas) replica(i int) (*harness.Gatekit, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[i], r.ready[i]
}

// replace replaces replica i.
func (r *probedReplicas) replace(i int, g *harness.Gatekit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[i], r.ready[i] = g, false
}

// setReady notes whether the replica g is ready, if it is still replica i.
func (r *probedReplicas) setReady(i int, g *harness.Gatekit, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[i] == g {
		r.ready[i] = ready
	}
}

// probe asks the replicas every 100 ms whether they are ready, until ctx ends.
func (r *probedReplicas) probe(ctx context.Context) {
	client := &http.Client{Timeout: 2 * time.Second}
	for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; {
		for i := range r.all {
			g, _ := r.replica(i)
			answer, err := client.Get(strings.TrimSuffix(g.URL, "/mcp") + "/readyz")
			if err == nil {
				answer.Body.Close()
			}
			r.setReady(i, g, err == nil && answer.StatusCode == http.StatusOK)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// callers are clients that make one call after the other, and count what happens.
type callers struct {
	t            *testing.T
	url          string
	calls        atomic.Int64 // calls that were answered
	initializes  atomic.Int64
	endedSession atomic.Int64 // requests with status 404, which were not run
}

// post sends a message, and returns the status, the whole answer and its headers.
func (c *callers) post(body string, headers ...string) (int, string, http.Header) {
	r, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0, "", nil
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error(), nil
	}
	return answer.StatusCode, string(b), answer.Header
}

// pause is the time between two calls of a client, so that the logs stay short.
func (c *callers) pause(ctx context.Context) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
}

// answered reports whether a call got its own result. If not, the call is lost.
func (c *callers) answered(tag string, status int, body string) bool {
	if status == http.StatusOK && strings.Contains(body, `"tag":"`+tag+`"`) {
		c.calls.Add(1)
		return true
	}
	c.t.Errorf("the call %s is lost: got status %d, %s", tag, status, body)
	return false
}

// legacy makes calls in a session until ctx ends. When the session has ended, it initializes again,
// as revision 2025-11-25 demands, and makes the call again: the call was not run.
func (c *callers) legacy(ctx context.Context, name string) {
	session := ""
	for n := 0; ctx.Err() == nil; {
		if session == "" {
			status, body, header := c.post(`{"jsonrpc":"2.0","id":0,"method":"initialize",` +
				`"params":{"protocolVersion":"2025-11-25","capabilities":{},` +
				`"clientInfo":{"name":"c","version":"1"}}}`)
			if session = header.Get("Mcp-Session-Id"); status != http.StatusOK || session == "" {
				c.t.Errorf("initialize of %s got status %d, %s", name, status, body)
				return
			}
			c.initializes.Add(1)
			status, body, _ = c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
				"Mcp-Session-Id", session)
			if status != http.StatusAccepted {
				c.t.Errorf("the first notification of %s got status %d, %s", name, status, body)
			}
		}
		tag := fmt.Sprintf("%s-%d", name, n)
		status, body, _ := c.post(`{"jsonrpc":"2.0","id":"`+tag+`","method":"tools/call","params":`+
			`{"name":"box__echo","arguments":{"tag":"`+tag+`"}}}`, "Mcp-Session-Id", session)
		if status == http.StatusNotFound {
			c.endedSession.Add(1)
			session = ""
			continue
		}
		if !c.answered(tag, status, body) {
			return
		}
		n++
		c.pause(ctx)
	}
}

// modern makes calls until ctx ends.
func (c *callers) modern(ctx context.Context, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		tag := fmt.Sprintf("%s-%d", name, n)
		status, body, _ := c.post(`{"jsonrpc":"2.0","id":"`+tag+`","method":"tools/call","params":`+
			`{"name":"box__echo","arguments":{"tag":"`+tag+`"},"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
			`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"Mcp-Protocol-Version", mcptest.Modern, "Mcp-Method", "tools/call",
			"Mcp-Name", "box__echo")
		if !c.answered(tag, status, body) {
			return
		}
		c.pause(ctx)
	}
}

// TestReplicasAreReplacedWithoutALostCall replaces three replicas under load, one after the other.
// Every call gets its answer, and each was run once. Legacy clients have to initialize again when
// the replica of their session goes.
func TestReplicasAreReplacedWithoutALostCall(t *testing.T) {
	harness.Long(t, "replaces three replicas one after the other")
	const n, clients = 3, 4 // of each era
	dir := certificates(t)
	var configs, dirs []string
	r := &probedReplicas{ready: make([]bool, n)}
	for i := range n {
		configs = append(configs, "drain = \"2s\"\n"+clustertest.Config(i, peers.FreeAddress(t),
			dir)+harness.ScriptedServer("box"))
		dirs = append(dirs, t.TempDir())
		r.all = append(r.all, harness.StartHTTPIn(t, dirs[i], configs[i]))
	}
	background, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { r.probe(background) })
	awaitReady := func(i int) {
		harness.WaitUntilAtMost(t, "replicas that the balancer does not use", 0, func() int {
			if _, ready := r.replica(i); ready {
				return 0
			}
			return 1
		})
	}
	for i := range n {
		awaitReady(i)
	}
	balancer := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			// The whole body, because a ReverseProxy that answers while it still waits for the
			// end of a body closes the connection to the replica.
			body, err := io.ReadAll(pr.In.Body)
			pr.Out.Body = io.NopCloser(bytes.NewReader(body))
			if err != nil {
				t.Errorf("read a request at the balancer: %v", err)
			}
			pr.SetURL(&url.URL{Scheme: "http", Host: strings.TrimSuffix(strings.TrimPrefix(
				r.pick().URL, "http://"), "/mcp")})
		}})
	defer balancer.Close()

	c := &callers{t: t, url: balancer.URL + "/mcp"}
	load, stop := context.WithCancel(background)
	var making sync.WaitGroup
	for i := range clients {
		making.Go(func() { c.legacy(load, fmt.Sprint("legacy-", i)) })
		making.Go(func() { c.modern(load, fmt.Sprint("modern-", i)) })
	}
	answersAfter := func() { // every replica that is there takes part again
		before := c.calls.Load()
		harness.WaitUntilAtMost(t, "calls still to come", 0, func() int {
			return max(0, int(before+40-c.calls.Load()))
		})
	}
	for i := range n {
		answersAfter()
		old, _ := r.replica(i)
		subscriber := mcptest.NewClient(mcptest.NewHTTP(old.URL), mcptest.Modern)
		defer subscriber.Close()
		mark := subscriber.Mark()
		subscriber.Send(subscriber.Request(`"sub"`, "subscriptions/listen",
			`{"notifications":{"toolsListChanged":true}}`))
		if _, err := subscriber.AwaitMethod(harness.Context(t), mark,
			"notifications/subscriptions/acknowledged"); err != nil {
			t.Errorf("subscribe at replica %d: %v", i, err)
		}
		old.Cmd.Process.Signal(syscall.SIGTERM)
		<-old.Exited
		old.WaitForLog("draining", 1)
		if m, err := subscriber.Reply(harness.Context(t), mark, `"sub"`); err != nil ||
			mcptest.Text(m.Result, "resultType") != "complete" {
			t.Errorf("the subscription at replica %d ended with %s, %v; want a complete result", i,
				m.Raw, err)
		}
		r.replace(i, harness.StartHTTPIn(t, dirs[i], configs[i]))
		awaitReady(i)
	}
	answersAfter()
	stop()
	making.Wait()

	calls, initializes, ended := c.calls.Load(), c.initializes.Load(), c.endedSession.Load()
	t.Logf("%d calls were answered; legacy clients initialized %d times, and %d of their calls "+
		"met an ended session", calls, initializes, ended)
	run := 0
	for i := range n {
		g, _ := r.replica(i)
		stops := 0
		for _, record := range g.Records() {
			switch {
			case record.String() == "to_server request tools/call box echo pass":
				run++
			case record.Action == "stop":
				stops++
			}
		}
		if stops != 1 {
			t.Errorf("the log of replica %d has %d records of a stop, want that of the old process",
				i, stops)
		}
	}
	if run != int(calls) {
		t.Errorf("the logs have %d calls, want the %d that were answered", run, calls)
	}
	if ended < 1 || initializes != clients+ended {
		t.Errorf("legacy clients initialized %d times after %d ended sessions, want %d at first "+
			"and one for each ended session", initializes, ended, clients)
	}
}

// TestReplicasReportDrift starts two replicas that differ in one setting. As soon as one of them
// has forwarded a request to the other, the metrics of both show it.
func TestReplicasReportDrift(t *testing.T) {
	dir := certificates(t)
	var all []*harness.Gatekit
	var admins []string
	for i, deny := range []string{"", "[deny]\nreasons = true\n"} {
		admin := peers.FreeAddress(t)
		admins = append(admins, admin)
		all = append(all, harness.StartHTTP(t, clustertest.Config(i, peers.FreeAddress(t), dir)+
			harness.ScriptedServer("box")+"\n[admin]\nhttp = \""+admin+"\"\n"+deny))
	}
	metrics := func(i int) string {
		answer, err := http.Get("http://" + admins[i] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	c := &callers{t: t, url: all[0].URL}
	status, body, header := c.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{` +
		`"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"c","version":"1"}}}`)
	if status != http.StatusOK {
		t.Fatalf("initialize got status %d, %s", status, body)
	}
	c.url = all[1].URL
	c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id",
		header.Get("Mcp-Session-Id"))
	digest := regexp.MustCompile(`gatekit_configuration\{[^}]*gatekit_configuration="([0-9a-f]{12})"`)
	digests := map[string]bool{}
	for i, other := range []string{"replica-1", "replica-0"} {
		page := metrics(i)
		if m := digest.FindStringSubmatch(page); m == nil {
			t.Errorf("the metrics of replica %d have no digest of its configuration", i)
		} else {
			digests[m[1]] = true
		}
		if want := regexp.MustCompile(`gatekit_replica_differs\{[^}]*gatekit_replica="` + other +
			`"[^}]*\} 1`); !want.MatchString(page) {
			t.Errorf("the metrics of replica %d do not report that %s differs", i, other)
		}
		all[i].WaitForLog("a replica has another configuration or other policies", 1)
	}
	if len(digests) != 2 {
		t.Errorf("the digests are %v, want two different ones", digests)
	}
	all[0].WantRecords("to_client response initialize - - answer")
}
