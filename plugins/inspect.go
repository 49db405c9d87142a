package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"

	protobuf "google.golang.org/protobuf/proto"
)

const (
	// maxTimeouts is how many requests in a row may get no verdict in time. The process is then
	// killed.
	maxTimeouts = 3
	// exitTimeout is how long to wait, after a request was lost, to find out whether the process
	// has ended.
	exitTimeout = time.Second
	// maxVerdict is how many bytes larger than its request a verdict may be.
	maxVerdict = 1 << 20
)

// stageGroup is the stages of one process that see the same parts of a message. It implements
// pipeline.StageGroup.
type stageGroup struct {
	process    *supervisor
	visibility proto.Visibility
}

// InspectAll implements pipeline.StageGroup.
func (g stageGroup) InspectAll(ctx context.Context, m *mcp.Message,
	group []pipeline.Stage) ([]pipeline.Verdict, []error, error) {
	stages := make([]*Stage, len(group))
	for i, s := range group {
		stages[i] = s.(*Stage)
	}
	return g.process.inspectUnlessKept(ctx, m, stages)
}

// lostError is the error of a request that was lost on its way. The request may be sent again.
type lostError struct {
	err          error
	processEnded bool
}

func (e *lostError) Error() string { return "no answer from the plugin: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// timeoutError is the error of a request whose context ended before a verdict came.
type timeoutError struct {
	err    error
	waited time.Duration // since the request was sent
}

func (e *timeoutError) Error() string { return e.err.Error() }
func (e *timeoutError) Unwrap() error { return e.err }

// invalidResponse is the error of a response that breaks the protocol. It denies even if the
// configuration skips failures: the plugin may have wanted to act on the message.
type invalidResponse struct{ reason string }

func (e *invalidResponse) Error() string { return e.reason }

// errNotSent is the error of a request whose process ended before the request was sent.
var errNotSent = errors.New("the plugin's process ended before the message was sent to it")

// inspect returns the verdicts of stages on m. It returns one verdict or error for each stage up to
// the first denial, or a single error for all stages. It logs failures.
//
// A lost request is sent a second time. If the process has ended, one of the lost requests may have
// ended it. All of them are therefore sent to the isolated process, one at a time.
func (p *supervisor) inspect(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	verdicts, errs, err := p.inspectAndRetry(ctx, m, stages)
	for i, s := range stages {
		lost, timedOut := (*lostError)(nil), (*timeoutError)(nil)
		switch {
		case errors.As(err, &lost) && !lost.processEnded: // the end of a process is an event
			s.logFailure(err)
		case errors.As(err, &timedOut) && timedOut.waited > s.spec.Timeout/2:
			s.logFailure(fmt.Errorf("no verdict within %v", s.spec.Timeout))
		case i < len(errs) && errs[i] != nil:
			s.logFailure(errs[i])
		}
	}
	return verdicts, errs, err
}

func (p *supervisor) inspectAndRetry(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	isolate, err := p.isolated.offenses.check(m)
	switch {
	case err != nil:
		return nil, nil, err
	case isolate:
		return p.isolated.inspect(ctx, m, stages, false)
	}
	var lost *lostError
	verdicts, errs, err := p.inspectOnce(ctx, m, stages)
	if errors.Is(err, errNotSent) || errors.As(err, &lost) && !lost.processEnded {
		lost = nil
		verdicts, errs, err = p.inspectOnce(ctx, m, stages)
	}
	if errors.As(err, &lost) && lost.processEnded && ctx.Err() == nil {
		return p.isolated.inspect(ctx, m, stages, true)
	}
	return verdicts, errs, err
}

// inspectOnce sends one request to the main process.
func (p *supervisor) inspectOnce(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	process, err := p.awaitProcess(ctx)
	if err != nil {
		return nil, nil, err
	}
	verdicts, errs, err := process.inspectUntilExit(ctx, m, stages)
	p.countTimeout(process, err, m, stages)
	return verdicts, errs, err
}

// inspectUntilExit sends one request. If the request is lost, inspectUntilExit waits up to
// exitTimeout for the end of the process, so that the error can say how the process ended.
func (p *pluginProcess) inspectUntilExit(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	p.unanswered.Add(1)
	verdicts, errs, err := p.inspect(ctx, m, stages)
	lost := (*lostError)(nil)
	if errors.As(err, &lost) {
		select {
		case <-p.done():
			err = &lostError{fmt.Errorf("%w; %w", p.runner.exitError(), lost.err), true}
			return verdicts, errs, err // it stays unanswered
		case <-time.After(exitTimeout):
		case <-ctx.Done():
		}
	}
	p.unanswered.Add(-1)
	return verdicts, errs, err
}

// countTimeout counts the requests in a row that got no verdict in time, or that were lost although
// the process runs. When the count reaches maxTimeouts, countTimeout kills the process.
//
// A large message that takes too long is denied, but not counted. Otherwise one client could
// cause the end of a process that all clients need. The host still notices a process that hangs,
// because small messages get no verdict either.
func (p *supervisor) countTimeout(process *pluginProcess, err error, m *mcp.Message,
	stages []*Stage) {
	lost, timedOut := (*lostError)(nil), (*timeoutError)(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.timeouts = 0
		return
	case p.process != process || process.hasEnded():
		return
	case errors.As(err, &lost):
	case errors.As(err, &timedOut) && timedOut.waited > stages[0].spec.Timeout/2 &&
		inspectedBytes(m) <= proto.SmallMessage:
	default:
		return // the sender of the message gave up early
	}
	if p.timeouts++; p.timeouts >= maxTimeouts {
		p.timeouts = 0
		p.host.options.Log.Error("plugin killed: no verdicts in time",
			"plugin", p.spec.processName(), "requests", maxTimeouts)
		process.kill()
	}
}

// inspect sends one request about m to the process.
func (p *pluginProcess) inspect(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	request, err := p.newRequest(m, stages)
	if err != nil {
		return nil, nil, err
	}
	sender, size := proto.SenderOf(m), len(request.Message.Body)+len(request.Message.Request)
	if size > p.largest {
		return nil, nil, &refusedError{fmt.Sprintf("the message is too large to judge: it has %d "+
			"bytes, and limits.plugin_memory allows %d", size, p.largest)}
	}
	// Messages that wait for their turn take none of the requests that other senders need.
	if err := p.large.Acquire(ctx, sender, size); err != nil {
		return nil, nil, err
	}
	defer p.large.Release(sender, size)
	if err := p.inFlight.Acquire(ctx, sender, 1); err != nil {
		return nil, nil, err
	}
	defer p.inFlight.Release(sender, 1)
	if p.hasEnded() { // while the request waited
		return nil, nil, errNotSent
	}
	sent := time.Now()
	s, stop, err := p.streams.get(ctx)
	var response *pb.InspectResponse
	if err == nil {
		s.seq++
		request.Seq = s.seq
		response, err = s.roundTrip(request)
		if !stop() { // ctx has ended, which ended the stream
			p.streams.discard(s)
			return nil, nil, &timeoutError{context.Cause(ctx), time.Since(sent)}
		}
	}
	if err == nil {
		err = p.makeStateCalls(ctx, s, request, response, stages)
	}
	if errors.Is(err, errGivenUp) {
		p.streams.put(s)
		return nil, nil, context.Cause(ctx)
	}
	if err != nil && s != nil {
		p.streams.discard(s)
	}
	switch invalid := (*invalidResponse)(nil); {
	case errors.As(err, &invalid):
		return []pipeline.Verdict{{Reason: invalid.reason, Final: true}}, []error{nil}, nil
	case err != nil && ctx.Err() != nil:
		return nil, nil, &timeoutError{context.Cause(ctx), time.Since(sent)}
	case err != nil:
		p.streams.discardIdle() // idle streams have probably failed, too
		return nil, nil, &lostError{err: err}
	}
	p.streams.put(s)
	verdicts := make([]pipeline.Verdict, len(response.Verdicts))
	errs := make([]error, len(response.Verdicts))
	for i, v := range response.Verdicts {
		if verdicts[i], errs[i] = proto.ToVerdict(v); errs[i] == nil {
			verdicts[i] = stages[i].checkVerdict(verdicts[i])
		}
	}
	return verdicts, errs, nil
}

// inspectedBytes returns the size of m and of its request, which are all that stages may see.
func inspectedBytes(m *mcp.Message) int {
	size := m.Size()
	if m.Request != nil {
		size += m.Request.Size()
	}
	return size
}

// newRequest returns a request about m. It holds each part of m that at least one of the stages may
// see.
func (p *pluginProcess) newRequest(m *mcp.Message, stages []*Stage) (*pb.InspectRequest, error) {
	request := &pb.InspectRequest{Stages: make([]uint32, len(stages))}
	var visible proto.Visibility
	p.mu.Lock()
	for i, s := range stages {
		request.Stages[i] = p.stageIDs[s]
		visible.Body = visible.Body || s.visibility.Body
		visible.Request = visible.Request || s.visibility.Request
		visible.Principal = visible.Principal || s.visibility.Principal
	}
	p.mu.Unlock()
	if slices.Contains(request.Stages, 0) {
		return nil, errors.New("the plugin's process does not have this stage")
	}
	request.Message = proto.FromMessage(m, visible)
	return request, nil
}

// roundTrip sends a request and returns its response. A response that breaks the protocol is an
// *invalidResponse.
func (s *stream) roundTrip(request *pb.InspectRequest) (*pb.InspectResponse, error) {
	response, err := s.exchange(request)
	switch {
	case err != nil:
		return nil, err
	case response.Seq != request.Seq:
		return nil, &invalidResponse{fmt.Sprintf("the response has sequence number %d, want %d",
			response.Seq, request.Seq)}
	case len(response.Verdicts) == 0 || len(response.Verdicts) > len(request.Stages):
		return nil, &invalidResponse{fmt.Sprintf("the response has %d verdicts for %d stages",
			len(response.Verdicts), len(request.Stages))}
	}
	for _, v := range response.Verdicts { // the limit applies to each verdict alone
		if size := protobuf.Size(v); size > maxVerdict && size > protobuf.Size(request)+maxVerdict {
			return nil, &invalidResponse{fmt.Sprintf("the verdict of %d bytes is too large for a "+
				"message of %d bytes", size, protobuf.Size(request))}
		}
	}
	return response, nil
}
