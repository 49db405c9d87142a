package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// Conn carries whole messages in both directions, as raw bytes.
type Conn interface {
	Read(ctx context.Context) ([]byte, error) // io.EOF when the other side has closed
	Write(ctx context.Context, b []byte) error
	Close() error
}

// Pipe returns the two ends of a connection within the process. Closing one end closes both.
func Pipe() (Conn, Conn) {
	ab, ba := make(chan []byte, 16), make(chan []byte, 16)
	done, once := make(chan struct{}), new(sync.Once)
	return &pipeEnd{ab, ba, done, once}, &pipeEnd{ba, ab, done, once}
}

type pipeEnd struct {
	in   <-chan []byte
	out  chan<- []byte
	done chan struct{}
	once *sync.Once
}

func (e *pipeEnd) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-e.in:
		return b, nil
	default:
	}
	select {
	case b := <-e.in:
		return b, nil
	case <-e.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *pipeEnd) Write(ctx context.Context, b []byte) error {
	select {
	case e.out <- bytes.Clone(b):
		return nil
	case <-e.done:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *pipeEnd) Close() error {
	e.once.Do(func() { close(e.done) })
	return nil
}

// Lines returns a connection with one message per line, as over stdio. Its Read ignores the
// context. To end a Read, close r.
func Lines(r io.Reader, w io.Writer) Conn { return &lines{r: bufio.NewReaderSize(r, 64<<10), w: w} }

type lines struct {
	r  *bufio.Reader
	mu sync.Mutex // held while a line is written
	w  io.Writer
}

func (l *lines) Read(context.Context) ([]byte, error) {
	for {
		b, err := l.r.ReadBytes('\n')
		if b = bytes.TrimRight(b, "\r\n"); len(b) > 0 {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (l *lines) Write(_ context.Context, b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(append(bytes.Clone(b), '\n'))
	return err
}

func (l *lines) Close() error {
	if c, ok := l.w.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Process is a connection to the stdin and stdout of a child process.
type Process struct {
	Conn
	cmd  *exec.Cmd
	wait func() error
}

// Command starts cmd and returns a connection to its stdin and stdout.
func Command(cmd *exec.Cmd) (*Process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Wait would close the pipe of cmd.StdoutPipe before all output was read.
	stdout, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		stdout.Close()
		return nil, err
	}
	return &Process{Lines(stdout, stdin), cmd, sync.OnceValue(cmd.Wait)}, nil
}

// PID returns the process id of the child.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits until the child has ended. Unlike Close, it does not close the child's stdin.
func (p *Process) Wait() error { return p.wait() }

// Close closes the child's stdin and waits until it has ended.
func (p *Process) Close() error {
	p.Conn.Close()
	return p.wait()
}

// Message is a JSON-RPC message, parsed leniently.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Raw    []byte          `json:"-"` // the received or sent bytes
}

// IsRequest reports whether the message has a method and an id.
func (m Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// Parse parses b leniently. Raw is set even if Parse returns an error.
func Parse(b []byte) (m Message, err error) {
	err = json.Unmarshal(b, &m)
	m.Raw = b
	return m, err
}

// At returns the raw value in v at a path of member names and array indices. It returns nil if
// there is no such value.
func At(v json.RawMessage, path ...any) json.RawMessage {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			var o map[string]json.RawMessage
			json.Unmarshal(v, &o)
			v = o[p]
		case int:
			var a []json.RawMessage
			json.Unmarshal(v, &a)
			if p >= len(a) {
				return nil
			}
			v = a[p]
		default:
			panic(fmt.Sprintf("a path has strings and ints, but got %T", p))
		}
	}
	return v
}

// Text returns the string in v at a path, or "" if there is no string.
func Text(v json.RawMessage, path ...any) (s string) {
	json.Unmarshal(At(v, path...), &s)
	return s
}

// Quote returns s as a JSON string.
func Quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	return string(bytes.TrimSpace(b.Bytes()))
}
