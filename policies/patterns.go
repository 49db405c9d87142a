package policies

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
)

// maxPatterns is how many are kept compiled: a policy can make them of anything.
const maxPatterns = 1000

// patterns are the regular expressions that policies name, compiled: they name the same few for
// each message. The zero patterns is ready.
type patterns struct {
	mu    sync.Mutex
	known map[string]*regexp.Regexp
}

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

// marshal is a value of Rego's as JSON.
func marshal(v any) ([]byte, error) { return json.Marshal(v) }
