package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// If Gatekit read the schema from its start for each property, the time would be quadratic. A
// server could then block Gatekit with a large schema.
func TestSchemaWithAnnotationsIsReadOnce(t *testing.T) {
	var properties strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&properties, `"p%d":{"x-mcp-header":7},`, i)
	}
	list := `{"tools":[{"name":"x","inputSchema":{"properties":{` + properties.String() +
		`"a":{"x-mcp-header":"A"}}}}]}`
	var header http.Header // of the call
	s, _, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
		if r.Method == "tools/list" {
			return resultResponse(r.ID, list)
		}
		header = r.header
		return resultResponse(r.ID, `{}`)
	})
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.Call(ctx, upstreamtest.Pass(t, upstreamtest.ModernRequest(
		`1`, "tools/call", ``, `,"name":"x","arguments":{"a":"b"}`)),
		&upstreamtest.Client{}); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("the call took more than 10s")
	}
	if got := header.Get("Mcp-Param-A"); got != "b" {
		t.Errorf("the header Mcp-Param-A of the call is %q, want %q", got, "b")
	}
}
