package plugins

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gatekit/transport/process"
)

// runner runs a plugin's process the way that Gatekit runs processes; go-plugin's own gives it our
// stdin, and leaves its children behind. It implements go-plugin's runner.Runner.
type runner struct {
	command process.Command
	sockets string // the folder that its socket has to be in
	stdout  *os.File

	// guards what follows; what belongs to a process that runs may read process without it
	mu      sync.Mutex
	process *process.Process // nil until it runs
	killed  bool
}

func (r *runner) Start(context.Context) error {
	ours, its, err := os.Pipe()
	if err != nil {
		return err
	}
	defer its.Close()
	r.stdout = ours
	r.command.Stdout = its
	r.command.Exited = func() { ours.SetReadDeadline(time.Now().Add(process.AfterExit)) }
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		ours.Close()
		return errors.New("it was given up before it was started")
	}
	if r.process, err = process.Start(r.command); err != nil {
		ours.Close()
	}
	return err
}

// Wait waits until the process is gone, and nothing of its group is left.
func (r *runner) Wait(context.Context) error {
	<-r.process.Done()
	r.stdout.Close()
	if how := r.process.How(); how != "exited with status 0" {
		return errors.New(how)
	}
	return nil
}

func (r *runner) Kill(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if r.process != nil {
		r.process.Signal(syscall.SIGKILL)
	}
	return nil
}

// how says how the process ended, and its last words.
func (r *runner) how() error {
	if r.pid() == 0 {
		return nil
	}
	select {
	case <-r.process.Done():
	case <-time.After(process.AfterExit):
		return errors.New("it does not answer")
	}
	words := r.process.LastWords(10)
	if words == "" {
		return errors.New("it " + r.process.How())
	}
	return fmt.Errorf("it %s; the end of its stderr:\n%s", r.process.How(), words)
}

// PluginToHost refuses a plugin that wants us to connect to anything but a socket in the folder
// that it was given.
func (r *runner) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || filepath.Dir(filepath.Clean(address)) != filepath.Clean(r.sockets) {
		return "", "", fmt.Errorf("it wants to be reached at %s %q, which is no socket in the "+
			"folder that PLUGIN_UNIX_SOCKET_DIR names", network, address)
	}
	return network, address, nil
}

func (r *runner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// Stdout is the line that says where the plugin is. What follows is no concern of go-plugin's,
// which would stop reading at a line that is too long.
func (r *runner) Stdout() io.ReadCloser {
	return &firstLine{from: bufio.NewReaderSize(r.stdout, maxHandshake), rest: r.process.Drain}
}

// it is logged by process
func (r *runner) Stderr() io.ReadCloser           { return io.NopCloser(strings.NewReader("")) }
func (r *runner) Name() string                    { return r.command.What }
func (r *runner) ID() string                      { return strconv.Itoa(r.pid()) }
func (r *runner) Diagnose(context.Context) string { return "" }

func (r *runner) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return 0
	}
	return r.process.Pid()
}

// maxHandshake is the longest line that go-plugin's handshake may be: a certificate is in it.
const maxHandshake = 64 << 10

// firstLine reads one line, and hands the rest to rest.
type firstLine struct {
	from *bufio.Reader
	rest func(io.Reader)
	line *bytes.Reader // nil before it was read
}

func (f *firstLine) Read(p []byte) (int, error) {
	if f.line == nil {
		line, _ := f.from.ReadSlice('\n') // one that is too long is no handshake
		f.line = bytes.NewReader(bytes.Clone(line))
		go f.rest(f.from)
	}
	return f.line.Read(p)
}

func (f *firstLine) Close() error { return nil }
