package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// Limits of one server.
const (
	startTime = 60 * time.Second  // until it answers initialize
	totalTime = 120 * time.Second // until it has listed everything
	maxPages  = 50                // of one list
)

// server is one line of servers.jsonl: a server with its answers.
type server struct {
	Package string `json:"package"`
	Version string `json:"version"`
	Half    string `json:"half"`
	Maker   string `json:"maker"`
	Licence string `json:"licence"`
	listing
	// Problems are the errors of methods that failed.
	Problems map[string]string `json:"problems,omitempty"`
}

// listing has the raw answers of a server.
type listing struct {
	Initialize        json.RawMessage   `json:"initialize"` // the result of initialize
	Instructions      string            `json:"instructions,omitempty"`
	Tools             []json.RawMessage `json:"tools"`
	Prompts           []json.RawMessage `json:"prompts"`
	Resources         []json.RawMessage `json:"resources"`
	ResourceTemplates []json.RawMessage `json:"resourceTemplates"`
	failures          map[string]string // method → error
}

// lists are the list methods, with the members of their results.
var lists = []struct{ method, member, capability string }{
	{"tools/list", "tools", "tools"},
	{"prompts/list", "prompts", "prompts"},
	{"resources/list", "resources", "resources"},
	{"resources/templates/list", "resourceTemplates", "resources"},
}

// items returns the items of one list method.
func (l *listing) items(method string) *[]json.RawMessage {
	switch method {
	case "tools/list":
		return &l.Tools
	case "prompts/list":
		return &l.Prompts
	case "resources/list":
		return &l.Resources
	}
	return &l.ResourceTemplates
}

// process is a running program that speaks MCP over stdio.
type process struct {
	client *mcptest.Client
	conn   *mcptest.Process
	stderr *tail
}

// start starts a program in the folder home, in a process group of its own.
func start(command, env []string, home string) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Dir = env, home
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &process{stderr: &tail{limit: 16 << 10}}
	cmd.Stderr = p.stderr
	cmd.WaitDelay = time.Second
	var err error
	if p.conn, err = mcptest.Command(cmd); err != nil {
		return nil, err
	}
	p.client = mcptest.NewClient(p.conn, "2025-11-25")
	p.client.Answer["roots/list"] = func(mcptest.Message) string {
		return fmt.Sprintf(`{"roots":[{"uri":"file://%s","name":"home"}]}`, home)
	}
	return p, nil
}

// end ends the whole process group at once.
func (p *process) end() {
	syscall.Kill(-p.conn.PID(), syscall.SIGKILL)
	p.client.Close()
}

// finish closes stdin, gives the program a moment to end by itself, and then ends it.
func (p *process) finish(wait time.Duration) {
	p.conn.Conn.Close()
	ended := make(chan struct{})
	go func() {
		p.conn.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(wait):
	}
	p.end()
}

// open makes the handshake.
func (p *process) open(ctx context.Context) (listing, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	m, err := p.client.Open(ctx)
	if err == nil && m.Error != nil {
		err = errors.New(string(m.Error))
	}
	if err != nil {
		return listing{}, fmt.Errorf("initialize: %w: %s", err, clip(p.stderr.String(), 1500))
	}
	return listing{Initialize: m.Result, Instructions: text(m.Result, "instructions"),
		failures: map[string]string{}}, nil
}

// list makes the handshake and lists everything that the server's capabilities name.
func (p *process) list(ctx context.Context) (listing, error) {
	ctx, cancel := context.WithTimeout(ctx, totalTime)
	defer cancel()
	l, err := p.open(ctx)
	if err != nil {
		return l, err
	}
	for _, list := range lists {
		if mcptest.At(l.Initialize, "capabilities", list.capability) == nil {
			continue
		}
		items, err := p.pages(ctx, list.method, list.member)
		if err == nil && len(items) == 0 && list.method == "tools/list" {
			select { // some servers add their tools after the handshake
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
			}
			items, err = p.pages(ctx, list.method, list.member)
		}
		if err != nil {
			l.failures[list.method] = clip(err.Error(), 300)
		}
		*l.items(list.method) = items
	}
	return l, nil
}

// pages returns the items of all pages of a list.
func (p *process) pages(ctx context.Context, method, member string) (all []json.RawMessage,
	err error) {
	params := `{}`
	for range maxPages {
		m, err := p.client.Call(ctx, method, params)
		if err == nil && m.Error != nil {
			err = errors.New(string(m.Error))
		}
		if err != nil {
			return all, err
		}
		var items []json.RawMessage
		if err := json.Unmarshal(mcptest.At(m.Result, member), &items); err != nil {
			return all, fmt.Errorf("%s: the result has no array %q: %w", method, member, err)
		}
		all = append(all, items...)
		cursor := mcptest.At(m.Result, "nextCursor")
		if cursor == nil || string(cursor) == "null" {
			return all, nil
		}
		params = fmt.Sprintf(`{"cursor":%s}`, cursor)
	}
	return all, fmt.Errorf("%s has more than %d pages", method, maxPages)
}

// environment prepares an empty home folder below dir, and returns the variables of a server. None
// of the caller's variables but PATH are among them.
func environment(dir string, e entry) (home string, env []string, err error) {
	if home, err = os.MkdirTemp(dir, "home-"); err != nil {
		return "", nil, err
	}
	env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "NO_COLOR=1",
		"DO_NOT_TRACK=1"}
	for _, v := range e.env {
		env = append(env, strings.ReplaceAll(v, "HOME", home))
	}
	return home, env, nil
}

// command returns the command line of a server: this binary, which leaves the network and then runs
// node.
func command(e entry, mainFile, home string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := []string{self, "isolate", "node", "-r", filepath.Join(peers.Top(), "test", "servers",
		"offline.cjs"), mainFile}
	for _, a := range e.args {
		c = append(c, strings.ReplaceAll(a, "HOME", home))
	}
	return c, nil
}

// tail is a writer that keeps the last bytes. It can be read while a program writes.
type tail struct {
	limit int
	mu    sync.Mutex // guards b
	b     []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if n := len(t.b) - t.limit; n > 0 {
		t.b = t.b[n:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

var _ io.Writer = (*tail)(nil)

// text returns the string in v at a path, or "".
func text(v json.RawMessage, path ...any) string { return mcptest.Text(v, path...) }

// line returns v as one line of JSON. Unlike json.Marshal, line keeps <, > and & as they are.
func line(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// writeFile writes a file and its folders.
func writeFile(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
