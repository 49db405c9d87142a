package policies

import (
	"fmt"
	"regexp"
	"sync"
)

// maxPatterns bounds the cache, because a policy can build new patterns for each message.
const maxPatterns = 1000

// patterns caches compiled regular expressions, because policies use the same few for each message.
// The zero value is ready to use.
type patterns struct {
	mu    sync.Mutex
	known map[string]*regexp.Regexp
}

// compiled returns a regular expression from the cache, or compiles it.
func (p *patterns) compiled(text string) (*regexp.Regexp, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if re, ok := p.known[text]; ok {
		return re, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", text, err)
	}
	if p.known == nil || len(p.known) >= maxPatterns {
		p.known = map[string]*regexp.Regexp{}
	}
	p.known[text] = re
	return re, nil
}
