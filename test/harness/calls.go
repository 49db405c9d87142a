package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"gatekit/test/mcptest"
)

// Handshake opens the session of a client and returns the server's answer. It sends initialize, or
// server/discover in the modern era.
func Handshake(t *testing.T, c *mcptest.Client) mcptest.Message {
	t.Helper()
	m, err := c.Open(Context(t))
	if err != nil || m.Error != nil {
		t.Fatalf("the handshake got %s, %v, want a result", m.Raw, err)
	}
	return m
}

// Request sends a request and returns its answer, a result or an error.
func Request(t *testing.T, c *mcptest.Client, method, params string) mcptest.Message {
	t.Helper()
	m, err := c.Call(Context(t), method, params)
	if err != nil {
		t.Fatalf("%s %s: %v", method, params, err)
	}
	return m
}

// CallTool calls a tool and returns its result; an error fails the test.
func CallTool(t *testing.T, c *mcptest.Client, tool, arguments string) mcptest.Message {
	t.Helper()
	m, err := c.Tool(Context(t), tool, arguments)
	if err != nil || m.Error != nil {
		t.Fatalf("the call of %s with %s got %s, %v, want a result", tool, arguments, m.Raw, err)
	}
	return m
}

// WantDenied fails the test unless the request is denied.
func WantDenied(t *testing.T, c *mcptest.Client, method, params string) {
	t.Helper()
	if m := Request(t, c, method, params); string(mcptest.At(m.Error, "code")) != "-31000" ||
		mcptest.Text(m.Error, "message") != "refused by policy" {
		t.Errorf("%s %s got %s, want a denial", method, params, m.Raw)
	}
}

// StartWaitingCall calls the tool "wait" of a server and returns when the server has got the call.
// tag is the tool's argument, and id is the id of the request.
func StartWaitingCall(t *testing.T, c *mcptest.Client, server, id, tag string) {
	t.Helper()
	mark := c.Mark()
	c.Send(c.Request(id, "tools/call",
		fmt.Sprintf(`{"name":"%s__wait","arguments":{"tag":%q},"_meta":{"progressToken":%s}}`,
			server, tag, id)))
	_, err := c.Await(Context(t), mark, func(m mcptest.Message) bool {
		return m.Method == "notifications/progress" && string(mcptest.At(m.Params,
			"progressToken")) == id
	})
	if err != nil {
		t.Fatalf("the call %s did not reach the server %s: %v", id, server, err)
	}
}

// WantNoAnswer fails the test if the client got an answer to the request with this id.
func WantNoAnswer(t *testing.T, c *mcptest.Client, id string) {
	t.Helper()
	for _, f := range c.Frames() {
		if !f.Sent && f.Method == "" && string(f.ID) == id {
			t.Errorf("the call %s got the answer %s, want none", id, f.Raw)
		}
	}
}

// SendRaw makes a call during which the scripted server writes the lines. One of the lines must be
// the answer to the call. SendRaw returns this answer.
func SendRaw(t *testing.T, c *mcptest.Client, lines ...string) mcptest.Message {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(lines)
	return Request(t, c, "tools/call",
		fmt.Sprintf(`{"name":"box__raw","arguments":{"lines":%s},"_meta":{"progressToken":9007199254740993}}`, bytes.TrimSpace(b.Bytes())))
}

// AwaitMessages waits until enough returns true for the messages that were received since mark. It
// returns these messages, one a line.
func AwaitMessages(t *testing.T, c *mcptest.Client, mark int,
	enough func(seen string) bool) string {
	t.Helper()
	seen := ""
	_, err := c.Await(Context(t), mark, func(m mcptest.Message) bool {
		seen += string(m.Raw) + "\n"
		return enough(seen)
	})
	if err != nil {
		t.Fatalf("%v; the client received %s", err, seen)
	}
	return seen
}

// Clip returns at most 1,500 bytes of a message, for a test's output.
func Clip(b []byte) string {
	if len(b) > 1500 {
		return fmt.Sprintf("%s… (%d bytes)", b[:1500], len(b))
	}
	return string(b)
}

// ListAll requests all pages of a list and returns the items. The parameter what is the name of the
// member that has the items.
func ListAll(t *testing.T, c *mcptest.Client, method, what string) (all []json.RawMessage) {
	t.Helper()
	for params := `{}`; ; {
		m := Request(t, c, method, params)
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Raw)
		}
		var page []json.RawMessage
		json.Unmarshal(mcptest.At(m.Result, what), &page)
		all = slices.Concat(all, page)
		next := mcptest.At(m.Result, "nextCursor")
		if next == nil {
			return all
		}
		params = fmt.Sprintf(`{"cursor":%s}`, next)
	}
}
