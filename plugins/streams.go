package plugins

import (
	"context"
	"sync"

	pb "gatekit/plugins/proto/gatekit/plugin/v1"
)

// streamPool holds the open streams to one plugin process. A stream carries one request at a time.
// The caller of get owns the stream until it calls put or discard.
type streamPool struct {
	service pb.PluginClient

	mu     sync.Mutex       // guards the fields below
	open   map[*stream]bool // all open streams, idle or in use
	idle   []*stream
	closed bool
}

// stream is one call of the plugin's method Inspect, which carries many requests.
type stream struct {
	pb.Plugin_InspectClient
	cancel context.CancelFunc
	seq    uint64 // number of the last request
}

func newStreamPool(service pb.PluginClient) *streamPool {
	return &streamPool{service: service, open: map[*stream]bool{}}
}

// get returns an idle stream, or opens a new one. If ctx ends before stop is called, the stream
// ends, too. stop reports whether it was called before ctx ended.
func (p *streamPool) get(ctx context.Context) (s *stream, stop func() bool, err error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s, p.idle = p.idle[n-1], p.idle[:n-1]
		p.mu.Unlock()
		return s, context.AfterFunc(ctx, s.cancel), nil
	}
	// The stream also carries later messages, so it needs a context that outlives ctx.
	streamCtx, cancel := context.WithCancel(context.Background())
	s = &stream{cancel: cancel}
	if p.closed {
		cancel()
	}
	p.open[s] = true
	p.mu.Unlock()
	stop = context.AfterFunc(ctx, cancel) // set before the call of Inspect, which may block
	if s.Plugin_InspectClient, err = p.service.Inspect(streamCtx); err != nil {
		stop()
		p.discard(s)
		return nil, nil, withoutStatus(err)
	}
	return s, stop, nil
}

// put returns a stream to the pool.
func (p *streamPool) put(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

// discard ends a stream that was not put back.
func (p *streamPool) discard(s *stream) {
	s.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, s)
}

// discardIdle ends the streams that wait for a request.
func (p *streamPool) discardIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.idle {
		s.cancel()
		delete(p.open, s)
	}
	p.idle = nil
}

// close ends all streams, idle or in use. A stream that is opened later ends at once.
func (p *streamPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for s := range p.open {
		s.cancel()
	}
}
