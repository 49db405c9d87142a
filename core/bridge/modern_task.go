package bridge

import (
	"context"
	"fmt"
	"strconv"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Some tools of modern servers run only as tasks. Tasks are an extension that legacy clients do not
// know. For a call of such a tool, the bridge declares the extension and returns the task's result
// as the answer.

// demandsTasks reports whether the answer to a call is an error that demands the tasks extension,
// which the call did not declare. A server that answers with this error has not run the call.
func demandsTasks(request, answer *mcp.Message) bool {
	if answer.ErrorCode() != mcp.CodeMissingCapability || request.Method != "tools/call" {
		return false
	}
	_, demanded := answer.Get("/data/requiredCapabilities/extensions/" +
		mcp.EscapePointer(tasksExtension))
	return demanded && !declaresTasks(request)
}

// modernTask is a task that a modern server created for a call of a legacy client.
type modernTask struct {
	*modernClient
	call     *mcp.Message
	id       []byte // of the task, as JSON
	handler  proxy.Handler
	answered map[string]bool // input requests that the client has answered, by their keys
}

// follow waits for the end of the task, and returns the answer to the call: a complete result, or
// an error. created is the server's answer that describes the new task. If follow returns before
// the task has ended, follow cancels the task.
func (t *modernTask) follow(ctx context.Context,
	created *mcp.Message) (answer *mcp.Message, err error) {
	ended := false // the server has ended the task
	defer func() {
		if !ended {
			t.cancel()
		}
	}()
	progress := progressReporter{handler: t.handler, call: t.call}
	for state := created; ; {
		status, _ := state.Text("/status")
		switch status {
		case "completed":
			ended = true
			if raw, ok := state.Get("/result"); ok {
				return toClient(mcp.NewResponse(t.call.ID(), raw)), nil
			}
		case "failed":
			ended = true
			if raw, ok := state.Get("/error"); ok {
				if failed, err := mcp.ParseEmbeddedError(t.call.ID(), raw); err == nil {
					return toClient(failed), nil
				}
			}
		case "cancelled":
			ended = true
			return nil, unavailable(t.name, "the server has cancelled the task", nil)
		case "working":
			t.handler.ReportActivity()
			progress.report(ctx, state)
		case "input_required":
			t.handler.ReportActivity()
			refusal, err := t.giveInput(ctx, state)
			if err != nil || refusal != nil {
				return refusal, err
			}
		default:
			// The specification defines no further status. Such a task is not polled, because it
			// is unknown whether it can still end.
			return nil, unavailable(t.name,
				fmt.Sprintf("the server's task has no known status: %.40q", status), nil)
		}
		if ended {
			if state != created {
				drop(ctx, t.handler, state, "it ends the task without a result or an error")
			}
			return nil, unavailable(t.name, "the server's task ended without a result", nil)
		}
		if !backoff.Sleep(ctx, pollInterval(state, "/pollIntervalMs")) {
			return nil, context.Cause(ctx)
		}
		o, err := modernTaskRequest("tasks/get", t.id, t.call)
		if err != nil {
			return nil, unavailable(t.name, "tasks/get could not be built from the call", err)
		}
		next, _, err := t.server.Send(ctx, o, t.handler)
		if err != nil || next.Kind == mcp.Error {
			return next, err
		}
		if next.Method, next.Request = o.Message().Method, o.Message(); !endsTask(next) {
			if err := t.handler.Consume(ctx, next, "own", answersOwnRequest); err != nil {
				return nil, err
			}
		}
		state = next
	}
}

// endsTask reports whether a state of a task has the result or the error of the call.
func endsTask(state *mcp.Message) bool {
	return state.TextEquals("/status", "completed") || state.TextEquals("/status", "failed")
}

// giveInput asks the client the questions of a task that have no answer yet, and sends the answers
// to the server. refusal is the error message that ends the call, or nil.
func (t *modernTask) giveInput(ctx context.Context,
	state *mcp.Message) (refusal *mcp.Message, err error) {
	var removals []mcp.Edit // of the questions that have been answered
	var keys []string
	state.Members("/inputRequests", func(key string, _ []byte) bool {
		if t.answered[key] {
			removals = append(removals, mcp.Remove("/inputRequests/"+mcp.EscapePointer(key)))
		} else {
			keys = append(keys, key)
		}
		return len(keys) <= t.maxInputRequests
	})
	if len(t.answered)+len(keys) > t.maxInputRequests*t.maxRounds {
		return nil, unavailable(t.name, "the server asked for input too many times", nil)
	}
	unanswered, err := state.Edit(removals...)
	if err != nil {
		return nil, untranslatable(t.name, err)
	}
	answers, refusal, err := t.askForInput(ctx, t.call, unanswered, t.handler)
	if refusal != nil {
		return toClient(refusal), err
	}
	if err != nil || answers == nil {
		return nil, err
	}
	for _, key := range keys {
		t.answered[key] = true
	}
	o, err := modernTaskRequest("tasks/update", t.id, t.call, mcp.Set("/inputResponses", answers))
	if err != nil {
		return nil, unavailable(t.name,
			"tasks/update could not be built from the client's answers", err)
	}
	updated, _, err := t.server.Send(ctx, o, t.handler)
	if err != nil || updated.Kind == mcp.Error {
		return updated, err
	}
	updated.Method, updated.Request = o.Message().Method, o.Message()
	return nil, t.handler.Consume(ctx, updated, "own", answersOwnRequest)
}

// cancel cancels the task at the server, in the background.
func (t *modernTask) cancel() {
	o, err := modernTaskRequest("tasks/cancel", t.id, t.call)
	if err != nil {
		return
	}
	t.goroutines.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		if _, _, err := t.server.Send(ctx, o, nil); err != nil {
			t.log.Debug("cancelling a task failed", "server", t.name, "error", err)
		}
	})
}

// progressReporter sends the status message of a task to a client that asked for progress, each
// time that the message has changed.
type progressReporter struct {
	handler proxy.Handler
	call    *mcp.Message
	last    string // the message that was sent last
	count   int    // how many messages were sent
}

func (r *progressReporter) report(ctx context.Context, state *mcp.Message) {
	message, ok := state.Text("/statusMessage")
	token, asked := r.call.Get("/_meta/progressToken")
	if !ok || !asked || message == r.last {
		return
	}
	r.last = message
	r.count++
	r.handler.HandleNotification(ctx, toClient(mcp.NewNotification("notifications/progress",
		[]byte(`{"progressToken":`+string(token)+`,"progress":`+strconv.Itoa(r.count)+
			`,"message":`+string(mcp.Quote(message))+`}`))))
}
