package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gatekit/audit"
	"gatekit/core/allowances"
	"gatekit/core/atomicfile"
	"gatekit/core/config"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/core/stop"
	"gatekit/policies"
	"gatekit/transport/auth"
	"gatekit/transport/console"
)

// Commands change a running Gatekit through its control socket: the process that writes an audit
// log makes the change and records it in this log. Each process has one control socket, in the
// state folder. The name of the socket is derived from the path of the log, so that a command that
// knows the log finds the process.
//
// Only processes of the same user can connect: the folder has the mode 0700, the socket has the
// mode 0600, and each side checks the user id of the other side. A server runs as the same user,
// and its sandbox may be unable to refuse the connection, but keeps it from reading the state
// folder. So a request must carry the token in a file beside the socket. A connection carries one
// request and one response. Each is a line of JSON.

// Bounds of the control socket.
const (
	maxControlLine        = 64 << 10 // bytes
	maxControlConnections = 8
	controlTimeout        = 10 * time.Second // for one connection
	maxSocketPath         = 100              // bytes; systems allow 103 (macOS) or 107 (Linux)
)

const (
	socketSuffix = ".sock"
	tokenSuffix  = ".token" // is appended to the path of the socket
)

// controlRequest is a request of a command.
type controlRequest struct {
	// "approve", "allow", "disallow", "record-login", "use-login", "revoke", "readmit",
	// "decide-pins", "decide-policy", "console", "stop" or "resume"
	Command string `json:"command"`
	Token   string `json:"token"` // from the file beside the socket
	ID      string `json:"id,omitempty"`
	// for "allow"
	Allowance *allowances.Allowance `json:"allowance,omitempty"`
	// for "record-login", "use-login"
	Login *loginEvent `json:"login,omitempty"`
	// for "decide-pins"
	Pins *pinDecision `json:"pins,omitempty"`
	// for "decide-policy"
	Policy *policyDecision `json:"policy,omitempty"`
	// for "revoke"; "readmit" has the id of the principal in ID
	Revocation *auth.Revocation `json:"revocation,omitempty"`
	// for "console": "read" or "approve"
	Scope string `json:"scope,omitempty"`
	// for "stop"
	Stop *stop.Stop `json:"stop,omitempty"`
	// for "resume"
	Resume *resumeRequest `json:"resume,omitempty"`
	// for "stop" and "resume": only a gatekit wrap does it
	OnlyWrap bool `json:"only_wrap,omitempty"`
}

// controlResponse is the response of the running process.
type controlResponse struct {
	Error string `json:"error,omitempty"`
	// The time until which the approval is valid. The response does not contain the approved
	// request, which may be longer than maxControlLine.
	Until time.Time `json:"until,omitzero"`
	// for "console": the URL with a one-time code, and the scope of its token
	URL   string `json:"url,omitempty"`
	Scope string `json:"scope,omitempty"`
	// for "stop": how many calls in flight were ended
	Ended int `json:"ended,omitempty"`
	// nothing was done, because the request is for gatekit wrap only
	Skipped bool `json:"skipped,omitempty"`
}

// errNoProcess is the error when no process serves the control socket of a log.
var errNoProcess = errors.New("no running Gatekit")

// controlFolder returns the folder of the control sockets. If create is true, it creates the folder
// first.
func controlFolder(create bool) (string, error) {
	state, err := stateFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(state, "control")
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
	}
	var info unix.Stat_t
	if err := unix.Lstat(dir, &info); err != nil {
		return "", &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR || int(info.Uid) != os.Geteuid() ||
		info.Mode&0o077 != 0 {
		return "", fmt.Errorf("%s is not a folder that only this user can enter\nhint: remove it",
			dir)
	}
	return dir, nil
}

// socketName returns the name of the control socket of the process that writes a log.
func socketName(log string) string {
	sum := sha256.Sum256([]byte(realPath(log)))
	return hex.EncodeToString(sum[:16]) + socketSuffix
}

// realPath returns the absolute path of a file. It resolves the symbolic links in the path of the
// folder, but not a symbolic link at the path itself.
func realPath(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
		return filepath.Join(dir, filepath.Base(file))
	}
	return file
}

