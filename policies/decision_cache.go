package policies

import (
	"context"
	"sync"
	"time"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
)

// decisionCache keeps the sets that queries returned, by the query and its input. It is exact: two
// inputs must be equal, and not only their hashes. Queries that read the time of the message, or
// call a function that may return another value each time, are not kept. A nil cache keeps nothing.
// It is safe for concurrent use.
type decisionCache struct {
	mu      sync.Mutex
	entries map[decisionKey][]cachedDecision
	count   int
	bytes   int // about the size of the inputs, as JSON
}

type decisionKey struct {
	query *ruleQuery
	hash  int
}

type cachedDecision struct {
	input ast.Value
	sets  []ast.Set
}

// Bounds of a decisionCache. A Rego value needs about twenty times the memory of its JSON. A full
// cache is emptied.
const (
	maxCachedDecisions    = 20_000
	maxCachedBytes        = 3 << 20 // of JSON
	maxCachedMessageBytes = 32 << 10

	cachedInputBytes      = 256     // of an input, without its bodies
	cachedDefinitionBytes = 4 << 10 // of definitions and roots in an input, estimated
)

// eval is q.eval for the input of m, or an earlier result of it.
func (c *decisionCache) eval(ctx context.Context, q *ruleQuery, m *mcp.Message, input ast.Value,
	now time.Time) ([]ast.Set, error) {
	size := cachedInputBytes + len(m.Body())
	if m.Request != nil {
		size += len(m.Request.Body())
	}
	for _, member := range []string{"item", "items", "roots", "tools"} {
		if _, ok := q.reads.wants(member); ok {
			size += cachedDefinitionBytes
		}
	}
	_, readsTime := q.reads.wants("time")
	if c == nil || q.nondeterministic || readsTime || size > maxCachedMessageBytes {
		return q.eval(ctx, input, now)
	}
	key := decisionKey{q, input.Hash()}
	c.mu.Lock()
	for _, e := range c.entries[key] {
		if e.input.Compare(input) == 0 {
			c.mu.Unlock()
			return e.sets, nil
		}
	}
	c.mu.Unlock()
	sets, err := q.eval(ctx, input, now)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil || c.count >= maxCachedDecisions || c.bytes+size > maxCachedBytes {
		c.entries, c.count, c.bytes = map[decisionKey][]cachedDecision{}, 0, 0
	}
	c.entries[key] = append(c.entries[key], cachedDecision{input, sets})
	c.count, c.bytes = c.count+1, c.bytes+size
	return sets, nil
}

// callsNondeterministic reports whether a rule calls a function of OPA that may return another
// value for equal arguments, such as time.now_ns.
func callsNondeterministic(r *ast.Rule) (found bool) {
	ast.WalkRefs(r, func(ref ast.Ref) bool {
		b := ast.BuiltinMap[ref.String()]
		found = found || b != nil && b.Nondeterministic
		return found
	})
	return found
}
