package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/mcp"
)

func TestParseAcceptsMessages(t *testing.T) {
	tests := []struct {
		name   string
		raw    string
		kind   mcp.Kind
		id     mcp.ID
		method string
		body   string
	}{
		{"a request", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`,
			mcp.Request, "1", "tools/call", `{"name":"x"}`},
		{"a request with members in another order and white space around it",
			" {\"params\" : {} , \"method\":\"a\",\n\"id\":\"x\",\"jsonrpc\":\"2.0\"}\r\n",
			mcp.Request, `"x"`, "a", `{}`},
		{"names and values spelt with escapes",
			`{"jsonrpc":"\u0032.0","i\u0064":1,"m\u0065thod":"p\u0069ng","p\u0061rams":{"a":1}}`,
			mcp.Request, "1", "ping", `{"a":1}`},
		{"params that are null", `{"jsonrpc":"2.0","id":1,"method":"a","params":null}`, mcp.Request,
			"1", "a", ""},
		{"an id past 2^53", `{"jsonrpc":"2.0","id":9007199254740993,"method":"a"}`, mcp.Request,
			"9007199254740993", "a", ""},
		{"an id past 2^64", `{"jsonrpc":"2.0","id":-99999999999999999999999,"method":"a"}`,
			mcp.Request, "-99999999999999999999999", "a", ""},
		{"the id 0", `{"jsonrpc":"2.0","id":0,"method":"a"}`, mcp.Request, "0", "a", ""},
		{"the id 9", `{"jsonrpc":"2.0","id":9,"method":"a"}`, mcp.Request, "9", "a", ""},
		{"an empty string as id", `{"jsonrpc":"2.0","id":"","method":"a"}`, mcp.Request,
			`""`, "a", ""},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			mcp.Notification, "", "notifications/initialized", ""},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{"a":[]}}`, mcp.Response,
			"1", "", `{"a":[]}`},
		{"a result that is null", `{"jsonrpc":"2.0","id":1,"result":null}`, mcp.Response,
			"1", "", `null`},
		{"an error", `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`, mcp.Error,
			"1", "", `{"code":-1,"message":"m"}`},
		{"an error without id", `{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}`, mcp.Error,
			"", "", `{"code":-1,"message":"m"}`},
		{"an error whose id is null", `{"jsonrpc":"2.0","id":null,"error":{}}`, mcp.Error,
			"", "", `{}`},
		{"unknown members of the envelope",
			`{"jsonrpc":"2.0","id":1,"method":"a","trace":{"Method":1},"x":[]}`, mcp.Request,
			"1", "a", ""},
		{"arguments named like members of the envelope",
			`{"jsonrpc":"2.0","id":1,"method":"a","params":{"arguments":{"Name":1,"ID":2,"name\u0000":3}}}`, mcp.Request, "1", "a", `{"arguments":{"Name":1,"ID":2,"name\u0000":3}}`},
		{"a lone surrogate in a text",
			`{"jsonrpc":"2.0","id":1,"method":"a","params":{"t":"\ud83d"}}`, mcp.Request,
			"1", "a", `{"t":"\ud83d"}`},
		{"lone surrogates in names of arguments", `{"jsonrpc":"2.0","id":1,"method":"a",` +
			`"params":{"arguments":{"\ud83d":{"x\ud83d":1,"y\uDE00":2,"\ud83d\ude00":3}}}}`,
			mcp.Request, "1", "a",
			`{"arguments":{"\ud83d":{"x\ud83d":1,"y\uDE00":2,"\ud83d\ude00":3}}}`},
		{"a lone surrogate in a name, and names with U+FFFD and ?",
			`{"jsonrpc":"2.0","id":1,"result":{"a":{"\ud83d-":1,"\ufffd":2,"?":3}}}`, mcp.Response,
			"1", "", `{"a":{"\ud83d-":1,"\ufffd":2,"?":3}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := mcp.Parse([]byte(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind != tt.kind || m.ID() != tt.id || m.Method != tt.method ||
				string(m.Body()) != tt.body {
				t.Errorf("got %v %q %q %q, want %v %q %q %q", m.Kind, m.ID(), m.Method, m.Body(),
					tt.kind, tt.id, tt.method, tt.body)
			}
			if got := string(m.Append(nil)); got != tt.raw {
				t.Errorf("appended %q, want %q", got, tt.raw)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	request := func(rest string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call",` + rest + `}`
	}
	tests := []struct {
		name    string
		raw     string
		code    int
		id      mcp.ID // RequestID of the error
		answers mcp.ID // ResponseID of the error
		pointer string
		reason  string // part of the Reason of the error
	}{
		{"an empty text", "", mcp.CodeParseError, "", "", "", "unexpected end"},
		{"a number that ends in its exponent", "1e", mcp.CodeParseError, "", "", "",
			"unexpected end"},
		{"an array", `[{"jsonrpc":"2.0"}]`, mcp.CodeInvalidRequest, "", "", "", "not an object"},
		{"a string", `"x"`, mcp.CodeInvalidRequest, "", "", "", "not an object"},
		{"a byte order mark", "\uFEFF" + request(`"a":1`), mcp.CodeParseError,
			"", "", "", "byte order mark"},
		{"two messages", request(`"a":1`) + request(`"a":1`), mcp.CodeParseError,
			"7", "", "", "more after"},
		{"a truncated request", request(`"params":{"a":[1,{"b":"c`)[:70], mcp.CodeParseError,
			"7", "", "/params/a/1/b", "unexpected end"},
		{"a truncated answer", `{"jsonrpc":"2.0","id":7,"result":{"a":`, mcp.CodeParseError,
			"", "7", "/result/a", "unexpected end"},
		{"a fault before the kind of message is known", `{"jsonrpc":"2.0","id":7,x`, mcp.CodeParseError,
			"", "", "", "name in quotes"},
		{"an array that ends like an object", request(`"params":{"a":[1}`), mcp.CodeParseError,
			"7", "", "/params/a/0", "a comma or ] expected"},
		{"an object that ends like an array", request(`"params":{"a":{"b":1]`), mcp.CodeParseError,
			"7", "", "/params/a/b", "a comma or } expected"},
		{"two commas in an array", request(`"params":{"a":[1,,2]}`), mcp.CodeParseError,
			"7", "", "/params/a/1", "a value expected"},
		{"a comma in place of a value", request(`"params":{"a":,"b":1}`), mcp.CodeParseError,
			"7", "", "/params/a", "a value expected"},
		{"a fault in a member with a name of 64 bytes",
			request(`"params":{"` + strings.Repeat("n", 64) + `":x}`), mcp.CodeParseError,
			"7", "", "/params/" + strings.Repeat("n", 64), "a value expected"},
		{"a fault in a member with a longer name",
			request(`"params":{"` + strings.Repeat("n", 65) + `":x}`), mcp.CodeParseError,
			"7", "", "/params/" + strings.Repeat("n", 64) + "…", "a value expected"},
		{"a protocol name with a control character", request("\"params\":{\"name\x7f\":1}"),
			mcp.CodeInvalidRequest, "7", "", "/params/name\x7f", "can be taken for name"},
		{"bad UTF-8 in a text", request("\"params\":{\"a\":\"ok \xff\"}"), mcp.CodeParseError,
			"7", "", "/params/a", "UTF-8"},
		{"bad UTF-8 in a name", request("\"params\":{\"\xc3\":1}"), mcp.CodeParseError,
			"7", "", "/params/\uFFFD", "UTF-8"},
		{"an encoded surrogate", request("\"params\":{\"a\":\"\xed\xa0\x80\"}"), mcp.CodeParseError,
			"7", "", "/params/a", "UTF-8"},
		{"a lone surrogate in a name of params", request(`"params":{"\ud83d":1}`),
			mcp.CodeInvalidRequest, "7", "", `/params/\ud83d`, "surrogate at this place"},
		{"a lone surrogate in a name of the envelope", request(`"x\ude00":1`),
			mcp.CodeInvalidRequest, "7", "", `/x\ude00`, "surrogate at this place"},
		{"a lone surrogate in a name of a result",
			`{"jsonrpc":"2.0","id":7,"result":{"x\ude00":1}}`,
			mcp.CodeInvalidRequest, "", "7", `/result/x\ude00`, "surrogate at this place"},
		{"a lone surrogate in a name of an error",
			`{"jsonrpc":"2.0","id":7,"error":{"x\ude00":1}}`,
			mcp.CodeInvalidRequest, "", "7", `/error/x\ude00`, "surrogate at this place"},
		{"a lone surrogate in a name of _meta", request(`"params":{"_meta":{"a\ud83d":1}}`),
			mcp.CodeInvalidRequest, "7", "", `/params/_meta/a\ud83d`, "surrogate at this place"},
		{"a lone surrogate in the key of an input request",
			`{"jsonrpc":"2.0","id":7,"result":{"inputRequests":{"a\ud83d":{}}}}`,
			mcp.CodeInvalidRequest, "", "7", `/result/inputRequests/a\ud83d`,
			"surrogate at this place"},
		{"a lone surrogate in the key of an input response",
			request(`"params":{"inputResponses":{"a\ud83d":{}}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/inputResponses/a\ud83d`, "surrogate at this place"},
		{"one lone surrogate in two names, in two spellings",
			request(`"params":{"a":{"\ud83d":1,"\uD83D":2}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/a/\uD83D`, "duplicate"},
		{"two lone surrogates, which are both read as U+FFFD",
			request(`"params":{"a":{"\ud83d":1,"b":2,"\ud83e":3}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/a/\ud83e`, "duplicate"},
		{"a lone surrogate beside U+FFFD",
			request("\"params\":{\"a\":{\"\uFFFD\":1,\"\\ud83d\":2}}"), mcp.CodeInvalidRequest,
			"7", "", `/params/a/\ud83d`, "duplicate"},
		{"a lone surrogate that some parsers read as a question mark",
			request(`"params":{"a":{"x\ud83d":1,"b":2,"x?":3}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/a/x?`, "taken for another name"},
		{"a lone surrogate that some parsers leave out",
			request(`"params":{"a":{"path":1,"b":2,"pa\ud83dth":3}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/a/pa\ud83dth`, "taken for another name"},
		{"a lone surrogate that some parsers leave out, before the other name",
			request(`"params":{"a":{"pa\ud83dth":1,"b":2,"path":3}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/a/path`, "taken for another name"},
		{"a lone surrogate beside two other names",
			request(`"params":{"a":{"x?":1,"x":2,"\ud83dx":3}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/a/\ud83dx`, "taken for another name"},
		{"a lone surrogate that some parsers leave out, among many names",
			request(`"params":{"a":{` + many(40) + `,"n\ud83d17":1}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/a/n\ud83d17`, "taken for another name"},
		{"a lone surrogate within a name of the protocol",
			`{"jsonrpc":"2.0","id":7,"result":{"tools":[{"na\ud83dme":"evil"}]}}`,
			mcp.CodeInvalidRequest, "", "7", `/result/tools/0/na\ud83dme`, "taken for name"},
		{"a lone surrogate within a name of the protocol in another case",
			request(`"params":{"ref":{"U\ud83dRI":"evil"}}`), mcp.CodeInvalidRequest,
			"7", "", `/params/ref/U\ud83dRI`, "taken for uri"},
		{"a raw line break in a text", request("\"params\":{\"a\":\"b\nc\"}"), mcp.CodeParseError,
			"7", "", "/params/a", "control character"},

		{"no comma after an object", request(`"params":{"a":{} "b":1}`), mcp.CodeParseError,
			"7", "", "/params/a", "comma"},
		{"no comma after a number", request(`"params":{"a":1 "b":1}`), mcp.CodeParseError,
			"7", "", "/params/a", "comma"},

		{"jsonrpc of another version", `{"jsonrpc":"1.0","id":7,"method":"a"}`,
			mcp.CodeInvalidRequest, "7", "", "/jsonrpc", "2.0"},
		{"jsonrpc as a number", `{"jsonrpc":2.0,"id":7,"method":"a"}`, mcp.CodeInvalidRequest,
			"7", "", "/jsonrpc", "2.0"},
		{"no jsonrpc", `{"id":7,"method":"a"}`, mcp.CodeInvalidRequest, "7", "", "", "2.0"},
		{"an id that is null", `{"jsonrpc":"2.0","id":null,"method":"a"}`, mcp.CodeInvalidRequest,
			"", "", "/id", "id"},
		{"an id with a fraction", `{"jsonrpc":"2.0","id":1.0,"method":"a"}`, mcp.CodeInvalidRequest,
			"", "", "/id", "id"},
		{"an id with an exponent", `{"jsonrpc":"2.0","id":1e0,"method":"a"}`,
			mcp.CodeInvalidRequest, "", "", "/id", "id"},
		{"an id that is true", `{"jsonrpc":"2.0","id":true,"method":"a"}`, mcp.CodeInvalidRequest,
			"", "", "/id", "id"},
		{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"a"}`,
			mcp.CodeInvalidRequest, "", "", "/id", "id"},
		{"a response without id", `{"jsonrpc":"2.0","result":{}}`, mcp.CodeInvalidRequest,
			"", "", "", "id"},
		{"a response whose id is null", `{"jsonrpc":"2.0","id":null,"result":{}}`,
			mcp.CodeInvalidRequest, "", "", "/id", "id"},
		{"an error whose id is false", `{"jsonrpc":"2.0","id":false,"error":{}}`,
			mcp.CodeInvalidRequest, "", "", "/id", "id"},
		{"a method that is no string", `{"jsonrpc":"2.0","id":7,"method":1}`,
			mcp.CodeInvalidRequest, "7", "", "/method", "method"},
		{"a method that is null", `{"jsonrpc":"2.0","id":7,"method":null}`, mcp.CodeInvalidRequest,
			"7", "", "/method", "method"},
		{"an empty method", `{"jsonrpc":"2.0","id":7,"method":""}`, mcp.CodeInvalidRequest,
			"7", "", "/method", "method"},
		{"a method with a lone surrogate", `{"jsonrpc":"2.0","id":7,"method":"\ud800"}`,
			mcp.CodeInvalidRequest, "7", "", "/method", "method"},
		{"params that are an array", `{"jsonrpc":"2.0","id":7,"method":"a","params":[]}`,
			mcp.CodeInvalidRequest, "7", "", "/params", "params"},
		{"params that are a string", `{"jsonrpc":"2.0","id":7,"method":"a","params":"x"}`,
			mcp.CodeInvalidRequest, "7", "", "/params", "params"},
		{"a method and a result", `{"jsonrpc":"2.0","id":7,"method":"a","result":{}}`,
			mcp.CodeInvalidRequest, "", "", "/method", "both"},
		{"a method and an error", `{"jsonrpc":"2.0","id":7,"error":{},"method":"a"}`,
			mcp.CodeInvalidRequest, "", "", "/method", "both"},
		{"a result and an error", `{"jsonrpc":"2.0","id":7,"result":{},"error":null}`,
			mcp.CodeInvalidRequest, "", "7", "/error", "both"},
		{"params and a result", `{"jsonrpc":"2.0","id":7,"result":{},"params":{}}`,
			mcp.CodeInvalidRequest, "", "7", "/params", "params"},
		{"no method, result or error", `{"jsonrpc":"2.0","id":7}`, mcp.CodeInvalidRequest,
			"7", "", "", "neither"},
		{"an error that is no object", `{"jsonrpc":"2.0","id":7,"error":"x"}`,
			mcp.CodeInvalidRequest, "", "7", "/error", "error"},

		{"a name twice", request(`"params":{"name":"safe","name":"evil"}`), mcp.CodeInvalidRequest,
			"7", "", "/params/name", "duplicate"},
		{"a name twice, once escaped", request(`"params":{"name":"safe","n\u0061me":"evil"}`),
			mcp.CodeInvalidRequest, "7", "", "/params/name", "duplicate"},
		{"a name twice, deep in the arguments",
			request(`"params":{"arguments":{"a":[{"b":{"c":1,"d":2,"c":3}}]}}`),
			mcp.CodeInvalidRequest, "7", "", "/params/arguments/a/0/b/c", "duplicate"},
		{"a name twice, before the id",
			`{"jsonrpc":"2.0","method":"a","params":{"x":1,"x":2},"id":7}`, mcp.CodeInvalidRequest,
			"7", "", "/params/x", "duplicate"},
		{"an empty name twice", request(`"params":{"":1,"":2}`), mcp.CodeInvalidRequest,
			"7", "", "/params/", "duplicate"},
		{"a name twice, with characters that a pointer escapes",
			request(`"params":{"a/b~c":1,"a\/b~c":2}`),
			mcp.CodeInvalidRequest, "7", "", "/params/a~1b~0c", "duplicate"},
		{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}`, mcp.CodeInvalidRequest,
			"", "", "/id", "duplicate"},
		{"two ids, of which the first is null", `{"jsonrpc":"2.0","id":null,"id":2,"method":"a"}`,
			mcp.CodeInvalidRequest, "", "", "/id", "duplicate"},
		{"two methods", `{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}`,
			mcp.CodeInvalidRequest, "7", "", "/method", "duplicate"},
		{"a name twice among many", request(`"params":{"arguments":{` + many(40) + `,"n17":1}}`),
			mcp.CodeInvalidRequest, "7", "", "/params/arguments/n17", "duplicate"},

		{"a long name twice", request(`"params":{"` + strings.Repeat("x",
			100) + `":1,"` + strings.Repeat("x", 100) + `":1}`), mcp.CodeInvalidRequest,
			"7", "", "/params/" + strings.Repeat("x", 64) + "…", `"` + strings.Repeat("x",
				64) + `…"`},

		{"Method beside method",
			`{"jsonrpc":"2.0","id":7,"method":"a","Method":"b"}`, mcp.CodeInvalidRequest,
			"7", "", "/Method", "method"},
		{"METHOD without method", `{"jsonrpc":"2.0","id":7,"METHOD":"b"}`, mcp.CodeInvalidRequest,
			"7", "", "/METHOD", "method"},
		{"ID beside id", `{"jsonrpc":"2.0","id":7,"ID":8,"method":"a"}`, mcp.CodeInvalidRequest,
			"7", "", "/ID", "id"},
		{"id with a dotless i",
			`{"jsonrpc":"2.0","id":7,"ıd":8,"method":"a"}`, mcp.CodeInvalidRequest,
			"7", "", "/ıd", "id"},
		{"ID with a dotted I",
			`{"jsonrpc":"2.0","id":7,"İD":8,"method":"a"}`, mcp.CodeInvalidRequest,
			"7", "", "/İD", "id"},
		{"params with a long s", `{"jsonrpc":"2.0","id":7,"method":"a","paramſ":{}}`,
			mcp.CodeInvalidRequest, "7", "", "/paramſ", "params"},
		{"id with a NUL", `{"jsonrpc":"2.0","id":7,"id\u0000":8,"method":"a"}`,
			mcp.CodeInvalidRequest, "7", "", "/id\x00", "id"},
		{"id with a NUL and more text", `{"jsonrpc":"2.0","id":7,"id\u0000x":8,"method":"a"}`,
			mcp.CodeInvalidRequest, "7", "", "/id\x00x", "id"},
		{"id with a blank", `{"jsonrpc":"2.0","id":7," id":8,"method":"a"}`, mcp.CodeInvalidRequest,
			"7", "", "/ id", "id"},
		{"id with a byte order mark", `{"jsonrpc":"2.0","id":7,"\ufeffid":8,"method":"a"}`,
			mcp.CodeInvalidRequest, "7", "", "/\uFEFFid", "id"},
		{"Result beside result",
			`{"jsonrpc":"2.0","id":7,"result":{},"Result":{}}`, mcp.CodeInvalidRequest,
			"", "7", "/Result", "result"},
		{"Tools beside tools", `{"jsonrpc":"2.0","id":7,"result":{"tools":[],"Tools":[]}}`,
			mcp.CodeInvalidRequest, "", "7", "/result/Tools", "tools"},
		{"CONTENT in a result", `{"jsonrpc":"2.0","id":7,"result":{"CONTENT":[]}}`,
			mcp.CodeInvalidRequest, "", "7", "/result/CONTENT", "content"},
		{"Name in params", request(`"params":{"name":"safe","Name":"evil"}`),
			mcp.CodeInvalidRequest, "7", "", "/params/Name", "name"},
		{"Name in params without name", request(`"params":{"Name":"evil"}`), mcp.CodeInvalidRequest,
			"7", "", "/params/Name", "name"},
		{"name with a tab in params", request(`"params":{"name\t":"evil"}`), mcp.CodeInvalidRequest,
			"7", "", "/params/name\t", "name"},
		{"URI in params", request(`"params":{"URI":"evil"}`), mcp.CodeInvalidRequest,
			"7", "", "/params/URI", "uri"},
		{"ARGUMENTS in params", request(`"params":{"arguments":{},"ARGUMENTS":{}}`),
			mcp.CodeInvalidRequest, "7", "", "/params/ARGUMENTS", "arguments"},
		{"_Meta in params", request(`"params":{"_Meta":{}}`), mcp.CodeInvalidRequest,
			"7", "", "/params/_Meta", "_meta"},
		{"taskid in params", request(`"params":{"taskid":"x"}`), mcp.CodeInvalidRequest,
			"7", "", "/params/taskid", "taskId"},
		{"task with a Kelvin sign", request(`"params":{"tas` + "\u212A" + `":{}}`),
			mcp.CodeInvalidRequest, "7", "", "/params/tas\u212A", "task"},
		{"requestState with a ligature", request(`"params":{"reque` + "\uFB06" + `State":""}`),
			mcp.CodeInvalidRequest, "7", "", "/params/reque\uFB06State", "requestState"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := mcp.Parse([]byte(tt.raw))
			var e *mcp.ParseError
			if !errors.As(err, &e) || m != nil {
				t.Fatalf("got %v, %v; want a *ParseError", m, err)
			}
			if e.Code != tt.code || e.RequestID != tt.id || e.ResponseID != tt.answers ||
				e.Pointer != tt.pointer || !strings.Contains(e.Reason, tt.reason) {
				t.Errorf("got  code %d, RequestID %q, ResponseID %q, Pointer %q, Reason %s\n"+
					"want code %d, RequestID %q, ResponseID %q, Pointer %q, Reason %s",
					e.Code, e.RequestID, e.ResponseID, e.Pointer, e.Reason, tt.code, tt.id,
					tt.answers, tt.pointer, tt.reason)
			}
			if e.Offset < 0 || e.Offset > int64(len(tt.raw)) {
				t.Errorf("the offset is %d, want it within the %d bytes", e.Offset, len(tt.raw))
			}
		})
	}
}

// many returns the text of n members of an object: "n0":0,"n1":1 and so on.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"n%d":%d`, i, i)
	}
	return b.String()[1:]
}

// Parse compares the names of a small object with each other, and sorts the names of a large
// object.
func TestParseFindsDuplicatesAmongFewAndManyNames(t *testing.T) {
	for n := 1; n < 40; n++ {
		if _, err := mcp.Parse(fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":1,"method":"a","params":{%s}}`, many(n))); err != nil {
			t.Fatalf("%d names: %v", n, err)
		}
		for twice := range n {
			raw := fmt.Appendf(nil,
				`{"jsonrpc":"2.0","id":1,"method":"a","params":{%s,"\u006e%d":0}}`, many(n), twice)
			_, err := mcp.Parse(raw)
			if e, ok := err.(*mcp.ParseError); !ok || e.Pointer != fmt.Sprintf("/params/n%d",
				twice) || int(e.Offset) != bytes.Index(raw, []byte(`"\u006e`)) {
				t.Fatalf("%d names, the name n%d twice: got error %v, want a duplicate name",
					n, twice, err)
			}
		}
	}
}

func TestParseEnforcesLimits(t *testing.T) {
	nested := func(n int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"a","params":` + strings.Repeat(`{"a":`,
			n-2) + `{}` + strings.Repeat(`}`, n-1)
	}
	flat := func(n int) string { // a message with n tokens
		return `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[` + strings.Repeat(`0,`,
			n-12) + `0]}}`
	}
	padded := func(n int) string {
		raw := `{"jsonrpc":"2.0","id":1,"method":"a"}`
		return raw + strings.Repeat(" ", n-len(raw))
	}
	small := mcp.Limits{Bytes: 100, Depth: 5, Tokens: 20}
	tests := []struct {
		name   string
		limits mcp.Limits
		raw    string
		reason string // "" when the message is accepted
	}{
		{"as deep as the default limit", mcp.Limits{}, nested(200), ""},
		{"deeper than the default limit", mcp.Limits{}, nested(201), "nested too deep"},
		{"many arrays and objects beside each other", mcp.Limits{}, `{"jsonrpc":"2.0",` +
			`"id":1,"method":"a","params":{"x":[` + strings.Repeat(`[[]],{"a":{}},`, 300) +
			`[]]}}`, ""},
		{"arrays nested 100,000 times", mcp.Limits{}, strings.Repeat("[", 100_000),
			"nested too deep"},
		{"as many tokens as the default limit", mcp.Limits{}, flat(1_000_000), ""},
		{"more tokens than the default limit", mcp.Limits{}, flat(1_000_001),
			"too many values"},
		{"as long as the default limit", mcp.Limits{}, padded(16 << 20), ""},
		{"longer than the default limit", mcp.Limits{}, padded(16<<20 + 1),
			"longer than 16777216 bytes"},
		{"as deep as the limit", small, nested(5), ""},
		{"deeper than the limit", small, nested(6), "nested too deep"},
		{"as many tokens as the limit", small, flat(20), ""},
		{"more tokens than the limit", small, flat(21), "too many values"},
		{"more names than the limit", mcp.Limits{Tokens: 19},
			`{"jsonrpc":"2.0","id":1,"method":"a","params":{` + many(6) + `}}`, "too many values"},
		{"as long as the limit", small, padded(100), ""},
		{"longer than the limit", small, padded(101), "longer than 100 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.limits.Parse([]byte(tt.raw))
			var e *mcp.ParseError
			switch {
			case err == nil && tt.reason != "":
				t.Errorf("the message was accepted, want the error %q", tt.reason)
			case errors.As(err, &e) && (e.Reason != tt.reason || e.Code != mcp.CodeParseError):
				t.Errorf("got %d %v, want %d %q", e.Code, err, mcp.CodeParseError, tt.reason)
			}
		})
	}
}

// In the JSON test suite, files y_* are valid JSON and files n_* are not. A parser may accept or
// refuse the files i_*. Parse accepts the files i_* that are UTF-8. The map refused lists the
// exceptions.
func TestParseOnTheJSONTestSuite(t *testing.T) {
	files, err := filepath.Glob("testdata/json-test-suite/*.json")
	if err != nil || len(files) != 318 {
		t.Fatalf("testdata has %d files, error %v; want 318", len(files), err)
	}
	refused := map[string]string{
		"y_object_duplicated_key.json":            "a name twice",
		"y_object_duplicated_key_and_value.json":  "a name twice",
		"i_structure_500_nested_arrays.json":      "too deep",
		"i_structure_UTF-8_BOM_empty_object.json": "a byte order mark",
	}
	for _, file := range files {
		base := filepath.Base(file)
		value, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		valid := base[0] == 'y' || base[0] == 'i' && utf8.Valid(value)
		if refused[base] != "" {
			valid = false
		}
		raw := slices.Concat([]byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"value":`),
			value, []byte(`}}`))
		m, err := mcp.Parse(raw)
		if valid != (err == nil) {
			t.Errorf("%s as a value in params: got error %v, want it accepted = %t",
				base, err, valid)
		}
		if m != nil {
			if got, _ := m.Get("/value"); !bytes.Equal(got, bytes.TrimSpace(value)) {
				t.Errorf("%s: read as %q, want %q", base, got, value)
			}
		}
		if e, ok := err.(*mcp.ParseError); ok {
			if e.Offset < int64(bytes.IndexByte(raw, 'v')) || e.Reason == "" {
				t.Errorf("%s: got %#v, want an offset within the params and a reason", base, e)
			}
		}
		if m, err := mcp.Parse(value); err == nil {
			t.Errorf("%s was parsed as a message: %v, want an error", base, m)
		}
	}
}

// Parse reads strings eight bytes at a time. The test puts every byte value at every offset of a
// string, of a string with an escape, and of a number.
func TestParseAgreesWithJSONTextOnEachByte(t *testing.T) {
	for _, frame := range []string{`"0123456789abcdefghi"`, `"01234567\u00e9abcd"`,
		`"\ud83d\ude00\n"`, `-12.50e+17`} {
		for at := range len(frame) {
			for c := range 256 {
				value := []byte(frame)
				value[at] = byte(c)
				_, err := mcp.Parse(slices.Concat([]byte(
					`{"jsonrpc":"2.0","id":1,"method":"a","params":{"v":[`), value, []byte(`]}}`)))
				// so that jsontext accepts lone surrogates too
				lax := jsontext.AllowInvalidUTF8(true)
				if want := jsontext.Value(slices.Concat([]byte{'['}, value,
					[]byte{']'})).IsValid(lax) && utf8.Valid(value); want != (err == nil) {
					t.Errorf("Parse of %q: error %v; valid for jsontext: %v", value, err, want)
				}
			}
		}
	}
}

func TestNaughtyStringsAreAccepted(t *testing.T) {
	data, err := os.ReadFile("testdata/strings/blns.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	if err := json.Unmarshal(data, &all); err != nil || len(all) < 500 {
		t.Fatalf("blns.json has %d strings, error %v; want at least 500", len(all), err)
	}
	for _, s := range all {
		quoted := mcp.Quote(s)
		raw := slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), quoted,
			[]byte(`,"method":"a","params":{"arguments":{"text":`), quoted, []byte(`,`),
			mcp.Quote("n"+s), []byte(`:1}}}`))
		m := parse(t, raw)
		if got, ok := m.Text("/arguments/text"); !ok || got != s {
			t.Errorf("Text returned %q, want %q", got, s)
		}
		if m.ID() != mcp.ID(quoted) {
			t.Errorf("the id is %s, want %s", m.ID(), quoted)
		}
		pointer := "/arguments/n" + strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
		if _, ok := m.Get(pointer); !ok {
			t.Errorf("Get(%q) finds no value", pointer)
		}
		e, err := m.Edit(mcp.Set(pointer, quoted))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := e.Text(pointer); !ok || got != s {
			t.Errorf("the text set at %q is %q, want %q", pointer, got, s)
		}
	}
}

