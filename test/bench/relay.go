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

// The relay is the reference: the least that a proxy of whole messages can do. It buffers a
// message, finds the members of its envelope without validating anything, forwards it under an id
// of its own, and puts the client's id into the answer.

// buffers of one call. They are used again: a relay that leaves its bodies to the collector spends
// most of its time there.
type buffers struct{ msg, out, answer, back []byte }

// forward sends b.msg and fills b.answer, which is empty when there is none; the session id is what
// the server said.
type forward func(h http.Header, b *buffers) (session string, err error)

// relayHTTP serves a port of its choice, which it prints, until stdin ends.
func relayHTTP(to forward) error {
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
		if b.msg, err = readBody(b.msg[:0], r.Body, r.ContentLength); err != nil {
			return
		}
		session, err := to(r.Header, b)
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

// forwarded are the headers that a client's request and a server's have in common.
var forwarded = []string{"Content-Type", "Accept", "Mcp-Protocol-Version", "Mcp-Session-Id",
	"Mcp-Method", "Mcp-Name"}

// toHTTP forwards to a URL.
func toHTTP(url string) forward {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	var minted atomic.Int64
	return func(h http.Header, b *buffers) (session string, err error) {
		b.out = mint(b.out, b.msg, minted.Add(1))
		req, err := http.NewRequest("POST", url, bytes.NewReader(b.out))
		if err != nil {
			return "", err
		}
		for _, name := range forwarded {
			if v, ok := h[name]; ok {
				req.Header[name] = v
			}
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b.answer, err = readBody(b.answer[:0], res.Body, res.ContentLength)
		return res.Header.Get("Mcp-Session-Id"), err
	}
}

// mint is msg under the id n, if it has one at all, in dst's memory.
func mint(dst, msg []byte, n int64) []byte {
	if len(member(msg, "id")) == 0 {
		return append(dst[:0], msg...)
	}
	return withID(dst[:0], msg, strconv.FormatInt(n, 10))
}

// toStdio forwards to a child process.
func toStdio(command []string) (forward, error) {
	stdin, stdout, err := child(command)
	if err != nil {
		return nil, err
	}
	type call struct {
		b    *buffers
		done chan struct{}
	}
	var (
		minted  atomic.Int64
		writing sync.Mutex
		waiting sync.Map // minted id -> call
	)
	go func() {
		for in := newLines(stdout); ; {
			line, err := in.next()
			if err != nil {
				os.Exit(0)
			}
			if c, ok := waiting.LoadAndDelete(string(member(line, "id"))); ok {
				c := c.(call)
				c.b.answer = append(c.b.answer[:0], line...)
				close(c.done)
			}
		}
	}()
	return func(_ http.Header, b *buffers) (string, error) {
		id := minted.Add(1)
		b.out = append(mint(b.out, b.msg, id), '\n')
		b.answer = b.answer[:0]
		c := call{b, make(chan struct{})}
		if len(member(b.msg, "id")) > 0 {
			waiting.Store(strconv.FormatInt(id, 10), c)
		} else {
			close(c.done)
		}
		writing.Lock()
		_, err := stdin.Write(b.out)
		writing.Unlock()
		if err != nil {
			return "", err
		}
		<-c.done
		return "", nil
	}, nil
}

// relayStdio relays stdin and stdout to a child process.
func relayStdio(command []string) error {
	stdin, stdout, err := child(command)
	if err != nil {
		return err
	}
	var clientIDs sync.Map // minted id -> the client's
	ended := make(chan error, 2)
	go func() {
		var buf []byte
		minted := 0
		for in := newLines(ownEnd(os.Stdin)); ; {
			line, err := in.next()
			if err != nil {
				ended <- stdin.Close()
				return
			}
			if id := member(line, "id"); len(id) == 0 {
				buf = append(buf[:0], line...)
			} else {
				minted++
				own := strconv.Itoa(minted)
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
		out := ownEnd(os.Stdout)
		for in := newLines(stdout); ; {
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

// child starts a server on large pipes.
func child(command []string) (stdin, stdout *os.File, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	return startPiped(cmd)
}
