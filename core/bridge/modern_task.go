package upstream

import (
	"context"
	"strconv"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Some tools of modern servers run as tasks only, of an extension that legacy clients do not know:
// the extension is declared for such a call here, and the call answered with what comes of the task
// (protocol.md 3.9).

// tasksExtension is the extension's name in clients' capabilities.
const tasksExtension = "io.modelcontextprotocol/tasks"

// wantsTasks says that a server's answer to a call was that the client must know tasks: nothing was
// run.
func wantsTasks(request, answer *mcp.Message) bool {
	if answer.ErrorCode() != mcp.CodeMissingCapability || request.Method != "tools/call" {
		return false
	}
	_, wants := answer.Get("/data/requiredCapabilities/extensions/" +
		mcp.EscapePointer(tasksExtension))
	return wants && !knowsTasks(request)
}

// knowsTasks says that a call declares the extension.
func knowsTasks(request *mcp.Message) bool {
	_, declared := request.Get(mcp.PointerCapabilities + "/extensions/" +
		mcp.EscapePointer(tasksExtension))
	return declared
}

// task follows the task that a call was answered with to its end, and answers what the call is
// answered with: a complete result, or an error.
func (s *toModern) task(ctx context.Context, call, created *mcp.Message,
	c proxy.Handler) (answer *mcp.Message, err error) {
	id, ok := created.Get("/taskId")
	if !ok {
		return nil, unavailable(s.up.o.Name, "it made a task without an id", nil)
	}
	ended := false // at the server
	defer func() {
		if !ended {
			s.cancelTask(call, id)
		}
	}()
	answered, told := map[string]bool{}, teller{c: c, call: call}
	for got := created; ; {
		status, _ := got.Text("/status")
		switch status {
		case "completed":
			ended = true
			if raw, ok := got.Get("/result"); ok {
				return toClient(mcp.NewResponse(call.ID(), raw)), nil
			}
		case "failed":
			ended = true
			if raw, ok := got.Get("/error"); ok {
				if failed, err := mcp.EmbeddedError(call.ID(), raw); err == nil {
					return toClient(failed), nil
				}
			}
		case "cancelled":
			ended = true
			return nil, unavailable(s.up.o.Name, "it has cancelled the task", nil)
		case "working":
			c.ReportActivity()
			told.tell(ctx, got)
		case "input_required":
			c.ReportActivity()
			refusal, err := s.askForTask(ctx, call, got, answered, c)
			if err != nil || refusal != nil {
				return refusal, err
			}
		}
		if ended || status == "" {
			return nil, unavailable(s.up.o.Name,
				"its task is in no state that is known, or ended without a result", nil)
		}
		if !sleep(ctx, pollInterval(got, "/pollIntervalMs")) {
			return nil, context.Cause(ctx)
		}
		o, err := taskRequestAs("tasks/get", id, call)
		if err != nil {
			return nil, unavailable(s.up.o.Name, "its task could not be asked after", err)
		}
		next, _, err := s.server.request(ctx, o, c)
		if err != nil || next.Kind == mcp.Error {
			return next, err
		}
		got = next
	}
}

// askForTask puts the questions of a task that were not answered yet to the client, and its answers
// to the task.
func (s *toModern) askForTask(ctx context.Context, call, got *mcp.Message, answered map[string]bool,
	c proxy.Handler) (refusal *mcp.Message, err error) {
	var old []mcp.Edit
	var keys []string
	got.Members("/inputRequests", func(key string, _ []byte) bool {
		if answered[key] {
			old = append(old, mcp.Remove("/inputRequests/"+mcp.EscapePointer(key)))
		} else {
			keys = append(keys, key)
		}
		return len(keys) <= maxInputs
	})
	if len(answered)+len(keys) > maxInputs*s.up.o.Rounds {
		return nil, unavailable(s.up.o.Name, "it asked for input too many times", nil)
	}
	fresh, err := got.Edit(old...)
	if err != nil {
		return nil, illegible(s.up.o.Name, err)
	}
	answers, refusal, err := s.ask(ctx, call, fresh, c)
	if err != nil || refusal != nil || answers == nil {
		if refusal != nil {
			refusal = toClient(refusal)
		}
		return refusal, err
	}
	for _, key := range keys {
		answered[key] = true
	}
	id, _ := got.Get("/taskId")
	o, err := taskRequestAs("tasks/update", id, call, mcp.Set("/inputResponses", answers))
	if err != nil {
		return nil, unavailable(s.up.o.Name,
			"the answers that its task asked for could not be put to it", err)
	}
	ack, _, err := s.server.request(ctx, o, c)
	if err != nil || ack.Kind == mcp.Error {
		return ack, err
	}
	return nil, nil
}

// cancelTask tells the server that nobody waits for a task any more.
func (s *toModern) cancelTask(call *mcp.Message, id []byte) {
	o, err := taskRequestAs("tasks/cancel", id, call)
	if err != nil {
		return
	}
	s.life.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
		defer cancel()
		if _, _, err := s.server.request(ctx, o, nil); err != nil {
			s.up.log.Debug("cancel a task", "server", s.up.o.Name, "error", err)
		}
	})
}

// teller tells a client that asked for progress what a task says of its state, each time that it
// says something else.
type teller struct {
	c    proxy.Handler
	call *mcp.Message
	last string
	n    int
}

func (t *teller) tell(ctx context.Context, got *mcp.Message) {
	message, ok := got.Text("/statusMessage")
	token, asked := t.call.Get("/_meta/progressToken")
	if !ok || !asked || message == t.last {
		return
	}
	t.last = message
	t.n++
	t.c.Notify(ctx, toClient(mcp.NewNotification("notifications/progress",
		[]byte(`{"progressToken":`+string(token)+`,"progress":`+strconv.Itoa(t.n)+`,"message":`+
			string(mcp.Quote(message))+`}`))))
}
