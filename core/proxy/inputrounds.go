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
	roundLifetime    = 10 * time.Minute // how long a client may take to answer a server's questions
	maxInputRequests = 64               // in one result, and answers in one request
	// bytes of a server's requestState: the client has to send it back, sealed
	maxRequestState = 1 << 20
)

// inputRound is what a call must know when the client comes back with its answers. It travels sealed in
// the requestState, so that nothing is stored here and any instance with the same key can take the
// next round.
type inputRound struct {
	Methods map[string]string `json:"k"` // question -> method
	// questions that were refused -> the answer that the server gets, as JSON text
	Declined map[string]string `json:"g"`
	// the server's own requestState as JSON text, so as it spelt it; "" when it sent none
	State string `json:"s"`
	Count int    `json:"n"`
	Until int64  `json:"u"` // Unix seconds
}

// restoreState puts the server's own requestState, or none, into a request.
func (r *inputRound) restoreState() mcp.Edit {
	if r.State == "" {
		return mcp.Remove("/requestState")
	}
	return mcp.Set("/requestState", []byte(r.State))
}

// carriesInputRequests says whether a message of a server carries reverse requests: a folded result, or what is
// said of a task.
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

// handleInputResponses opens the request's state and judges its inputResponses one by one.
func (call *Call) handleInputResponses(ctx context.Context, m *mcp.Message) (*mcp.Message, inputRound, error) {
	var st inputRound
	_, sealed := m.Get("/requestState")
	if sealed {
		token, _ := m.Text("/requestState")
		purpose, err := call.roundPurpose(m)
		if err != nil || call.session.proxy.seal.open(token, &st, purpose...) != nil ||
			time.Now().Unix() > st.Until {
			return nil, st, requestErrorf(mcp.CodeInvalidParams,
				"invalid or expired requestState: make the call again without one")
		}
	}
	if raw, ok := m.Get("/inputResponses"); ok && raw[0] != '{' {
		return nil, st, requestErrorf(mcp.CodeInvalidParams, "inputResponses is no object")
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
		if _, ours := st.Declined[key]; ours {
			return true // set below
		}
		kind := st.Methods[key]
		if kind == "" && sealed {
			// an answer to no question: servers ignore it, so they need not see it
			edits = append(edits, mcp.Remove("/inputResponses/"+mcp.EscapePointer(key)))
			return true
		}
		var given []byte
		if given, err = call.handleInputResponse(ctx, m, key, kind, raw); err != nil {
			return false
		}
		if string(given) != string(raw) {
			edits = append(edits, mcp.Set("/inputResponses/"+mcp.EscapePointer(key), given))
		}
		return true
	})
	if err != nil {
		return nil, st, err
	}
	for _, key := range slices.Sorted(maps.Keys(st.Declined)) {
		edits = append(edits, mcp.Set("/inputResponses/"+mcp.EscapePointer(key),
			[]byte(st.Declined[key])))
	}
	if sealed {
		edits = append(edits, st.restoreState())
	}
	m, err = m.Edit(edits...)
	return m, st, err
}

// handleInputResponse judges one answer, to a question of kind or, where that is not known, of the kind that
// its shape says, and answers what is to stand in its place.
func (call *Call) handleInputResponse(ctx context.Context, m *mcp.Message, key, kind string,
	raw []byte) ([]byte, error) {
	answer, err := mcp.ParseEmbeddedResponse(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return nil, requestErrorf(mcp.CodeInvalidParams, "inputResponses: %s is no answer",
			quoteName(key))
	}
	if kind == "" {
		if kind = answeredMethod(answer); kind == "" {
			return nil, requestErrorf(mcp.CodeInvalidParams,
				"inputResponses: %s is no answer to sampling, elicitation or roots", quoteName(key))
		}
	}
	answer = call.session.stamp(answer, mcp.ToServer, call.request.Exchange)
	answer.Server, answer.Method = m.Server, kind
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
		// There is no way to say no to the server: the call ends.
	}
	if err != nil {
		return nil, err
	}
	return passed.Message().Body(), nil
}

// handleInputRequests judges the questions inside raw, the server's answer to m. Those that were refused
// are answered in the client's place: when none is left, again is what the server is to be told at
// once; else result is what the client may see, and st what its retry must bring back.
func (call *Call) handleInputRequests(ctx context.Context, srv *sessionServer, m, raw *mcp.Message,
	st *inputRound) (result, again *mcp.Message, err error) {
	if st.Count++; st.Count > call.settings.Limits.InputRounds {
		return nil, nil, srv.unavailable("it asked for input too many times")
	}
	h := &serverHandler{session: call.session, server: srv, client: call.client, exchange: call.request.Exchange, request: call.request}
	q, err := h.inspectInputRequests(ctx, call.settings, raw)
	if err != nil {
		return nil, nil, err
	}
	if q.denied != nil && !raw.CarriesInput {
		return nil, nil, q.denied // a task: there is no call to answer in the client's place
	}
	state, _ := raw.Get("/requestState")
	if len(state) > maxRequestState {
		return nil, nil, srv.unavailable("its requestState is too long to be kept by a client")
	}
	st.Methods, st.Declined, st.State = q.methods, q.declined, string(state)
	if len(q.methods) > 0 || len(q.declined) == 0 {
		result, err = raw.Edit(q.edits...)
		return result, nil, err
	}
	var given []member
	for _, key := range slices.Sorted(maps.Keys(q.declined)) {
		given = append(given, field(key, []byte(q.declined[key])))
	}
	again, err = m.Edit(mcp.Set("/inputResponses", object(given...)), st.restoreState())
	return nil, again, err
}

