package upstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// dial opens a link and sends initialize on it. An answer of any kind keeps the link open; with an
// error there is none.
func (s *legacy) dial(ctx context.Context, hello outgoing,
	c proxy.Handler) (link, *mcp.Message, error) {
	if err := s.up.leaving.wait(ctx); err != nil {
		return nil, nil, err
	}
	d := s.up.o.Dial
	if d.HTTP == nil {
		w, err := s.up.process(ctx, mcp.Legacy)
		if err != nil {
			return nil, nil, err
		}
		return s.greetPipe(ctx, w, hello, c)
	}
	if !s.up.useSSE() {
		l := newLegacyHTTP(s.up, s.lane, s.feed)
		answer, err := l.call(ctx, hello, c)
		if d.SSE == nil || !l.foreign() {
			return s.opened(ctx, l, answer, err)
		}
		w, sseErr := s.up.sse(ctx)
		if sseErr != nil {
			s.up.log.Info("no HTTP+SSE either", "server", s.up.o.Name, "error", sseErr)
			return s.opened(ctx, l, answer, err)
		}
		s.up.drop(l)
		return s.greetPipe(ctx, w, hello, c)
	}
	w, err := s.up.sse(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.greetPipe(ctx, w, hello, c)
}

func (s *legacy) greetPipe(ctx context.Context, w *wire, hello outgoing,
	c proxy.Handler) (link, *mcp.Message, error) {
	l := newLegacyPipe(w, s.lane, s.feed)
	answer, err := l.call(ctx, hello, c)
	return s.opened(ctx, l, answer, err)
}

// opened closes a link on which initialize was not answered: it cannot be cancelled, so nothing
// else can end it.
func (s *legacy) opened(ctx context.Context, l link, answer *mcp.Message,
	err error) (link, *mcp.Message, error) {
	if err != nil {
		s.giveUp(ctx, l)
		return nil, nil, err
	}
	return l, answer, nil
}
