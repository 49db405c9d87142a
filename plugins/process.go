package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/proto/socket"
	"gatekit/plugins/sdk"
	"gatekit/transport/process"
	"gatekit/transport/sandbox"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	goplugin "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
)

const (
	// memoryFactor is how many bytes of memory an inspection may take for each byte of the message.
	// In a measurement, the built-in plugins took up to 38 bytes, garbage included.
	memoryFactor = 40
	// baseMemory is how much memory a process may take without messages.
	baseMemory = 72 << 20
)

// newByteLimit returns the limit of the large messages that a process may inspect at a time without
// exceeding maxMemory, and the size of the largest message that it can judge at all.
func newByteLimit(maxMemory int64) (limit proto.ByteLimit, largest int) {
	if maxMemory <= 0 { // no limit
		return proto.NewByteLimit((1<<30 - baseMemory) / memoryFactor), math.MaxInt
	}
	limit = proto.NewByteLimit(max(maxMemory-baseMemory, maxMemory/4) / memoryFactor)
	return limit, limit.Largest()
}

// Limits of one process.
const (
	maxInFlight = 64   // requests; fewer than the streams that gRPC servers allow
	maxOffered  = 1000 // plugins that a process may describe
	// maxSocketDir is how many bytes the path of a folder for sockets may have. The system allows
	// 104 bytes for the path of a socket. The names that Gatekit and go-plugin append take up to 61
	// bytes.
	maxSocketDir = 43
	// shutdownTimeout is how long a process may take to end after it was asked to end.
	shutdownTimeout = time.Second
)

// pluginProcess is a plugin's process, from its start to its end.
type pluginProcess struct {
	// dir is the folder of the socket, of a pinned program's copy and of the working folder. close
	// removes it.
	dir      string
	client   *plugin.Client
	runner   *runner
	service  pb.PluginClient
	control  *socket.Control // nil if there is none
	streams  *streamPool
	offered  map[string]*pb.Description // the plugins of the process, by name
	output   io.Closer                  // pipe to which go-plugin copies stdout and stderr
	inFlight *proto.FairLimit           // of requests
	large    proto.ByteLimit            // for the large messages in flight
	largest  int                        // size of the largest message that it can judge
	// unanswered is the number of requests in flight, and of requests that were lost.
	unanswered atomic.Int64
	kept       *keptVerdicts
	shared     *SharedState // nil if no stage may use the state that replicas share

	mu       sync.Mutex // guards stageIDs
	stageIDs map[*Stage]uint32
}

// startProcess starts the process of a spec, and asks it which plugins it offers. It also starts
// the goroutines that log the process's output and watch its memory; they end with the process.
func (h *Host) startProcess(ctx context.Context, s Spec) (_ *pluginProcess, err error) {
	parent := cmp.Or(h.options.Dir, os.TempDir())
	if len(parent) > maxSocketDir {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "gatekit-") // with the mode 0700
	if err != nil {
		return nil, err
	}
	p := &pluginProcess{dir: dir, inFlight: proto.NewFairLimit(maxInFlight),
		stageIDs: map[*Stage]uint32{}, offered: map[string]*pb.Description{},
		kept: newKeptVerdicts()}
	p.large, p.largest = newByteLimit(h.options.MaxMemory)
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	command, err := h.command(s, dir)
	if err != nil {
		return nil, err
	}
	control, inherited, err := socket.New(proto.NewBuffers())
	if err != nil {
		return nil, err
	}
	defer inherited.Close()
	p.control = control
	command.Files = []*os.File{inherited}
	command.Env = append(command.Env, fmt.Sprintf("%s=%d", socket.Variable, process.FirstFile))
	p.runner = &runner{command: command, sandbox: s.Sandbox, given: s.Env,
		onUnconfined: func(err *sandbox.UnsupportedError) {
			command.Log.Warn("plugin not confined: it may do everything that you may do", "reason",
				err.Reason)
			h.event(s.processName(), "unconfined", err.Error(), nil)
		}}
	output, outputWriter := io.Pipe()
	p.output = outputWriter
	config := p.clientConfig(h, s, outputWriter)
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	p.client = plugin.NewClient(config)
	protocol, err := p.client.Client()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, p.withExitError(err)
	}
	go p.runner.process.Drain(output)
	// go-plugin sets RootCAs from the certificate in the handshake.
	if !s.NoTLS && (config.TLSConfig == nil || config.TLSConfig.RootCAs == nil) {
		return nil, errors.New("the program's handshake has no certificate, so the process that " +
			"listens on its socket cannot be authenticated\nhint: set mtls = false for a program " +
			"that does not support TLS")
	}
	raw, err := protocol.Dispense(proto.ServiceName)
	if err != nil {
		return nil, p.withExitError(err)
	}
	p.service = raw.(pb.PluginClient)
	described, err := p.describe(ctx, h.options.StartTimeout)
	if err != nil {
		return nil, err
	}
	if p.streams, err = p.newStreams(described.SocketToken, h.options.MaxMessage); err != nil {
		return nil, err
	}
	if s.Use != "" {
		p.shared = h.options.Shared
	}
	go p.watchMemory(h.options.MaxMemory)
	return p, nil
}

