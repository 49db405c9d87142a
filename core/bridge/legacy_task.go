package upstream

import (
	"context"
	"strconv"
	"sync"
	"time"

	"gatekit/core/mcp"
)

// Some tools of legacy servers (2025-11-25) run as tasks only, of a design that modern clients do
// not know: such a call is made as a task here, and answered with what comes of it (protocol.md
// 3.9).

// How often a task is asked after where the server does not say.
const (
	defaultPoll  = 5 * time.Second
	shortestPoll = 200 * time.Millisecond
	longestPoll  = time.Minute
)

// taskTools are the tools of a legacy server that run as tasks only, as far as it has been heard.
// The zero taskTools is ready.
type taskTools struct {
	mu     sync.Mutex
	only   map[string]bool
	listed bool // it has been asked for all
}

// maxTaskTools of one server are known, so that no list can fill the memory.
const maxTaskTools = 10_000

// learn takes in an answer to tools/list.
func (t *taskTools) learn(answer *mcp.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer.Items("/tools", func(_ int, raw []byte) bool {
		tool := mcp.NewResponse("", raw)
		name, _ := tool.Text("/name")
		switch {
		case !tool.TextEquals("/execution/taskSupport", "required"):
			delete(t.only, name)
		case len(t.only) < maxTaskTools:
			if t.only == nil {
				t.only = map[string]bool{}
			}
			t.only[name] = true
		}
		return true
	})
}

// forget says that the list has changed.
func (t *taskTools) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.only, t.listed = nil, false
}

func (t *taskTools) has(name string) (only, listed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.only[name], t.listed
}

// taskOnly says that m calls a tool that runs as a task only, as far as is known before it was
// called.
func (v *visit) taskOnly(m *mcp.Message) bool {
	name, _ := m.Text("/name")
	only, _ := v.tasks.has(name)
	return only && m.Method == "tools/call"
}

// wantsTask says that the tool that m called runs as a task only, as its answer may mean: the
// specification wants an error for that, and the TypeScript SDK (v1) answers with a result that is
// one. When the client has not asked for the tools, they are asked for.
func (v *visit) wantsTask(ctx context.Context, m, answer *mcp.Message) bool {
	if _, tasks := v.hello.Get("/capabilities/tasks/requests/tools/call"); !tasks ||
		m.Method != "tools/call" || answer.ErrorCode() != mcp.CodeMethodNotFound &&
		!failure(answer) {
		return false
	}
	name, _ := m.Text("/name")
	if _, listed := v.tasks.has(name); !listed {
		v.listTasks(ctx)
	}
	only, _ := v.tasks.has(name)
	return only
}

func failure(answer *mcp.Message) bool {
	raw, _ := answer.Get("/isError")
	return string(raw) == "true"
}

// listTasks asks for all tools. What cannot be had is left out: the call has its answer.
func (v *visit) listTasks(ctx context.Context) {
	var cursor []byte
	for range maxPages {
		page, err := v.server.request(ctx, listed(cursor), nil)
		if err != nil || page.Kind != mcp.Response {
			v.of.up.log.Debug("list a server's tools", "server", v.of.up.o.Name, "error", err)
			return
		}
		v.tasks.learn(page)
		var more bool
		if cursor, more = page.Get("/nextCursor"); !more {
			break
		}
	}
	v.tasks.mu.Lock()
	v.tasks.listed = true
	v.tasks.mu.Unlock()
}

// asTask makes the call as a task, and answers when the task has ended.
func (t *turn) asTask(ctx context.Context, o outgoing) (*mcp.Message, error) {
	server, name := t.visit.server, t.visit.of.up.o.Name
	o, err := o.asTask()
	if err != nil {
		return nil, unavailable(name, "the call could not be made as a task", err)
	}
	created, err := server.request(ctx, o, t)
	if err != nil || created.Kind == mcp.Error {
		return created, err
	}
	id, ok := created.Get("/task/taskId")
	if !ok {
		return created, nil // it answers at once
	}
	polls, stop := context.WithCancel(ctx)
	polled := make(chan struct{})
	if !t.visit.of.life.run(func(context.Context) {
		defer close(polled)
		t.poll(polls, id, pollInterval(created, "/task/pollInterval"))
	}) {
		close(polled)
	}
	answer, err := server.request(ctx, taskRequest("tasks/result", id, t.m), t)
	stop()
	<-polled
	if err != nil {
		t.visit.of.life.run(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
			defer cancel()
			if _, err := server.request(ctx, taskRequest("tasks/cancel", id, nil),
				nil); err != nil {
				t.visit.of.up.log.Debug("cancel a task", "server", name, "error", err)
			}
		})
		return nil, err
	}
	if answer, err = answer.Edit(mcp.Remove(mcp.PointerRelatedTask)); err != nil {
		return nil, illegible(name, err)
	}
	return answer.WithID(t.m.ID()), nil
}

// poll asks after a task until ctx ends: as long as the server says that it is at work, it is not
// taken to be silent.
func (t *turn) poll(ctx context.Context, id []byte, every time.Duration) {
	for sleep(ctx, every) {
		answer, err := t.visit.server.request(ctx, taskRequest("tasks/get", id, nil), nil)
		if err != nil || answer.Kind == mcp.Error {
			continue
		}
		if answer.TextEquals("/status", "working") || answer.TextEquals("/status",
			"input_required") {
			t.c.ReportActivity()
		}
		every = pollInterval(answer, "/pollInterval")
	}
}

// pollInterval is how long a server wants to be left alone before it is asked after a task again.
func pollInterval(m *mcp.Message, pointer string) time.Duration {
	raw, _ := m.Get(pointer)
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return defaultPoll
	}
	return time.Duration(min(max(ms, float64(shortestPoll.Milliseconds())),
		float64(longestPoll.Milliseconds()))) * time.Millisecond
}
