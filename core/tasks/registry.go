// Package tasks remembers, for each task of a server, the principal that created it and a name that
// the caller of Add chooses, such as the name of the tool. So a principal that guesses or learns
// the id of another principal's task cannot use the task. A [Registry] has the tasks that this
// process knows, and [Owners] those of all replicas.
package tasks

import (
	"container/heap"
	"container/list"
	"crypto/sha256"
	"strings"
	"sync"
)

const (
	maxBytes     = 16 << 20 // the sum of task.bytes of all tasks
	taskOverhead = 300      // bytes that one task takes in the maps and lists, roughly
)

// Registry holds the known tasks. Its memory is bounded. When the bound is exceeded, the Registry
// finds the principal whose tasks take the most bytes, and forgets the oldest task of that
// principal. So a principal that creates many tasks loses its own tasks, not those of others. Two
// principals may have tasks with the same id at one server, since the server may run one process
// for each principal. The zero Registry is empty and ready. Many goroutines may use it.
type Registry struct {
	mu sync.Mutex
	// the task's element in taskOwner.tasks, by task and principal
	byTask  map[key]map[string]*list.Element
	byOwner map[string]*taskOwner // by principal
	largest ownerHeap
	bytes   int
}

// key is the digest of a server's name and the id of a task there.
type key [sha256.Size]byte

// keyOf returns the key of a task. A zero byte separates the server's name and the id; the name
// never contains a zero byte.
func keyOf(server, id string) key { return sha256.Sum256([]byte(server + "\x00" + id)) }

// taskOwner is a principal with its tasks.
type taskOwner struct {
	tasks     list.List // of *task, the oldest first
	bytes     int
	heapIndex int // in Registry.largest
}

// ownerHeap is a heap of owners. The owner whose tasks take the most bytes is first.
type ownerHeap []*taskOwner

func (h ownerHeap) Len() int           { return len(h) }
func (h ownerHeap) Less(i, j int) bool { return h[i].bytes > h[j].bytes }
func (h ownerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}
func (h *ownerHeap) Push(o any) {
	o.(*taskOwner).heapIndex = len(*h)
	*h = append(*h, o.(*taskOwner))
}
func (h *ownerHeap) Pop() any {
	o := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return o
}

type task struct {
	key       key
	principal string
	name      string // as given to Add
}

func (t *task) bytes() int { return taskOverhead + len(t.principal) + len(t.name) }

// Add records that the principal created the task with this id at the server. The method Name
// returns the value of the parameter name later.
func (r *Registry) Add(server, id, principal, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// name is cloned because it may be part of a large message
	t := &task{keyOf(server, id), principal, strings.Clone(name)}
	if e := r.byTask[t.key][principal]; e != nil {
		r.remove(e)
	}
	if r.byTask == nil {
		r.byTask, r.byOwner = map[key]map[string]*list.Element{}, map[string]*taskOwner{}
	}
	if r.byTask[t.key] == nil {
		r.byTask[t.key] = map[string]*list.Element{}
	}
	o := r.byOwner[principal]
	if o == nil {
		o = &taskOwner{}
		r.byOwner[principal] = o
		heap.Push(&r.largest, o)
	}
	r.byTask[t.key][principal] = o.tasks.PushBack(t)
	o.bytes += t.bytes()
	r.bytes += t.bytes()
	heap.Fix(&r.largest, o.heapIndex)
	for r.bytes > maxBytes {
		r.remove(r.largest[0].tasks.Front())
	}
}

func (r *Registry) remove(e *list.Element) {
	t := e.Value.(*task)
	o := r.byOwner[t.principal]
	o.tasks.Remove(e)
	o.bytes -= t.bytes()
	r.bytes -= t.bytes()
	if heap.Fix(&r.largest, o.heapIndex); o.tasks.Len() == 0 {
		heap.Remove(&r.largest, o.heapIndex)
		delete(r.byOwner, t.principal)
	}
	if delete(r.byTask[t.key], t.principal); len(r.byTask[t.key]) == 0 {
		delete(r.byTask, t.key)
	}
}

// Name returns the name that was passed to Add for the principal's task. ok is false when the
// principal has no known task with this id.
func (r *Registry) Name(server, id, principal string) (name string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byTask[keyOf(server, id)][principal]
	if e == nil {
		return "", false
	}
	return e.Value.(*task).name, true
}

// BelongsToOther reports whether another principal created a task with this id, and this principal
// did not. If the task is unknown, BelongsToOther returns false: the task was created before a
// restart or was forgotten, and only the server knows its owner.
func (r *Registry) BelongsToOther(server, id, principal string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.byTask[keyOf(server, id)]
	return len(all) > 0 && all[principal] == nil
}
