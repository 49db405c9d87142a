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

// httpSession is a session over HTTP. Messages that belong to no call wait in queue for a GET
// stream.
type httpSession struct {
	*session
	id      string // "" for the session of all modern requests
	context context.Context
	end     context.CancelFunc
	queue   chan []byte
}

// ServeHTTP serves Streamable HTTP: legacy sessions with an id, a GET stream and DELETE, and modern
// requests. It refuses requests with Canary in a header or in the URL.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(fmt.Sprint(r.Header, r.URL), Canary) {
		http.Error(w, "the request has a credential of a client", http.StatusTeapot)
		return
	}
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
		} else if fault := s.headerFault(r.Header, m); fault != "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":%s}}`, m.ID,
				Quote(fault))
		} else if m.IsRequest() {
			ses.answer(w, r, m)
		} else {
			ses.receive(m)
			w.WriteHeader(http.StatusAccepted)
		}
	case http.MethodGet:
		if ses := s.find(id, Message{}); id == "" || ses == nil {
			http.Error(w, "no stream here", http.StatusMethodNotAllowed)
		} else {
			ses.stream(w, r)
		}
	case http.MethodDelete:
		s.EndSessions(id)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// headerFault returns a description of the fault in the headers of a POST, or "" if there is none.
// A modern request must repeat fields of its body in headers. A legacy message after initialize
// must name a revision, if the server's newest revision demands this.
func (s *Server) headerFault(h http.Header, m Message) string {
	want := map[string]string{}
	if v := Text(m.Params, "_meta", metaVersion); v != "" {
		want["Mcp-Protocol-Version"], want["Mcp-Method"] = v, m.Method
		switch m.Method {
		case "tools/call", "prompts/get":
			want["Mcp-Name"] = Text(m.Params, "name")
		case "resources/read":
			want["Mcp-Name"] = Text(m.Params, "uri")
		}
	} else if m.Method != "initialize" && m.Method != "" && h.Get("Mcp-Protocol-Version") == "" &&
		s.Revisions[0] >= "2025-06-18" {
		return "no MCP-Protocol-Version"
	}
	for name, v := range want {
		got := h.Get(name)
		if enc, ok := strings.CutPrefix(got, "=?base64?"); ok {
			b, _ := base64.StdEncoding.DecodeString(strings.TrimSuffix(enc, "?="))
			got = string(b)
		}
		if got != v {
			return fmt.Sprintf("header %s is %q, but the body has %q", name, got, v)
		}
	}
	return ""
}

// find returns the session of a message. For initialize it opens a new session. All modern requests
// share the session "". If no session has the id, find returns nil.
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
		s.sessionCount++
		id = fmt.Sprintf("session-%d", s.sessionCount)
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

// EndSessions ends the legacy session with the id, or all legacy sessions if id is "". The next
// request of an ended session gets 404, as after a restart of the server.
func (s *Server) EndSessions(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ses := range s.sessions {
		if i != "" && (i == id || id == "") {
			delete(s.sessions, i)
			ses.end()
		}
	}
}

// OpenSessions returns the number of open legacy sessions.
func (s *Server) OpenSessions() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.sessions {
		if id != "" {
			n++
		}
	}
	return n
}

// answer runs a request. The response is a JSON body if the answer is its only message, otherwise
// an event stream.
func (h *httpSession) answer(w http.ResponseWriter, r *http.Request, m Message) {
	if h.id != "" {
		w.Header().Set("Mcp-Session-Id", h.id)
	}
	// a legacy call continues when its connection drops
	ctx, cancel := context.WithCancel(h.context)
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
	done.Go(call.run) // in a separate goroutine, because Ask may end the goroutine
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
