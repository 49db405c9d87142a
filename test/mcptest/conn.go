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

// Conn carries whole messages both ways, as raw bytes. Its methods are those of core's Pipes.
type Conn interface {
	Read(ctx context.Context) ([]byte, error) // io.EOF when the other side is gone
	Write(ctx context.Context, b []byte) error
	Close() error
}

// Pipe is a connection in process: what is written at one end is read at the other. Closing either
// closes both.
func Pipe() (Conn, Conn) {
	ab, ba := make(chan []byte, 16), make(chan []byte, 16)
	done, once := make(chan struct{}), new(sync.Once)
	return &end{ab, ba, done, once}, &end{ba, ab, done, once}
}

type end struct {
	in   <-chan []byte
	out  chan<- []byte
	done chan struct{}
	once *sync.Once
}

func (e *end) Read(ctx context.Context) ([]byte, error) {
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

func (e *end) Write(ctx context.Context, b []byte) error {
	select {
	case e.out <- bytes.Clone(b):
		return nil
	case <-e.done:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *end) Close() error {
	e.once.Do(func() { close(e.done) })
	return nil
}

// Lines is a connection of lines: stdio. Read does not heed its context; closing the reader ends
// it.
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

// Process is a connection to a child's stdin and stdout.
type Process struct {
	Conn
	cmd  *exec.Cmd
	wait func() error
}

// Command starts cmd, whose stdin and stdout become the connection.
func Command(cmd *exec.Cmd) (*Process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, w, err := os.Pipe() // not cmd's own: its Wait would cut off what was not read yet
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

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits until the child has ended, as Close does, but leaves its stdin open.
func (p *Process) Wait() error { return p.wait() }

// Close closes the child's stdin and waits until it has ended.
func (p *Process) Close() error {
	p.Conn.Close()
	return p.wait()
}

// Message is a JSON-RPC message, loosely read.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Raw    []byte          `json:"-"` // as it came
}

// IsRequest says whether the message wants an answer.
func (m Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// Parse reads b as far as it can.
func Parse(b []byte) (m Message, err error) {
	err = json.Unmarshal(b, &m)
	m.Raw = b
	return m, err
}

// At is the raw value at a path of member names and array indices in v; nil when there is none.
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
			panic(fmt.Sprintf("a path holds strings and ints, not %T", p))
		}
	}
	return v
}

// Text is the string at a path; "" when there is none.
func Text(v json.RawMessage, path ...any) (s string) {
	json.Unmarshal(At(v, path...), &s)
	return s
}

// Quote is s as JSON.
func Quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	return string(bytes.TrimSpace(b.Bytes()))
}
