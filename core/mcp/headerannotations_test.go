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

// annotationsOf returns the annotations of a tool with this input schema, as "header pointer".
func annotationsOf(schema string) []string {
	found := []string{}
	mcp.VisitHeaderAnnotations([]byte(`{"name":"t","inputSchema":`+schema+`}`),
		func(header, at string) { found = append(found, header+" "+at) })
	return found
}

func TestVisitHeaderAnnotations(t *testing.T) {
	// nested returns a schema with an annotated property a/a/…/a at this depth.
	nested := func(depth int) string {
		return strings.Repeat(`{"properties":{"a":`, depth) + `{"x-mcp-header":"A"}` +
			strings.Repeat("}}", depth)
	}
	// long returns a schema in which a name of n bytes has an annotation below it.
	long := func(n int) string {
		return `{"properties":{"` + strings.Repeat("x",
			n) + `":{"properties":{"b":{"x-mcp-header":"B"}}},"c":{"x-mcp-header":"C"}}}`
	}
	for _, c := range []struct {
		name, schema string
		want         []string
	}{
		{"a property before the properties below it",
			`{"properties":{"a":{"x-mcp-header":"A","properties":{"b":{"x-mcp-header":"B"}}},"c":{"x-mcp-header":"C"}}}`,
			[]string{"A /arguments/a", "B /arguments/a/b", "C /arguments/c"}},
		{"names that need an escape",
			`{"properties":{"a/b":{"properties":{"\u0063~":{"x-mcp-header":"no good"}}}}}`,
			[]string{"no good /arguments/a~1b/c~0"}},
		{"none below items",
			`{"properties":{"a":{"items":{"properties":{"b":{"x-mcp-header":"B"}}}}}}`, nil},
		{"none of the schema itself, and none for a property called x-mcp-header",
			`{"x-mcp-header":"A","properties":{"x-mcp-header":{"type":"string"}}}`, nil},
		{"annotations that are no strings", `{"properties":{"a":{"x-mcp-header":7},"b":["x-mcp-header"],"c":"x-mcp-header"}}`, nil},
		{"properties that are an array", `{"properties":[{"x-mcp-header":"A"}]}`, nil},
		{"a schema that is an array", `["x-mcp-header"]`, nil},
		{"as deep as allowed", nested(16), []string{"A /arguments" + strings.Repeat("/a", 16)}},
		{"too deep", nested(17), nil},
		{"a name as long as allowed", long(499), []string{"B /arguments/" + strings.Repeat("x",
			499) + "/b", "C /arguments/c"}},
		{"a name that is too long", long(500), []string{"C /arguments/c"}},
		{"a hundred thousand deep", nested(100_000), nil},
	} {
		if got := annotationsOf(c.schema); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %.200q, want %q", c.name, got, c.want)
		}
	}
}

// A former version searched in quadratic time, which took minutes for this schema.
func TestHostileSchemaIsSearchedInLinearTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		name, value string
		want        int
	}{
		{"annotations, of which the first thousand are used", `"A"`, 1000},
		{"invalid annotations, all of which are read", `7`, 0},
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
		t.Error("the search took more than a minute")
	}
}