// withSocketPath calls use with a path of the socket dir/name. This path is short enough for the
// system.
func withSocketPath(dir, name string, use func(path string) error) error {
	path := filepath.Join(dir, name)
	if len(path) <= maxSocketPath {
		return use(path)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	short := fmt.Sprintf("/proc/self/fd/%d", folder.Fd())
	if _, err := os.Stat(short); err != nil {
		return fmt.Errorf("the path %s is too long for a socket\nhint: set XDG_STATE_HOME to a "+
			"shorter path", path)
	}
	return use(filepath.Join(short, name))
}

// controlServer serves the control socket of a running process.
type controlServer struct {
	gateway     *gateway
	config      *config.Config
	revocations *auth.Revocations // nil if clients are not authenticated
	// nil without [shared], or if clients are not authenticated
	sharedRevocations *sharedRevocations
	console           *console.Console // nil if there is none
	consoleAddr       string           // host:port
	// the console of the listener for clients; nil if there is none
	publicConsole *console.Console
	log           *slog.Logger

	listener *net.UnixListener
	path     string
	token    string
	running  sync.WaitGroup

	mu          sync.Mutex
	connections map[*net.UnixConn]bool // the open connections
	stopped     bool
}

// start begins to serve. The process holds the lock of the log. So an existing socket is left over
// from a process that crashed. If the socket cannot be opened, Gatekit runs without it.
func (s *controlServer) start(context.Context) error {
	dir, err := controlFolder(true)
	name := socketName(s.config.Audit.File)
	if err == nil {
		s.path, s.token = filepath.Join(dir, name), rand.Text()
		err = atomicfile.WriteUnsynced(s.path+tokenSuffix, []byte(s.token))
	}
	if err == nil {
		err = withSocketPath(dir, name, func(path string) error {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			listener.SetUnlinkOnClose(false) // the short path is invalid after this function
			if err := os.Chmod(path, 0o600); err != nil {
				return errors.Join(err, listener.Close())
			}
			s.listener = listener
			return nil
		})
	}
	if err != nil {
		s.log.Warn("control socket unavailable: gatekit approve, allow, pin approve, auth login, "+
			"auth logout, auth revoke, console, stop and resume cannot reach this process",
			"error", err)
		return nil
	}
	s.connections = map[*net.UnixConn]bool{}
	s.running.Go(s.accept)
	return nil
}

// stop ends the control socket. It waits for the requests that were read, but does not wait for the
// rest of a request.
func (s *controlServer) stop() error {
	if s.listener == nil {
		return nil
	}
	err := s.listener.Close()
	s.mu.Lock()
	s.stopped = true
	for c := range s.connections {
		c.SetReadDeadline(time.Now())
	}
	s.mu.Unlock()
	for _, file := range []string{s.path, s.path + tokenSuffix} {
		if removeErr := os.Remove(file); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	s.running.Wait()
	return err
}

// open registers a connection and sets its deadline. It returns false if the control socket has
// ended.
func (s *controlServer) open(c *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || c.SetDeadline(time.Now().Add(controlTimeout)) != nil {
		return false
	}
	s.connections[c] = true
	return true
}

// close ends a connection.
func (s *controlServer) close(c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	c.Close()
}

func (s *controlServer) accept() {
	slots := make(chan struct{}, maxControlConnections)
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			s.log.Warn("control socket failed", "error", err)
			time.Sleep(time.Second)
			continue
		}
		slots <- struct{}{}
		s.running.Go(func() {
			defer func() { <-slots }()
			defer s.close(c)
			if s.open(c) {
				s.serve(c)
			}
		})
	}
}

