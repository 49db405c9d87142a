package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// cacheSize bounds the number of verified tokens that are remembered, twice.
const cacheSize = 10_000

// cache remembers values about tokens. When recent is full, it becomes old, and the values in old
// that were not used since are forgotten.
type cache[K comparable, V interface{ isGood(now time.Time) bool }] struct {
	size int // of recent

	mu          sync.Mutex
	recent, old map[K]V
}

// verifiedTokens remembers verified tokens by their digest.
type verifiedTokens = cache[[sha256.Size]byte, *verified]

// find returns the value of a key, if it still counts, or else the zero value.
func (c *cache[K, V]) find(key K, now time.Time) (none V) {
	c.mu.Lock()
	v, ok := c.recent[key]
	if !ok {
		if v, ok = c.old[key]; ok {
			c.put(key, v)
		}
	}
	c.mu.Unlock()
	if !ok || !v.isGood(now) {
		return none
	}
	return v
}

func (c *cache[K, V]) add(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, v)
}

// put adds v to recent. The caller holds mu.
func (c *cache[K, V]) put(key K, v V) {
	if _, ok := c.recent[key]; !ok && len(c.recent) >= c.size || c.recent == nil {
		c.old, c.recent = c.recent, map[K]V{}
	}
	c.recent[key] = v
}
