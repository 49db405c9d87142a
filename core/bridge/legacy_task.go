package bridge

import (
	"context"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// Some tools of legacy servers (2025-11-25) run only as tasks. Modern clients do not support this
// kind of task. The bridge calls the tool as a task, and answers the client's call with the task's
// result.

// maxToolPages is how many pages of a server's list of tools the bridge reads.
const maxToolPages = 100

// isTaskOnly reports whether m calls a tool that is known to run only as a task.
func (s *pooledSession) isTaskOnly(m *mcp.Message) bool {
	name, _ := m.Text("/name")
	taskOnly, _ := s.taskTools.lookup(name)
	return taskOnly && m.Method == "tools/call"
}

// needsTask reports whether the answer to the call m means that the tool runs only as a task. The
// specification demands an error as this answer. The TypeScript SDK (v1) answers with a result
// whose isError is true. If the tools have not been listed yet, needsTask lists them.
func (s *pooledSession) needsTask(ctx context.Context, m, answer *mcp.Message) bool {
	_, hasTasks := s.initializeAnswer.Get("/capabilities/tasks/requests/tools/call")
	if !hasTasks || m.Method != "tools/call" ||
		answer.ErrorCode() != mcp.CodeMethodNotFound && !isToolError(answer) {
		return false
	}
	name, _ := m.Text("/name")
	if _, listed := s.taskTools.lookup(name); !listed {
		s.listTools(ctx)
	}
	taskOnly, _ := s.taskTools.lookup(name)
	return taskOnly
}

func isToolError(answer *mcp.Message) bool {
	raw, _ := answer.Get("/isError")
	return string(raw) == "true"
}

// listTools lists all tools of the server. If a page cannot be read, the tools count as not listed.
func (s *pooledSession) listTools(ctx context.Context) {
	var cursor []byte
	for range maxToolPages {
		page, err := s.server.Send(ctx, listToolsRequest(cursor), nil)
		if err != nil || page.Kind != mcp.Response {
			s.log.Debug("listing a server's tools failed", "server", s.name, "error", err)
			return
		}
		s.taskTools.record(page)
		var more bool
		if cursor, more = page.Get("/nextCursor"); !more {
			break
		}
	}
	s.taskTools.markListed()
}

// callAsTask makes a tools/call as a task, and returns the task's result when the task has ended.
// request is the client's request, and o is its translation for the server.
func (s *pooledSession) callAsTask(ctx context.Context, request *mcp.Message, o upstream.Outgoing,
	h proxy.Handler) (*mcp.Message, error) {
	o, err := asTaskCall(o)
	if err != nil {
		return nil, unavailable(s.name, "the call could not be made as a task", err)
	}
	created, err := s.server.Send(ctx, o, h)
	if err != nil || created.Kind == mcp.Error {
		return created, err
	}
	id, ok := created.Get("/task/taskId")
	if !ok {
		return created, nil // the server has answered without a task
	}
	if err := h.Consume(ctx, created, "pass", answeredByGatekit); err != nil {
		s.cancelTask(id)
		return nil, err
	}
	pollCtx, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	if !s.goroutines.Go(func(context.Context) {
		defer close(stopped)
		s.pollTask(pollCtx, id, pollInterval(created, "/task/pollInterval"), h)
	}) {
		close(stopped)
	}
	answer, err := s.server.Send(ctx, legacyTaskRequest("tasks/result", id, request), h)
	stop()
	<-stopped
	if err != nil {
		s.cancelTask(id)
		return nil, err
	}
	translated, err := answer.Edit(mcp.Remove(mcp.PointerRelatedTask))
	if err != nil {
		drop(ctx, h, answer, cannotTranslate)
		return nil, untranslatable(s.name, err)
	}
	return translated.WithID(request.ID()), nil
}

// pollTask asks for the state of a task at intervals, until ctx ends. It reports activity to h
// while the task is being worked on, so that the call does not time out.
func (s *pooledSession) pollTask(ctx context.Context, id []byte, interval time.Duration,
	h proxy.Handler) {
	for backoff.Sleep(ctx, interval) {
		answer, err := s.server.Send(ctx, legacyTaskRequest("tasks/get", id, nil), nil)
		if err != nil || answer.Kind == mcp.Error {
			continue
		}
		if answer.TextEquals("/status", "working") ||
			answer.TextEquals("/status", "input_required") {
			h.ReportActivity()
		}
		interval = pollInterval(answer, "/pollInterval")
	}
}

// cancelTask cancels a task in the background.
func (s *pooledSession) cancelTask(id []byte) {
	s.goroutines.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		o := legacyTaskRequest("tasks/cancel", id, nil)
		if _, err := s.server.Send(ctx, o, nil); err != nil {
			s.log.Debug("cancelling a task failed", "server", s.name, "error", err)
		}
	})
}
