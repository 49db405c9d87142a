package plugins

import (
	"context"
	"errors"
	"time"

	"gatekit/core/shared"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
)

// SharedState is the state in which built-in plugins count together with other replicas.
type SharedState struct {
	// State has the counts. Its methods return when their context ends.
	State shared.Admitter
	// Replicas is by how many a plugin divides its limits while the state is not available. If it
	// is 0, the plugin denies what it cannot count.
	Replicas int
}

// stateShare is the part of the plugin's timeout that one call of the state may take: a quarter. A
// message needs three calls at most, or four if the state was lost.
const stateShare = 4

// stateTimeout returns how long a call of the state may take, and how long the plugin may take to
// return another verdict after it.
func (s *Stage) stateTimeout() time.Duration { return s.spec.Timeout / stateShare }

// errGivenUp is the error of a message for which nobody waits any more. The plugin has taken back
// what it had counted.
var errGivenUp = errors.New("the message was given up while it was counted")

// hasSharedState reports whether a plugin of the process counts in the state that replicas share.
func (p *pluginProcess) hasSharedState(s Spec) bool {
	return p.shared != nil && p.offered[s.Use].GetSharedState()
}

// makeStateCalls makes the calls of the state that the verdicts of a response ask for. The last
// verdict holds only if its admission is counted. Otherwise makeStateCalls sends the result to the
// plugin, and replaces the verdict by the one that the plugin returns then.
//
// All keys of a stage have a kind that no other plugin has, so the process reaches only the counts
// of its own stages.
//
// If ctx ends, makeStateCalls still releases leases, and lets the plugin take back what it has
// counted. Each of these takes a quarter of the plugin's timeout at most, and a call of the state
// no longer than the timeout of its store.
func (p *pluginProcess) makeStateCalls(ctx context.Context, s *stream, request *pb.InspectRequest,
	response *pb.InspectResponse, stages []*Stage) error {
	last := len(response.Verdicts) - 1
	for i, v := range response.Verdicts {
		if v.GetState() == nil {
			continue
		}
		result, err := p.makeCalls(ctx, v.State, stages[i], i == last)
		if err != nil {
			return err
		}
		if result == nil {
			continue
		}
		settled, err := p.settle(ctx, s, &pb.InspectRequest{
			Stages: request.Stages[i : i+1], Result: result}, stages[i])
		if err != nil {
			return err
		}
		if result.Outcome == pb.StateOutcome_STATE_OUTCOME_GIVEN_UP {
			return errGivenUp
		}
		response.Verdicts[i] = settled
	}
	return nil
}

// makeCalls makes the calls of a verdict of a stage, and returns the result of an admission that is
// not counted, or nil. An admission is allowed only if mayAdmit is set.
func (p *pluginProcess) makeCalls(ctx context.Context, calls *pb.StateCalls, stage *Stage,
	mayAdmit bool) (*pb.StateResult, error) {
	if !stage.counts {
		return nil, &invalidResponse{"the plugin calls the shared state, which it was not given"}
	}
	if calls.Admit != nil && !mayAdmit {
		return nil, &invalidResponse{"the response has an admission that it must not have"}
	}
	c, err := proto.ToStateCalls(calls, "plugin "+stage.spec.Name)
	if err != nil {
		return nil, &invalidResponse{"call of the shared state: " + err.Error()}
	}
	admitted, err := c.Make(ctx, p.shared.State, stage.stateTimeout())
	if err == nil && admitted.OK() {
		return nil, nil
	}
	return proto.FromStateResult(admitted, err), nil
}

// settle sends the result of an admission that is not counted, and returns the verdict that holds
// instead. The plugin gets the result also if ctx has ended.
func (p *pluginProcess) settle(ctx context.Context, s *stream, request *pb.InspectRequest,
	stage *Stage) (*pb.Verdict, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stage.stateTimeout())
	defer cancel()
	stop := context.AfterFunc(ctx, s.close)
	s.seq++
	request.Seq = s.seq
	response, err := s.roundTrip(request)
	if !stop() { // ctx has ended, which ended the stream
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	v := response.Verdicts[0]
	if v.GetState() != nil {
		_, err = p.makeCalls(ctx, v.State, stage, false)
	}
	return v, err
}
