package policies_test

import (
	"runtime"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
)

// TestCompiledSchemasAndPatternsAreKept calls two tools in turn, and applies two patterns. The
// second time, nothing is compiled.
func TestCompiledSchemasAndPatternsAreKept(t *testing.T) {
	const schema = `,"inputSchema":{"properties":{"a":{"type":"string","pattern":"^a*$"},` +
		`"b":{"type":"string","pattern":"^b*$"},"c":{"enum":["a","b","c"]}}}}`
	schemas := schemaStage(t, nil, `{"name":"x"`+schema+`,{"name":"y"`+schema)
	patterns := loaded(t, `redact contains {"pattern": "k[0-9]{1,50}", "with": "K"}
redact contains {"pattern": "l[0-9]{1,50}", "with": "L"}`)
	for name, c := range map[string]struct {
		s        *policies.Stage
		messages []*mcp.Message
	}{
		"schemas":  {schemas, []*mcp.Message{called("x", `{"a":"a"}`), called("y", `{"b":"b"}`)}},
		"patterns": {patterns, []*mcp.Message{called("x", `{"a":"k1 l2"}`)}},
	} {
		n := testing.AllocsPerRun(5, func() {
			for _, m := range c.messages {
				_, _ = c.s.Inspect(t.Context(), m)
			}
		})
		if n > 400 {
			t.Errorf("%s: %v allocations, want at most 400", name, n)
		}
	}
}

// TestLongStringsAreNotDecoded compares an argument of almost 1 MiB with its schema.
func TestLongStringsAreNotDecoded(t *testing.T) {
	s := schemaStage(t, nil, `{"name":"x","inputSchema":{"properties":{"v":{"type":"string",`+
		`"maxLength":9}}}}`)
	m := called("x", `{"v":"`+strings.Repeat("x", 1_000_000)+`"}`)
	inspect := func() {
		if _, err := s.Inspect(t.Context(), m); err != nil {
			t.Error(err)
		}
	}
	inspect() // compiles the schema
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	inspect()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 500_000 {
		t.Errorf("the comparison takes %d bytes of memory, want at most 500,000", n)
	}
}
