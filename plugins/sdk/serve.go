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
		large: proto.NewByteLimit(largeBytes)}
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

	mu     sync.Mutex // guards the fields below
	lastID uint32
	stages map[uint32]stageInUse // by ID
}

// stageInUse is a stage that was configured and not closed.
type stageInUse struct {
	plugin string
	stage  Stage
	shared StageWithSharedState // nil if the stage does not use the state that replicas share
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
	used := stageInUse{plugin: p.Name, stage: stage}
	if u, ok := stage.(StageWithSharedState); ok && r.SharedState != nil {
		u.UseSharedState(SharedState{Replicas: int(r.SharedState.Replicas)})
		used.shared = u
	}
	s.stages[s.lastID] = used
	response.Stage = s.lastID
	return response, nil
}

// Inspect responds to the requests of one stream, one after another.
func (s *server) Inspect(stream grpc.BidiStreamingServer[pb.InspectRequest,
	pb.InspectResponse]) error {
	c := conversation{server: s}
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(c.respond(stream.Context(), request)); err != nil {
			return err
		}
	}
}

// conversation is the requests of one stream or connection, and their responses. Only one goroutine
// may use it.
type conversation struct {
	server *server
	last   Count // of the last verdict; without Settle if it cannot be settled
}

// respond returns the response to a request.
func (c *conversation) respond(ctx context.Context, q *pb.InspectRequest) *pb.InspectResponse {
	last := c.last
	c.last = Count{}
	if q.Result != nil {
		return &pb.InspectResponse{Seq: q.Seq, Verdicts: []*pb.Verdict{settle(last, q.Result)}}
	}
	return c.inspect(ctx, q)
}

// settle returns the verdict that holds instead of one whose admission is not counted.
func settle(count Count, result *pb.StateResult) (p *pb.Verdict) {
	defer func() {
		if r := recover(); r != nil {
			p = proto.FromVerdict(Verdict{}, fmt.Errorf("panicked: %v", r))
		}
	}()
	if count.Settle == nil {
		return proto.FromVerdict(Verdict{}, errors.New("no admission to settle"))
	}
	admitted, err := proto.ToStateResult(result, len(count.Calls.Admission.Limits))
	v, lease := count.Settle(admitted, err)
	p = proto.FromVerdict(v, nil)
	p.State = proto.FromStateCalls(StateCalls{Release: lease})
	return p
}

// inspect returns the response to a request about a message. If a stage is unknown, or if the
// message cannot be decoded, the verdict is an error. An error denies the message, unless the
// configuration has on_error = "skip". A stage with an admission is the last one that is asked.
func (c *conversation) inspect(ctx context.Context, q *pb.InspectRequest) *pb.InspectResponse {
	s, r := c.server, &pb.InspectResponse{Seq: q.Seq}
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
	asked := len(q.Stages)
	var calls []*pb.StateCalls // by stage; nil if no stage uses the state that replicas share
	verdicts, errs := pipeline.InspectInOrder(m, len(q.Stages),
		func(i int, m *mcp.Message) (v Verdict, err error) {
			if i >= asked {
				return Verdict{}, errors.New("not asked")
			}
			s.mu.Lock()
			used, ok := s.stages[q.Stages[i]]
			s.mu.Unlock()
			if !ok {
				return Verdict{}, fmt.Errorf("no stage with the number %d", q.Stages[i])
			}
			v, count, err := used.inspect(ctx, m)
			if used.shared != nil {
				if calls == nil {
					calls = make([]*pb.StateCalls, len(q.Stages))
				}
				calls[i] = proto.FromStateCalls(count.Calls)
				if calls[i].GetAdmit() != nil {
					c.last, asked = count, i+1
				}
			}
			return v, err
		})
	for i, v := range verdicts[:min(len(verdicts), asked)] {
		p := proto.FromVerdict(v, errs[i])
		if calls != nil {
			p.State = calls[i]
		}
		r.Verdicts = append(r.Verdicts, p)
	}
	return r
}

// inspect returns the verdict of the stage, and what the message changes in the state that replicas
// share. A panic becomes an error.
func (u stageInUse) inspect(ctx context.Context, m *mcp.Message) (v Verdict, c Count, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, c, err = Verdict{}, Count{}, fmt.Errorf("panicked: %v", r)
		}
	}()
	if u.shared != nil {
		return u.shared.InspectShared(ctx, m)
	}
	v, err = u.stage.Inspect(ctx, m)
	return v, c, err
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
