package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// cacheSize bounds the number of verified tokens that are remembered, twice.
const cacheSize = 10_000

// cache remembers verified tokens by their digest. When recent is full, it becomes old, and the
// tokens in old that were not used since are forgotten.
type cache struct {
	size int // of recent

	mu          sync.Mutex
	recent, old map[[sha256.Size]byte]*verified
}

// find returns the token that was verified, if the result still counts.
func (c *cache) find(digest [sha256.Size]byte, now time.Time) *verified {
	c.mu.Lock()
	v, ok := c.recent[digest]
	if !ok {
		if v, ok = c.old[digest]; ok {
			c.put(digest, v)
		}
	}
	c.mu.Unlock()
	if !ok || !v.isGood(now) {
		return nil
	}
	return v
}

func (c *cache) add(digest [sha256.Size]byte, v *verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(digest, v)
}

// put adds v to recent. The caller holds mu.
func (c *cache) put(digest [sha256.Size]byte, v *verified) {
	if _, ok := c.recent[digest]; !ok && len(c.recent) >= c.size || c.recent == nil {
		c.old, c.recent = c.recent, map[[sha256.Size]byte]*verified{}
	}
	c.recent[digest] = v
}
