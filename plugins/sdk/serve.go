package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/proto/socket"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Serve serves plugins to the Gatekit that started this process. Call Serve from main. It returns
// when Gatekit ends the process. If a user starts the program by hand, Serve prints an explanation
// and exits. Lines that the process writes to stderr go to Gatekit's log. The process must not
// write to stdout, which carries the handshake.
func Serve(plugins ...Plugin) {
	if _, ok := os.LookupEnv("GOGC"); !ok {
		defer runtime.KeepAlive(make([]byte, minHeapGrowth))
	}
	served := newServer(plugins)
	if sockets := socket.Inherited(); sockets != nil {
		served.socketToken = sockets.Token()
		sockets.OnServed(served.state.add)
		go served.serveSockets(sockets)
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: proto.Handshake(),
		Plugins:         plugin.PluginSet{proto.ServiceName: serverPlugin{server: served}},
		Logger:          hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr}),
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, grpc.MaxRecvMsgSize(proto.MaxMessageBytes),
				grpc.MaxSendMsgSize(proto.MaxMessageBytes),
				grpc.ForceServerCodecV2(proto.NewCodec()),
				grpc.StaticStreamWindowSize(proto.StreamWindow),
				grpc.StaticConnWindowSize(proto.ConnWindow))...)
		},
	})
}

// minHeapGrowth is the size of a block that is allocated and never touched, so that it uses no real
// memory. Because of the block, the garbage collector runs only after the heap has grown by at
// least this size. A plugin's own heap is a few MiB, and each message soon becomes garbage. Without
// the block, a third of the processor time went into garbage collection.
const minHeapGrowth = 16 << 20

// serverPlugin registers the plugins' service for go-plugin.
type serverPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	server *server
}

func (p serverPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pb.RegisterPluginServer(s, p.server)
	return nil
}

func (serverPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("the SDK does not call plugins")
}

// NewServer returns the service that Serve serves, for tests that need no process.
func NewServer(plugins ...Plugin) pb.PluginServer { return newServer(plugins) }

func newServer(plugins []Plugin) *server {
	return &server{plugins: plugins, stages: map[uint32]stageInUse{},
		large: proto.NewByteLimit(largeBytes), state: newStateConns()}
}

// largeBytes is how many bytes of large messages are inspected at a time. The host has a limit,
// too. But the host no longer counts an inspection that it has stopped waiting for, although the
// inspection may still run here.
const largeBytes = 16 << 20

// server implements the plugin service of the protocol.
type server struct {
	pb.UnimplementedPluginServer
	plugins []Plugin
	large   proto.ByteLimit
	// socketToken is the token of the control socket; nil if the process has none.
	socketToken []byte
	state       stateConns

	mu     sync.Mutex // guards the fields below
	lastID uint32
	stages map[uint32]stageInUse // by ID
}

// stageInUse is a stage that was configured and not closed.
type stageInUse struct {
	plugin string
	stage  Stage
}

// maxStages is how many stages may be in use at a time. Each reload makes new stages before it
// closes the old ones.
const maxStages = 1024

func (s *server) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	r := pb.DescribeResponse{SocketToken: s.socketToken}
	for _, p := range s.plugins {
		r.Plugins = append(r.Plugins, &pb.Description{Name: p.Name, Version: p.Version, Doc: p.Doc,
			Schema: p.Schema, SharedState: p.SharedState})
	}
	return &r, nil
}

