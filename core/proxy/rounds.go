package proxy

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// roundLife is how long a client may take to answer a server's questions.
const roundLife = 10 * time.Minute

// round is what a call must know when the client comes back with its answers. It travels sealed in the requestState, so that nothing is
// stored here and any instance with the same key can take the next round.
type round struct {
	Kinds map[string]string `json:"k"` // question -> method
	Given map[string]string `json:"g"` // questions that were refused -> the answer that the server gets, as JSON text
	State string            `json:"s"` // the server's own requestState as JSON text, so as it spelt it; "" when it sent none
	Count int               `json:"n"`
	Until int64             `json:"u"` // Unix seconds
}

// restore puts the server's own requestState, or none, into a request.
func (r *round) restore() mcp.Edit {
	if r.State == "" {
		return mcp.Remove("/requestState")
	}
	return mcp.Set("/requestState", []byte(r.State))
}

// asks says whether a message of a server carries reverse requests: a folded result, or what is said of a task.
func asks(m *mcp.Message) bool {
	if m.Folded {
		return true
	}
	if m.Method != "tasks/get" && m.Method != "notifications/tasks" {
		return false
	}
	_, ok := m.Get("/inputRequests")
	return ok
}

// takeAnswers opens the request's state and judges its inputResponses one by one.
func (x *exchange) takeAnswers(ctx context.Context, m *mcp.Message) (*mcp.Message, round, error) {
	var st round
	_, sealed := m.Get("/requestState")
	if sealed {
		token, _ := m.Text("/requestState")
		purpose, err := x.purpose(m)
		if err != nil || x.s.proxy.seal.open(token, &st, purpose...) != nil || time.Now().Unix() > st.Until {
			return nil, st, failure(mcp.CodeInvalidParams, "invalid or expired requestState")
		}
	}
	var edits []mcp.Edit
	var err error
	m.Members("/inputResponses", func(key string, raw []byte) bool {
		pointer := "/inputResponses/" + escape(key)
		if _, ours := st.Given[key]; ours {
			return true
		}
		kind, known := st.Kinds[key]
		if !known && sealed {
			edits = append(edits, mcp.Remove(pointer)) // an answer to no question: servers ignore it, so they need not see it
			return true
		}
		answer := mcp.NewResponse(mcp.ID(mcp.Quote(key)), raw)
		if !known {
			if kind, err = kindOf(answer); err != nil {
				return false
			}
		}
		var given []byte
		if given, err = x.takeAnswer(ctx, m, answer, kind); err != nil {
			return false
		}
		if given != nil {
			edits = append(edits, mcp.Set(pointer, given))
		}
		return true
	})
	if err != nil {
		return nil, st, err
	}
	for key, raw := range st.Given {
		edits = append(edits, mcp.Set("/inputResponses/"+escape(key), []byte(raw)))
	}
	if sealed {
		edits = append(edits, st.restore())
	}
	m, err = m.Edit(edits...)
	return m, st, err
}

// takeAnswer judges one answer and answers what is to stand in its place; nil is the answer as it is.
func (x *exchange) takeAnswer(ctx context.Context, m, answer *mcp.Message, kind string) ([]byte, error) {
	answer = x.s.stamp(answer, mcp.ToServer, x.m.Exchange)
	answer.Server, answer.Method = m.Server, kind
	clean := answer
	if !x.c.names.bare {
		var err error
		if clean, err = x.s.strip(x.c, answer); err != nil {
			return nil, err
		}
	}
	passed, err := x.c.Pipeline.Pass(ctx, clean)
	var denied *pipeline.Denied
	if errors.As(err, &denied) {
		declined := denied.Decline(answer.ID()).Message()
		if declined == nil || declined.Kind != mcp.Response {
			return nil, err // there is no way to say no to the server: the call ends
		}
		return declined.Body(), nil
	}
	if err != nil {
		return nil, err
	}
	return passed.Message().Body(), nil
}

