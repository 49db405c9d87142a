package mcp_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

func TestErrorCodesAreThoseOfTheSpecification(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want int
	}{
		{"parse error", mcp.CodeParseError, -32700},
		{"invalid request", mcp.CodeInvalidRequest, -32600},
		{"method not found", mcp.CodeMethodNotFound, -32601},
		{"invalid params", mcp.CodeInvalidParams, -32602},
		{"internal error", mcp.CodeInternalError, -32603},
		{"resource not found", mcp.CodeResourceNotFound, -32002},
		{"URL elicitation required", mcp.CodeURLElicitationRequired, -32042},
		{"header mismatch", mcp.CodeHeaderMismatch, -32020},
		{"missing capability", mcp.CodeMissingCapability, -32021},
		{"unsupported version", mcp.CodeUnsupportedVersion, -32022},
		{"sampling rejected", mcp.CodeSamplingRejected, -1},
		{"denied", mcp.CodeDenied, -31000},
		{"unknown resource, legacy", mcp.UnknownResourceCode(mcp.Rev20251125), -32002},
		{"unknown resource, modern", mcp.UnknownResourceCode(mcp.Rev20260728), -32602},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: the code is %d, want %d", tt.name, tt.got, tt.want)
		}
	}
}

func TestPartsAreTheAppendedBytes(t *testing.T) {
	m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"b":2}}`))
	for id, want := range map[mcp.ID]int{"1": 1, `"other"`: 3} { // the number of parts
		m := m.WithID(id)
		parts := m.Parts()
		if got := slices.Concat(parts...); string(got) != string(m.Append(nil)) ||
			len(parts) != want {
			t.Errorf("id %s: got %d parts, %s; want %d parts, %s", id, len(parts), got, want,
				m.Append(nil))
		}
	}
}

func TestDigestIsThatOfTheBody(t *testing.T) {
	m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"b":2}}`))
	want := sha256.Sum256([]byte(`{"b":2}`))
	for name, m := range map[string]*mcp.Message{"computed": m, "kept": m.WithDigest(),
		"kept with another id": m.WithDigest().WithID("2")} {
		if got := m.Digest(); got != want {
			t.Errorf("%s: got the digest %x, want %x", name, got, want)
		}
	}
}

func TestNumbersOfOneDigitAreLeaves(t *testing.T) {
	m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"b":[0,9,-1,5]}}`))
	var got []string
	for leaf := range m.Leaves {
		if leaf.Kind == mcp.NumberLeaf {
			got = append(got, leaf.Text())
		}
	}
	if strings.Join(got, " ") != "0 9 -1 5" {
		t.Errorf("got the numbers %q, want 0 9 -1 5", got)
	}
}
