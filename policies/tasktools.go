package policies

import (
	"sync"

	"gatekit/core/mcp"
)

const (
	maxTasks  = 10_000 // whose tools are known
	maxTaskID = 1_000  // bytes
)

// taskTools is which tool runs as a server's task, whichever session it began in: its principal can ask for it in another. The zero taskTools is ready.
type taskTools struct {
	mu     sync.Mutex
	tools  map[string]string // by principal, server and task
	oldest []string          // keys, in the order in which the tasks began
}

func taskKey(m *mcp.Message, id string) string { return m.Principal + "\x00" + m.Server + "\x00" + id }

// learn remembers of which tool the task is that m, the answer to a call, may say has begun. The oldest are forgotten first.
func (t *taskTools) learn(m *mcp.Message) {
	id, ok := m.Text("/task/taskId")
	if kind, _ := m.Text("/resultType"); !ok && kind == "task" {
		id, ok = m.Text("/taskId")
	}
	if !ok || len(id) > maxTaskID {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := taskKey(m, id)
	if _, again := t.tools[key]; !again {
		if t.tools == nil {
			t.tools = map[string]string{}
		}
		if len(t.oldest) == maxTasks {
			delete(t.tools, t.oldest[0])
			t.oldest = t.oldest[1:]
		}
		t.oldest = append(t.oldest, key)
	}
	t.tools[key] = m.Name
}

// uses are the uses of tools that a message makes by naming their tasks, as far as it is known.
func (t *taskTools) uses(m *mcp.Message, ids []string) []use {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := use{list: "tools/list"}
	for _, id := range ids {
		if tool, known := t.tools[taskKey(m, id)]; known {
			u.names, u.tasks = append(u.names, tool), append(u.tasks, id)
		}
	}
	if u.names == nil {
		return nil
	}
	return []use{u}
}
