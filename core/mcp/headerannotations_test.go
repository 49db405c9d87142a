package mcp_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
)

func ExampleVisitHeaderAnnotations() {
	tool := `{"name":"query","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"sql":{"type":"string"}}}}`
	mcp.VisitHeaderAnnotations([]byte(tool), func(header, at string) { fmt.Println(header, at) })
	// Output: Region /arguments/region
}

func annotationsOf(schema string) []string {
	found := []string{}
	mcp.VisitHeaderAnnotations([]byte(`{"name":"t","inputSchema":`+schema+`}`),
		func(header, at string) { found = append(found, header+" "+at) })
	return found
}

func TestVisitHeaderAnnotations(t *testing.T) {
	// nested is a property at a depth: a/a/…/a.
	nested := func(depth int) string {
		return strings.Repeat(`{"properties":{"a":`, depth) + `{"x-mcp-header":"A"}` +
			strings.Repeat("}}", depth)
	}
	long := func(n int) string {
		return `{"properties":{"` + strings.Repeat("x",
			n) + `":{"properties":{"b":{"x-mcp-header":"B"}}},"c":{"x-mcp-header":"C"}}}`
	}
	for _, c := range []struct {
		name, schema string
		want         []string
	}{
		{"in order, an object's own before those in it",
			`{"properties":{"a":{"x-mcp-header":"A","properties":{"b":{"x-mcp-header":"B"}}},"c":{"x-mcp-header":"C"}}}`,
			[]string{"A /arguments/a", "B /arguments/a/b", "C /arguments/c"}},
		{"names that need an escape",
			`{"properties":{"a/b":{"properties":{"\u0063~":{"x-mcp-header":"no good"}}}}}`,
			[]string{"no good /arguments/a~1b/c~0"}},
		{"not what items lead to",
			`{"properties":{"a":{"items":{"properties":{"b":{"x-mcp-header":"B"}}}}}}`, nil},
		{"not the schema's own, nor a property of that name",
			`{"x-mcp-header":"A","properties":{"x-mcp-header":{"type":"string"}}}`, nil},
		{"no text", `{"properties":{"a":{"x-mcp-header":7},"b":["x-mcp-header"],"c":"x-mcp-header"}}`, nil},
		{"properties that are none", `{"properties":[{"x-mcp-header":"A"}]}`, nil},
		{"a schema that is none", `["x-mcp-header"]`, nil},
		{"as deep as can be", nested(16), []string{"A /arguments" + strings.Repeat("/a", 16)}},
		{"too deep", nested(17), nil},
		{"a name as long as can be", long(499), []string{"B /arguments/" + strings.Repeat("x",
			499) + "/b", "C /arguments/c"}},
		{"a long name", long(500), []string{"C /arguments/c"}},
		{"a hundred thousand deep", nested(100_000), nil},
	} {
		if got := annotationsOf(c.schema); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %.200q, want %q", c.name, got, c.want)
		}
	}
}

// The search was quadratic once, and took minutes for this schema; 0.2 s is slow already.
func TestHostileSchemaIsSearchedInLinearTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		name, value string
		want        int
	}{
		{"annotations, of which a thousand count", `"A"`, 1000},
		{"what looks like one, all of which is walked", `7`, 0},
	} {
		var b strings.Builder
		for i := range 60_000 {
			fmt.Fprintf(&b, `"%d":{"x-mcp-header":%s},`, i, c.value)
		}
		if got := len(annotationsOf(`{"properties":{` + b.String() + `"":0}}`)); got != c.want {
			t.Errorf("%s: got %d arguments, want %d", c.name, got, c.want)
		}
	}
	if ctx.Err() != nil {
		t.Error("not within 10s")
	}
}