// sealRound puts the round, sealed, in the place of the server's requestState. A server that sent
// none, and whose questions all go to the client, needs nothing back.
func (call *Call) sealRound(answer pipeline.Passed, m *mcp.Message,
	st inputRound) (pipeline.Passed, error) {
	if !answer.Message().CarriesInput || len(st.State) == 0 && len(st.Declined) == 0 {
		return answer, nil
	}
	st.Until = time.Now().Add(roundLifetime).Unix()
	purpose, err := call.roundPurpose(m)
	if err != nil {
		return pipeline.Passed{}, err
	}
	token, err := call.session.proxy.seal.seal(st, purpose...)
	if err != nil {
		return pipeline.Passed{}, err
	}
	return answer.Edit(mcp.Set("/requestState", mcp.Quote(token)))
}

// inputRequests is what became of the reverse requests inside a message.
type inputRequests struct {
	methods  map[string]string // those that go to the client -> method
	declined map[string]string // those that were refused -> the answer that the server gets
	edits    []mcp.Edit        // of the message that carries them
	denied   error             // why the last one was refused
}

// inspectInputRequests judges the reverse requests inside m one by one, as those that they are. Its edits
// put them into m as the client is to see them, so that what is decided on m afterwards stands.
func (h *serverHandler) inspectInputRequests(ctx context.Context, set *settings,
	m *mcp.Message) (inputRequests, error) {
	q := inputRequests{methods: map[string]string{}, declined: map[string]string{}}
	if raw, ok := m.Get("/inputRequests"); ok && raw[0] != '{' {
		return q, h.server.unavailable("its inputRequests are no object")
	}
	var err error
	n := 0
	m.Members("/inputRequests", func(key string, raw []byte) bool {
		if n++; n > maxInputRequests {
			err = h.server.unavailable("it asked for too much input at once")
			return false
		}
		err = h.inspectInputRequest(ctx, set, &q, key, raw)
		return err == nil
	})
	return q, err
}

func (h *serverHandler) inspectInputRequest(ctx context.Context, set *settings, q *inputRequests, key string,
	raw []byte) error {
	ask, err := mcp.ParseEmbeddedRequest(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return h.server.unavailable("its inputRequests hold what is no request")
	}
	if meth, known := mcp.LookupMethod(ask.Method); known && meth.Direction != mcp.ToClient {
		return h.server.unavailable("its inputRequests hold what servers may not ask for: " +
			quoteName(ask.Method))
	}
	ask = h.stamp(ask)
	at := "/inputRequests/" + mcp.EscapePointer(key)
	passed, err := h.inspectRequest(ctx, set, ask)
	var own *requestError
	var denied *pipeline.DeniedError
	switch {
	case err == nil:
		asked := ask.Body()
		if passed, err = h.requestForClient(set, passed); err != nil {
			return err
		}
		q.methods[key] = ask.Method
		if body := passed.Message().Body(); string(body) != string(asked) {
			q.edits = append(q.edits, mcp.Set(at+"/params", body))
		}
		return nil
	case errors.As(err, &own): // whose codes would be taken for words on the client's own request
		return h.server.unavailable("its inputRequests hold what it may not ask for: " + own.message)
	case !errors.As(err, &denied):
		return err
	}
	declined := denied.DeclineResponse(ask.ID()).Message()
	if declined == nil || declined.Kind != mcp.Response {
		return err // sampling: the call ends with the denial
	}
	q.denied = err
	q.declined[key] = string(declined.Body())
	q.edits = append(q.edits, mcp.Remove(at))
	return nil
}

// answeredMethod tells by its shape what an answer answers, where no state says so; "" when it cannot be
// told.
func answeredMethod(answer *mcp.Message) string {
	kind := ""
	for _, method := range []string{"elicitation/create", "roots/list", "sampling/createMessage"} {
		if mcp.IsAnswerTo(answer, method) {
			if kind != "" {
				return ""
			}
			kind = method
		}
	}
	return kind
}

// roundPurpose binds a requestState to the principal and to the request: method, server, name and what
// the arguments mean.
func (call *Call) roundPurpose(m *mcp.Message) ([]string, error) {
	arguments, _ := m.Get("/arguments")
	digest, err := mcp.CanonicalDigest(arguments)
	if err != nil {
		return nil, err
	}
	return []string{"round", m.Principal, m.Method, m.Server, m.Name, hex.EncodeToString(digest)},
		nil
}
