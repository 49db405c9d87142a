package upstream

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
)

// recorder records those messages of one connection that are not recorded by the handler of a
// session. These are messages of the server that Gatekit drops or answers itself, messages that
// Gatekit itself makes and sends, and the answers to them. The stages inspect the messages of the
// server, except answers to Gatekit's own requests and messages that are dropped because there are
// too many.
type recorder struct {
	opts      *Options
	session   string // of the client; "" when the connection belongs to no client's session
	principal *identity.Principal
}

// inForce returns the pipeline in force, or nil when nothing is recorded.
func (r recorder) inForce() *pipeline.Pipeline {
	if r.opts.Pipeline == nil {
		return nil
	}
	return r.opts.Pipeline()
}

// stamp returns a copy of m with the fields that a record needs.
func (r recorder) stamp(m *mcp.Message, to mcp.Direction) *mcp.Message {
	c := *m
	c.Direction, c.Server = to, r.opts.Name
	if c.Session == "" {
		c.Session, c.Principal = r.session, r.principal
	}
	return &c
}

// drop inspects and records a message of the server that reaches no client.
func (r recorder) drop(m *mcp.Message, reason string) {
	r.opts.Log.Debug("dropped a server's message", "server", r.opts.Name, "method", m.Method,
		"reason", reason)
	if p := r.inForce(); p != nil {
		_ = p.Consume(context.Background(), r.stamp(m, mcp.ToClient), "drop", reason)
	}
}

// dropQuickly records a message of the server that reaches no client, without inspection. It is for
// messages that are dropped because there are too many.
func (r recorder) dropQuickly(m *mcp.Message, reason string) {
	if p := r.inForce(); p != nil {
		r.logFailure(p.RecordEvent(context.Background(), r.stamp(m, mcp.ToClient), "drop", reason,
			nil))
	}
}

// receiveOwn records the server's answer to a request that Gatekit itself made.
func (r recorder) receiveOwn(m, request *mcp.Message) {
	p := r.inForce()
	if p == nil || m == nil {
		return
	}
	answer := r.stamp(m, mcp.ToClient)
	answer.Method, answer.Request, answer.Name = request.Method, request, nameIn(request)
	if answer.Session == "" {
		answer.Session, answer.Principal = request.Session, request.Principal
	}
	r.logFailure(p.RecordEvent(context.Background(), answer, "own",
		"answers a request of Gatekit's own", nil))
}

// nameIn returns the name or URI of the item that a request of Gatekit's own is about, or "".
func nameIn(request *mcp.Message) string {
	name := request.Name
	if meth, _ := mcp.LookupMethod(request.Method); name == "" && meth.NamePointer != "" {
		name, _ = request.Text(meth.NamePointer)
	}
	return name
}

func (r recorder) logFailure(err error) {
	if err != nil {
		r.opts.Log.Error("message not recorded", "server", r.opts.Name, "error", err)
	}
}

// pong inspects a ping of the server and returns the answer: an error if a stage denies the ping,
// otherwise an empty result.
func (r recorder) pong(m *mcp.Message) Outgoing {
	return r.answer(m, mcp.NewResponse(m.ID(), nil))
}

// refusal inspects a request of the server that the client does not get, and returns an error as
// the answer.
func (r recorder) refusal(m *mcp.Message, code int, reason string) Outgoing {
	return r.answer(m, mcp.NewError(m.ID(), code, reason, nil))
}

func (r recorder) answer(m, answer *mcp.Message) Outgoing {
	p := r.inForce()
	if p == nil {
		return Own(answer)
	}
	m = r.stamp(m, mcp.ToClient)
	err := p.Consume(context.Background(), m, "pass", "answered by Gatekit")
	if denied := (*pipeline.DeniedError)(nil); errors.As(err, &denied) {
		return Forward(denied.DeclineResponse(m.ID()))
	}
	answer.Method, answer.Request = m.Method, m
	return Own(answer)
}

// record records o before it is written. It does nothing for a message that passed the pipeline, or
// for a translation of such a message, because the pipeline has recorded the message.
func (r recorder) record(ctx context.Context, o Outgoing) (Outgoing, error) {
	p := r.inForce()
	if o.isRecorded || p == nil {
		return o, nil
	}
	own := r.stamp(o.m, mcp.ToServer)
	if own.Kind == mcp.Request {
		own.Name = nameIn(own)
	}
	passed := p.PassOwn(context.WithoutCancel(ctx), own)
	if passed.Message() == nil {
		return o, unavailable(r.opts.Name, "a message to it could not be recorded", nil)
	}
	recorded := Forward(passed)
	recorded.values = o.values
	return recorded, nil
}

// beginWrite must be called right before o is written. It returns the message to write: if an
// operator has stopped o, this is an error in place of an answer, or a cancellation without the
// client's reason. The caller calls End when the write has ended. The error is a
// *pipeline.DeniedError: o is stopped, and must not be written.
func (r recorder) beginWrite(ctx context.Context, o Outgoing) (Outgoing, stop.Write, error) {
	p := r.inForce()
	if p == nil || o.m == nil {
		return o, stop.Write{}, nil
	}
	m := o.m
	if m.Server == "" || m.Direction == 0 { // such as a message of the bridge
		m = r.stamp(m, mcp.ToServer)
	}
	next, write, denied := p.BeginWrite(ctx, m)
	switch {
	case next == nil:
		return o, write, denied
	case next != m:
		return Outgoing{m: next, isRecorded: true}, write, nil
	}
	return o, write, nil
}

// postWrite is the write of a message by a POST. Every call posts its message, so a postWrite takes
// one allocation, and not one for each function of it.
type postWrite struct {
	write stop.Write
	once  sync.Once // ends write
	trace httptrace.ClientTrace
}

// untilWritten returns a context for a POST of the message of a write. The caller must call end
// after the POST. The write ends when the message has been written, not with the response.
func untilWritten(ctx context.Context, write stop.Write) (context.Context, *postWrite) {
	p := &postWrite{write: write}
	p.trace.WroteRequest = p.wroteRequest
	return httptrace.WithClientTrace(ctx, &p.trace), p
}

func (p *postWrite) wroteRequest(info httptrace.WroteRequestInfo) {
	if info.Err == nil { // otherwise net/http may write the message again
		p.end()
	}
}

// end ends the write, if it has not ended yet.
func (p *postWrite) end() { p.once.Do(p.write.End) }
