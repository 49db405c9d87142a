package sessions

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestLimitsOfConnectionsAreLoggedAndMeasured reaches the limits of streams and of connections, and
// exceeds each twice. The log has one line for each limit, and /metrics has the figures.
func TestLimitsOfConnectionsAreLoggedAndMeasured(t *testing.T) {
	const refusedTotal = `gatekit_http_refused_total{gatekit_limit=%q}`
	address := peers.FreeAddress(t)
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+fmt.Sprintf(
		"[admin]\nhttp = %q\n[limits]\nconnections = 3\nstreams = 2\n", address))
	wantMetric := func(series string, want int) {
		t.Helper()
		harness.WaitUntilAtMost(t, fmt.Sprintf("difference of %s from %d", series, want), 0,
			func() int {
				n := metric(t, "http://"+address, series)
				return max(n-want, want-n)
			})
	}
	c := g.Client("2025-11-25")
	wantMetric("gatekit_http_streams", 1)
	harness.StartWaitingCall(t, c, "box", `"w"`, "w") // its answer is a stream
	wantMetric("gatekit_http_streams", 2)
	wantMetric("gatekit_http_connections", 2)

	other := mcptest.NewHTTP(g.URL)
	other.NoStream = true
	harness.Handshake(t, mcptest.NewClient(other, "2025-11-25"))
	other.Vanish() // its session stays
	wantMetric("gatekit_http_connections", 2)

	// requestStream returns the status of a request for a stream of the other session.
	requestStream := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {other.Session()},
			"Mcp-Protocol-Version": {"2025-11-25"}}
		r.Close = true
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	wantRefusals := func(limit, logged string, open int) {
		t.Helper()
		for range 2 {
			if status := requestStream(); status != http.StatusServiceUnavailable {
				t.Errorf("over the limit of %s: got status %d, want 503", limit, status)
			}
			wantMetric("gatekit_http_connections", open) // the server closes it after the answer
		}
		wantMetric(fmt.Sprintf(refusedTotal, limit), 2)
		if n := strings.Count(g.Stderr.String(), logged); n != 1 {
			t.Errorf("the log has %d lines %q, want 1", n, logged)
		}
	}
	wantRefusals("streams", "event streams refused", 2)

	busy, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(g.URL, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	io.WriteString(busy, "POST /mcp HTTP/1.1\r\nHost: "+busy.RemoteAddr().String()+
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Content-Length: 9\r\n\r\n{") // the rest of the body does not come
	wantMetric("gatekit_http_connections", 3)
	wantRefusals("connections", "connections refused", 3)
	wantMetric(fmt.Sprintf(refusedTotal, "streams"), 2)

	busy.Close()
	wantMetric("gatekit_http_connections", 2)
	c.Notify("notifications/cancelled", `{"requestId":"w"}`)
	harness.CallTool(t, c, "box__cancelled", `{"tag":"w"}`)
	g.WantRecords("to_client response tools/call box cancelled pass")
}