// command returns the command of a spec. In dir, it makes the working folder and the copy of a
// pinned program.
func (h *Host) command(s Spec, dir string) (c process.Command, err error) {
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return c, err
	}
	c = process.Command{Description: s.String(), Dir: work,
		Log:      h.options.Log.With("plugin", s.processName()),
		Overflow: process.Overflow{Folder: h.options.Overflow, Name: s.processName()}}
	if s.Use != "" {
		builtin := h.options.BuiltinCommand
		names := []string{s.Use}
		if s.isShared() {
			names = h.options.BuiltinPlugins
		}
		c.Path, c.Name, c.Args = builtin[0], builtin[1], slices.Concat(builtin[2:], names)
		if limit := h.options.MaxMemory; limit > 0 {
			// With this variable, the garbage collector works harder as memory runs out, before the
			// host kills the process.
			c.Env = append(c.Env, fmt.Sprintf("GOMEMLIMIT=%d", limit/4*3))
		}
	} else {
		if c.Path, err = programPath(s, dir); err != nil {
			return c, err
		}
		c.Args = s.Command[1:]
	}
	for name, value := range s.Env {
		c.Env = append(c.Env, name+"="+value)
		c.Secrets = append(c.Secrets, value)
	}
	return c, nil
}

// clientConfig returns go-plugin's configuration. While the process serves, go-plugin copies the
// stdout and stderr of the process to output.
func (p *pluginProcess) clientConfig(h *Host, s Spec, output io.Writer) *plugin.ClientConfig {
	return &plugin.ClientConfig{
		HandshakeConfig:  proto.Handshake(),
		Plugins:          plugin.PluginSet{proto.ServiceName: clientPlugin{}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         !s.NoTLS,
		SkipHostEnv:      true,
		StartTimeout:     h.options.StartTimeout,
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.dir},
		SyncStdout:       output,
		SyncStderr:       output,
		RunnerFunc: func(_ hclog.Logger, c *exec.Cmd, socketDir string) (goplugin.Runner, error) {
			p.runner.command.Env = append(p.runner.command.Env, c.Env...)
			p.runner.socketDir = socketDir
			return p.runner, nil
		},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(
				grpc.MaxCallRecvMsgSize(h.options.MaxMessage+maxVerdict),
				grpc.MaxCallSendMsgSize(proto.MaxMessageBytes),
				grpc.ForceCodecV2(proto.NewCodec())),
			grpc.WithStaticStreamWindowSize(proto.StreamWindow),
			grpc.WithStaticConnWindowSize(proto.ConnWindow),
		},
	}
}

// clientPlugin makes the client of a plugin's service for go-plugin.
type clientPlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (clientPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the host does not serve plugins")
}

func (clientPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker,
	conn *grpc.ClientConn) (any, error) {
	return pb.NewPluginClient(conn), nil
}

// describe asks the process which plugins it offers.
func (p *pluginProcess) describe(ctx context.Context,
	timeout time.Duration) (*pb.DescribeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	described, err := p.service.Describe(ctx, &pb.DescribeRequest{})
	if err != nil {
		return nil, p.withExitError(fmt.Errorf("describe: %w", withoutStatus(err)))
	}
	if n := len(described.Plugins); n == 0 || n > maxOffered {
		return nil, fmt.Errorf("the program offers %d plugins; 1 to %d are allowed", n, maxOffered)
	}
	for _, d := range described.Plugins {
		p.offered[d.Name] = d
	}
	return described, nil
}

