package proxy

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const (
	roundLifetime    = 10 * time.Minute // time that a client may take to answer a server's requests
	maxInputRequests = 64               // in one result, and answers in one request
	// bytes of a server's requestState: the client must send it back, sealed
	maxRequestState = 1 << 20
)

// inputRound is the state of a call between two rounds of input. It travels sealed in the
// requestState, so nothing is stored here, and any instance with the same key can take the next
// round.
type inputRound struct {
	Methods map[string]string `json:"k"` // method by key of the server's request
	// answer, as JSON text, by key of each request that was denied
	Declined map[string]string `json:"g"`
	// the server's own requestState as JSON text; "" when it sent none
	State string `json:"s"`
	Count int    `json:"n"` // rounds so far
	Until int64  `json:"u"` // Unix seconds
}

// restoreState returns the edit that puts the server's own requestState, or none, into a request.
func (r *inputRound) restoreState() mcp.Edit {
	if r.State == "" {
		return mcp.Remove("/requestState")
	}
	return mcp.Set("/requestState", []byte(r.State))
}

// carriesInputRequests reports whether a message of a server carries requests to the client: a
// result that asks for input, or the state of a task.
func carriesInputRequests(m *mcp.Message) bool {
	if m.CarriesInput {
		return true
	}
	if m.Method != "tasks/get" && m.Method != "notifications/tasks" {
		return false
	}
	_, ok := m.Get("/inputRequests")
	return ok
}

// handleInputResponses decrypts the round in the requestState of m and inspects the inputResponses
// one by one. It returns m as the server gets it.
func (call *Call) handleInputResponses(ctx context.Context,
	m *mcp.Message) (*mcp.Message, inputRound, error) {
	var round inputRound
	_, sealed := m.Get("/requestState")
	if sealed {
		token, _ := m.Text("/requestState")
		purpose, err := call.roundPurpose(m)
		if err != nil || call.session.proxy.seal.open(token, &round, purpose...) != nil ||
			time.Now().Unix() > round.Until {
			return nil, round, requestErrorf(mcp.CodeInvalidParams,
				"invalid or expired requestState: make the call again without one")
		}
	}
	if raw, ok := m.Get("/inputResponses"); ok && raw[0] != '{' {
		return nil, round, requestErrorf(mcp.CodeInvalidParams, "inputResponses is no object")
	}
	var edits []mcp.Edit
	var err error
	n := 0
	m.Members("/inputResponses", func(key string, raw []byte) bool {
		if n++; n > maxInputRequests {
			err = requestErrorf(mcp.CodeInvalidParams, "inputResponses has more than %d members",
				maxInputRequests)
			return false
		}
		if _, declined := round.Declined[key]; declined {
			return true // set below
		}
		method := round.Methods[key]
		if method == "" && sealed {
			// an answer to no request: servers ignore it, so it is removed
			edits = append(edits, mcp.Remove("/inputResponses/"+mcp.EscapePointer(key)))
			return true
		}
		var inspected []byte
		if inspected, err = call.handleInputResponse(ctx, m, key, method, raw); err != nil {
			return false
		}
		if inspected == nil {
			edits = append(edits, mcp.Remove("/inputResponses/"+mcp.EscapePointer(key)))
			return true
		}
		if string(inspected) != string(raw) {
			edits = append(edits, mcp.Set("/inputResponses/"+mcp.EscapePointer(key), inspected))
		}
		return true
	})
	if err != nil {
		return nil, round, err
	}
	for _, key := range slices.Sorted(maps.Keys(round.Declined)) {
		edits = append(edits, mcp.Set("/inputResponses/"+mcp.EscapePointer(key),
			[]byte(round.Declined[key])))
	}
	if sealed {
		edits = append(edits, round.restoreState())
	}
	m, err = m.Edit(edits...)
	return m, round, err
}

// handleInputResponse inspects one answer and returns the answer for the server. method is the
// method of the server's request; if method is "", the shape of the answer selects the method. An
// answer whose shape is not that of one method is nil: servers should ignore what they do not
// recognize, and no stage could inspect it.
func (call *Call) handleInputResponse(ctx context.Context, m *mcp.Message, key, method string,
	raw []byte) ([]byte, error) {
	answer, err := mcp.ParseEmbeddedResponse(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return nil, requestErrorf(mcp.CodeInvalidParams, "inputResponses: %s is no answer",
			quoteName(key))
	}
	if method == "" {
		if method = answeredMethod(answer); method == "" {
			return nil, nil
		}
	}
	answer = call.session.stamp(answer, mcp.ToServer, call.request.Exchange)
	answer.Server, answer.Method = m.Server, method
	if answer, err = call.session.removePrefixes(call.settings, answer); err != nil {
		return nil, err
	}
	passed, err := call.settings.Pipeline.Pass(ctx, answer)
	var denied *pipeline.DeniedError
	if errors.As(err, &denied) {
		if declined := denied.DeclineResponse(answer.ID()).Message(); declined != nil &&
			declined.Kind == mcp.Response {
			return declined.Body(), nil
		}
		// No answer reports the denial to the server: the call ends.
	}
	if err != nil {
		return nil, err
	}
	return passed.Message().Body(), nil
}

