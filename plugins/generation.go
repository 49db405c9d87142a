package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/sdk"
	"gatekit/transport/process"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	goplugin "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
)

// Bounds of one process.
const (
	maxIdle     = 64 // streams that wait for a question
	maxInFlight = 256
	maxOffered  = 1000    // plugins that it may describe
	maxVerdict  = 1 << 20 // bytes, beside those of the message that it is about
)

// maxSocketDir is the longest path of a folder for a socket: the system allows 104 bytes and more for its path, of which our folder's name and go-plugin's take up to 61.
const maxSocketDir = 43

// generation is a plugin's process from its start to its end.
type generation struct {
	name     string
	dir      string // with its socket, its program if that is pinned, and its working folder; removed with it
	client   *plugin.Client
	runner   *runner
	service  pb.PluginClient
	offers   map[string]*pb.Description
	life     context.Context
	cancel   context.CancelFunc
	gone     chan struct{} // closed when the process has ended
	inFlight chan struct{} // holds a token for each question

	mu   sync.Mutex // guards what follows
	idle []*stream
	ids  map[*Stage]uint32
}

// launch starts the process and asks it what it offers.
func (h *Host) launch(ctx context.Context, s Spec) (_ *generation, err error) {
	where := cmp.Or(h.options.Dir, os.TempDir())
	if len(where) > maxSocketDir {
		where = "/tmp"
	}
	dir, err := os.MkdirTemp(where, "gatekit-") // for us alone: 0700
	if err != nil {
		return nil, err
	}
	g := &generation{name: s.Name, dir: dir, gone: make(chan struct{}), inFlight: make(chan struct{}, maxInFlight), ids: map[*Stage]uint32{}, offers: map[string]*pb.Description{}}
	g.life, g.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	command := process.Command{What: s.what(), Dir: work, Log: logger(h.options.Log, s.Name)}
	switch {
	case s.Use != "":
		command.Path, command.Name, command.Args = h.options.Builtin[0], h.options.Builtin[1], h.options.Builtin[2:]
	default:
		if command.Path, err = program(s, dir); err != nil {
			return nil, err
		}
		command.Args = s.Command[1:]
	}
	for name, value := range s.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	config := &plugin.ClientConfig{
		HandshakeConfig:  proto.Handshake(),
		Plugins:          plugin.PluginSet{proto.Service: dispenser{}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         !s.Plain,
		SkipHostEnv:      true,
		StartTimeout:     h.options.StartTimeout,
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: dir},
		RunnerFunc: func(_ hclog.Logger, c *exec.Cmd, sockets string) (goplugin.Runner, error) {
			command.Env = append(command.Env, c.Env...)
			g.runner = newRunner(command, sockets)
			return g.runner, nil
		},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(h.options.MaxMessage+1<<20), grpc.MaxCallSendMsgSize(proto.MaxBytes), grpc.ForceCodecV2(proto.NewCodec())),
			grpc.WithStaticStreamWindowSize(proto.StreamWindow), grpc.WithStaticConnWindowSize(proto.ConnWindow)},
	}
	g.client = plugin.NewClient(config)
	protocol, err := g.client.Client()
	if err != nil {
		return nil, g.failed(err)
	}
	if !s.Plain && (config.TLSConfig == nil || config.TLSConfig.RootCAs == nil) { // which go-plugin makes of the certificate in the handshake
		return nil, errors.New("it has no certificate, so that nobody could tell who listens on its socket\nhint: set mtls = false for a program that cannot do TLS")
	}
	raw, err := protocol.Dispense(proto.Service)
	if err != nil {
		return nil, g.failed(err)
	}
	g.service = raw.(pb.PluginClient)
	go func() {
		<-g.runner.process.Done()
		close(g.gone)
		g.cancel()
	}()
	ctx, cancel := context.WithTimeout(ctx, h.options.StartTimeout)
	defer cancel()
	described, err := g.service.Describe(ctx, &pb.DescribeRequest{})
	if err != nil {
		return nil, g.failed(fmt.Errorf("it does not say what it is: %w", plain(err)))
	}
	if n := len(described.Plugins); n == 0 || n > maxOffered {
		return nil, fmt.Errorf("it offers %d plugins", n)
	}
	for _, d := range described.Plugins {
		g.offers[d.Name] = d
	}
	go g.watch(h.options.MaxMemory)
	return g, nil
}

// failed is err with what the process has to say to it, when it has ended.
func (g *generation) failed(err error) error {
	if g.runner == nil || g.runner.process == nil {
		return err
	}
	select {
	case <-g.runner.process.Done():
		return fmt.Errorf("%w; %w", g.runner.how(), err)
	case <-time.After(100 * time.Millisecond):
		return err
	}
}

// plain is a gRPC error without gRPC's words.
func plain(err error) error {
	if s, ok := status.FromError(err); ok {
		return errors.New(s.Message())
	}
	return err
}

// dispenser is the plugin's service as go-plugin wants it.
type dispenser struct{ plugin.NetRPCUnsupportedPlugin }

func (dispenser) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this side asks plugins")
}

func (dispenser) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return pb.NewPluginClient(conn), nil
}

// endWithin is how long a process that is asked to end may take.
const endWithin = time.Second

// kill ends the process at once.
func (g *generation) kill() {
	if g.runner != nil {
		g.runner.Kill(context.Background())
	}
}

