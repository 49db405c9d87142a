package sdk

import (
	"context"
	"fmt"
	"net"
	"time"

	"gatekit/core/shared"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/proto/socket"

	protobuf "google.golang.org/protobuf/proto"
)

// SharedState is the state in which a stage counts together with the same stage of other replicas.
// Its methods may be called from many goroutines. They return within a quarter of the plugin's
// timeout. Their names belong to the plugin: no other plugin has the same counts, whatever the
// kinds of the keys.
type SharedState struct {
	shared.Admitter
	// Replicas is by how many the stage divides its limits while the state is not available
	// (shared.ErrUnavailable). If it is 0, the stage denies what it cannot count.
	Replicas int
}

// StageWithSharedState is a stage that can count together with other replicas, see
// [Plugin].SharedState. UseSharedState is called before the first Inspect, and only if Gatekit has
// such a state and gives it to the plugin. Gatekit gives it to its built-in plugins only.
type StageWithSharedState interface{ UseSharedState(SharedState) }

// maxStateConns is how many connections for calls of the state a process keeps. Gatekit passes
// fewer.
const maxStateConns = 64

// stateConns are the connections over which the stages of a process call the state. A connection
// carries one call at a time.
type stateConns struct {
	idle    chan *socket.Connection
	buffers socket.Buffers
}

func newStateConns() stateConns {
	return stateConns{make(chan *socket.Connection, maxStateConns), proto.NewBuffers()}
}

// add adds a connection that Gatekit has passed.
func (c stateConns) add(conn net.Conn) {
	select {
	case c.idle <- socket.NewConnection(conn, c.buffers):
	default:
		conn.Close()
	}
}

// call sends a request, and returns its result. limits is the number of its limits. A connection
// that fails is closed. If none is left, calls wait until ctx ends.
func (c stateConns) call(ctx context.Context, request *pb.StateRequest,
	limits int) (shared.Admitted, error) {
	content, err := protobuf.Marshal(request)
	if err != nil {
		return shared.Admitted{}, err
	}
	if len(content) > proto.MaxStateRequest {
		return shared.Admitted{}, fmt.Errorf("%w: the request has %d bytes, and may have %d",
			shared.ErrFull, len(content), proto.MaxStateRequest)
	}
	var conn *socket.Connection
	select {
	case conn = <-c.idle:
	case <-ctx.Done():
		return shared.Admitted{}, fmt.Errorf("%w: %w", shared.ErrUnavailable, context.Cause(ctx))
	}
	response, err := exchange(conn, content)
	if err != nil {
		conn.Close()
		return shared.Admitted{}, fmt.Errorf("%w: %w", shared.ErrUnavailable, err)
	}
	c.idle <- conn
	return proto.ToStateResult(response, limits)
}

// exchange sends a request and waits for the response. Gatekit always responds in time, so exchange
// does not end before.
func exchange(conn *socket.Connection, request []byte) (*pb.StateResponse, error) {
	if err := conn.Send(request); err != nil {
		return nil, err
	}
	frame, err := conn.Receive(proto.MaxStateResponse)
	if err != nil {
		return nil, err
	}
	defer conn.Release(frame)
	var response pb.StateResponse
	return &response, protobuf.Unmarshal(*frame, &response)
}

// stageState is the state of one stage. It implements shared.Admitter.
type stageState struct {
	conns stateConns
	stage uint32
}

// Admit implements shared.Admitter.
func (s stageState) Admit(ctx context.Context, a shared.Admission) (shared.Admitted, error) {
	return s.conns.call(ctx, &pb.StateRequest{Stage: s.stage,
		Call: &pb.StateRequest_Admit{Admit: proto.FromAdmission(a)}}, len(a.Limits))
}

// Renew implements shared.Admitter.
func (s stageState) Renew(ctx context.Context, l shared.Lease, ttl time.Duration) error {
	_, err := s.conns.call(ctx, &pb.StateRequest{Stage: s.stage,
		Call: &pb.StateRequest_Renew{Renew: proto.FromLease(l, ttl)}}, 0)
	return err
}

// Release implements shared.Admitter.
func (s stageState) Release(ctx context.Context, l shared.Lease) error {
	_, err := s.conns.call(ctx, &pb.StateRequest{Stage: s.stage,
		Call: &pb.StateRequest_Release{Release: proto.FromLease(l, 0)}}, 0)
	return err
}
