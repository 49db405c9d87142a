// Package tasks remembers who began which of the servers' tasks, and with what, so that the id of a
// task, guessed or overheard, is of no use to another principal.
package tasks

import (
	"container/heap"
	"container/list"
	"crypto/sha256"
	"strings"
	"sync"
)

// Bounds of what is remembered, in bytes as they are counted: each task costs more than its names.
const (
	maxBytes = 16 << 20
	overhead = 300 // about what the maps and lists take for one task
)

// Registry is the tasks that are known. Its memory is bounded, whatever the length of ids, and
// shared fairly: beyond the bound, the principal that takes the most loses its oldest, so that
// nobody can have the tasks of others forgotten by beginning many. A server with a process for each
// principal may give one id to several. The zero Begun is empty and ready, and safe for many
// goroutines.
type Registry struct {
	mu sync.Mutex
	// by task, and then by principal: in the list of the principal
	by    map[key]map[string]*list.Element
	of    map[string]*owner // by principal
	most  greed
	bytes int
}

// key is the digest of a server's name and the id of a task of it.
type key [sha256.Size]byte

// no server's name holds a zero
func keyOf(server, id string) key { return sha256.Sum256([]byte(server + "\x00" + id)) }

type owner struct {
	tasks list.List // of *task, the oldest first
	bytes int
	at    int // in the heap
}

// greed is a heap of the principals, with the one whose tasks take the most first.
type greed []*owner

func (g greed) Len() int           { return len(g) }
func (g greed) Less(i, j int) bool { return g[i].bytes > g[j].bytes }
func (g greed) Swap(i, j int)      { g[i], g[j] = g[j], g[i]; g[i].at, g[j].at = i, j }
func (g *greed) Push(o any)        { o.(*owner).at = len(*g); *g = append(*g, o.(*owner)) }
func (g *greed) Pop() any {
	o := (*g)[len(*g)-1]
	(*g)[len(*g)-1] = nil
	*g = (*g)[:len(*g)-1]
	return o
}

type task struct {
	key             key
	principal, name string
}

func (t *task) bytes() int { return overhead + len(t.principal) + len(t.name) }

// Add remembers that the principal began a task at a server, with what is called name there.
func (b *Registry) Add(server, id, principal, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// which can be a part of the message
	t := &task{keyOf(server, id), principal, strings.Clone(name)}
	if e := b.by[t.key][principal]; e != nil {
		b.forget(e)
	}
	if b.by == nil {
		b.by, b.of = map[key]map[string]*list.Element{}, map[string]*owner{}
	}
	if b.by[t.key] == nil {
		b.by[t.key] = map[string]*list.Element{}
	}
	o := b.of[principal]
	if o == nil {
		o = &owner{}
		b.of[principal] = o
		heap.Push(&b.most, o)
	}
	b.by[t.key][principal] = o.tasks.PushBack(t)
	o.bytes += t.bytes()
	b.bytes += t.bytes()
	heap.Fix(&b.most, o.at)
	for b.bytes > maxBytes {
		b.forget(b.most[0].tasks.Front())
	}
}

func (b *Registry) forget(e *list.Element) {
	t := e.Value.(*task)
	o := b.of[t.principal]
	o.tasks.Remove(e)
	o.bytes -= t.bytes()
	b.bytes -= t.bytes()
	if heap.Fix(&b.most, o.at); o.tasks.Len() == 0 {
		heap.Remove(&b.most, o.at)
		delete(b.of, t.principal)
	}
	if delete(b.by[t.key], t.principal); len(b.by[t.key]) == 0 {
		delete(b.by, t.key)
	}
}

// Name is what the principal began its task with; ok is false when it is not known to have begun
// it.
func (b *Registry) Name(server, id, principal string) (name string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.by[keyOf(server, id)][principal]
	if e == nil {
		return "", false
	}
	return e.Value.(*task).name, true
}

// BelongsToOther says that a task is known to be others', and not the principal's. Whose the rest
// is, those from before a restart and those that were forgotten, the server alone knows.
func (b *Registry) BelongsToOther(server, id, principal string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.by[keyOf(server, id)]
	return len(all) > 0 && all[principal] == nil
}
