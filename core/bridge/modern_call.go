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

// modernCall is one call of a legacy client at a modern server.
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
			next = request
			continue
		case resultType == "task" && declaresTasks(request.Message()):
			if answer, err = c.followTask(ctx, request.Message(), answer, client); err != nil {
				return nil, err
			}
			return c.translate(answer)
		case resultType == "", resultType == "complete":
			return c.translate(answer)
		case resultType != upstream.ResultInputRequired:
			return nil, unavailable(c.name, fmt.Sprintf(
				"the result is of type %.40q, which the client does not know", resultType), nil)
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
		return nil, unavailable(c.name, "the server created a task without an id", nil)
	}
	t := &modernTask{modernClient: c.modernClient, call: request, id: id, handler: client,
		answered: map[string]bool{}}
	return t.follow(ctx, created)
}

// translate returns an answer of the server, translated for the client.
func (c *modernCall) translate(answer *mcp.Message) (*mcp.Message, error) {
	if answer.Kind == mcp.Error {
		return errorForLegacy(c.request.Message(), answer)
	}
	return resultForLegacy(c.request.Message(), answer, c.revision)
}

// increasingProgress is a handler that drops progress that does not increase. A server counts its
// progress from the start each time that a request is repeated.
type increasingProgress struct {
	proxy.Handler
	mu       sync.Mutex
	highest  float64
	reported bool // highest was reported
}

// HandleNotification implements proxy.Handler.
func (p *increasingProgress) HandleNotification(ctx context.Context, m *mcp.Message) {
	if m.Method == "notifications/progress" && !p.increases(m) {
		return
	}
	p.Handler.HandleNotification(ctx, m)
}

// increases reports whether a progress notification is to be passed on, and records its progress.
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
