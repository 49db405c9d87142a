package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
)

// Bounds of one process.
const (
	maxInFlight = 64      // fewer than the streams that servers of gRPC allow
	maxOffered  = 1000    // plugins that it may describe
	maxVerdict  = 1 << 20 // bytes, beside those of the message that it is about
)

// maxSocketDir is the longest path of a folder for a socket: the system allows 104 bytes and more
// for its path, of which our folder's name and go-plugin's take up to 61.
const maxSocketDir = 43

// generation is a plugin's process from its start to its end.
type generation struct {
	name string
	// with its socket, its program if that is pinned, and its working folder; removed with it
	dir      string
	client   *plugin.Client
	runner   *runner
	service  pb.PluginClient
	offers   map[string]*pb.Description
	life     context.Context
	cancel   context.CancelFunc
	said     io.Closer     // of what the process says through go-plugin
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
	g := &generation{name: s.Name, dir: dir, gone: make(chan struct{}),
		inFlight: make(chan struct{}, maxInFlight), ids: map[*Stage]uint32{},
		offers: map[string]*pb.Description{}}
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
	command := process.Command{What: s.what(), Dir: work, Log: h.options.Log.With("plugin",
		s.label())}
	switch {
	case s.Use != "":
		command.Path, command.Name, command.Args = h.options.BuiltinCommand[0],
			h.options.BuiltinCommand[1],
			h.options.BuiltinCommand[2:]
	default:
		if command.Path, err = program(s, dir); err != nil {
			return nil, err
		}
		command.Args = s.Command[1:]
	}
	for name, value := range s.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	g.runner = &runner{command: command}
	// what go-plugin makes of the process's stdout and stderr once it serves
	saying, said := io.Pipe()
	g.said = said
	config := &plugin.ClientConfig{
		HandshakeConfig:  proto.Handshake(),
		Plugins:          plugin.PluginSet{proto.ServiceName: dispenser{}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         !s.NoTLS,
		SkipHostEnv:      true,
		StartTimeout:     h.options.StartTimeout,
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: dir},
		SyncStdout:       said,
		SyncStderr:       said,
		RunnerFunc: func(_ hclog.Logger, c *exec.Cmd, sockets string) (goplugin.Runner, error) {
			g.runner.command.Env = append(g.runner.command.Env, c.Env...)
			g.runner.sockets = sockets
			return g.runner, nil
		},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(h.options.MaxMessage+1<<20),
			grpc.MaxCallSendMsgSize(proto.MaxMessageBytes), grpc.ForceCodecV2(proto.NewCodec())),
			grpc.WithStaticStreamWindowSize(proto.StreamWindow),
			grpc.WithStaticConnWindowSize(proto.ConnWindow)},
	}
	stop := context.AfterFunc(ctx, g.kill)
	defer stop()
	g.client = plugin.NewClient(config)
	protocol, err := g.client.Client()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, g.failed(err)
	}
	go g.runner.process.Drain(saying)
	// which go-plugin makes of the certificate in the handshake
	if !s.NoTLS && (config.TLSConfig == nil || config.TLSConfig.RootCAs == nil) {
		return nil, errors.New("it has no certificate, so that nobody could tell who listens on " +
			"its socket\nhint: set mtls = false for a program that cannot do TLS")
	}
	raw, err := protocol.Dispense(proto.ServiceName)
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
	if g.runner == nil || g.runner.pid() == 0 {
		return err
	}
	select {
	case <-g.runner.process.Done():
		return fmt.Errorf("%w; %w", g.runner.how(), err)
	case <-time.After(endsWithin):
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

func (dispenser) GRPCClient(_ context.Context, _ *plugin.GRPCBroker,
	conn *grpc.ClientConn) (any, error) {
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
	if g.runner != nil && g.runner.pid() != 0 {
		g.kill()
		<-g.runner.process.Done()
	}
	if g.said != nil {
		g.said.Close()
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
	if err := (sdk.Plugin{Name: offer.Name,
		Schema: offer.Schema}).Check(s.spec.Config); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	answer, err := g.service.Configure(ctx, &pb.ConfigureRequest{Plugin: name,
		Config: s.spec.Config})
	switch {
	case err != nil:
		return nil, plain(err)
	case answer.Stage == 0:
		return nil, errors.New("it made no stage of its configuration")
	}
	g.mu.Lock()
	replaced := g.ids[s] // when a stage is added just as the process is started again
	g.ids[s] = answer.Stage
	g.mu.Unlock()
	if replaced != 0 {
		g.service.Close(ctx, &pb.CloseRequest{Stage: replaced})
	}
	return answer, nil
}

// forgetLate is forget with a time of its own.
func (g *generation) forgetLate(s *Stage) {
	ctx, cancel := context.WithTimeout(g.life, endWithin)
	defer cancel()
	g.forget(ctx, s)
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

// take answers a stream that ends with ctx, too, until stop is called.
func (g *generation) take(ctx context.Context) (s *stream, stop func() bool, err error) {
	g.mu.Lock()
	if n := len(g.idle); n > 0 {
		s := g.idle[n-1]
		g.idle = g.idle[:n-1]
		g.mu.Unlock()
		return s, context.AfterFunc(ctx, s.cancel), nil
	}
	g.mu.Unlock()
	life, cancel := context.WithCancel(g.life)
	stop = context.AfterFunc(ctx, cancel) // before it is opened, which a plugin can hold up
	client, err := g.service.Inspect(life)
	if err != nil {
		stop()
		cancel()
		return nil, nil, plain(err)
	}
	return &stream{Plugin_InspectClient: client, cancel: cancel}, stop, nil
}

func (g *generation) give(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = append(g.idle, s)
}

// clear ends the streams that wait for a question: they are as old as the one that broke.
func (g *generation) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.idle {
		s.cancel()
	}
	g.idle = nil
}

// broken is the error of a question that was lost on its way: it may be put again.
type broken struct{ err error }

func (b *broken) Error() string { return "it did not answer: " + b.err.Error() }
func (b *broken) Unwrap() error { return b.err }

// silence is the error of a question whose time was over before a verdict came.
type silence struct {
	err    error
	waited time.Duration // since it was put
}

func (s *silence) Error() string { return s.err.Error() }
func (s *silence) Unwrap() error { return s.err }

// inspect asks stages about m.
func (g *generation) inspect(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	select {
	case g.inFlight <- struct{}{}:
		defer func() { <-g.inFlight }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	q := &pb.InspectRequest{Stages: make([]uint32, len(stages))}
	var see proto.Visibility
	g.mu.Lock()
	for i, s := range stages {
		q.Stages[i] = g.ids[s]
		see.Body, see.Request, see.Principal = see.Body || s.see.Body, see.Request || s.see.Request,
			see.Principal || s.see.Principal
	}
	g.mu.Unlock()
	if slices.Contains(q.Stages, 0) {
		return nil, nil, errors.New("its process has not made the stage")
	}
	q.Message = proto.FromMessage(m, see)
	put := time.Now()
	s, stop, err := g.take(ctx)
	var r *pb.InspectResponse
	if err == nil {
		s.seq++
		q.Seq = s.seq
		r, err = ask(s, q)
		if !stop() { // and the stream is gone
			return nil, nil, &silence{context.Cause(ctx), time.Since(put)}
		}
	}
	switch fault := (*unclear)(nil); {
	case errors.As(err, &fault):
		s.cancel()
		return []pipeline.Verdict{{Reason: fault.Error()}}, []error{nil}, nil
	case err != nil && ctx.Err() != nil:
		return nil, nil, &silence{context.Cause(ctx), time.Since(put)}
	case err != nil:
		if s != nil {
			s.cancel()
		}
		g.clear()
		return nil, nil, &broken{err}
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

// unclear says what is wrong with an answer that came. It denies, also where failures are skipped:
// the plugin may have wanted something.
type unclear struct{ what string }

func (u *unclear) Error() string { return u.what }

// ask puts one question.
func ask(s *stream, q *pb.InspectRequest) (*pb.InspectResponse, error) {
	if err := s.Send(q); err != nil {
		_, why := s.Recv() // which Send does not say
		if why == nil {
			why = err
		}
		return nil, plain(why)
	}
	r, err := s.Recv()
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		return nil, &unclear{"its verdict is too large: " + plain(err).Error()}
	case err != nil:
		return nil, plain(err)
	case r.Seq != q.Seq:
		return nil, &unclear{fmt.Sprintf("it answered question %d, and was asked %d", r.Seq, q.Seq)}
	case len(r.Verdicts) == 0 || len(r.Verdicts) > len(q.Stages):
		return nil, &unclear{fmt.Sprintf("it gave %d verdicts, and was asked for %d",
			len(r.Verdicts), len(q.Stages))}
	}
	for _, v := range r.Verdicts { // each by itself: several stages may each have changed much
		if size := protobuf.Size(v); size > protobuf.Size(q)+maxVerdict {
			return nil, &unclear{fmt.Sprintf("its verdict of %d bytes is too large for a "+
				"message of %d", size, protobuf.Size(q))}
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