func TestParseBatch(t *testing.T) {
	tests := []struct {
		name   string
		raw    string
		ids    []mcp.ID // ids of the messages; "!" for an element that is refused
		reason string
	}{
		{"two requests and a notification",
			` [{"jsonrpc":"2.0","id":1,"method":"a"} , {"jsonrpc":"2.0","id":"1","method":"a"},{"jsonrpc":"2.0","method":"n"}]`, []mcp.ID{"1", `"1"`, ""}, ""},
		{"elements that are no messages",
			`[1,{"jsonrpc":"2.0","id":2,"method":"a"},{"jsonrpc":"2.0","id":3,"method":"a","params":{"x":1,"x":2}},[]]`, []mcp.ID{"!", "2", "!", "!"}, ""},
		{"an answer with the id of a request",
			`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":1,"result":{}}]`,
			[]mcp.ID{"1", "1"}, ""},
		{"an id twice", `[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":1,"method":"b"}]`, nil, "id used twice"},
		{"an empty array", ` [ ] `, nil, "empty"},
		{"an object", `{"jsonrpc":"2.0","id":1,"method":"a"}`, nil, "not an array"},
		{"a truncated array", `[{"jsonrpc":"2.0","id":1,"method":"a"},`, nil, "unexpected end"},
		{"an array that is not closed", `[{"jsonrpc":"2.0","id":1,"method":"a"}}`, nil, "comma"},
		{"16 MiB", strings.Repeat(" ", 16<<20-35) + `[{"jsonrpc":"2.0","method":"note"}]`,
			[]mcp.ID{""}, ""},
		{"longer than 16 MiB", strings.Repeat(" ", 16<<20-34) +
			`[{"jsonrpc":"2.0","method":"note"}]`, nil, "longer than"},
		{"100 messages", `[` + strings.Repeat(`{"jsonrpc":"2.0","method":"n"},`,
			99) + `{"jsonrpc":"2.0","method":"n"}]`, make([]mcp.ID, 100), ""},
		{"two arrays", `[{"jsonrpc":"2.0","id":1,"method":"a"}][]`, nil, "more after"},
		{"101 messages", `[` + strings.Repeat(`{"jsonrpc":"2.0","method":"n"},`,
			100) + `{"jsonrpc":"2.0","method":"n"}]`, nil, "more than 100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			msgs, errs, err := mcp.Limits{}.ParseBatch([]byte(tt.raw))
			if (err != nil) != (tt.reason != "") || err != nil && !strings.Contains(err.Error(),
				tt.reason) {
				t.Fatalf("got %v, want %q", err, tt.reason)
			}
			if len(msgs) != len(tt.ids) || len(errs) != len(tt.ids) {
				t.Fatalf("got %d messages and %d errors, want %d of each", len(msgs), len(errs),
					len(tt.ids))
			}
			for i, id := range tt.ids {
				if id == "!" {
					e, ok := errs[i].(*mcp.ParseError)
					if !ok || msgs[i] != nil || !strings.HasPrefix(e.Pointer, fmt.Sprintf("/%d",
						i)) {
						t.Errorf("element %d: got %v, %v; want a *ParseError", i, msgs[i], errs[i])
					}
				} else if errs[i] != nil || msgs[i].ID() != id {
					t.Errorf("element %d: %v, %v; want id %s", i, msgs[i], errs[i], id)
				}
			}
		})
	}
}

func TestIsBatch(t *testing.T) {
	for raw, want := range map[string]bool{"[": true, " \t\r\n[1]": true, "": false, " ": false,
		"{": false, "x[": false} {
		if got := mcp.IsBatch([]byte(raw)); got != want {
			t.Errorf("IsBatch(%q) = %v, want %v", raw, got, want)
		}
	}
}