// Configure makes a stage. A panic of the plugin becomes an error.
func (s *server) Configure(_ context.Context,
	r *pb.ConfigureRequest) (response *pb.ConfigureResponse, err error) {
	i := slices.IndexFunc(s.plugins, func(p Plugin) bool { return p.Name == r.Plugin })
	if i < 0 && r.Plugin == "" && len(s.plugins) == 1 {
		i = 0
	}
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "this program has no plugin %q", r.Plugin)
	}
	p := s.plugins[i]
	defer func() {
		if r := recover(); r != nil {
			response, err = nil, status.Errorf(codes.Internal, "panicked: %v", r)
		}
	}()
	stage, err := p.New(r.Config)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	wants := p.Wants
	if w, ok := stage.(StageWithWants); ok {
		wants = w.Wants()
	}
	needs := p.Needs
	if n, ok := stage.(StageWithNeeds); ok {
		needs = n.Needs()
	}
	response = &pb.ConfigureResponse{Wants: proto.FromWants(wants),
		Needs: &pb.Needs{Body: needs.Body, Request: needs.Request}}
	if r, ok := stage.(StageWithRenames); ok {
		names := r.Renames()
		response.Renames = &pb.Renames{Tools: names.Tools, Prompts: names.Prompts}
	}
	if r, ok := stage.(StageWithRestore); ok {
		response.Restore = proto.FromRestore(r.Restore())
	}
	if r, ok := stage.(StageWithReuse); ok {
		if reuse := r.Reuse(); reuse != nil {
			response.Reuse = &pb.Reuse{Principals: uint32(max(reuse.Principals, 0))}
		}
	}
	if p.SelfTest != nil {
		if t := p.SelfTest(r.Config); t != nil {
			everything := proto.Visibility{Body: true, Request: true, Principal: true}
			response.Canary = &pb.Canary{What: t.Description,
				Message: proto.FromMessage(t.Message, everything),
				Action:  proto.FromAction(t.Action)}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stages) >= maxStages {
		return nil, status.Errorf(codes.ResourceExhausted, "all %d stages are in use", maxStages)
	}
	s.lastID++
	if u, ok := stage.(StageWithSharedState); ok && r.SharedState != nil {
		u.UseSharedState(SharedState{stageState{s.state, s.lastID}, int(r.SharedState.Replicas)})
	}
	s.stages[s.lastID] = stageInUse{p.Name, stage}
	response.Stage = s.lastID
	return response, nil
}

// Inspect responds to the requests of one stream, one after another.
func (s *server) Inspect(stream grpc.BidiStreamingServer[pb.InspectRequest,
	pb.InspectResponse]) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(s.inspect(stream.Context(), request)); err != nil {
			return err
		}
	}
}

// inspect returns the response to one request. If a stage is unknown, or if the message cannot be
// decoded, the verdict is an error. An error denies the message, unless the configuration has
// on_error = "skip".
func (s *server) inspect(ctx context.Context, q *pb.InspectRequest) *pb.InspectResponse {
	r := &pb.InspectResponse{Seq: q.Seq}
	m, err := proto.ToMessage(q.Message)
	if err != nil {
		r.Verdicts = []*pb.Verdict{proto.FromVerdict(Verdict{}, err)}
		return r
	}
	sender, size := proto.SenderOf(m), len(q.Message.GetBody())+len(q.Message.GetRequest())
	if err := s.large.Acquire(ctx, sender, size); err != nil {
		r.Verdicts = []*pb.Verdict{proto.FromVerdict(Verdict{}, err)}
		return r
	}
	defer s.large.Release(sender, size)
	if len(q.Stages) > 1 {
		m = m.WithLeaves()
	}
	verdicts, errs := pipeline.InspectInOrder(m, len(q.Stages),
		func(i int, m *mcp.Message) (Verdict, error) {
			s.mu.Lock()
			c, ok := s.stages[q.Stages[i]]
			s.mu.Unlock()
			if !ok {
				return Verdict{}, fmt.Errorf("no stage with the number %d", q.Stages[i])
			}
			return inspectStage(ctx, c.stage, m)
		})
	for i, v := range verdicts {
		r.Verdicts = append(r.Verdicts, proto.FromVerdict(v, errs[i]))
	}
	return r
}

// inspectStage returns the verdict of a stage. A panic becomes an error.
func inspectStage(ctx context.Context, stage Stage, m *mcp.Message) (v Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = Verdict{}, fmt.Errorf("panicked: %v", r)
		}
	}()
	return stage.Inspect(ctx, m)
}

// Close closes a stage. It is no error if there is no such stage.
func (s *server) Close(_ context.Context, r *pb.CloseRequest) (*pb.CloseResponse, error) {
	s.mu.Lock()
	c := s.stages[r.Stage]
	delete(s.stages, r.Stage)
	s.mu.Unlock()
	if closer, ok := c.stage.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			return nil, status.Errorf(codes.Internal, "close %s: %v", c.plugin, err)
		}
	}
	return &pb.CloseResponse{}, nil
}
