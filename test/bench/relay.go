//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
)

// The relay is the proxy that Gatekit is compared with. It does the least that a proxy of whole
// messages must do. It buffers a message, finds the members of the envelope without validation,
// forwards the message with a new id, and restores the client's id in the answer.

// buffers are the buffers of one call. The relay reuses them: otherwise it would spend most of its
// time in the garbage collector.
type buffers struct {
	msg, out     []byte // from the client; to the server
	answer, back []byte // from the server; to the client
}

// forwardFunc sends b.msg to the server and stores the answer in b.answer, which is empty for a
// notification. It returns the session id of the server's response.
type forwardFunc func(h http.Header, b *buffers) (session string, err error)

// serveRelayHTTP serves HTTP on a free port until stdin ends. It prints the address first.
func serveRelayHTTP(forward forwardFunc) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	pool := sync.Pool{New: func() any { return new(buffers) }}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := pool.Get().(*buffers)
		defer pool.Put(b)
		var err error
		if b.msg, err = appendBody(b.msg[:0], r.Body, r.ContentLength); err != nil {
			return
		}
		session, err := forward(r.Header, b)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if session != "" {
			w.Header().Set("Mcp-Session-Id", session)
		}
		if len(b.answer) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		b.back = withID(b.back[:0], b.answer, string(member(b.msg, "id")))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(b.back)))
		w.Write(b.back)
	}))
}

// forwardedHeaders are the headers that the relay copies from the client's request.
var forwardedHeaders = []string{"Content-Type", "Accept", "Mcp-Protocol-Version", "Mcp-Session-Id",
	"Mcp-Method", "Mcp-Name"}

// forwardToHTTP returns a function that forwards to a URL.
func forwardToHTTP(url string) forwardFunc {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	var lastID atomic.Int64
	return func(h http.Header, b *buffers) (session string, err error) {
		b.out = withNewID(b.out, b.msg, lastID.Add(1))
		req, err := http.NewRequest("POST", url, bytes.NewReader(b.out))
		if err != nil {
			return "", err
		}
		for _, name := range forwardedHeaders {
			if v, ok := h[name]; ok {
				req.Header[name] = v
			}
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b.answer, err = appendBody(b.answer[:0], res.Body, res.ContentLength)
		return res.Header.Get("Mcp-Session-Id"), err
	}
}

// withNewID returns msg with the id n, and reuses the memory of dst. If msg is a notification, it
// gets no id.
func withNewID(dst, msg []byte, n int64) []byte {
	if len(member(msg, "id")) == 0 {
		return append(dst[:0], msg...)
	}
	return withID(dst[:0], msg, strconv.FormatInt(n, 10))
}

// forwardToStdio starts a child process and returns a function that forwards to it.
func forwardToStdio(command []string) (forwardFunc, error) {
	stdin, stdout, err := startChild(command)
	if err != nil {
		return nil, err
	}
	type call struct {
		b    *buffers
		done chan struct{}
	}
	var (
		lastID  atomic.Int64
		writeMu sync.Mutex
		calls   sync.Map // in flight, by the relay's id
	)
	go func() {
		for in := newLineReader(stdout); ; {
			line, err := in.next()
			if err != nil {
				os.Exit(0)
			}
			if c, ok := calls.LoadAndDelete(string(member(line, "id"))); ok {
				c := c.(call)
				c.b.answer = append(c.b.answer[:0], line...)
				close(c.done)
			}
		}
	}()
	return func(_ http.Header, b *buffers) (string, error) {
		id := lastID.Add(1)
		b.out = append(withNewID(b.out, b.msg, id), '\n')
		b.answer = b.answer[:0]
		c := call{b, make(chan struct{})}
		if len(member(b.msg, "id")) > 0 {
			calls.Store(strconv.FormatInt(id, 10), c)
		} else {
			close(c.done)
		}
		writeMu.Lock()
		_, err := stdin.Write(b.out)
		writeMu.Unlock()
		if err != nil {
			return "", err
		}
		<-c.done
		return "", nil
	}, nil
}

// serveRelayStdio relays stdin and stdout to a child process.
func serveRelayStdio(command []string) error {
	stdin, stdout, err := startChild(command)
	if err != nil {
		return err
	}
	var clientIDs sync.Map // by the relay's id
	ended := make(chan error, 2)
	go func() {
		var buf []byte
		lastID := 0
		for in := newLineReader(inheritedPipe(os.Stdin)); ; {
			line, err := in.next()
			if err != nil {
				ended <- stdin.Close()
				return
			}
			if id := member(line, "id"); len(id) == 0 {
				buf = append(buf[:0], line...)
			} else {
				lastID++
				own := strconv.Itoa(lastID)
				clientIDs.Store(own, string(id))
				buf = withID(buf[:0], line, own)
			}
			buf = append(buf, '\n')
			if _, err := stdin.Write(buf); err != nil {
				ended <- err
				return
			}
		}
	}()
	go func() {
		var buf []byte
		out := inheritedPipe(os.Stdout)
		for in := newLineReader(stdout); ; {
			line, err := in.next()
			if err != nil {
				ended <- nil
				return
			}
			id, ok := clientIDs.LoadAndDelete(string(member(line, "id")))
			if !ok {
				continue
			}
			buf = append(withID(buf[:0], line, id.(string)), '\n')
			if _, err := out.Write(buf); err != nil {
				ended <- err
				return
			}
		}
	}()
	return errors.Join(<-ended, <-ended)
}

// startChild starts a stdio server.
func startChild(command []string) (stdin, stdout *os.File, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	return startPiped(cmd)
}
