package bridge

import (
	"sync"

	"gatekit/core/mcp"
)

// maxTaskTools is how many tools of one session are remembered, so that no list of tools can fill
// the memory.
const maxTaskTools = 10_000

// taskTools records which of the listed tools of a legacy server run only as tasks. The zero value
// is ready for use.
type taskTools struct {
	mu       sync.Mutex
	taskOnly map[string]bool
	listed   bool // all tools have been listed
}

// record records which tools in answer, an answer to tools/list, run only as tasks.
func (t *taskTools) record(answer *mcp.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer.Items("/tools", func(_ int, raw []byte) bool {
		tool := mcp.NewResponse("", raw)
		name, _ := tool.Text("/name")
		switch {
		case !tool.TextEquals("/execution/taskSupport", "required"):
			delete(t.taskOnly, name)
		case len(t.taskOnly) < maxTaskTools:
			if t.taskOnly == nil {
				t.taskOnly = map[string]bool{}
			}
			t.taskOnly[name] = true
		}
		return true
	})
}

// markListed records that all tools have been listed.
func (t *taskTools) markListed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = true
}

// forget forgets all tools, because the server's list of tools has changed.
func (t *taskTools) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taskOnly, t.listed = nil, false
}

// lookup reports whether a tool is known to run only as a task, and whether all tools have been
// listed.
func (t *taskTools) lookup(name string) (taskOnly, listed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taskOnly[name], t.listed
}
