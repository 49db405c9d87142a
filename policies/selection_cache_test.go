package policies

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"gatekit/core/mcp"
)

// TestFullCachesOfQueries evaluates messages while a cache of queries is full. The messages of a
// new class are evaluated with all rules, the results are the same, and the caches stop growing.
func TestFullCachesOfQueries(t *testing.T) {
	const rego = `package gatekit.t

deny contains "x" if input.name == "x"
deny contains "z" if { input.name == "z"; input.params.name == "z" }
`
	file := filepath.Join(t.TempDir(), "t.rego")
	if err := os.WriteFile(file, []byte(rego), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, fill := range map[string]func(i *ruleSelector, free int){
		"classes": func(i *ruleSelector, free int) {
			for n := range maxClasses - free {
				i.byClass[queryKey{class: messageClass{strconv.Itoa(n)}}] = nil
			}
		},
		"prepared queries": func(i *ruleSelector, free int) {
			for n := range maxPrepared - free {
				i.byRules[strconv.Itoa(n)] = nil
			}
		},
	} {
		for _, free := range []int{0, 1} {
			s, err := Load(Options{Files: []string{file}})
			if err != nil {
				t.Fatal(err)
			}
			fill(s.selector, free)
			allowed := func(name string) bool {
				m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"`+name+`"}`))
				m.Direction, m.Server, m.Name = mcp.ToServer, "a", name
				v, err := s.Inspect(t.Context(), m)
				if err != nil {
					t.Errorf("%s, %d free: the call of %s: %v", name, free, name, err)
				}
				return v.Action != 0
			}
			for range 2 {
				if allowed("x") || !allowed("y") || allowed("z") {
					t.Errorf("%s, %d free: want the calls of x and z denied", name, free)
				}
			}
			// the query with all rules is kept, too
			if n := len(s.selector.byClass); n > maxClasses+1 {
				t.Errorf("%s, %d free: queries of %d classes are kept", name, free, n)
			}
			if n := len(s.selector.byRules); n > maxPrepared+1 {
				t.Errorf("%s, %d free: %d prepared queries are kept", name, free, n)
			}
		}
	}
}
