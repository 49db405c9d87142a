package replicas

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// ledgerVariable is the environment variable with the URL of the ledger. With it, the test binary
// is a server over stdio.
const ledgerVariable = "GATEKIT_TEST_LEDGER"

// Names of the servers: a legacy one over stdio, and one of each era over HTTP.
const (
	stdioServer  = "pipe"
	legacyServer = "old"
	modernServer = "new"
)

// questions has the questions of the tool work, by its argument ask.
var questions = map[string]struct{ method, params string }{
	"sampling": {"sampling/createMessage", `{"messages":[{"role":"user","content":` +
		`{"type":"text","text":"say it"}}],"maxTokens":9}`},
	"elicitation": {"elicitation/create", `{"mode":"form","message":"who?","requestedSchema":` +
		`{"type":"object","properties":{"name":{"type":"string"}}}}`},
	"roots": {"roots/list", `{}`},
}

// countingServer returns a server that tells ran the id of each call before it answers. Its tools
// are:
//   - work: if the argument ask is set, first asks the client; if change is set, first sends
//     notifications/tools/list_changed; if hold is set, answers a while after the call was run, so
//     that answers can be lost
//   - read: returns private data
//   - send: would send data away
func countingServer(name string, ran func(id string) error, revision string) *mcptest.Server {
	s := &mcptest.Server{Name: name, Revisions: []string{revision},
		Capabilities: `{"tools":{"listChanged":true}}`}
	s.Handle = map[string]func(*mcptest.Call){
		"tools/list": func(c *mcptest.Call) {
			c.Result(`{"tools":[{"name":"work","inputSchema":{"type":"object"}},` +
				`{"name":"read","inputSchema":{"type":"object"}},` +
				`{"name":"send","inputSchema":{"type":"object"}}],"ttlMs":0,` +
				`"cacheScope":"private"}`)
		},
		"tools/call": func(c *mcptest.Call) {
			arguments := mcptest.At(c.Params, "arguments")
			id := mcptest.Text(arguments, "id")
			if string(mcptest.At(arguments, "change")) == "true" {
				c.Feed("notifications/tools/list_changed", `{}`)
			}
			if q, ok := questions[mcptest.Text(arguments, "ask")]; ok {
				if _, fault := c.Ask("q", q.method, q.params); fault != nil {
					c.Error(-32603, "the client gave no answer", string(fault))
					return
				}
			}
			if err := ran(id); err != nil {
				c.Error(-32603, "the ledger: "+err.Error(), "")
				return
			}
			if string(mcptest.At(arguments, "hold")) == "true" {
				time.Sleep(200 * time.Millisecond)
			}
			c.Result(fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`,
				mcptest.Quote("ran "+id)))
		},
	}
	return s
}

// serveStdio serves a countingServer over stdio. The ledger is at a URL.
func serveStdio(ledger string) {
	s := countingServer(stdioServer, remoteLedger(ledger), "2025-11-25")
	_ = s.Serve(context.Background(), mcptest.Lines(os.Stdin, os.Stdout), nil)
}

// startServers starts the servers, and returns their configuration.
func startServers(t *testing.T, l *ledger) (config string) {
	t.Helper()
	book := httptest.NewServer(l)
	t.Cleanup(book.Close)
	config = harness.StdioServer(stdioServer, []string{os.Args[0]}, ledgerVariable, book.URL,
		"GORACE", "atexit_sleep_ms=0")
	for name, revision := range map[string]string{legacyServer: "2025-11-25",
		modernServer: mcptest.Modern} {
		s := countingServer(name, l.ran, revision)
		config += harness.HTTPServer(name, harness.ServeWithoutCredentials(t, s))
		// A killed replica leaves calls behind that wait for the answer of a client.
		t.Cleanup(func() { s.EndSessions("") })
	}
	return config
}
