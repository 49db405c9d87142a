package bridge

import (
	"sync"

	"gatekit/core/mcp"
)

// maxTaskTools is how many tools of one server are remembered, so that no list can fill the memory.
const maxTaskTools = 10_000

// taskTools records which of the listed tools of a legacy server run as tasks only. The zero value
// is ready.
type taskTools struct {
	mu       sync.Mutex
	taskOnly map[string]bool
	listed   bool // all tools have been listed
}

// record reads from an answer to tools/list which tools run only as tasks.
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

// forget discards what is known, because the list of tools has changed.
func (t *taskTools) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taskOnly, t.listed = nil, false
}

// lookup reports whether a tool is known to run as a task only, and whether all tools are known.
func (t *taskTools) lookup(name string) (taskOnly, listed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taskOnly[name], t.listed
}
