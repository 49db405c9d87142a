package downstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// legacyPost is a POST of a legacy session whose requests are being answered.
type legacyPost struct {
	session      *httpSession
	streamsEnd   time.Time // see HTTPRequest
	challenge    Challenge
	w            Reply
	header       http.Header // of the answer
	stream       *resumableStream
	reader       *streamReader // of the POST's connection
	out          output        // for messages before the answer
	accept       acceptedTypes
	streamDelay  time.Duration // how long the answer may take before the stream is opened
	batch        bool          // the POST is a batch; without a stream, its answers are one array
	takesOthers  bool          // the stream may also carry server requests that belong to no call
	isStreamed   bool          // the reply is a stream
	opensSession bool          // the POST is an initialize; header has the id of its session
	notRun       bool          // the session had ended before the POST came
}

func (s *httpSession) newLegacyPost(r HTTPRequest, w Reply) *legacyPost {
	p := &legacyPost{session: s, streamsEnd: r.StreamsEnd, challenge: r.Challenge, w: w,
		stream: s.streams.newStream(), accept: parseAccept(r.Header), streamDelay: streamDelay}
	p.reader, _ = p.stream.attach(0)
	p.out = p.stream
	if !p.accept.stream {
		p.out = outputWithoutStream{}
	}
	return p
}

// serve runs the calls, and writes their messages while the client is connected. The calls go on
// after the connection has ended. serve reports whether anything was written.
func (p *legacyPost) serve(ctx context.Context, entry *sessionEntry[*httpSession],
	calls ...Call) (written bool) {
	sessions := p.session.endpoint.legacySessions
	sessions.retain(entry)
	remove := func() {}
	if p.takesOthers && p.accept.stream {
		remove = p.session.streams.addPost(p.stream)
	}
	started := p.session.run(func() {
		defer sessions.release(entry)
		defer remove()
		p.stream.finish(runAll(proxy.WithValues(p.session.lifetime, ctx), calls)...)
	})
	if !started {
		p.notRun = true
		sessions.release(entry)
		remove()
		p.stream.finish(runAll(endedContext(), calls)...)
	}
	if !p.accept.prefersStream || p.opensSession || p.notRun {
		if done, written := p.writeWithoutStream(ctx); done {
			return written
		}
	}
	p.session.streams.retain(p.stream)
	p.isStreamed = true
	to, err := p.w.Stream(p.header)
	if err != nil {
		p.stream.detach(p.reader)
		return false
	}
	streamCtx, cancel := streamContext(ctx, p.streamsEnd) // the calls still use ctx
	defer cancel()
	p.session.copyStream(streamCtx, p.stream, p.reader, to)
	return true
}

// errStreamDelay is the cause of a context that ended after legacyPost.streamDelay.
var errStreamDelay = errors.New("no answer within the stream delay")

// writeWithoutStream waits for the answer and writes the answer as the whole reply. done is false
// when a stream is needed instead. written reports whether the reply was written.
func (p *legacyPost) writeWithoutStream(ctx context.Context) (done, written bool) {
	wait := ctx
	if p.accept.stream {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(ctx, p.streamDelay, errStreamDelay)
		defer cancel()
	}
	answers, onlyAnswers, err := p.stream.waitForFirst(wait)
	switch {
	case errors.Is(err, errStreamDelay) || err == nil && !onlyAnswers:
		return false, false
	case err != nil: // the client is gone, and has no event id to resume the stream
		p.stream.detach(p.reader)
		return true, false
	}
	header := p.header
	switch {
	case p.opensSession && p.session.revision() == "": // initialize failed, so no session is left
		header = nil
	case p.accept.prefersStream && !p.notRun: // a stream without the answer would be a lost call
		return false, false
	}
	writes := beginAll(ctx, answers)
	defer writes.end()
	var body [][]byte
	var challenge http.Header
	if p.batch {
		if all := joinAnswers(answers); all != nil {
			body = [][]byte{all}
		}
	} else if len(answers) == 1 {
		body = answers[0].Message().Parts()
		challenge = p.challenge.of(answers[0])
	}
	status := http.StatusOK
	switch {
	case challenge != nil:
		status, header = http.StatusForbidden, challenge
	case body != nil:
	case p.session.lifetime.Err() != nil: // the session has ended
		status = http.StatusNotFound
	default: // the client has cancelled the request
		status = http.StatusAccepted
	}
	if err = p.w.Write(status, header, body...); err != nil {
		p.session.endpoint.log.Debug("writing an answer failed", "session", p.session.session,
			"error", err)
	}
	return true, err == nil
}

// outputWithoutStream is the output of a call whose client does not accept streams. It drops
// notifications, and returns an error for requests.
type outputWithoutStream struct{}

func (outputWithoutStream) send(_ context.Context, p pipeline.Passed) error {
	if m := p.Message(); m != nil && m.Kind == mcp.Request {
		return errors.New("the client does not accept event streams, and cannot be asked")
	}
	return nil
}