// close ends the process, and what is left of it.
func (g *generation) close() {
	g.cancel()
	if g.client != nil {
		// It is asked to end, which one that hangs never hears.
		late := time.AfterFunc(endWithin, func() { g.kill() })
		g.client.Kill()
		late.Stop()
	}
	if g.runner != nil && g.runner.process != nil {
		g.kill()
		<-g.runner.process.Done()
	}
	os.RemoveAll(g.dir)
}

// configure makes the stage in the process, and answers what it wants.
func (g *generation) configure(ctx context.Context, s *Stage) (*pb.ConfigureResponse, error) {
	name := s.spec.Use
	if name == "" && len(g.offers) > 1 {
		if _, ok := g.offers[s.spec.Name]; !ok {
			return nil, fmt.Errorf("it offers several plugins, and none is named %q", s.spec.Name)
		}
		name = s.spec.Name
	}
	offer, ok := g.offers[name]
	if !ok && name != "" {
		return nil, fmt.Errorf("there is no plugin %q", name)
	}
	for _, only := range g.offers {
		offer = cmp.Or(offer, only)
	}
	if err := (sdk.Plugin{Name: offer.Name, Schema: offer.Schema}).Check(s.spec.Config); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	answer, err := g.service.Configure(ctx, &pb.ConfigureRequest{Plugin: name, Config: s.spec.Config})
	switch {
	case err != nil:
		return nil, plain(err)
	case answer.Stage == 0:
		return nil, errors.New("it made no stage of its configuration")
	}
	g.mu.Lock()
	g.ids[s] = answer.Stage
	g.mu.Unlock()
	return answer, nil
}

// forget closes the stage in the process.
func (g *generation) forget(ctx context.Context, s *Stage) {
	g.mu.Lock()
	id, ok := g.ids[s]
	delete(g.ids, s)
	g.mu.Unlock()
	if ok {
		g.service.Close(ctx, &pb.CloseRequest{Stage: id})
	}
}

// stream is one of the open streams of questions. It belongs to who took it.
type stream struct {
	pb.Plugin_InspectClient
	cancel context.CancelFunc
	seq    uint64
}

func (g *generation) take() (*stream, error) {
	g.mu.Lock()
	if n := len(g.idle); n > 0 {
		s := g.idle[n-1]
		g.idle = g.idle[:n-1]
		g.mu.Unlock()
		return s, nil
	}
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(g.life)
	client, err := g.service.Inspect(ctx)
	if err != nil {
		cancel()
		return nil, plain(err)
	}
	return &stream{Plugin_InspectClient: client, cancel: cancel}, nil
}

func (g *generation) give(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.idle) < maxIdle {
		g.idle = append(g.idle, s)
		return
	}
	s.cancel()
}

// broken is the error of a question that was lost on its way: it may be put again.
type broken struct{ err error }

func (b *broken) Error() string { return "it did not answer: " + b.err.Error() }
func (b *broken) Unwrap() error { return b.err }

// inspect asks stages about m.
func (g *generation) inspect(ctx context.Context, m *mcp.Message, stages []*Stage) ([]pipeline.Verdict, []error, error) {
	select {
	case g.inFlight <- struct{}{}:
		defer func() { <-g.inFlight }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	q := &pb.InspectRequest{Stages: make([]uint32, len(stages))}
	var see proto.See
	g.mu.Lock()
	for i, s := range stages {
		q.Stages[i] = g.ids[s]
		see.Body, see.Request, see.Principal = see.Body || s.see.Body, see.Request || s.see.Request, see.Principal || s.see.Principal
	}
	g.mu.Unlock()
	if slices.Contains(q.Stages, 0) {
		return nil, nil, errors.New("its process has not made the stage")
	}
	q.Message = proto.FromMessage(m, see)
	s, err := g.take()
	if err != nil {
		return nil, nil, &broken{err}
	}
	s.seq++
	q.Seq = s.seq
	stop := context.AfterFunc(ctx, s.cancel)
	r, err := ask(s, q)
	if !stop() {
		return nil, nil, context.Cause(ctx) // and the stream is gone
	}
	if err != nil {
		s.cancel()
		return nil, nil, err
	}
	g.give(s)
	verdicts, errs := make([]pipeline.Verdict, len(r.Verdicts)), make([]error, len(r.Verdicts))
	for i, v := range r.Verdicts {
		if verdicts[i], errs[i] = proto.ToVerdict(v); errs[i] == nil {
			verdicts[i] = stages[i].granted(verdicts[i])
		}
	}
	return verdicts, errs, nil
}

// ask puts one question.
func ask(s *stream, q *pb.InspectRequest) (*pb.InspectResponse, error) {
	if err := s.Send(q); err != nil {
		_, why := s.Recv() // which Send does not say
		if why == nil {
			why = err
		}
		return nil, &broken{plain(why)}
	}
	r, err := s.Recv()
	switch {
	case err != nil:
		return nil, &broken{plain(err)}
	case r.Seq != q.Seq:
		return nil, fmt.Errorf("it answered question %d, and was asked %d", r.Seq, q.Seq)
	case len(r.Verdicts) == 0 || len(r.Verdicts) > len(q.Stages):
		return nil, fmt.Errorf("it gave %d verdicts, and was asked for %d", len(r.Verdicts), len(q.Stages))
	}
	for _, v := range r.Verdicts { // each by itself: several stages may each have changed much
		if size := protobuf.Size(v); size > protobuf.Size(q)+maxVerdict {
			return nil, fmt.Errorf("its verdict of %d bytes is too large for a message of %d", size, protobuf.Size(q))
		}
	}
	return r, nil
}

// clip is text of a plugin as it may be logged and recorded.
func clip(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
