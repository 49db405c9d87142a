package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"gatekit/core/shared"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/proto/socket"

	protobuf "google.golang.org/protobuf/proto"
)

// SharedState is the state in which built-in plugins count together with other replicas.
type SharedState struct {
	// State has the counts. Its methods return when their context ends.
	State shared.Admitter
	// Replicas is by how many a plugin divides its limits while the state is not available. If it
	// is 0, the plugin denies what it cannot count.
	Replicas int
}

const (
	// maxStateCalls is how many calls of the state a process may make at a time. Others wait.
	maxStateCalls = 32
	// stateShare is the part of the plugin's timeout that one call of the state may take: a
	// quarter. An inspection makes three calls at most.
	stateShare = 4
)

// stateServer serves the state that replicas share to a process. The process cannot connect to
// anything, so it gets its connections over the control socket. Each carries one call at a time.
type stateServer struct {
	shared SharedState

	mu          sync.Mutex // guards the fields below
	stages      map[uint32]*Stage
	connections []*socket.Connection
	cancel      context.CancelFunc // ends the calls; nil before there are connections
	wg          sync.WaitGroup     // a goroutine for each connection
}

func newStateServer(s SharedState) *stateServer {
	return &stateServer{shared: s, stages: map[uint32]*Stage{}}
}

// open passes the connections to the process, unless it has them already.
func (s *stateServer) open(control *socket.Control) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for range maxStateCalls {
		c, err := control.OpenServed()
		if err != nil {
			return fmt.Errorf("let the plugin use the shared state: %w", err)
		}
		s.connections = append(s.connections, c)
		s.wg.Go(func() { s.serve(ctx, c) })
	}
	return nil
}

// add lets a stage with the given number in the process call the state.
func (s *stateServer) add(id uint32, stage *Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stages[id] = stage
}

// remove lets a stage call the state no longer.
func (s *stateServer) remove(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stages, id)
}

// close ends all calls and connections.
func (s *stateServer) close() {
	s.mu.Lock()
	if s.cancel != nil {
		s.cancel()
	}
	for _, c := range s.connections {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// serve serves one connection, until it ends or the process breaks the protocol.
func (s *stateServer) serve(ctx context.Context, c *socket.Connection) {
	defer c.Close()
	for {
		frame, err := c.Receive(proto.MaxStateRequest)
		if err != nil {
			return
		}
		var request pb.StateRequest
		err = protobuf.Unmarshal(*frame, &request)
		c.Release(frame)
		if err != nil {
			return
		}
		content, err := protobuf.Marshal(proto.FromStateResult(s.call(ctx, &request)))
		if err != nil || c.Send(content) != nil {
			return
		}
	}
}

// call makes one call of the state for a stage. All keys of the stage have a kind that no other
// plugin has, so the process reaches only the counts of its own stages.
func (s *stateServer) call(ctx context.Context, request *pb.StateRequest) (shared.Admitted, error) {
	s.mu.Lock()
	stage := s.stages[request.Stage]
	s.mu.Unlock()
	if stage == nil {
		return shared.Admitted{}, fmt.Errorf("stage %d may not use the shared state", request.Stage)
	}
	ctx, cancel := context.WithTimeout(ctx, stage.spec.Timeout/stateShare)
	defer cancel()
	kind, done := "plugin "+stage.spec.Name, shared.Admitted{Refused: -1}
	switch c := request.Call.(type) {
	case *pb.StateRequest_Admit:
		a, err := proto.ToAdmission(c.Admit, kind)
		if err != nil {
			return shared.Admitted{}, err
		}
		return s.shared.State.Admit(ctx, a)
	case *pb.StateRequest_Renew:
		l, ttl, err := proto.ToLease(c.Renew, kind)
		if err != nil {
			return shared.Admitted{}, err
		}
		return done, s.shared.State.Renew(ctx, l, ttl)
	case *pb.StateRequest_Release:
		l, _, err := proto.ToLease(c.Release, kind)
		if err != nil {
			return shared.Admitted{}, err
		}
		return done, s.shared.State.Release(ctx, l)
	}
	return shared.Admitted{}, errors.New("unknown call of the shared state")
}