// newStreams returns the streams to the process: sockets if the process has returned the token of
// its control socket, otherwise streams of gRPC.
func (p *pluginProcess) newStreams(token []byte, maxMessage int) (*streamPool, error) {
	switch {
	case len(token) == 0:
		p.control.Close()
		return newStreamPool(func(ctx context.Context) (connection, error) {
			return connectCall(ctx, p.service)
		}), nil
	case !p.control.IsToken(token):
		return nil, errors.New("the program returned the token of a socket that it did not get " +
			"from Gatekit")
	}
	return newStreamPool(func(context.Context) (connection, error) {
		s, err := p.control.Open()
		return &socketConnection{socket: s, maxResponse: maxMessage + maxVerdict}, err
	}), nil
}

// withExitError returns err. If the process has ended, the error also says how it ended.
func (p *pluginProcess) withExitError(err error) error {
	if p.runner.pid() == 0 {
		return err
	}
	select {
	case <-p.done():
		return fmt.Errorf("%w; %w", p.runner.exitError(), err)
	case <-time.After(exitTimeout):
		return err
	}
}

// done returns a channel that is closed when the process has ended. The process must have started.
func (p *pluginProcess) done() <-chan struct{} { return p.runner.process.Done() }

// hasEnded reports whether the process has ended.
func (p *pluginProcess) hasEnded() bool {
	select {
	case <-p.done():
		return true
	default:
		return false
	}
}

// configure makes a stage in the process, and returns what the plugin declares about the stage.
func (p *pluginProcess) configure(ctx context.Context, s *Stage) (*pb.ConfigureResponse, error) {
	offer, name, err := p.offer(s.spec)
	if err != nil {
		return nil, err
	}
	if err := (sdk.Plugin{Name: offer.Name,
		Schema: offer.Schema}).Check(s.spec.Config); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	request := &pb.ConfigureRequest{Plugin: name, Config: s.spec.Config}
	if p.hasSharedState(s.spec) {
		request.SharedState = &pb.SharedState{Replicas: uint32(p.shared.Replicas)}
	}
	declared, err := p.service.Configure(ctx, request)
	switch {
	case err != nil:
		return nil, withoutStatus(err)
	case declared.Stage == 0:
		return nil, errors.New("the plugin returned no stage for its configuration")
	}
	p.mu.Lock()
	previous := p.stageIDs[s] // set if a restart has made the stage at the same time
	p.stageIDs[s] = declared.Stage
	p.mu.Unlock()
	if previous != 0 {
		p.closeStageID(ctx, previous)
	}
	return declared, nil
}

// hasStage reports whether the stage was made in the process.
func (p *pluginProcess) hasStage(s *Stage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stageIDs[s] != 0
}

// offer returns the description of a spec's plugin, and the name to pass to Configure. If a program
// offers only one plugin, the plugin may have any name, and offer returns the name "".
func (p *pluginProcess) offer(s Spec) (offer *pb.Description, name string, err error) {
	switch {
	case s.Use != "":
		name = s.Use
		if p.offered[name] == nil {
			return nil, "", fmt.Errorf("there is no built-in plugin %q", name)
		}
	case len(p.offered) > 1:
		name = s.Name
		if p.offered[name] == nil {
			return nil, "", fmt.Errorf("the program offers several plugins, and none is named %q",
				name)
		}
	default:
		for _, only := range p.offered {
			return only, "", nil
		}
	}
	return p.offered[name], name, nil
}

// closeStage closes a stage in the process.
func (p *pluginProcess) closeStage(s *Stage, timeout time.Duration) {
	p.mu.Lock()
	id, ok := p.stageIDs[s]
	delete(p.stageIDs, s)
	p.mu.Unlock()
	p.kept.drop(s)
	if ok {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		p.closeStageID(ctx, id)
	}
}

// closeStageID closes the stage with the given number in the process.
func (p *pluginProcess) closeStageID(ctx context.Context, id uint32) {
	p.service.Close(ctx, &pb.CloseRequest{Stage: id})
}

// kill ends the process at once.
func (p *pluginProcess) kill() {
	if p.runner != nil {
		p.runner.Kill(context.Background())
	}
}

// close ends the process, waits until it is gone, and removes its folder. The process is asked to
// end first, and killed after shutdownTimeout.
func (p *pluginProcess) close() {
	if p.streams != nil {
		p.streams.close()
	}
	if p.client != nil {
		late := time.AfterFunc(shutdownTimeout, p.kill)
		p.client.Kill()
		late.Stop()
	}
	if p.runner != nil && p.runner.pid() != 0 {
		p.kill()
		<-p.done()
	}
	if p.control != nil {
		p.control.Close()
	}
	if p.output != nil {
		p.output.Close()
	}
	os.RemoveAll(p.dir)
}
