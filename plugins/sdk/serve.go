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

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Serve offers plugins to the Gatekit that started this process, until that ends it. It is called
// from main, and does not return. Run by hand, the program says what it is. What the process writes
// to stderr goes into Gatekit's log; stdout is Gatekit's.
func Serve(plugins ...Plugin) {
	if _, ok := os.LookupEnv("GOGC"); !ok {
		defer runtime.KeepAlive(make([]byte, ballastBytes))
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: proto.Handshake(),
		Plugins:         plugin.PluginSet{proto.ServiceName: service{plugins: plugins}},
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

// ballastBytes is how much garbage is made before it is collected, at the least: memory that is
// never touched, and so never resident, but counts in what the collector lets the heap grow by. A
// plugin's own heap is a few MiB, and messages are garbage at once: without it, a third of its time
// went into collecting.
const ballastBytes = 16 << 20

// service is the plugins as go-plugin wants them.
type service struct {
	plugin.NetRPCUnsupportedPlugin
	plugins []Plugin
}

func (s service) GRPCServer(_ *plugin.GRPCBroker, to *grpc.Server) error {
	pb.RegisterPluginServer(to, NewServer(s.plugins...))
	return nil
}

func (service) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this side serves plugins")
}

// NewServer is the service that Serve serves, for tests that need no process.
func NewServer(plugins ...Plugin) pb.PluginServer {
	return &server{plugins: plugins, stages: map[uint32]configured{}}
}

type server struct {
	pb.UnimplementedPluginServer
	plugins []Plugin

	mu     sync.Mutex
	last   uint32
	stages map[uint32]configured
}

// configured is a stage in use.
type configured struct {
	name  string
	stage Stage
}

// maxStages of one process are in use at a time: each reload makes new ones before it closes the
// old.
const maxStages = 1024

func (s *server) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	var r pb.DescribeResponse
	for _, p := range s.plugins {
		r.Plugins = append(r.Plugins, &pb.Description{Name: p.Name, Version: p.Version, Doc: p.Doc,
			Schema: p.Schema})
	}
	return &r, nil
}

func (s *server) Configure(_ context.Context,
	r *pb.ConfigureRequest) (answer *pb.ConfigureResponse, err error) {
	i := slices.IndexFunc(s.plugins, func(p Plugin) bool { return p.Name == r.Plugin })
	if i < 0 && r.Plugin == "" && len(s.plugins) == 1 {
		i = 0
	}
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "there is no plugin %q here", r.Plugin)
	}
	p := s.plugins[i]
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, status.Errorf(codes.Internal, "panicked: %v", r)
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
	answer = &pb.ConfigureResponse{Wants: proto.FromWants(wants), Needs: &pb.Needs{Body: needs.Body,
		Request: needs.Request}}
	if r, ok := stage.(StageWithRenames); ok {
		names := r.Renames()
		answer.Renames = &pb.Renames{Tools: names.Tools, Prompts: names.Prompts}
	}
	if p.SelfTest != nil {
		if c := p.SelfTest(r.Config); c != nil {
			answer.Canary = &pb.Canary{What: c.Description, Message: proto.FromMessage(c.Message,
				proto.Visibility{Body: true, Request: true, Principal: true}),
				Action: proto.FromAction(c.Action)}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stages) >= maxStages {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d stages are in use",
			maxStages)
	}
	s.last++
	s.stages[s.last] = configured{p.Name, stage}
	answer.Stage = s.last
	return answer, nil
}

func (s *server) Inspect(stream grpc.BidiStreamingServer[pb.InspectRequest,
	pb.InspectResponse]) error {
	for {
		q, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(s.inspect(stream.Context(), q)); err != nil {
			return err
		}
	}
}

// inspect asks the stages. What cannot be asked is an error of the stage, which denies where the
// configuration does not say otherwise.
func (s *server) inspect(ctx context.Context, q *pb.InspectRequest) *pb.InspectResponse {
	r := &pb.InspectResponse{Seq: q.Seq}
	m, err := proto.ToMessage(q.Message)
	if err != nil {
		r.Verdicts = []*pb.Verdict{proto.FromVerdict(Verdict{}, err)}
		return r
	}
	verdicts, errs := pipeline.InspectInOrder(m, len(q.Stages),
		func(i int, m *mcp.Message) (Verdict, error) {
			s.mu.Lock()
			c, ok := s.stages[q.Stages[i]]
			s.mu.Unlock()
			if !ok {
				return Verdict{}, fmt.Errorf("there is no stage %d", q.Stages[i])
			}
			return ask(ctx, c.stage, m)
		})
	for i, v := range verdicts {
		r.Verdicts = append(r.Verdicts, proto.FromVerdict(v, errs[i]))
	}
	return r
}

// ask is one question. A stage that panics has failed, and the process goes on.
func ask(ctx context.Context, stage Stage, m *mcp.Message) (v Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = Verdict{}, fmt.Errorf("panicked: %v", r)
		}
	}()
	return stage.Inspect(ctx, m)
}

func (s *server) Close(_ context.Context, r *pb.CloseRequest) (*pb.CloseResponse, error) {
	s.mu.Lock()
	c := s.stages[r.Stage]
	delete(s.stages, r.Stage)
	s.mu.Unlock()
	if closer, ok := c.stage.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			return nil, status.Errorf(codes.Internal, "close %s: %v", c.name, err)
		}
	}
	return &pb.CloseResponse{}, nil
}
