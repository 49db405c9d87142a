package query

import (
	"cmp"
	"container/heap"
	"time"
)

// maxWaiting bounds the ended calls that wait for an earlier call to end.
const maxWaiting = 50_000

// startOrder puts ended calls into the order of their starts. A call waits until every call that
// started before it has ended.
type startOrder struct{ waiting callHeap }

// add adds a call that has ended.
func (o *startOrder) add(c *Call) { heap.Push(&o.waiting, c) }

// take returns the calls that did not start after the oldest open call. The parameter oldest is the
// start of that call, or zero if no call is open. When more than maxWaiting calls wait, take
// returns the first of them anyway, so the oldest open call will be out of order.
func (o *startOrder) take(oldest time.Time) (calls []*Call) {
	for len(o.waiting) > 0 && (oldest.IsZero() || !o.waiting[0].Start.After(oldest) ||
		len(o.waiting) > maxWaiting) {
		calls = append(calls, heap.Pop(&o.waiting).(*Call))
	}
	return calls
}

// callHeap is a heap of calls. Its first element is the call that started first.
type callHeap []*Call

func (h callHeap) Len() int { return len(h) }
func (h callHeap) Less(i, j int) bool {
	return cmp.Or(h[i].Start.Compare(h[j].Start), cmp.Compare(h[i].FirstSeq, h[j].FirstSeq)) < 0
}
func (h callHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *callHeap) Push(c any) { *h = append(*h, c.(*Call)) }

// Pop implements heap.Interface.
func (h *callHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return c
}
