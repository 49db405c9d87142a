package plugins

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/proto/socket"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
)

// streamPool holds the open streams to one plugin process. A stream carries one request at a time.
// The caller of get owns the stream until it calls put or discard.
type streamPool struct {
	// connect opens a stream. It fails if ctx ends meanwhile.
	connect func(ctx context.Context) (connection, error)

	mu     sync.Mutex       // guards the fields below
	open   map[*stream]bool // all open streams, idle or in use
	idle   []*stream
	closed bool
}

// stream carries requests to a process, one at a time.
type stream struct {
	connection
	seq uint64 // number of the last request
}

// connection carries the requests of a stream: a call of the plugin's method Inspect, or a socket.
type connection interface {
	// exchange sends a request and returns the response. A response that is too large is an
	// *invalidResponse.
	exchange(*pb.InspectRequest) (*pb.InspectResponse, error)
	// close ends the connection. It may be called at any time, and tells the plugin that nobody
	// waits for the response.
	close()
}

func newStreamPool(connect func(context.Context) (connection, error)) *streamPool {
	return &streamPool{connect: connect, open: map[*stream]bool{}}
}

// get returns an idle stream, or opens a new one. If ctx ends before stop is called, the stream
// ends, too. stop reports whether it was called before ctx ended.
func (p *streamPool) get(ctx context.Context) (s *stream, stop func() bool, err error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if s == nil {
		c, err := p.connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		s = &stream{connection: c}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			c.close()
			return nil, nil, errClosed
		}
		p.open[s] = true
		p.mu.Unlock()
	}
	return s, context.AfterFunc(ctx, s.close), nil
}

// put returns a stream to the pool.
func (p *streamPool) put(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

// discard ends a stream that was not put back.
func (p *streamPool) discard(s *stream) {
	s.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, s)
}

// discardIdle ends the streams that wait for a request.
func (p *streamPool) discardIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	for _, s := range idle {
		delete(p.open, s)
	}
	p.mu.Unlock()
	for _, s := range idle {
		s.close()
	}
}

// close ends all streams, idle or in use. No stream can be opened later.
func (p *streamPool) close() {
	p.mu.Lock()
	p.closed = true
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

// call is a call of the plugin's method Inspect, which carries many requests.
type call struct {
	pb.Plugin_InspectClient
	cancel context.CancelFunc
}

// connectCall calls the method Inspect of a service.
func connectCall(ctx context.Context, service pb.PluginClient) (connection, error) {
	// The call also carries later messages, so it needs a context that outlives ctx.
	callCtx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel) // set before the call of Inspect, which may block
	defer stop()
	client, err := service.Inspect(callCtx)
	if err != nil {
		cancel()
		return nil, withoutStatus(err)
	}
	return call{client, cancel}, nil
}

func (c call) exchange(request *pb.InspectRequest) (*pb.InspectResponse, error) {
	if err := c.Send(request); err != nil {
		if _, cause := c.Recv(); cause != nil { // Send returns io.EOF; Recv returns the cause
			err = cause
		}
		return nil, withoutStatus(err)
	}
	response, err := c.Recv()
	if status.Code(err) == codes.ResourceExhausted {
		return nil, &invalidResponse{"the response is too large: " + withoutStatus(err).Error()}
	}
	return response, withoutStatus(err)
}

func (c call) close() { c.cancel() }

// withoutStatus returns a gRPC error without gRPC's prefix and code.
func withoutStatus(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		return errors.New(s.Message())
	}
	return err
}

// socketConnection is a socket to a plugin of Gatekit's Go SDK.
type socketConnection struct {
	socket      *socket.Connection
	maxResponse int    // bytes of a response
	buf         []byte // reused for the parts of a request that are not its bodies
}

// maxRequestBuffer is how many bytes of a buffer are kept for the next request.
const maxRequestBuffer = 4 << 10

func (c *socketConnection) exchange(request *pb.InspectRequest) (*pb.InspectResponse, error) {
	parts, buf, err := proto.RequestParts(request, c.buf[:0])
	if err != nil {
		return nil, err
	}
	if cap(buf) <= maxRequestBuffer {
		c.buf = buf
	}
	if err := c.socket.Send(parts...); err != nil {
		return nil, err
	}
	frame, err := c.socket.Receive(c.maxResponse)
	if tooLarge := (*socket.TooLargeError)(nil); errors.As(err, &tooLarge) {
		return nil, &invalidResponse{"the response is too large: " + err.Error()}
	}
	if err != nil {
		return nil, err
	}
	defer c.socket.Release(frame)
	var response pb.InspectResponse
	if err := protobuf.Unmarshal(*frame, &response); err != nil {
		return nil, err
	}
	if c.socket.HasMore() {
		return nil, &invalidResponse{"there is more than one response to the request"}
	}
	return &response, nil
}

func (c *socketConnection) close() { c.socket.Close() }
