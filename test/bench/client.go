//go:build linux

package main

import (
	"bufio"
	"bytes"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
)

// era is a group of protocol revisions: legacy or modern.
type era string

const (
	legacy era = "legacy" // has initialize, and sessions over HTTP
	modern era = "modern" // every request is independent
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
	modernMeta    = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion +
		`","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
)

// message is a request without its id, or a notification.
type message struct {
	method, name string // name is the name of the tool, if any
	params       string // the members of params
	notify       bool   // the message is a notification
}

// append appends the message in the form of the era to dst.
func (m message) append(dst []byte, e era, id int) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if !m.notify {
		dst = append(strconv.AppendInt(append(dst, `"id":`...), int64(id), 10), ',')
	}
	dst = append(append(append(dst, `"method":"`...), m.method...), `","params":{`...)
	dst = append(dst, m.params...)
	if e == modern {
		if m.params != "" {
			dst = append(dst, ',')
		}
		dst = append(dst, modernMeta...)
	}
	return append(dst, "}}"...)
}

var (
	initialize = message{method: "initialize", params: `"protocolVersion":"` + legacyVersion +
		`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}`}
	initialized = message{method: "notifications/initialized", notify: true}
	listTools   = message{method: "tools/list"}
)

// echoCall returns a call of the echo tool with n bytes of text. The text has lines of 80
// characters, like most results of tools.
func echoCall(tool string, n int) message {
	line := `The quick brown fox jumps over the lazy dog, while 12 boxing wizards watch it.\n`
	text := strings.Repeat(line, n/len(line)+1)[:n]
	text = strings.TrimSuffix(text, `\`)
	return message{method: "tools/call", name: tool,
		params: `"name":"` + tool + `","arguments":{"text":"` + text + `"}`}
}

// client makes calls for its workers, which are numbered from 0. Each worker makes one call at a
// time.
type client interface {
	// do sends a message and returns the answer; nil for a notification. The answer is valid until
	// the worker's next call.
	do(worker int, m message) ([]byte, error)
	close() error
}

// call sends a message and returns the result of the answer. If the server answers with an error,
// call returns an error.
func call(c client, worker int, m message) ([]byte, error) {
	answer, err := c.do(worker, m)
	if err != nil || m.notify {
		return nil, err
	}
	result := member(answer, "result")
	if len(result) == 0 {
		return nil, fmt.Errorf("%s: no result: %.300s", m.method, answer)
	}
	return result, nil
}

// handshake opens a legacy session; a modern client has nothing to open.
func handshake(c client, e era) error {
	if e == modern {
		return nil
	}
	if _, err := call(c, 0, initialize); err != nil {
		return err
	}
	_, err := c.do(0, initialized)
	return err
}

// httpClient is a client over HTTP with one connection for each worker.
type httpClient struct {
	era     era
	url     *url.URL
	session string
	token   string // sent as a bearer token, unless it is empty
	workers []*httpWorker
}

// httpWorker is a connection with its reused buffers.
type httpWorker struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte // head of the request
	msg  []byte // body of the request
	in   []byte // body of the response
	id   int    // of the last message
}

// dialHTTP opens a connection for each worker.
func dialHTTP(address string, e era, workers int) (*httpClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	c := &httpClient{era: e, url: u}
	for i := range workers {
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.workers = append(c.workers, &httpWorker{conn: conn, r: bufio.NewReaderSize(conn, 64<<10),
			id: i})
	}
	return c, nil
}

// reconnect connects all workers to another URL. The session stays the same. No call may run.
func (c *httpClient) reconnect(to *url.URL) error {
	c.url = to
	for _, w := range c.workers {
		conn, err := net.Dial("tcp", to.Host)
		if err != nil {
			return err
		}
		w.conn.Close()
		w.conn = conn
		w.r.Reset(conn)
	}
	return nil
}

func (c *httpClient) do(worker int, m message) ([]byte, error) {
	w := c.workers[worker]
	w.id += len(c.workers) // each id is used only once in a session
	w.msg = m.append(w.msg[:0], c.era, w.id)
	w.out = append(w.out[:0], "POST "...)
	w.out = append(append(w.out, c.url.Path...), " HTTP/1.1\r\nHost: "...)
	w.out = append(append(w.out, c.url.Host...),
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"...)
	if c.token != "" {
		w.out = append(append(append(w.out, "Authorization: Bearer "...), c.token...), "\r\n"...)
	}
	if c.era == modern {
		w.out = append(append(w.out, "Mcp-Protocol-Version: "+modernVersion+"\r\nMcp-Method: "...),
			m.method...)
		if m.name != "" {
			w.out = append(append(w.out, "\r\nMcp-Name: "...), m.name...)
		}
		w.out = append(w.out, "\r\n"...)
	} else if m.method != initialize.method {
		w.out = append(w.out, "Mcp-Protocol-Version: "+legacyVersion+"\r\n"...)
		if c.session != "" {
			w.out = append(append(append(w.out, "Mcp-Session-Id: "...), c.session...), "\r\n"...)
		}
	}
	w.out = strconv.AppendInt(append(w.out, "Content-Length: "...), int64(len(w.msg)), 10)
	w.out = append(w.out, "\r\n\r\n"...)
	if _, err := (&net.Buffers{w.out, w.msg}).WriteTo(w.conn); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return nil, err
	}
	if w.in, err = appendBody(w.in[:0], res.Body, res.ContentLength); err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: status %s: %.300s", m.method, res.Status, w.in)
	}
	if m.method == initialize.method {
		c.session = res.Header.Get("Mcp-Session-Id")
	}
	if m.notify {
		return nil, nil
	}
	body := w.in
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		body = lastEvent(body)
	}
	if string(member(body, "id")) != strconv.Itoa(w.id) {
		return nil, fmt.Errorf("%s: want an answer with the id %d, got %.300s", m.method, w.id,
			body)
	}
	return body, nil
}

// lastEvent returns the data of the last event of an ended stream.
func lastEvent(stream []byte) []byte {
	i := bytes.LastIndex(stream, []byte("data:"))
	if i < 0 {
		return nil
	}
	line, _, _ := bytes.Cut(stream[i+len("data:"):], []byte("\n"))
	return line
}

// openStream holds the GET stream of the session open on a connection of its own.
func (c *httpClient) openStream() (io.Closer, error) {
	conn, err := net.Dial("tcp", c.url.Host)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: "+
		"text/event-stream\r\nMcp-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n\r\n",
		c.url.Path, c.url.Host, legacyVersion, c.session)
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET: status %s", res.Status)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c *httpClient) close() error {
	var errs []error
	for _, w := range c.workers {
		errs = append(errs, w.conn.Close())
	}
	return errors.Join(errs...)
}

// stdioClient is a client with one pair of pipes for all workers. The id of an answer tells which
// worker it is for.
type stdioClient struct {
	era     era
	out     *os.File
	writeMu sync.Mutex // held while a message is written
	workers []*stdioWorker
	closed  chan struct{} // closed when the server has closed its stdout
}

type stdioWorker struct {
	out      []byte
	in       []byte        // the last answer
	received chan struct{} // gets a value when in has an answer
	id       int
}

// dialStdio returns a client and starts to read the answers. in and out are the server's stdout and
// stdin.
func dialStdio(in io.Reader, out *os.File, e era, workers int) *stdioClient {
	c := &stdioClient{era: e, out: out, closed: make(chan struct{})}
	for i := range workers {
		c.workers = append(c.workers, &stdioWorker{received: make(chan struct{}, 1), id: i})
	}
	go func() {
		defer close(c.closed)
		for l := newLineReader(in); ; {
			line, err := l.next()
			if err != nil {
				return
			}
			id, err := strconv.Atoi(string(member(line, "id")))
			if err != nil || len(member(line, "method")) > 0 {
				continue
			}
			w := c.workers[id%workers]
			w.in = append(w.in[:0], line...)
			w.received <- struct{}{}
		}
	}()
	return c
}

func (c *stdioClient) do(worker int, m message) ([]byte, error) {
	w := c.workers[worker]
	w.id += len(c.workers)
	w.out = append(m.append(w.out[:0], c.era, w.id), '\n')
	c.writeMu.Lock()
	_, err := c.out.Write(w.out)
	c.writeMu.Unlock()
	if err != nil || m.notify {
		return nil, err
	}
	select {
	case <-w.received:
	case <-c.closed:
		return nil, fmt.Errorf("%s: the server has ended", m.method)
	}
	if string(member(w.in, "id")) != strconv.Itoa(w.id) {
		return nil, fmt.Errorf("%s: want an answer with the id %d, got %.300s", m.method, w.id,
			w.in)
	}
	return w.in, nil
}

// close closes the server's stdin. The goroutine that reads the answers ends with the server.
func (c *stdioClient) close() error { return c.out.Close() }

func randomID() string { return crand.Text() }
