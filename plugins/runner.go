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
	"sync/atomic"
	"syscall"
	"time"

	"gatekit/transport/process"
	"gatekit/transport/sandbox"
)

// runner runs a plugin's process with package transport/process. go-plugin's own runner would give
// Gatekit's stdin to the process, and would not kill the children of the process. runner implements
// go-plugin's runner.Runner.
type runner struct {
	command   process.Command
	socketDir string // folder that the plugin's socket must be in
	stdout    *os.File

	sandbox      Sandbox
	given        map[string]string // environment variables that the operator set
	onUnconfined func(*sandbox.UnsupportedError)
	box          *sandbox.Sandbox // nil if nothing confines the process
	hints        atomic.Int64     // see hint

	// mu guards the fields below. Methods that are called only after a successful start read
	// process without mu.
	mu      sync.Mutex
	process *process.Process // nil until the process runs
	killed  bool
}

func (r *runner) Start(context.Context) error {
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer writeEnd.Close()
	r.stdout = readEnd
	r.command.Stdout = writeEnd
	r.command.OnExit = func() { readEnd.SetReadDeadline(time.Now().Add(process.DrainTimeout)) }
	if err := r.confine(); err != nil {
		readEnd.Close()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		err = errors.New("the plugin was closed before it was started")
	} else {
		r.process, err = process.Start(r.command)
	}
	if r.box != nil {
		if releaseErr := r.box.Release(); err == nil && releaseErr != nil {
			err = releaseErr
			r.process.Signal(syscall.SIGKILL)
			<-r.process.Done()
		}
	}
	if err != nil {
		readEnd.Close()
		r.closeSandbox()
	}
	return err
}

// closeSandbox removes the private folder of the process.
func (r *runner) closeSandbox() {
	if r.box == nil {
		return
	}
	if err := r.box.Close(); err != nil {
		r.command.Log.Warn("private folder not removed", "error", err)
	}
}

// Wait waits until the process has ended and no process of its group is left.
func (r *runner) Wait(context.Context) error {
	<-r.process.Done()
	r.stdout.Close()
	r.closeSandbox()
	if how := r.process.ExitReason(); how != "exited with status 0" {
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

// exitError returns an error that says how the process ended and quotes the end of its stderr.
func (r *runner) exitError() error {
	if r.pid() == 0 {
		return nil
	}
	select {
	case <-r.process.Done():
	case <-time.After(process.DrainTimeout):
		return errors.New("the process does not respond")
	}
	stderr := r.process.StderrTail(10)
	if stderr == "" {
		return errors.New("the process " + r.process.ExitReason())
	}
	return fmt.Errorf("the process %s; the end of its stderr:\n%s", r.process.ExitReason(), stderr)
}

// PluginToHost implements runner.Runner. It refuses an address that is not a socket in the folder
// that the plugin was given.
func (r *runner) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || filepath.Dir(filepath.Clean(address)) != filepath.Clean(r.socketDir) {
		return "", "", fmt.Errorf("the plugin listens on %s %q, which is not a socket in the "+
			"folder that PLUGIN_UNIX_SOCKET_DIR names", network, address)
	}
	return network, address, nil
}

func (r *runner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// Stdout returns the first line of stdout, which is go-plugin's handshake. go-plugin must not read
// the rest, because it would stop reading at a line that is too long.
func (r *runner) Stdout() io.ReadCloser {
	return &firstLine{from: bufio.NewReaderSize(r.stdout, maxHandshake), rest: r.process.Drain}
}

// Stderr returns an empty reader: package transport/process logs the process's stderr.
func (r *runner) Stderr() io.ReadCloser           { return io.NopCloser(strings.NewReader("")) }
func (r *runner) Name() string                    { return r.command.Description }
func (r *runner) ID() string                      { return strconv.Itoa(r.pid()) }
func (r *runner) Diagnose(context.Context) string { return "" }

// pid returns the process ID, or 0 if the process was not started.
func (r *runner) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return 0
	}
	return r.process.Pid()
}

// maxHandshake is how many bytes go-plugin's handshake may have. The handshake includes a
// certificate.
const maxHandshake = 64 << 10

// firstLine is a reader of one line. It passes the data after that line to the function rest.
type firstLine struct {
	from *bufio.Reader
	rest func(io.Reader)
	line *bytes.Reader // nil before the line was read
}

// Read implements io.Reader. The first call starts a goroutine that reads the rest.
func (f *firstLine) Read(p []byte) (int, error) {
	if f.line == nil {
		line, _ := f.from.ReadSlice('\n') // a line that is too long is no handshake
		f.line = bytes.NewReader(bytes.Clone(line))
		go f.rest(f.from)
	}
	return f.line.Read(p)
}

func (f *firstLine) Close() error { return nil }
