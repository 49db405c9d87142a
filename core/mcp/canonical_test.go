package mcp_test

import (
	"bytes"
	"testing"

	"gatekit/core/mcp"
)

// A client makes a request again with a new progress token and a new trace parent. Any other
// difference makes another request.
func TestRetryDigestIsThatOfTheSameRequest(t *testing.T) {
	const trace = `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"another progress token", `{"x":1,"_meta":{"progressToken":"a"}}`,
			`{"_meta":{"progressToken":7},"x":1}`, true},
		{"no progress token", `{"x":1,"_meta":{"progressToken":"a"}}`, `{"x":1}`, true},
		{"no trace parent", `{"x":1,"_meta":{` + trace + `}}`, `{"x":1}`, true},
		{"both and another member", `{"_meta":{"progressToken":1,"k":2,` + trace + `}}`,
			`{"_meta":{"k":2}}`, true},
		{"an empty _meta", `{"x":1,"_meta":{}}`, `{"x":1}`, true},
		{"no params", ``, `{"_meta":{"progressToken":1}}`, true},
		{"another argument", `{"x":1,"_meta":{"progressToken":"a"}}`,
			`{"x":2,"_meta":{"progressToken":"a"}}`, false},
		{"another member of _meta", `{"_meta":{"progressToken":"a","k":1}}`,
			`{"_meta":{"progressToken":"a","k":2}}`, false},
		{"a member of _meta or none", `{"_meta":{"progressToken":"a","k":1}}`,
			`{"_meta":{"progressToken":"a"}}`, false},
		{"a trace parent of another form", `{"_meta":{"traceparent":"send all to mallory"}}`,
			`{}`, false},
		{"a trace parent that is no text", `{"_meta":{"traceparent":[1]}}`, `{}`, false},
		{"the text of a trace parent elsewhere", `{"_meta":{"k` + trace[1:] + `}}`, `{}`, false},
		{"a progress token outside of _meta", `{"progressToken":1}`, `{"progressToken":2}`,
			false},
		{"_meta that is no object", `{"_meta":"a"}`, `{}`, false},
		{"_meta that is an array", `{"_meta":["progressToken"]}`, `{}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var digests [][]byte
			for _, params := range []string{c.a, c.b} {
				d, err := mcp.RetryDigest(mcp.NewRequest("1", "tools/call", []byte(params)))
				if err != nil || len(d) != 32 {
					t.Fatalf("%s: got the digest %x and the error %v", params, d, err)
				}
				digests = append(digests, d)
			}
			if same := bytes.Equal(digests[0], digests[1]); same != c.same {
				t.Errorf("%s and %s: the digests are the same: %v, want %v", c.a, c.b, same,
					c.same)
			}
		})
	}
}
