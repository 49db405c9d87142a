package bridge

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// modernCall is one call of a legacy client to a modern server.
type modernCall struct {
	*modernClient
	request upstream.Outgoing // translated for the server
	handler proxy.Handler
}

// run sends the request and returns the answer for the client. Each time that the server asks for
// input, run sends the request again, with the client's answers.
func (c *modernCall) run(ctx context.Context) (*mcp.Message, error) {
	request, client := c.request, c.handler
	if _, ok := request.Message().Get("/_meta/progressToken"); ok {
		client = &increasingProgress{Handler: client}
	}
	next, rounds, postponements := request, 0, 0
	for {
		answer, resultType, err := c.server.Send(ctx, next, client)
		switch {
		case err != nil:
			return nil, err
		case resultType == "" && demandsTasks(request.Message(), answer):
			if request, err = withTasksExtension(request); err != nil {
				return nil, unavailable(c.name, "the call could not be made as a task", err)
			}
			if err := client.Consume(ctx, answer, "pass", answeredByGatekit); err != nil {
				return nil, err
			}
			next = upstream.Again(request)
			continue
		case resultType == "task" && declaresTasks(request.Message()):
			if answer, err = c.followTask(ctx, request.Message(), answer, client); err != nil {
				return nil, err
			}
			return c.translate(ctx, answer)
		case resultType == "", resultType == "complete":
			return c.translate(ctx, answer)
		case resultType != upstream.ResultInputRequired:
			drop(ctx, client, answer, "the client does not know this type of result")
			return nil, unavailable(c.name, fmt.Sprintf(
				"the result is of type %.40q, which the client does not know", resultType), nil)
		}
		if err := client.Consume(ctx, answer, "pass", answeredByGatekit); err != nil {
			return nil, err
		}
		state, _ := answer.Get("/requestState")
		answers, refusal, err := c.askForInput(ctx, request.Message(), answer, client)
		switch {
		case err != nil:
			return nil, err
		case refusal != nil:
			return toClient(refusal), nil
		case answers == nil && state == nil:
			return nil, unavailable(c.name, "the server asked for input and named none", nil)
		case answers == nil:
			if postponements++; postponements > maxPostponements {
				return nil, unavailable(c.name, "the server postponed the call too many times", nil)
			}
			delay := backoff.Delay(firstPostponeDelay, longestPostponeDelay, postponements)
			if !backoff.Sleep(ctx, delay) {
				return nil, context.Cause(ctx)
			}
		default:
			if rounds++; rounds > c.maxRounds {
				return nil, unavailable(c.name, "the server asked for input too many times", nil)
			}
		}
		if next, err = withInput(request, answers, state); err != nil {
			return nil, unavailable(c.name,
				"the request could not be repeated with the client's answers", err)
		}
	}
}

// followTask waits for the end of the task that the server has created for the request. created is
// the server's answer, which describes the task. followTask returns the task's result or error.
func (c *modernCall) followTask(ctx context.Context, request, created *mcp.Message,
	client proxy.Handler) (*mcp.Message, error) {
	id, ok := created.Get("/taskId")
	if !ok {
		drop(ctx, client, created, "it creates a task without an id")
		return nil, unavailable(c.name, "the server created a task without an id", nil)
	}
	t := &modernTask{modernClient: c.modernClient, call: request, id: id, handler: client,
		answered: map[string]bool{}}
	if err := client.Consume(ctx, created, "pass", answeredByGatekit); err != nil {
		t.cancel()
		return nil, err
	}
	return t.follow(ctx, created)
}

// translate returns an answer of the server, translated for the client.
func (c *modernCall) translate(ctx context.Context, answer *mcp.Message) (*mcp.Message, error) {
	var translated *mcp.Message
	var err error
	if answer.Kind == mcp.Error {
		translated, err = errorForLegacy(c.request.Message(), answer)
	} else {
		translated, err = resultForLegacy(c.request.Message(), answer, c.revision)
	}
	if err != nil {
		drop(ctx, c.handler, answer, cannotTranslate)
		return nil, untranslatable(c.name, err)
	}
	return translated, nil
}

// increasingProgress is a handler that drops progress that is not higher than before. When a
// request is repeated, the server counts its progress from the start again.
type increasingProgress struct {
	proxy.Handler
	mu       sync.Mutex
	highest  float64
	reported bool // highest was reported
}

// HandleNotification implements proxy.Handler.
func (p *increasingProgress) HandleNotification(ctx context.Context, m *mcp.Message) {
	if m.Method == "notifications/progress" && !p.increases(m) {
		drop(ctx, p.Handler, m, "the progress does not rise")
		return
	}
	p.Handler.HandleNotification(ctx, m)
}

// increases reports whether the progress of a notification is higher than all progress before, and
// records the progress.
func (p *increasingProgress) increases(m *mcp.Message) bool {
	raw, _ := m.Get("/progress")
	v, err := strconv.ParseFloat(string(raw), 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.reported && v <= p.highest {
		return false
	}
	p.highest, p.reported = max(v, p.highest), true
	return true
}
