package downstream

import (
	"errors"
	"strconv"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// questions are the reverse requests that one legacy client has not answered yet, and the progress
// tokens in them. The ids and tokens that the client sees are of our minting: servers know nothing
// of each other and use the same ones, and no id may come twice in a session.
type questions struct {
	mu     sync.Mutex
	last   int
	open   map[mcp.ID]*question // by the id that the client has
	tokens map[mcp.ID]*question // by the token that the client has
}

// maxQuestions bounds what servers can ask of one client at a time.
const maxQuestions = 256

type question struct {
	m      *mcp.Message // as the proxy gave it, under the server's id
	id     mcp.ID       // that the client has
	token  mcp.ID       // that the client has; "" when the server asked for no progress
	theirs []byte       // the server's token
	answer chan *mcp.Message
}

// ask enters p as a question and answers what the client is to get.
func (qs *questions) ask(p pipeline.Passed) (*question, pipeline.Passed, error) {
	q := &question{m: p.Message(), answer: make(chan *mcp.Message, 1)}
	qs.mu.Lock()
	qs.last++
	n, full := strconv.Itoa(qs.last), len(qs.open) >= maxQuestions
	qs.mu.Unlock()
	if full {
		return nil, p, errors.New("the client has too many reverse requests to answer")
	}
	q.id = mcp.ID(mcp.Quote("gatekit-" + n))
	put := p.WithID(q.id)
	if theirs, ok := q.m.Get("/_meta/progressToken"); ok {
		q.token, q.theirs = q.id, theirs
		var err error
		if put, err = put.Edit(mcp.Set("/_meta/progressToken", []byte(q.token))); err != nil {
			return nil, put, err
		}
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.open == nil {
		qs.open, qs.tokens = map[mcp.ID]*question{}, map[mcp.ID]*question{}
	}
	qs.open[q.id] = q
	if q.token != "" {
		qs.tokens[q.token] = q
	}
	return q, put, nil
}

// answer hands the client's answer to who waits for it. It says whether anybody did.
func (qs *questions) answer(m *mcp.Message) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.open[m.ID()]
	if q == nil {
		return false
	}
	qs.drop(q)
	q.answer <- m
	return true
}

// forget takes q out. It says whether the client had not answered it.
func (qs *questions) forget(q *question) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	unanswered := qs.open[q.id] == q
	qs.drop(q)
	return unanswered
}

func (qs *questions) drop(q *question) {
	delete(qs.open, q.id)
	delete(qs.tokens, q.token)
}

// progress is a client's notifications/progress as the server that asked knows it. ok is false when
// it speaks of no open question.
func (qs *questions) progress(m *mcp.Message) (ours *mcp.Message, ok bool) {
	token, _ := m.Get("/progressToken")
	qs.mu.Lock()
	q := qs.tokens[mcp.ID(token)]
	qs.mu.Unlock()
	if q == nil {
		return nil, false
	}
	ours, err := m.Edit(mcp.Set("/progressToken", q.theirs))
	if err != nil {
		return nil, false
	}
	ours.Server, ours.Exchange = q.m.Server, q.m.Exchange
	return ours, true
}
