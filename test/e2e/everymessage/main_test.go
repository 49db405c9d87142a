// Package everymessage tests the first paragraph of the README: the plugins and policies inspect
// every message between a client and a server, and the message is recorded before it is forwarded.
// A spy plugin and a spy policy note what they see, scripted peers note what they write and read,
// and the test compares these notes with the audit log.
package everymessage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestMain runs the tests. Gatekit also starts the test binary as the spy plugin and as the server.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "spy-plugin":
			servePlugin(os.Args[2])
			return
		case "spy-server":
			serveStdio(os.Args[2], os.Args[3], os.Args[4])
			return
		}
	}
	harness.Main(m)
}

// notes is a file to which several goroutines append lines.
type notes struct {
	mu   sync.Mutex
	file *os.File
}

func openNotes(path string) *notes {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return &notes{file: f}
}

func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintln(n.file, line)
}

// servePlugin serves a plugin, which writes the key of each inspected message to the file at path.
func servePlugin(path string) {
	seen := openNotes(path)
	sdk.Serve(sdk.Plugin{Name: "spy", Version: "1", Doc: "notes each message",
		New: func([]byte) (sdk.Stage, error) {
			return sdk.StageFunc(func(_ context.Context, m *mcp.Message) (sdk.Verdict, error) {
				seen.add(key(m.Direction.String(), m.Kind.String(), m.Method))
				return sdk.Allow(), nil
			}), nil
		}})
}

// key returns the key by which messages are counted, such as "to_server request tools/call".
func key(direction, kind, method string) string {
	return direction + " " + kind + " " + method
}

// newServer returns the scripted server. The tool "raw" writes the lines in its arguments.
func newServer(name, revision string) *mcptest.Server {
	s := mcptest.Toolbox(name, revision)
	for _, m := range mcp.Methods() {
		if s.Handle[m.Name] == nil && m.Kind == mcp.Request {
			s.Handle[m.Name] = func(c *mcptest.Call) { c.Error(-32602, "not now", "") }
		}
	}
	return s
}

// serveStdio serves the scripted server over stdio. It notes each line, with "> " before a line
// that the server has read, and "< " before a line that the server writes.
func serveStdio(path, name, revision string) {
	c := notedConn{mcptest.Lines(os.Stdin, os.Stdout), openNotes(path)}
	newServer(name, revision).Serve(context.Background(), c, func() { os.Exit(3) })
}

type notedConn struct {
	mcptest.Conn
	notes *notes
}

func (c notedConn) Read(ctx context.Context) ([]byte, error) {
	b, err := c.Conn.Read(ctx)
	if err == nil {
		c.notes.add("> " + string(b))
	}
	return b, err
}

func (c notedConn) Write(ctx context.Context, b []byte) error {
	c.notes.add("< " + string(b))
	return c.Conn.Write(ctx, b)
}

// notedHTTP serves the scripted server over HTTP, and notes its messages as serveStdio does.
func notedHTTP(path, name, revision string) http.Handler {
	n, server := openNotes(path), newServer(name, revision)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(body) > 0 {
			n.add("> " + string(body))
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		server.ServeHTTP(&notedWriter{ResponseWriter: w, notes: n}, r)
	})
}

type notedWriter struct {
	http.ResponseWriter
	notes *notes
}

// Write notes a whole message, or a line of an event stream.
func (w *notedWriter) Write(b []byte) (int, error) {
	text := strings.TrimPrefix(strings.TrimSpace(string(b)), "data: ")
	if strings.HasPrefix(text, "{") {
		w.notes.add("< " + text)
	}
	return w.ResponseWriter.Write(b)
}

func (w *notedWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }
