package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const (
	roundLifetime = 10 * time.Minute // time that a client may take to answer a server's requests
	// bytes of a server's requestState, which the client keeps in sealed form and sends back
	maxRequestState = 1 << 20
)

// inputRound is the state of a call from the server's request for input to the client's next
// request with the answers. The client keeps this state, sealed, as the requestState. So any
// instance with the same key can serve the client's next request. An instance takes the answers of
// a round once; with Options.Answered, all instances together do.
type inputRound struct {
	ID      string            `json:"i"` // random
	Methods map[string]string `json:"k"` // method of each request of the server, by key
	// Gatekit's answer to each denied request, as JSON text, by key
	Declined map[string]string `json:"g"`
	// the server's own requestState as JSON text; "" when the server sent no requestState
	State string `json:"s"`
	Count int    `json:"n"` // rounds so far
	Until int64  `json:"u"` // when the round expires, in Unix seconds
}

// restoreState returns the edit that puts the server's own requestState into a request. If the
// server sent no requestState, the edit removes the requestState of the request.
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

// errUnusableState is the error for every requestState that cannot be used. It does not tell the
// reason to the client.
var errUnusableState = requestErrorf(mcp.CodeInvalidParams,
	"invalid or expired requestState: make the call again without it")

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
			return nil, round, errUnusableState
		}
	}
	if raw, ok := m.Get("/inputResponses"); ok && raw[0] != '{' {
		return nil, round, requestErrorf(mcp.CodeInvalidParams, "inputResponses is no object")
	} else if ok && sealed {
		if err := call.useRound(ctx, m, round); err != nil {
			return nil, round, err
		}
	}
	var edits []mcp.Edit
	var err error
	n := 0
	m.Members("/inputResponses", func(key string, raw []byte) bool {
		if n++; n > call.settings.Limits.InputRequests {
			err = requestErrorf(mcp.CodeInvalidParams, "inputResponses has more than %d members",
				call.settings.Limits.InputRequests)
			return false
		}
		if _, declined := round.Declined[key]; declined {
			return true // Gatekit's answer is set below
		}
		method := round.Methods[key]
		if method == "" && sealed {
			// No request has this key. Servers ignore such an answer, so it is removed.
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

// useRound remembers that the principal of m has answered a round. It returns an error if the
// principal has answered the round before, or if that is not known. Then m is denied.
func (call *Call) useRound(ctx context.Context, m *mcp.Message, round inputRound) error {
	principal := m.Principal.ID()
	if call.settings.Answered == nil {
		if !call.session.proxy.answered.use(principal, round.ID, round.Until, time.Now().Unix()) {
			return errUnusableState
		}
		return nil
	}
	until := time.Unix(round.Until, 0)
	ok, err := call.settings.Answered.Use(ctx, principal, round.ID, until.Add(-roundLifetime),
		until)
	switch {
	case err != nil:
		call.settings.Log.Error("answers of a client refused", "method", call.request.Method,
			"error", err)
		return call.denyOwn(ctx, m, sharedUnavailable+", and the server did not get the answers: "+
			"make the call again later, without requestState")
	case !ok:
		return errUnusableState
	}
	return nil
}

// handleInputResponse inspects one answer and returns the answer for the server. method is the
// method of the server's request; if method is "", the shape of the answer selects the method. If
// the shape fits no method, or more than one, handleInputResponse returns nil. No stage could
// inspect such an answer, and servers should ignore answers that they do not recognize.
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
	answer = call.session.stamp(answer, mcp.ToServer, call.request)
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
		// The method has no answer that reports a denial to the server, so the call ends.
	}
	if err != nil {
		return nil, err
	}
	return passed.Message().Body(), nil
}

// handleInputRequests inspects the requests inside answer, the server's answer to m. Gatekit
// answers denied requests in the client's place. If all requests were denied, retry is the next
// request to the server: m with Gatekit's answers. Otherwise result is the answer for the client,
// and round gets the state for the client's next request.
func (call *Call) handleInputRequests(ctx context.Context, srv *sessionServer, m,
	answer *mcp.Message, round *inputRound) (result, retry *mcp.Message, err error) {
	if round.Count++; round.Count > call.settings.Limits.InputRounds {
		return nil, nil, srv.unavailable("the server asked for input too many times in one call")
	}
	h := &serverHandler{session: call.session, server: srv, client: call.client,
		request: call.request}
	q, err := h.inspectInputRequests(ctx, call.settings, answer)
	if err != nil {
		return nil, nil, err
	}
	if q.denied != nil && !answer.CarriesInput {
		return nil, nil, q.denied // only the client's tasks/update can answer requests of a task
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
	retry, err = m.Edit(mcp.Set("/inputResponses", object(responses...)), round.restoreState())
	return nil, retry, err
}

// sealRound replaces the server's requestState in answer by the sealed round. If round has neither
// a state nor denied requests, sealRound returns answer unchanged.
func (call *Call) sealRound(answer pipeline.Passed, m *mcp.Message,
	round inputRound) (pipeline.Passed, error) {
	if !answer.Message().CarriesInput || len(round.State) == 0 && len(round.Declined) == 0 {
		return answer, nil
	}
	round.ID = rand.Text()
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
	methods  map[string]string // method of each request for the client, by key
	declined map[string]string // Gatekit's answer to each denied request, by key
	edits    []mcp.Edit        // of the message that contains the requests
	denied   error             // the last denial
}

// inspectInputRequests inspects the requests inside m one by one. The edits in its result remove
// the denied requests from m, and replace the other requests by the requests that the client gets.
// The caller applies these edits before stages inspect m itself.
func (h *serverHandler) inspectInputRequests(ctx context.Context, set *settings,
	m *mcp.Message) (inputRequests, error) {
	q := inputRequests{methods: map[string]string{}, declined: map[string]string{}}
	if raw, ok := m.Get("/inputRequests"); ok && raw[0] != '{' {
		return q, h.server.unavailable("inputRequests is not an object")
	}
	var err error
	n := 0
	m.Members("/inputRequests", func(key string, raw []byte) bool {
		if n++; n > set.Limits.InputRequests {
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
		// the code of own would tell the client that its own request is at fault
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

// answeredMethod returns the method whose answers have the shape of answer. It returns "" if no
// method fits, or more than one.
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
	return []string{"round", m.Principal.ID(), m.Method, m.Server, m.Name,
			hex.EncodeToString(digest)},
		nil
}
