package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// HTTP is a connection to a Streamable HTTP server. For a legacy client, it takes the session id
// from the answer to initialize, and opens the GET stream after notifications/initialized. For a
// modern request, it repeats fields of the body in headers. It replaces an answer that is not a
// message by an error message with code 0 and the HTTP status as its text.
//
// Each request has Canary as a cookie. A gateway must not send it on: a Server refuses requests
// that have it.
type HTTP struct {
	URL    string
	Header http.Header // sent with every request
	// NoStream means that a legacy client opens no GET stream, like some real clients.
	NoStream bool
	// Answered, if set, is called with the answer to each POST, before its body is read.
	Answered func(*http.Response)
	// Unanswered, if set, is called when the connection of a POST broke before its answer.
	Unanswered func(posted Message, err error)
	// StreamRefused, if set, is called when the GET stream of a legacy client is not opened.
	StreamRefused func(err error)

	client  *http.Client
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	in      chan []byte

	mu       sync.Mutex // guards the fields below
	session  string
	version  string
	inFlight map[string]context.CancelFunc // by the id of the request
}

// Canary is a credential that only clients may send. It is in a cookie of each HTTP connection, and
// tests can put it into the environment of a gateway, as the variable SECRET_OF_THE_USER.
const Canary = "must-not-reach-a-server"

// NewHTTP returns a connection to a URL. It sends nothing yet.
func NewHTTP(url string) *HTTP {
	ctx, cancel := context.WithCancel(context.Background())
	return &HTTP{URL: url, Header: http.Header{"Cookie": {"canary=" + Canary}},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, ctx: ctx,
		cancel: cancel,
		in:     make(chan []byte), inFlight: map[string]context.CancelFunc{}}
}

// Read returns the next message of any stream.
func (h *HTTP) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-h.in:
		return b, nil
	case <-h.ctx.Done():
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write posts b. If b is a request, Write posts it in the background, and Read returns the answer.
// If b is any other message, Write waits for the response.
func (h *HTTP) Write(_ context.Context, b []byte) error {
	m, _ := Parse(b)
	ctx, cancel := context.WithCancel(h.ctx)
	if !m.IsRequest() {
		defer cancel()
		err := h.post(ctx, b, m)
		if m.Method == "notifications/initialized" && !h.NoStream {
			h.running.Go(func() { h.listen(h.ctx) })
		}
		return err
	}
	h.mu.Lock()
	h.inFlight[string(m.ID)] = cancel
	h.mu.Unlock()
	h.running.Go(func() {
		defer cancel()
		if err := h.post(ctx, b, m); err != nil && ctx.Err() == nil {
			h.deliver(failure(m, err.Error()))
		}
	})
	return nil
}

func failure(m Message, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":0,"message":%s}}`,
		orNull(m.ID), Quote(text))
}

// Drop closes the connection of a request. A modern client cancels a request over HTTP in this way.
func (h *HTTP) Drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inFlight[id]()
}

// Session returns the id of the legacy session.
func (h *HTTP) Session() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

func (h *HTTP) request(ctx context.Context, method string, body []byte,
	m Message) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, h.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = h.Header.Clone()
	set := func(k, v string) {
		if v != "" && r.Header.Get(k) == "" {
			r.Header.Set(k, v)
		}
	}
	set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		set("Content-Type", "application/json")
	} else {
		r.Header.Set("Accept", "text/event-stream")
	}
	if v := Text(m.Params, "_meta", metaVersion); v != "" {
		set("Mcp-Protocol-Version", v)
		set("Mcp-Method", m.Method)
		switch m.Method {
		case "tools/call", "prompts/get":
			set("Mcp-Name", Text(m.Params, "name"))
		case "resources/read":
			set("Mcp-Name", Text(m.Params, "uri"))
		}
		return r, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	set("Mcp-Session-Id", h.session)
	set("Mcp-Protocol-Version", h.version)
	return r, nil
}

func (h *HTTP) post(ctx context.Context, b []byte, m Message) error {
	r, err := h.request(ctx, http.MethodPost, b, m)
	if err != nil {
		return err
	}
	resp, err := h.client.Do(r)
	if err != nil {
		if h.Unanswered != nil && ctx.Err() == nil {
			h.Unanswered(m, err)
		}
		return err
	}
	defer resp.Body.Close()
	if h.Answered != nil {
		h.Answered(resp)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); m.Method == "initialize" && id != "" {
		h.mu.Lock()
		h.session = id
		h.mu.Unlock()
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return h.events(resp.Body, m)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if _, err := Parse(body); err != nil && (m.IsRequest() || resp.StatusCode >= 300) {
		return fmt.Errorf("HTTP %s: %s", resp.Status, bytes.TrimSpace(body))
	}
	if len(body) > 0 {
		h.learnRevision(m, body)
		h.deliver(body)
	}
	return nil
}

// learnRevision takes the session's revision from the answer to initialize.
func (h *HTTP) learnRevision(m Message, answer []byte) {
	if m.Method == "initialize" {
		a, _ := Parse(answer)
		h.mu.Lock()
		h.version = Text(a.Result, "protocolVersion")
		h.mu.Unlock()
	}
}

// listen reads the session's GET stream, if the server offers one.
func (h *HTTP) listen(ctx context.Context) {
	r, err := h.request(ctx, http.MethodGet, nil, Message{})
	if err != nil {
		return
	}
	resp, err := h.client.Do(r)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			h.events(resp.Body, Message{})
			return
		}
		body, _ := io.ReadAll(resp.Body)
		err = fmt.Errorf("HTTP %s: %s", resp.Status, bytes.TrimSpace(body))
	}
	if h.StreamRefused != nil && ctx.Err() == nil {
		h.StreamRefused(err)
	}
}

func (h *HTTP) events(r io.Reader, m Message) error {
	br := bufio.NewReader(r)
	var data [][]byte
	for {
		line, err := br.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if d, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(d, []byte(" ")))
		} else if len(line) == 0 && len(data) > 0 {
			if b := bytes.Join(data, []byte("\n")); len(b) > 0 {
				h.learnRevision(m, b)
				h.deliver(b)
			}
			data = nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (h *HTTP) deliver(b []byte) {
	select {
	case h.in <- b:
	case <-h.ctx.Done():
	}
}

// Close ends the legacy session, if there is one, and drops all connections.
func (h *HTTP) Close() error {
	if h.Session() != "" {
		if r, err := h.request(context.Background(), http.MethodDelete, nil,
			Message{}); err == nil {
			if resp, err := h.client.Do(r); err == nil {
				resp.Body.Close()
			}
		}
	}
	h.Vanish()
	return nil
}

// Vanish closes all connections without ending the session. A client that is killed does this, and
// so do many clients when they end.
func (h *HTTP) Vanish() {
	h.cancel()
	h.running.Wait()
	h.client.CloseIdleConnections()
}
