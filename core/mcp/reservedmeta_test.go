package mcp_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// TestRemoveTrustMeta checks which keys of _meta are removed, and that every other byte of the
// message stays as it is.
func TestRemoveTrustMeta(t *testing.T) {
	for _, c := range []struct {
		name, meta, want string // want is the _meta that remains; "" if none remains
		keys             []string
	}{
		{"no key that must be removed",
			`{ "progressToken" : 7,"acme/tenant":"a","tenants":1,"x":{"tenant":1}}`,
			`{ "progressToken" : 7,"acme/tenant":"a","tenants":1,"x":{"tenant":1}}`, nil},
		{"one key of each kind",
			`{"tenant":"a", "x" :1.0,"actor":{"sub":"root"},"baggage":"who=ann","gatekit/server":"b"}`,
			`{"x" :1.0}`, []string{"tenant", "actor", "baggage", "gatekit/…"}},
		{"keys in other spellings",
			`{"TENANT":1,"tenantId":1,"tenant_id":1,"actorId":1,"actor_id":1,"Principal":1,"GateKit/x":1,` +
				`"\u0074enant ":1,"a\u0063tor\u0000x":1,"y":2}`,
			`{"y":2}`, []string{"tenant", "tenantId", "tenant_id", "actorId", "actor_id",
				"principal", "gatekit/…", "actor"}},
		{"only keys that must be removed", `{"gatekit/denied":{},"gatekit/partial":[]}`, "",
			[]string{"gatekit/…"}},
		{"a _meta that is no object", `[{"tenant":1}]`, `[{"tenant":1}]`, nil},
		{"keys of the protocol",
			`{"io.modelcontextprotocol/related-task":{"taskId":"t"},"traceparent":"00-1"}`,
			`{"io.modelcontextprotocol/related-task":{"taskId":"t"},"traceparent":"00-1"}`, nil},
	} {
		for _, frame := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1.50],%s"z" : 0}}`,
			`{"jsonrpc":"2.0","method":"notifications/m","params":{"a":[1.50],%s"z" : 0}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"a":[1.50],%s"z" : 0}}`,
		} {
			t.Run(c.name, func(t *testing.T) {
				m, err := mcp.Parse(fmt.Appendf(nil, frame, `"_meta":`+c.meta+`,`))
				if err != nil {
					t.Fatal(err)
				}
				edits, keys := mcp.RemoveTrustMeta(m)
				if !slices.Equal(keys, c.keys) {
					t.Errorf("removed keys %q, want %q", keys, c.keys)
				}
				edited, err := m.Edit(edits...)
				if err != nil {
					t.Fatal(err)
				}
				kept := ""
				if c.want != "" {
					kept = `"_meta":` + c.want + `,`
				}
				if got, want := string(edited.Append(nil)), fmt.Sprintf(frame, kept); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		}
	}
}

// TestManyTrustKeysAreRemovedAtOnce checks that the memory allocated to remove the keys grows with
// the size of the message, not with its square.
func TestManyTrustKeysAreRemovedAtOnce(t *testing.T) {
	const n = 100_000
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":1`)
	for i := range n {
		fmt.Fprintf(&b, `,"gatekit/%d":0`, i)
	}
	b.WriteString(`}}}`)
	m, err := mcp.Parse([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	edits, _ := mcp.RemoveTrustMeta(m)
	edited, err := m.Edit(edits...)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) / uint64(b.Len())
	t.Logf("allocated %d times the size of the message", allocated)
	if allocated > 100 {
		t.Errorf("removing %d keys allocated %d times the size of the message, want at most 100",
			n, allocated)
	}
	if got := string(edited.Body()); got != `{"_meta":{"x":1}}` {
		t.Errorf("got the body %.200s, want only x in its _meta", got)
	}
}