// serve handles the request of a connection.
func (s *controlServer) serve(c *net.UnixConn) {
	if err := checkPeer(c); err != nil {
		s.log.Warn("control connection refused", "error", err)
		return
	}
	var request controlRequest
	if err := readControlLine(c, &request); err != nil {
		s.log.Warn("control request not read", "error", err)
		return
	}
	var response controlResponse
	if subtle.ConstantTimeCompare([]byte(request.Token), []byte(s.token)) != 1 {
		s.log.Warn("control request refused: its token is wrong", "command", request.Command)
		request.Command = ""
	}
	switch request.Command {
	case "stop", "resume":
		if response.Skipped = request.OnlyWrap && s.config.File != ""; response.Skipped {
			break
		}
		var err error
		if request.Command == "stop" {
			response.Ended, err = s.stopTraffic(request.Stop)
		} else {
			err = s.resumeTraffic(request.Resume)
		}
		if err != nil {
			response.Error = err.Error()
		}
	case "":
		response.Error = "the token is wrong"
	case "approve":
		approved, err := s.approve(request.ID)
		if response.Until = approved.Expires; err != nil {
			response = controlResponse{Error: err.Error()}
		}
	case "allow":
		if err := s.allow(request.Allowance); err != nil {
			response.Error = err.Error()
		}
	case "disallow":
		if err := s.disallow(request.ID); err != nil {
			response.Error = err.Error()
		}
	case "record-login":
		if err := s.recordLogin(request.Login); err != nil {
			response.Error = err.Error()
		}
	case "use-login":
		if err := s.useLogin(request.Login); err != nil {
			response.Error = err.Error()
		}
	case "decide-pins":
		if err := s.decidePins(request.Pins); err != nil {
			response.Error = err.Error()
		}
	case "decide-policy":
		if request.Policy != nil {
			request.Policy.User = os.Geteuid() // checkPeer found the same user
		}
		if err := request.Policy.record(context.Background(),
			s.gateway.recording.events); err != nil {
			response.Error = err.Error()
		}
	case "revoke":
		if err := s.revoke(request.Revocation); err != nil {
			response.Error = err.Error()
		}
	case "console":
		url, scope, err := s.openConsole(request.Scope)
		if response.URL, response.Scope = url, scope; err != nil {
			response.Error = err.Error()
		}
	case "readmit":
		if err := s.readmit(request.ID); err != nil {
			response.Error = err.Error()
		}
	default:
		response.Error = fmt.Sprintf("the running Gatekit does not know the command %q\nhint: "+
			"restart it, so that it has the version of this command", request.Command)
	}
	if b, err := json.Marshal(response); err == nil {
		c.Write(append(b, '\n'))
	}
}

func (s *controlServer) approve(id string) (policies.PendingApproval, error) {
	a, err := s.gateway.approvals(s.config)
	if err != nil {
		return policies.PendingApproval{}, err
	}
	return approveRecorded(a, id, describeUser("gatekit approve"), s.config.Audit.File,
		s.gateway.recording.events)
}

// approveRecorded approves a request that belongs to the given log, or any request in shared state.
// It writes a record to the log before it stores the approval. The parameter by names the user who
// approves, with the command or the console session.
func approveRecorded(a *policies.Approvals, id, by, log string,
	events *pipeline.Pipeline) (policies.PendingApproval, error) {
	p, err := a.Pending(id)
	if err != nil {
		return policies.PendingApproval{}, err
	}
	if a.Shared == nil && realPath(p.Log) != realPath(log) {
		return policies.PendingApproval{}, fmt.Errorf("request %s belongs to the audit log %s", id,
			p.Log)
	}
	event := func(action, reason string, err error) error {
		return events.RecordEvent(context.Background(), &mcp.Message{
			Principal: identity.FromID(p.Principal), Server: p.Server}, action, reason, err)
	}
	if err := event("approve", fmt.Sprintf("request %s: by %s", id, by), nil); err != nil {
		return policies.PendingApproval{}, fmt.Errorf("record the approval: %w", err)
	}
	approved, err := a.Approve(id)
	if err != nil {
		recordErr := event("reject", fmt.Sprintf("request %s: the approval was not stored", id),
			err)
		return policies.PendingApproval{}, errors.Join(err, recordErr)
	}
	return approved, nil
}

// approveByID approves a request and records the approval in the log of the request. The process
// that writes this log does both. If no such process runs, approveByID does both itself. If neither
// is possible, nothing changes. A request in shared state has no log: its approval is recorded in
// the log of the configuration that shares it.
func approveByID(id string, sharing *sharingConfig) (policies.PendingApproval, error) {
	if sharing != nil {
		p, err := sharing.approvals.Pending(id)
		if err == nil {
			p.Log, p.LogKey = realPath(sharing.config.Audit.File), sharing.config.Audit.Key
			return approveIn(p, sharing.approvals)
		}
		if errors.Is(err, shared.ErrUnavailable) {
			return p, err
		}
	}
	a, err := approvals(nil)
	if err != nil {
		return policies.PendingApproval{}, err
	}
	p, err := a.Pending(id)
	if err != nil {
		return p, err
	}
	if !filepath.IsAbs(p.Log) {
		return p, fmt.Errorf("request %s does not name its audit log, so its approval cannot be "+
			"recorded\nhint: make the request again", id)
	}
	return approveIn(p, a)
}

