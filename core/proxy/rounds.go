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
	roundLife    = 10 * time.Minute // how long a client may take to answer a server's questions
	maxQuestions = 64               // in one result, and answers in one request
	// bytes of a server's requestState: the client has to send it back, sealed
	maxState = 1 << 20
)

// round is what a call must know when the client comes back with its answers. It travels sealed in
// the requestState, so that nothing is stored here and any instance with the same key can take the
// next round.
type round struct {
	Kinds map[string]string `json:"k"` // question -> method
	// questions that were refused -> the answer that the server gets, as JSON text
	Given map[string]string `json:"g"`
	// the server's own requestState as JSON text, so as it spelt it; "" when it sent none
	State string `json:"s"`
	Count int    `json:"n"`
	Until int64  `json:"u"` // Unix seconds
}

// restore puts the server's own requestState, or none, into a request.
func (r *round) restore() mcp.Edit {
	if r.State == "" {
		return mcp.Remove("/requestState")
	}
	return mcp.Set("/requestState", []byte(r.State))
}

// asks says whether a message of a server carries reverse requests: a folded result, or what is
// said of a task.
func asks(m *mcp.Message) bool {
	if m.CarriesInput {
		return true
	}
	if m.Method != "tasks/get" && m.Method != "notifications/tasks" {
		return false
	}
	_, ok := m.Get("/inputRequests")
	return ok
}

