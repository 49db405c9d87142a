package mcptest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Frame is one message on the client's connection.
type Frame struct {
	Sent bool // by the client
	Message
}

// Client is a scripted client. It keeps every message that it sends or receives, and answers the
// server's requests with the functions in Answer.
type Client struct {
	Revision     string // Modern, or a legacy revision
	Capabilities string // a JSON object
	Name         string // in clientInfo
	// Answer has a function for each method of reverse requests. The function gets the request and
	// returns the JSON of the result. If the request is a message, not a part of a result, the
	// function may also return "error:" and the JSON of an error object. Its calls may run
	// concurrently.
	Answer map[string]func(request Message) string

	conn   Conn
	cancel context.CancelFunc
	done   chan struct{} // closed when the reader has ended
	err    error         // why the reader has ended

	mu      sync.Mutex // guards the fields below
	frames  []Frame
	changed chan struct{} // closed and replaced with every frame
	lastID  int           // the last id that ID returned
}

// NewClient returns a client of conn and starts to read from it. Close ends the reader.
func NewClient(conn Conn, revision string) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{Revision: revision, Name: "mcptest",
		Capabilities: `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`, conn: conn, cancel: cancel,
		done: make(chan struct{}), changed: make(chan struct{})}
	c.Answer = map[string]func(Message) string{
		"ping": func(Message) string { return `{}` },
		"sampling/createMessage": func(Message) string {
			return `{"role":"assistant","content":{"type":"text","text":"sampled"},"model":"m"}`
		},
		"elicitation/create": func(Message) string {
			return `{"action":"accept","content":{"name":"a","n":1.0}}`
		},
		"roots/list": func(Message) string {
			return `{"roots":[{"uri":"file:///work","name":"work"}]}`
		},
	}
	go c.read(ctx)
	return c
}

func (c *Client) isModern() bool { return c.Revision >= Modern }

func (c *Client) read(ctx context.Context) {
	defer close(c.done)
	for {
		b, err := c.conn.Read(ctx)
		if err != nil {
			c.err = err
			return
		}
		m, err := Parse(bytes.Clone(b))
		if err != nil {
			m.Method = "not a message: " + err.Error()
		}
		c.record(Frame{Message: m})
		if m.IsRequest() {
			go func() { c.Send(c.reply(m)) }()
		}
	}
}

// reply returns the answer to a request of the server.
func (c *Client) reply(m Message) string {
	answer, ok := c.Answer[m.Method]
	if !ok {
		return fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
	}
	text := answer(m)
	if fault, ok := strings.CutPrefix(text, "error:"); ok {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, fault)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, text)
}

func (c *Client) record(f Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = append(c.frames, f)
	close(c.changed)
	c.changed = make(chan struct{})
}

// Frames returns all messages so far, in both directions, in order.
func (c *Client) Frames() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.frames)
}

// Mark returns the number of messages so far. Await and Reply take this number as their mark.
func (c *Client) Mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames)
}

// Send writes raw, byte for byte, to the connection.
func (c *Client) Send(raw string) error {
	m, _ := Parse([]byte(raw))
	c.record(Frame{Sent: true, Message: m})
	return c.conn.Write(context.Background(), []byte(raw))
}

