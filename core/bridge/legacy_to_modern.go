package bridge

import (
	"bytes"
	"context"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
)

// legacyToModern is the proxy.Server of one session of a legacy client with a modern server. The
// client sends its description and its log level once. legacyToModern sends them with each request.
// Questions in the server's results become requests to the client. A long-lived subscription
// receives the notifications that a legacy server would send without a subscription.
type legacyToModern struct {
	*modernClient
	feed      proxy.Handler
	closeOnce sync.Once

	mu           sync.Mutex
	description  clientDescription
	subscription *longLivedSubscription // nil before initialize was answered
}

func newLegacyToModern(opts Options, native upstream.NativeSessions, o proxy.OpenOptions,
	feed proxy.Handler) *legacyToModern {
	return &legacyToModern{feed: feed, modernClient: &modernClient{name: native.Name(),
		revision: o.Revision, maxRounds: opts.Rounds, maxInputRequests: opts.InputRequests,
		log: opts.Log, server: native.OpenModern(o), goroutines: taskgroup.New()}}
}

// Call implements proxy.Server.
func (s *legacyToModern) Call(ctx context.Context, p pipeline.Passed,
	h proxy.Handler) (*mcp.Message, error) {
	m := p.Message()
	s.mu.Lock()
	subscription, client := s.subscription, s.description
	s.mu.Unlock()
	switch {
	case m.Method == "initialize":
		return s.initialize(ctx, m, h)
	case subscription == nil:
		return nil, unavailable(s.name, "the client has not sent initialize", nil)
	case m.Method == "logging/setLevel":
		return s.setLevel(m), nil
	case m.Method == "resources/subscribe":
		return subscription.subscribe(ctx, m)
	case m.Method == "resources/unsubscribe":
		return subscription.unsubscribe(m), nil
	}
	method, known := mcp.LookupMethod(m.Method)
	if !known || !method.ExistsIn(mcp.Rev20260728) || method.Capability == "tasks" {
		return methodNotFound(m), nil
	}
	if err := subscription.awaitFirst(ctx); err != nil {
		return nil, err
	}
	o, err := forModernServer(upstream.Forward(p), client)
	if err != nil {
		return nil, unavailable(s.name,
			"the request could not be translated to the server's revision", err)
	}
	call := &modernCall{modernClient: s.modernClient, request: o, handler: h}
	return call.run(ctx)
}

// initialize sends server/discover, and returns the answer to the client's initialize.
func (s *legacyToModern) initialize(ctx context.Context, m *mcp.Message,
	h proxy.Handler) (*mcp.Message, error) {
	raw, _ := m.Get("/capabilities")
	capabilities, err := capabilitiesForModern(raw)
	if err != nil {
		return nil, unavailable(s.name,
			"the client's capabilities could not be translated to the server's revision", err)
	}
	client := clientDescription{capabilities: capabilities,
		clientInfo: []byte(`{"name":"unknown","version":"unknown"}`)}
	if raw, _ := m.Get("/clientInfo"); bytes.HasPrefix(raw, []byte("{")) {
		client.clientInfo = raw
	}
	o, err := discoverRequest(m, client)
	if err != nil {
		return nil, unavailable(s.name,
			"server/discover could not be built from the client's initialize", err)
	}
	answer, _, err := s.server.Send(ctx, o, h)
	if err != nil || answer.Kind == mcp.Error {
		return answer, err
	}
	result, err := initializeResultForLegacy(m.ID(), answer, s.revision)
	if err != nil {
		return nil, untranslatable(s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.description = client
	if s.subscription == nil {
		s.subscription = newLongLivedSubscription(s.modernClient, answer, s.feed, s.describe)
	}
	return result, nil
}

// describe returns the client's description for requests that the bridge itself makes, outside of
// the client's calls. The description has no log level, since a server sends log messages only on
// the stream of a call.
func (s *legacyToModern) describe() clientDescription {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := s.description
	client.logLevel = nil
	return client
}

// setLevel remembers the client's log level. A modern server gets it with each request.
func (s *legacyToModern) setLevel(m *mcp.Message) *mcp.Message {
	raw, _ := m.Get("/level")
	if level, _ := m.Text("/level"); mcp.LogLevelRank(level) >= 0 {
		s.mu.Lock()
		s.description.logLevel = raw
		s.mu.Unlock()
		return toClient(mcp.NewResponse(m.ID(), nil))
	}
	return toClient(mcp.NewError(m.ID(), mcp.CodeInvalidParams,
		"logging/setLevel needs a level, from debug to emergency", nil))
}

// Notify implements proxy.Server. It forwards no notification, since a modern server needs none
// from a legacy client. The end of a call's context cancels the call.
func (s *legacyToModern) Notify(_ context.Context, p pipeline.Passed) error {
	if p.Message().Method == "notifications/initialized" {
		s.mu.Lock()
		subscription := s.subscription
		s.mu.Unlock()
		if subscription != nil {
			subscription.start()
		}
	}
	return nil
}

// Close implements proxy.Server. It is safe to call twice.
func (s *legacyToModern) Close() error {
	var err error
	s.closeOnce.Do(func() {
		s.goroutines.Close()
		err = s.server.Close()
	})
	return err
}
