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

// annotationsOf returns the annotations that are found in a tool with this input schema, each as
// "header pointer".
func annotationsOf(schema string) []string {
	found := []string{}
	mcp.VisitHeaderAnnotations([]byte(`{"name":"t","inputSchema":`+schema+`}`),
		func(header, at string) { found = append(found, header+" "+at) })
	return found
}

func TestVisitHeaderAnnotations(t *testing.T) {
	// nested returns a schema in which the property a/a/…/a, at the given depth, has an annotation.
	nested := func(depth int) string {
		return strings.Repeat(`{"properties":{"a":`, depth) + `{"x-mcp-header":"A"}` +
			strings.Repeat("}}", depth)
	}
	// long returns a schema with two annotated properties. The property b is below a property whose
	// name has n bytes. The property c is at the top.
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
		{"names that are escaped in the pointer",
			`{"properties":{"a/b":{"properties":{"\u0063~":{"x-mcp-header":"no good"}}}}}`,
			[]string{"no good /arguments/a~1b/c~0"}},
		{"an annotation below items is not found",
			`{"properties":{"a":{"items":{"properties":{"b":{"x-mcp-header":"B"}}}}}}`, nil},
		{"neither an annotation of the whole schema nor a property called x-mcp-header is found",
			`{"x-mcp-header":"A","properties":{"x-mcp-header":{"type":"string"}}}`, nil},
		{"annotations that are not strings are not found", `{"properties":{"a":{"x-mcp-header":7},"b":["x-mcp-header"],"c":"x-mcp-header"}}`, nil},
		{"properties that are an array", `{"properties":[{"x-mcp-header":"A"}]}`, nil},
		{"a schema that is an array", `["x-mcp-header"]`, nil},
		{"a property as deep as allowed", nested(16),
			[]string{"A /arguments" + strings.Repeat("/a", 16)}},
		{"a property that is too deep", nested(17), nil},
		{"a name as long as allowed", long(499), []string{"B /arguments/" + strings.Repeat("x",
			499) + "/b", "C /arguments/c"}},
		{"a name that is too long", long(500), []string{"C /arguments/c"}},
		{"a property a hundred thousand levels deep", nested(100_000), nil},
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
		{"only the first thousand annotations are used", `"A"`, 1000},
		{"none of many invalid annotations is used", `7`, 0},
	} {
		var b strings.Builder
		for i := range 60_000 {
			fmt.Fprintf(&b, `"%d":{"x-mcp-header":%s},`, i, c.value)
		}
		if got := len(annotationsOf(`{"properties":{` + b.String() + `"":0}}`)); got != c.want {
			t.Errorf("%s: got %d annotations, want %d", c.name, got, c.want)
		}
	}
	// The last annotation that is used has another annotation below it, which is not used.
	schema := `{"properties":{`
	for i := range 999 {
		schema += fmt.Sprintf(`"%d":{"x-mcp-header":"A"},`, i)
	}
	schema += `"last":{"x-mcp-header":"L","properties":{"below":{"x-mcp-header":"B"}}}}}`
	if got := annotationsOf(schema); len(got) != 1000 || got[999] != "L /arguments/last" {
		t.Errorf("got %d annotations, the last is %q; want 1000, the last L /arguments/last",
			len(got), got[max(0, len(got)-1):])
	}
	if ctx.Err() != nil {
		t.Error("the search took more than a minute")
	}
}