// approveIn approves a request in the log that it names.
func approveIn(p policies.PendingApproval,
	a *policies.Approvals) (policies.PendingApproval, error) {
	id := p.ID
	response, err := callControl(p.Log, controlRequest{Command: "approve", ID: id})
	if !errors.Is(err, errNoProcess) {
		p.Approved, p.Expires = err == nil, response.Until
		return p, err
	}
	var approved policies.PendingApproval
	err = recordIn(p.Log, p.LogKey, func(events *pipeline.Pipeline) (err error) {
		approved, err = approveRecorded(a, id, describeUser("gatekit approve"), p.Log,
			events)
		return err
	})
	return approved, err
}

// recordIn calls change with a pipeline that records events in a log. No process writes this log.
func recordIn(file, key string, change func(events *pipeline.Pipeline) error) error {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("the change cannot be recorded: %w", err)
	}
	return recordInNew(file, key, change)
}

// recordInNew is recordIn for a log that may not exist yet.
func recordInNew(file, key string, change func(events *pipeline.Pipeline) error) error {
	// This process does not know the configured segment size, so it does not rotate the log.
	log, err := audit.Open(audit.Options{File: file, Key: key,
		Durability: audit.DurabilityFsync, SegmentBytes: math.MaxInt64})
	if err != nil {
		return fmt.Errorf("the change cannot be recorded: %w", err)
	}
	return errors.Join(change(pipeline.New(log, pipeline.Options{})), log.Close())
}

// callControl sends a request to the process that writes a log. The error is errNoProcess if no
// such process runs.
func callControl(log string, request controlRequest) (response controlResponse, err error) {
	return callControlSocket(socketName(log), request)
}

// controlSockets returns the names of the control sockets. Some may be left over from a process
// that crashed.
func controlSockets() ([]string, error) {
	dir, err := controlFolder(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), socketSuffix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// callControlSocket is callControl for the control socket of a name.
func callControlSocket(name string, request controlRequest) (response controlResponse, err error) {
	dir, err := controlFolder(false)
	if errors.Is(err, fs.ErrNotExist) {
		return response, errNoProcess
	}
	if err != nil {
		return response, err
	}
	var c *net.UnixConn
	err = withSocketPath(dir, name, func(path string) error {
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return response, errNoProcess
	}
	if err != nil {
		return response, err
	}
	defer c.Close()
	err = errors.Join(c.SetDeadline(time.Now().Add(controlTimeout)), checkPeer(c))
	if err != nil {
		return response, err
	}
	token, err := os.ReadFile(filepath.Join(dir, name+tokenSuffix))
	if err != nil {
		return response, fmt.Errorf("read the token of the running Gatekit: %w", err)
	}
	request.Token = string(token)
	b, err := json.Marshal(request)
	if err != nil {
		return response, err
	}
	if _, err := c.Write(append(b, '\n')); err != nil {
		return response, fmt.Errorf("ask the running Gatekit: %w", err)
	}
	if err := readControlLine(c, &response); err != nil {
		return response, fmt.Errorf("ask the running Gatekit: %w", err)
	}
	if response.Error != "" {
		return response, errors.New(response.Error)
	}
	return response, nil
}

// checkPeer returns an error unless the other end of a connection is a process of this user.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var uid int
	var uidErr error
	if err := raw.Control(func(fd uintptr) { uid, uidErr = peerUID(int(fd)) }); err != nil {
		return err
	}
	if uidErr != nil {
		return fmt.Errorf("find the user of the other process: %w", uidErr)
	}
	if uid != os.Geteuid() {
		return fmt.Errorf("the other process belongs to the user id %d", uid)
	}
	return nil
}

// readControlLine reads one line of JSON.
func readControlLine(r io.Reader, into any) error {
	line, err := bufio.NewReader(io.LimitReader(r, maxControlLine)).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no whole line of at most %d bytes: %w", maxControlLine, err)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