// handleInputRequests inspects the requests inside answer, the server's answer to m. Gatekit
// answers denied requests in the client's place. If all were denied, again is the next request to
// the server, with these answers. Otherwise result is the answer for the client, and round is the
// state for the client's next request.
func (call *Call) handleInputRequests(ctx context.Context, srv *sessionServer, m,
	answer *mcp.Message, round *inputRound) (result, again *mcp.Message, err error) {
	if round.Count++; round.Count > call.settings.Limits.InputRounds {
		return nil, nil, srv.unavailable("the server asked for input too many times in one call")
	}
	h := &serverHandler{session: call.session, server: srv, client: call.client,
		exchange: call.request.Exchange, request: call.request}
	q, err := h.inspectInputRequests(ctx, call.settings, answer)
	if err != nil {
		return nil, nil, err
	}
	if q.denied != nil && !answer.CarriesInput {
		return nil, nil, q.denied // a task has no call that could be answered in the client's place
	}
	state, _ := answer.Get("/requestState")
	if len(state) > maxRequestState {
		return nil, nil, srv.unavailable("requestState is too long for a client to keep")
	}
	round.Methods, round.Declined, round.State = q.methods, q.declined, string(state)
	if len(q.methods) > 0 || len(q.declined) == 0 {
		result, err = answer.Edit(q.edits...)
		return result, nil, err
	}
	var responses []member
	for _, key := range slices.Sorted(maps.Keys(q.declined)) {
		responses = append(responses, field(key, []byte(q.declined[key])))
	}
	again, err = m.Edit(mcp.Set("/inputResponses", object(responses...)), round.restoreState())
	return nil, again, err
}

// sealRound replaces the server's requestState in answer by the sealed round. An answer whose round
// has neither a state nor denied requests is returned as it is.
func (call *Call) sealRound(answer pipeline.Passed, m *mcp.Message,
	round inputRound) (pipeline.Passed, error) {
	if !answer.Message().CarriesInput || len(round.State) == 0 && len(round.Declined) == 0 {
		return answer, nil
	}
	round.Until = time.Now().Add(roundLifetime).Unix()
	purpose, err := call.roundPurpose(m)
	if err != nil {
		return pipeline.Passed{}, err
	}
	token, err := call.session.proxy.seal.seal(round, purpose...)
	if err != nil {
		return pipeline.Passed{}, err
	}
	return answer.Edit(mcp.Set("/requestState", mcp.Quote(token)))
}

// inputRequests are the inspected requests inside a message.
type inputRequests struct {
	methods  map[string]string // method by key of each request for the client
	declined map[string]string // answer for the server by key of each denied request
	edits    []mcp.Edit        // of the message that carries them
	denied   error             // the last denial
}

// inspectInputRequests inspects the requests inside m one by one. The edits in its result replace
// them by the requests that the client gets. The caller applies these edits before stages inspect m
// itself.
func (h *serverHandler) inspectInputRequests(ctx context.Context, set *settings,
	m *mcp.Message) (inputRequests, error) {
	q := inputRequests{methods: map[string]string{}, declined: map[string]string{}}
	if raw, ok := m.Get("/inputRequests"); ok && raw[0] != '{' {
		return q, h.server.unavailable("inputRequests is not an object")
	}
	var err error
	n := 0
	m.Members("/inputRequests", func(key string, raw []byte) bool {
		if n++; n > maxInputRequests {
			err = h.server.unavailable("the server asked for too much input at once")
			return false
		}
		err = h.inspectInputRequest(ctx, set, &q, key, raw)
		return err == nil
	})
	return q, err
}

func (h *serverHandler) inspectInputRequest(ctx context.Context, set *settings, q *inputRequests,
	key string, raw []byte) error {
	request, err := mcp.ParseEmbeddedRequest(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return h.server.unavailable("a member of inputRequests is not a request")
	}
	if meth, known := mcp.LookupMethod(request.Method); known && meth.Direction != mcp.ToClient {
		return h.server.unavailable("inputRequests contains a request that servers may not send: " +
			quoteName(request.Method))
	}
	request = h.stamp(request)
	at := "/inputRequests/" + mcp.EscapePointer(key)
	passed, err := h.inspectRequest(ctx, set, request)
	var own *requestError
	var denied *pipeline.DeniedError
	switch {
	case err == nil:
		asked := request.Body()
		if passed, err = h.requestForClient(set, passed); err != nil {
			return err
		}
		q.methods[key] = request.Method
		if body := passed.Message().Body(); string(body) != string(asked) {
			q.edits = append(q.edits, mcp.Set(at+"/params", body))
		}
		return nil
	case errors.As(err, &own):
		// with the code of own, the client would take the error for a fault of its own request
		return h.server.unavailable("inputRequests contains a request that is not allowed: " +
			own.message)
	case !errors.As(err, &denied):
		return err
	}
	declined := denied.DeclineResponse(request.ID()).Message()
	if declined == nil || declined.Kind != mcp.Response {
		return err // sampling cannot be declined: the call ends with the denial
	}
	q.denied = err
	q.declined[key] = string(declined.Body())
	q.edits = append(q.edits, mcp.Remove(at))
	return nil
}

// answeredMethod returns the method that an answer belongs to, by its shape; "" when it is
// ambiguous.
func answeredMethod(answer *mcp.Message) string {
	found := ""
	for _, method := range []string{"elicitation/create", "roots/list", "sampling/createMessage"} {
		if mcp.IsAnswerTo(answer, method) {
			if found != "" {
				return ""
			}
			found = method
		}
	}
	return found
}

// roundPurpose returns the purpose to which a requestState is bound: principal, method, server,
// name and a digest of the arguments.
func (call *Call) roundPurpose(m *mcp.Message) ([]string, error) {
	arguments, _ := m.Get("/arguments")
	digest, err := mcp.CanonicalDigest(arguments)
	if err != nil {
		return nil, err
	}
	return []string{"round", m.Principal, m.Method, m.Server, m.Name, hex.EncodeToString(digest)},
		nil
}
