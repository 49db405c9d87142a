package mcptest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// httpSession is a session that outlives a request: what belongs to no call waits for a GET stream.
type httpSession struct {
	*session
	id      string // "" is the one that all modern requests share
	context context.Context
	end     context.CancelFunc
	queue   chan []byte
}

// ServeHTTP is Streamable HTTP: legacy sessions with an id, a GET stream and a DELETE; modern
// requests without.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")
	switch r.Method {
	case http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		m, err := Parse(body)
		if err != nil {
			http.Error(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`, http.StatusBadRequest)
			return
		}
		if ses := s.find(id, m); ses == nil {
			http.Error(w, "unknown session", http.StatusNotFound)
		} else if fault := headerFault(r.Header, m); fault != "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":%s}}`, m.ID,
				Quote(fault))
		} else if m.IsRequest() {
			ses.answer(w, r, m)
		} else {
			ses.take(m)
			w.WriteHeader(http.StatusAccepted)
		}
	case http.MethodGet:
		if ses := s.find(id, Message{}); id == "" || ses == nil {
			http.Error(w, "no stream here", http.StatusMethodNotAllowed)
		} else {
			ses.stream(w, r)
		}
	case http.MethodDelete:
		s.Forget(id)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// headerFault says what the revision wants of a POST's headers and does not find; a proxy must get
// them right.
func headerFault(h http.Header, m Message) string {
	want := map[string]string{}
	if v := Text(m.Params, "_meta", metaVersion); v != "" {
		want["Mcp-Protocol-Version"], want["Mcp-Method"] = v, m.Method
		switch m.Method {
		case "tools/call", "prompts/get":
			want["Mcp-Name"] = Text(m.Params, "name")
		case "resources/read":
			want["Mcp-Name"] = Text(m.Params, "uri")
		}
	} else if m.Method != "initialize" && m.Method != "" && h.Get("Mcp-Protocol-Version") == "" {
		return "no MCP-Protocol-Version"
	}
	for name, v := range want {
		got := h.Get(name)
		if enc, ok := strings.CutPrefix(got, "=?base64?"); ok {
			b, _ := base64.StdEncoding.DecodeString(strings.TrimSuffix(enc, "?="))
			got = string(b)
		}
		if got != v {
			return fmt.Sprintf("header %s is %q, the body says %q", name, got, v)
		}
	}
	if got := h.Get("Authorization"); strings.Contains(got, "client-secret") {
		return "the client's own credentials came through"
	}
	return ""
}

// find is the session of a message; initialize opens one.
func (s *Server) find(id string, m Message) *httpSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.sessions[id]; ses != nil && m.Method != "initialize" {
		return ses
	}
	if id != "" || m.Method != "initialize" && Text(m.Params, "_meta", metaVersion) == "" {
		return nil
	}
	if m.Method == "initialize" {
		s.minted++
		id = fmt.Sprintf("session-%d", s.minted)
	}
	ctx, end := context.WithCancel(context.Background())
	ses := &httpSession{id: id, context: ctx, end: end, queue: make(chan []byte, 256)}
	ses.session = s.session(func(b []byte) { ses.queue <- bytes.Clone(b) })
	if s.sessions == nil {
		s.sessions = map[string]*httpSession{}
	}
	s.sessions[id] = ses
	return ses
}

// Forget ends legacy sessions as a server does that was started anew: their next requests get 404.
// Without an id it forgets all.
func (s *Server) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ses := range s.sessions {
		if i != "" && (i == id || id == "") {
			delete(s.sessions, i)
			ses.end()
		}
	}
}

// Open is the number of legacy sessions that are open.
func (s *Server) Open() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.sessions {
		if id != "" {
			n++
		}
	}
	return n
}

// answer runs a request: it answers with a plain body when the answer is all there is to send, else
// with an event stream.
func (h *httpSession) answer(w http.ResponseWriter, r *http.Request, m Message) {
	if h.id != "" {
		w.Header().Set("Mcp-Session-Id", h.id)
	}
	ctx, cancel := context.WithCancel(h.context) // a legacy call goes on when its connection drops
	defer cancel()
	if h.id == "" {
		defer context.AfterFunc(r.Context(), cancel)()
	}
	var mu sync.Mutex // guards w and streaming
	streaming := false
	out := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if a, err := Parse(b); !streaming && err == nil && a.Method == "" && bytes.Equal(a.ID,
			m.ID) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(b)
			return
		}
		streaming = true
		w.Header().Set("Content-Type", "text/event-stream")
		writeEvent(w, b)
	}
	died := false
	call := h.call(ctx, m, out, func() { died = true })
	var done sync.WaitGroup
	done.Go(call.run) // not here: Ask ends its goroutine
	done.Wait()
	if died {
		panic(http.ErrAbortHandler)
	}
}

func (h *httpSession) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case b := <-h.queue:
			writeEvent(w, b)
		case <-r.Context().Done():
			return
		case <-h.context.Done():
			return
		}
	}
}

func writeEvent(w http.ResponseWriter, b []byte) {
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		fmt.Fprintf(w, "data: %s\n", line)
	}
	fmt.Fprint(w, "\n")
	w.(http.Flusher).Flush()
}