// takeQuestions judges the questions inside raw, the server's answer to m. Those that were refused are answered in the client's place: when none is left, again is
// what the server is to be told at once; else result is what the client may see, and st what its retry must bring back.
func (x *exchange) takeQuestions(ctx context.Context, l *link, m, raw *mcp.Message, st *round) (result, again *mcp.Message, err error) {
	if st.Count++; st.Count > x.c.Limits.Rounds {
		return nil, nil, &Unavailable{Server: l.conf.Name, Reason: "it asked for input too many times"}
	}
	c := &caller{s: x.s, l: l, client: x.client, exchange: x.m.Exchange, request: x.m}
	q, err := c.judgeQuestions(ctx, x.c, raw)
	if err != nil {
		return nil, nil, err
	}
	if q.denied != nil && !raw.Folded {
		return nil, nil, q.denied // a task: there is no call to answer in the client's place
	}
	state, _ := raw.Get("/requestState")
	st.Kinds, st.Given, st.State = q.kinds, q.given, string(state)
	if len(q.kinds) > 0 || len(q.given) == 0 {
		result, err = raw.Edit(q.edits...)
		return result, nil, err
	}
	var given []member
	for key, v := range q.given {
		given = append(given, member{key, []byte(v)})
	}
	again, err = m.Edit(mcp.Set("/inputResponses", object(given...)), st.restore())
	return nil, again, err
}

// sealRound puts the round, sealed, in the place of the server's requestState. A server that sent none, and whose questions all go to the
// client, needs nothing back.
func (x *exchange) sealRound(answer pipeline.Passed, m *mcp.Message, st round) (pipeline.Passed, error) {
	if !answer.Message().Folded || len(st.State) == 0 && len(st.Given) == 0 {
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

// judgeQuestions judges the reverse requests inside m one by one, as those that they are.
func (c *caller) judgeQuestions(ctx context.Context, set *settings, m *mcp.Message) (questions, error) {
	q := questions{kinds: map[string]string{}, given: map[string]string{}}
	var err error
	m.Members("/inputRequests", func(key string, raw []byte) bool {
		pointer := "/inputRequests/" + escape(key)
		entry := mcp.NewResponse("", raw) // to look inside
		method, _ := entry.Text("/method")
		params, _ := entry.Get("/params")
		ask := c.stamp(mcp.NewRequest(mcp.ID(mcp.Quote(key)), method, params))
		passed, fail := c.admit(ctx, set, ask)
		if fail == nil {
			var shown pipeline.Passed
			if shown, err = c.show(set, passed); err != nil {
				return false
			}
			q.kinds[key] = method
			if body := shown.Message().Body(); string(body) != string(params) {
				q.edits = append(q.edits, mcp.Set(pointer+"/params", body))
			}
			return true
		}
		var denied *pipeline.Denied
		if !errors.As(fail, &denied) {
			err = fail
			return false
		}
		declined := denied.Decline(ask.ID()).Message()
		if declined == nil || declined.Kind != mcp.Response {
			err = fail // sampling: the call ends with the denial
			return false
		}
		q.denied = fail
		q.given[key] = string(declined.Body())
		q.edits = append(q.edits, mcp.Remove(pointer))
		return true
	})
	return q, err
}

// kindOf tells by its shape what an answer answers, where no state says so.
func kindOf(answer *mcp.Message) (string, error) {
	var kinds []string
	for _, k := range []struct{ member, method string }{{"/action", "elicitation/create"}, {"/roots", "roots/list"}, {"/role", "sampling/createMessage"}} {
		if _, ok := answer.Get(k.member); ok {
			kinds = append(kinds, k.method)
		}
	}
	if len(kinds) != 1 {
		return "", failure(mcp.CodeInvalidParams, "inputResponses: %s is no answer to sampling, elicitation or roots", answer.ID())
	}
	return kinds[0], nil
}

// purpose binds a requestState to the principal and to the request: method, server, name and what the arguments mean.
func (x *exchange) purpose(m *mcp.Message) ([]string, error) {
	arguments, _ := m.Get("/arguments")
	digest, err := meaning(arguments)
	if err != nil {
		return nil, err
	}
	return []string{"round", m.Principal, m.Method, m.Server, m.Name, hex.EncodeToString(digest)}, nil
}

// escape makes a name a token of a JSON pointer (RFC 6901 3).
func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}
