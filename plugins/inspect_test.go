package plugins

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/transport/process"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A request is not lost if its sender gives up while the host opens a stream for it. Lost requests
// count as requests without a verdict, so a sender could otherwise end the process.
func TestSenderGivesUpWhileAStreamIsOpened(t *testing.T) {
	running, err := process.Start(process.Command{Path: "/bin/sleep", Args: []string{"1000"},
		Stdout: os.Stderr, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		running.Signal(syscall.SIGKILL)
		<-running.Done()
	}()
	s := &Stage{spec: Spec{Timeout: time.Hour}}
	p := &pluginProcess{runner: &runner{process: running}, stageIDs: map[*Stage]uint32{s: 1},
		inFlight: proto.NewFairLimit(maxInFlight)}
	p.large, p.largest = newByteLimit(0)
	ctx, giveUp := context.WithCancel(t.Context())
	p.streams = newStreamPool(func(ctx context.Context) (connection, error) {
		giveUp()
		return nil, errors.New("no stream")
	})
	m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"x"}`))
	_, _, err = p.inspect(ctx, m, []*Stage{s})
	if timedOut := (*timeoutError)(nil); !errors.As(err, &timedOut) {
		t.Errorf("got the error %v, want that the sender gave up", err)
	}
	_, _, err = p.inspect(t.Context(), m, []*Stage{s})
	if lost := (*lostError)(nil); !errors.As(err, &lost) {
		t.Errorf("got the error %v, want that the request was lost", err)
	}
}

// closingService makes stages with the numbers 1, 2, ... and remembers the numbers of those that
// were closed.
type closingService struct {
	pb.PluginClient
	made   uint32
	closed []uint32
}

func (s *closingService) Configure(context.Context, *pb.ConfigureRequest,
	...grpc.CallOption) (*pb.ConfigureResponse, error) {
	s.made++
	return &pb.ConfigureResponse{Stage: s.made}, nil
}

func (s *closingService) Close(_ context.Context, r *pb.CloseRequest,
	_ ...grpc.CallOption) (*pb.CloseResponse, error) {
	s.closed = append(s.closed, r.Stage)
	return &pb.CloseResponse{}, nil
}

// A load and a restart may make a stage in a process at the same time. The plugin then closes the
// stage that was made first, because no message reaches it.
func TestStageThatWasMadeTwiceIsClosed(t *testing.T) {
	service := &closingService{}
	p := &pluginProcess{service: service, stageIDs: map[*Stage]uint32{},
		offered: map[string]*pb.Description{"x": {Name: "x"}}, kept: newKeptVerdicts()}
	s := &Stage{spec: Spec{Name: "x", Config: []byte(`{}`)}}
	for made, closed := range [][]uint32{{}, {1}, {1, 2}} {
		if _, err := p.configure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(service.closed, closed) {
			t.Errorf("after the stage was made %d times, the stages %v are closed, want %v",
				made+1, service.closed, closed)
		}
	}
	p.closeStage(s, time.Minute)
	if closed := []uint32{1, 2, 3}; !slices.Equal(service.closed, closed) {
		t.Errorf("at the end, the stages %v are closed, want %v", service.closed, closed)
	}
}

// brokenCall is a call that the plugin has ended with an error before the next request.
type brokenCall struct{ pb.Plugin_InspectClient }

func (brokenCall) Send(*pb.InspectRequest) error { return io.EOF }
func (brokenCall) Recv() (*pb.InspectResponse, error) {
	return nil, status.Error(codes.Internal, "as the plugin says")
}

// The error of a request over gRPC is the error with which the plugin ended the call.
func TestErrorOfARequestHasItsCause(t *testing.T) {
	_, err := call{brokenCall{}, func() {}}.exchange(&pb.InspectRequest{})
	if err == nil || err.Error() != "as the plugin says" {
		t.Errorf("got the error %v, want the error of the plugin", err)
	}
}