// takeAnswers opens the request's state and judges its inputResponses one by one.
func (x *Call) takeAnswers(ctx context.Context, m *mcp.Message) (*mcp.Message, round, error) {
	var st round
	_, sealed := m.Get("/requestState")
	if sealed {
		token, _ := m.Text("/requestState")
		purpose, err := x.purpose(m)
		if err != nil || x.s.proxy.seal.open(token, &st, purpose...) != nil ||
			time.Now().Unix() > st.Until {
			return nil, st, failure(mcp.CodeInvalidParams,
				"invalid or expired requestState: make the call again without one")
		}
	}
	if raw, ok := m.Get("/inputResponses"); ok && raw[0] != '{' {
		return nil, st, failure(mcp.CodeInvalidParams, "inputResponses is no object")
	}
	var edits []mcp.Edit
	var err error
	n := 0
	m.Members("/inputResponses", func(key string, raw []byte) bool {
		if n++; n > maxQuestions {
			err = failure(mcp.CodeInvalidParams, "inputResponses has more than %d members",
				maxQuestions)
			return false
		}
		if _, ours := st.Given[key]; ours {
			return true // set below
		}
		kind := st.Kinds[key]
		if kind == "" && sealed {
			// an answer to no question: servers ignore it, so they need not see it
			edits = append(edits, mcp.Remove("/inputResponses/"+mcp.EscapePointer(key)))
			return true
		}
		var given []byte
		if given, err = x.takeAnswer(ctx, m, key, kind, raw); err != nil {
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
	for _, key := range slices.Sorted(maps.Keys(st.Given)) {
		edits = append(edits, mcp.Set("/inputResponses/"+mcp.EscapePointer(key),
			[]byte(st.Given[key])))
	}
	if sealed {
		edits = append(edits, st.restore())
	}
	m, err = m.Edit(edits...)
	return m, st, err
}

// takeAnswer judges one answer, to a question of kind or, where that is not known, of the kind that
// its shape says, and answers what is to stand in its place.
func (x *Call) takeAnswer(ctx context.Context, m *mcp.Message, key, kind string,
	raw []byte) ([]byte, error) {
	answer, err := mcp.ParseEmbeddedResponse(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return nil, failure(mcp.CodeInvalidParams, "inputResponses: %s is no answer",
			quoteName(key))
	}
	if kind == "" {
		if kind = kindOf(answer); kind == "" {
			return nil, failure(mcp.CodeInvalidParams,
				"inputResponses: %s is no answer to sampling, elicitation or roots", quoteName(key))
		}
	}
	answer = x.s.stamp(answer, mcp.ToServer, x.m.Exchange)
	answer.Server, answer.Method = m.Server, kind
	if answer, err = x.s.strip(x.c, answer); err != nil {
		return nil, err
	}
	passed, err := x.c.Pipeline.Pass(ctx, answer)
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

// takeQuestions judges the questions inside raw, the server's answer to m. Those that were refused
// are answered in the client's place: when none is left, again is what the server is to be told at
// once; else result is what the client may see, and st what its retry must bring back.
func (x *Call) takeQuestions(ctx context.Context, l *link, m, raw *mcp.Message,
	st *round) (result, again *mcp.Message, err error) {
	if st.Count++; st.Count > x.c.Limits.InputRounds {
		return nil, nil, l.unavailable("it asked for input too many times")
	}
	c := &caller{s: x.s, l: l, client: x.client, exchange: x.m.Exchange, request: x.m}
	q, err := c.judgeQuestions(ctx, x.c, raw)
	if err != nil {
		return nil, nil, err
	}
	if q.denied != nil && !raw.CarriesInput {
		return nil, nil, q.denied // a task: there is no call to answer in the client's place
	}
	state, _ := raw.Get("/requestState")
	if len(state) > maxState {
		return nil, nil, l.unavailable("its requestState is too long to be kept by a client")
	}
	st.Kinds, st.Given, st.State = q.kinds, q.given, string(state)
	if len(q.kinds) > 0 || len(q.given) == 0 {
		result, err = raw.Edit(q.edits...)
		return result, nil, err
	}
	var given []member
	for _, key := range slices.Sorted(maps.Keys(q.given)) {
		given = append(given, field(key, []byte(q.given[key])))
	}
	again, err = m.Edit(mcp.Set("/inputResponses", object(given...)), st.restore())
	return nil, again, err
}

// sealRound puts the round, sealed, in the place of the server's requestState. A server that sent
// none, and whose questions all go to the client, needs nothing back.
func (x *Call) sealRound(answer pipeline.Passed, m *mcp.Message,
	st round) (pipeline.Passed, error) {
	if !answer.Message().CarriesInput || len(st.State) == 0 && len(st.Given) == 0 {
		return answer, nil
	}
	st.Until = time.Now().Add(roundLife).Unix()
	purpose, err := x.purpose(m)
	if err != nil {
		return pipeline.Passed{}, err
	}
	token, err := x.s.proxy.seal.seal(st, purpose...)
	if err != nil {
		return pipeline.Passed{}, err
	}
	return answer.Edit(mcp.Set("/requestState", mcp.Quote(token)))
}

// questions is what became of the reverse requests inside a message.
type questions struct {
	kinds  map[string]string // those that go to the client -> method
	given  map[string]string // those that were refused -> the answer that the server gets
	edits  []mcp.Edit        // of the message that carries them
	denied error             // why the last one was refused
}

// judgeQuestions judges the reverse requests inside m one by one, as those that they are. Its edits
// put them into m as the client is to see them, so that what is decided on m afterwards stands.
func (c *caller) judgeQuestions(ctx context.Context, set *settings,
	m *mcp.Message) (questions, error) {
	q := questions{kinds: map[string]string{}, given: map[string]string{}}
	if raw, ok := m.Get("/inputRequests"); ok && raw[0] != '{' {
		return q, c.l.unavailable("its inputRequests are no object")
	}
	var err error
	n := 0
	m.Members("/inputRequests", func(key string, raw []byte) bool {
		if n++; n > maxQuestions {
			err = c.l.unavailable("it asked for too much input at once")
			return false
		}
		err = c.judgeQuestion(ctx, set, &q, key, raw)
		return err == nil
	})
	return q, err
}

func (c *caller) judgeQuestion(ctx context.Context, set *settings, q *questions, key string,
	raw []byte) error {
	ask, err := mcp.ParseEmbeddedRequest(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return c.l.unavailable("its inputRequests hold what is no request")
	}
	if meth, known := mcp.LookupMethod(ask.Method); known && meth.Direction != mcp.ToClient {
		return c.l.unavailable("its inputRequests hold what servers may not ask for: " +
			quoteName(ask.Method))
	}
	ask = c.stamp(ask)
	at := "/inputRequests/" + mcp.EscapePointer(key)
	passed, err := c.admit(ctx, set, ask)
	var own *fault
	var denied *pipeline.DeniedError
	switch {
	case err == nil:
		asked := ask.Body()
		if passed, err = c.show(set, passed); err != nil {
			return err
		}
		q.kinds[key] = ask.Method
		if body := passed.Message().Body(); string(body) != string(asked) {
			q.edits = append(q.edits, mcp.Set(at+"/params", body))
		}
		return nil
	case errors.As(err, &own): // whose codes would be taken for words on the client's own request
		return c.l.unavailable("its inputRequests hold what it may not ask for: " + own.message)
	case !errors.As(err, &denied):
		return err
	}
	declined := denied.DeclineResponse(ask.ID()).Message()
	if declined == nil || declined.Kind != mcp.Response {
		return err // sampling: the call ends with the denial
	}
	q.denied = err
	q.given[key] = string(declined.Body())
	q.edits = append(q.edits, mcp.Remove(at))
	return nil
}

// kindOf tells by its shape what an answer answers, where no state says so; "" when it cannot be
// told.
func kindOf(answer *mcp.Message) string {
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

// purpose binds a requestState to the principal and to the request: method, server, name and what
// the arguments mean.
func (x *Call) purpose(m *mcp.Message) ([]string, error) {
	arguments, _ := m.Get("/arguments")
	digest, err := mcp.CanonicalDigest(arguments)
	if err != nil {
		return nil, err
	}
	return []string{"round", m.Principal, m.Method, m.Server, m.Name, hex.EncodeToString(digest)},
		nil
}