// Await waits for a message for which match returns true. It returns the first such message that
// was received since mark.
func (c *Client) Await(ctx context.Context, mark int, match func(Message) bool) (Message, error) {
	for {
		c.mu.Lock()
		changed := c.changed
		for ; mark < len(c.frames); mark++ {
			if f := c.frames[mark]; !f.Sent && match(f.Message) {
				c.mu.Unlock()
				return f.Message, nil
			}
		}
		c.mu.Unlock()
		select {
		case <-changed:
		case <-c.done:
			if c.Mark() == mark {
				return Message{}, fmt.Errorf("the connection ended: %w", c.err)
			}
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}

// AwaitMethod waits for a notification or request with the method, received since mark.
func (c *Client) AwaitMethod(ctx context.Context, mark int, method string) (Message, error) {
	m, err := c.Await(ctx, mark, func(m Message) bool { return m.Method == method })
	if err != nil {
		err = fmt.Errorf("wait for %s: %w", method, err)
	}
	return m, err
}

// Request returns the text of a request in the form of the client's revision. params is a JSON
// object or "".
func (c *Client) Request(id, method, params string) string {
	if c.isModern() {
		params = c.withMeta(cmp.Or(params, `{}`))
	}
	if params != "" {
		params = `,"params":` + params
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%s%s}`, id, Quote(method), params)
}

// withMeta returns params with the members of _meta that a modern request needs.
func (c *Client) withMeta(params string) string {
	own := fmt.Sprintf(`%s:%s,%s:{"name":%s,"version":"1"},%s:%s`,
		Quote(metaVersion), Quote(c.Revision), Quote(metaClientInfo), Quote(c.Name),
		Quote(metaCapabilities), c.Capabilities)
	if At(json.RawMessage(params), "_meta") == nil {
		return member(params, "_meta", "{"+own+"}")
	}
	before, after, _ := strings.Cut(params, `"_meta":{`)
	if !strings.HasPrefix(strings.TrimSpace(after), "}") {
		own += ","
	}
	return before + `"_meta":{` + own + after
}

// ID returns a new request id. The ids are 1, 2, 3 and so on.
func (c *Client) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	return fmt.Sprint(c.lastID)
}

// Call sends a request and returns its answer. When a modern server requests input, Call sends the
// request again with the client's answers, until it gets a final result. If Answer lacks a function
// for a request of the server, Call returns the result that requests input.
func (c *Client) Call(ctx context.Context, method, params string) (Message, error) {
	for again := params; ; {
		m, err := c.Do(ctx, c.ID(), method, again)
		if err != nil || Text(m.Result, "resultType") != "input_required" {
			return m, err
		}
		var asked map[string]json.RawMessage
		json.Unmarshal(At(m.Result, "inputRequests"), &asked)
		answered := make(chan string, len(asked))
		for key, q := range asked {
			answer := c.Answer[Text(q, "method")]
			if answer == nil {
				return m, nil
			}
			go func() {
				answered <- Quote(key) + ":" + answer(Message{Method: Text(q, "method"),
					Params: At(q, "params"), Raw: q})
			}()
		}
		var answers []string
		for range asked {
			answers = append(answers, <-answered)
		}
		slices.Sort(answers)
		again = member(params, "inputResponses", "{"+strings.Join(answers, ",")+"}")
		if state := At(m.Result, "requestState"); state != nil {
			again = member(again, "requestState", string(state))
		}
	}
}

// Do sends one request with the given id and returns its answer.
func (c *Client) Do(ctx context.Context, id, method, params string) (Message, error) {
	mark := c.Mark()
	if err := c.Send(c.Request(id, method, params)); err != nil {
		return Message{}, err
	}
	return c.Reply(ctx, mark, id)
}

// Reply waits for the answer to the request with the id, received since mark.
func (c *Client) Reply(ctx context.Context, mark int, id string) (Message, error) {
	m, err := c.Await(ctx, mark, func(m Message) bool {
		return m.Method == "" && string(m.ID) == id
	})
	if err != nil {
		err = fmt.Errorf("wait for the answer to %s: %w", id, err)
	}
	return m, err
}

// Tool calls a tool and returns the answer.
func (c *Client) Tool(ctx context.Context, name, arguments string) (Message, error) {
	return c.Call(ctx, "tools/call", fmt.Sprintf(`{"name":%s,"arguments":%s}`, Quote(name),
		cmp.Or(arguments, `{}`)))
}

// Notify sends a notification.
func (c *Client) Notify(method, params string) error { return c.Send(notification(method, params)) }

// Open makes the handshake of the client's era: initialize and initialized, or server/discover. It
// returns the server's answer.
func (c *Client) Open(ctx context.Context) (Message, error) {
	if c.isModern() {
		return c.Call(ctx, "server/discover", "")
	}
	m, err := c.Call(ctx, "initialize",
		fmt.Sprintf(`{"protocolVersion":%s,"capabilities":%s,"clientInfo":{"name":%s,"version":"1"}}`, Quote(c.Revision), c.Capabilities, Quote(c.Name)))
	if err == nil && m.Error == nil {
		err = c.Notify("notifications/initialized", `{}`)
	}
	return m, err
}

// Session returns the id of the legacy session over HTTP; "" when there is none.
func (c *Client) Session() string {
	if h, ok := c.conn.(*HTTP); ok {
		return h.Session()
	}
	return ""
}

// Close closes the connection, waits for the reader, and returns the error of the connection's
// Close.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.cancel()
	<-c.done
	return err
}
