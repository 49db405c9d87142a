package mcp_test

import (
	"strings"
	"testing"

	"gatekit/core/mcp"
)

func TestParseEmbedded(t *testing.T) {
	// deep is nested deeper than a whole message may be.
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	type parser = func(mcp.ID, []byte) (*mcp.Message, error)
	for _, tt := range []struct {
		name  string
		parse parser
		raw   string
		want  string // the whole message; "" is an error
	}{
		{"a request", mcp.ParseEmbeddedRequest, `{"method":"roots/list"}`,
			`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`},
		{"a request with deep params", mcp.ParseEmbeddedRequest,
			`{"method":"a","params":{"x":` + deep + `}}`,
			`{"jsonrpc":"2.0","id":7,"method":"a","params":{"x":` + deep + `}}`},
		{"a request without a method", mcp.ParseEmbeddedRequest, `{"params":{}}`, ""},
		{"a result in place of a request", mcp.ParseEmbeddedRequest, `{"result":{}}`, ""},
		{"a request with a second id", mcp.ParseEmbeddedRequest, `{"id":1,"method":"a"}`, ""},
		{"a request with a look-alike of a protocol name", mcp.ParseEmbeddedRequest,
			`{"method":"a","Params":{}}`, ""},
		{"a request that is an array", mcp.ParseEmbeddedRequest, `["method":"a"}`, ""},
		{"no request", mcp.ParseEmbeddedRequest, "", ""},
		{"a result", mcp.ParseEmbeddedResponse, `{"action":"accept"}`,
			`{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}`},
		{"a result that is null", mcp.ParseEmbeddedResponse, `null`, ""},
		{"a result that contains another member of the message", mcp.ParseEmbeddedResponse,
			`{},"error":{}`, ""},
		{"no result", mcp.ParseEmbeddedResponse, "", ""},
		{"an error", mcp.ParseEmbeddedError, `{"code":-1,"message":"m"}`,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}`},
		{"an error that is a string", mcp.ParseEmbeddedError, `"m"`, ""},
		{"no error", mcp.ParseEmbeddedError, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := tt.parse("7", []byte(tt.raw))
			switch {
			case tt.want == "" && err == nil:
				t.Errorf("got %s, want an error", m.Append(nil))
			case tt.want != "" && err != nil:
				t.Error(err)
			case tt.want != "":
				if got := string(m.Append(nil)); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			}
		})
	}
}

func TestIsAnswerTo(t *testing.T) {
	for _, tt := range []struct {
		method, result string
		want           bool
	}{
		{"elicitation/create", `{"action":"accept"}`, true},
		{"elicitation/create", `{"role":"user"}`, false},
		{"sampling/createMessage", `{"role":"user"}`, true},
		{"roots/list", `{"roots":[]}`, true},
		{"roots/list", `{}`, false},
		{"tools/call", `{"action":1,"role":2,"roots":3}`, false},
	} {
		m := mcp.NewResponse("1", []byte(tt.result))
		if got := mcp.IsAnswerTo(m, tt.method); got != tt.want {
			t.Errorf("IsAnswerTo(%s, %s) = %v, want %v", tt.result, tt.method, got, tt.want)
		}
	}
}

func TestCanonicalDigest(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		same       bool
	}{
		{"the order of members", `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`, true},
		{"white space", `{"a":[1,2]}`, " { \"a\" : [ 1 , 2 ]\n} ", true},
		{"escapes", `{"a":"b/"}`, `{"\u0061":"b\/"}`, true},
		{"nothing and the empty object", ``, `{}`, true},
		{"nothing and another object", ``, `{"a":1}`, false},
		{"the order of elements", `[1,2]`, `[2,1]`, false},
		{"integers past 2^53", `9007199254740992`, `9007199254740993`, false},
		{"values", `{"a":1}`, `{"a":"1"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw := []byte(tt.b)
			a, err := mcp.CanonicalDigest([]byte(tt.a))
			if err != nil {
				t.Fatal(err)
			}
			b, err := mcp.CanonicalDigest(raw)
			if err != nil {
				t.Fatal(err)
			}
			if (string(a) == string(b)) != tt.same {
				t.Errorf("%s and %s have the digests %x and %x, want equal digests: %v", tt.a,
					tt.b, a, b, tt.same)
			}
			if string(raw) != tt.b {
				t.Errorf("the value was changed to %s, want %s", raw, tt.b)
			}
		})
	}
	if sum, err := mcp.CanonicalDigest([]byte(`{"a":`)); err == nil {
		t.Errorf("invalid JSON has the digest %x, want an error", sum)
	}
}
