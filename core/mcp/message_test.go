package mcp_test

import (
	"encoding/json"
	"testing"

	"gatekit/core/mcp"
)

func TestWithID(t *testing.T) {
	tests := []struct {
		name string
		raw  string
		id   mcp.ID
		want string
	}{
		{"another id", `{"id" : 1 ,"jsonrpc":"2.0","method":"a"}`,
			`"x"`, `{"id" : "x" ,"jsonrpc":"2.0","method":"a"}`},
		{"the same id", `{"id" : 1 ,"jsonrpc":"2.0","method":"a"}`,
			`1`, `{"id" : 1 ,"jsonrpc":"2.0","method":"a"}`},
		{"an id after the body", `{"jsonrpc":"2.0","result":{"id":3},"id":1}`,
			`22`, `{"jsonrpc":"2.0","result":{"id":3},"id":22}`},
		{"an error whose id is null gets an id", `{"jsonrpc":"2.0","id":null,"error":{}}`,
			`5`, `{"jsonrpc":"2.0","id":5,"error":{}}`},
		{"an error without an id gets an id", ` {"jsonrpc":"2.0","error":{}}`,
			`5`, ` {"id":5,"jsonrpc":"2.0","error":{}}`},
		{"an error loses its id", `{"jsonrpc":"2.0","id":5,"error":{}}`,
			``, `{"jsonrpc":"2.0","id":null,"error":{}}`},
		{"an error without an id stays without an id", `{"jsonrpc":"2.0","error":{}}`,
			``, `{"jsonrpc":"2.0","error":{}}`},
		{"a notification gets no id", `{"jsonrpc":"2.0","method":"a"}`,
			`5`, `{"jsonrpc":"2.0","method":"a"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := parse(t, []byte(tt.raw))
			n := m.WithID(tt.id)
			if got := string(n.Append([]byte("> "))); got != "> "+tt.want ||
				n.Size() != len(tt.want) {
				t.Errorf("got %s, size %d; want %s, size %d", got, n.Size(), tt.want,
					len(tt.want))
			}
			if m.Kind != mcp.Notification && n.ID() != tt.id {
				t.Errorf("got the id %s, want %s", n.ID(), tt.id)
			}
			if got := string(m.Append(nil)); got != tt.raw {
				t.Errorf("WithID changed the original message to %s, want %s", got, tt.raw)
			}
		})
	}
}

func TestEditAfterWithID(t *testing.T) {
	for _, raw := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}}`,
		`{"jsonrpc":"2.0","method":"a","params":{"x":1},"id":1}`,
	} {
		m, err := parse(t, []byte(raw)).WithID(`"client"`).Edit(mcp.Set("/x", []byte(`12345`)),
			mcp.Set("/y", []byte(`{}`)))
		if err != nil {
			t.Fatal(err)
		}
		m, err = m.WithID("77").Edit(mcp.Remove("/x"))
		if err != nil {
			t.Fatal(err)
		}
		again := parse(t, m.Append(nil))
		if again.ID() != "77" || string(again.Body()) != `{"y":{}}` {
			t.Errorf(`got %s, want the id 77 and the params {"y":{}}`, m.Append(nil))
		}
	}
}

func TestReadingAbsentValuesAndOtherTypes(t *testing.T) {
	m := parse(t, []byte(
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"s":"x","lone":"\ud800","n":1,"a":[1],"o":{"":{"":2}}}}`))
	for _, pointer := range []string{"/x", "/s/x", "/a/1", "/a/-", "/a/00", "/a/-1", "/a/+0",
		"/o/x", "s", "/s~2", "/s~", "//", "/n/0"} {
		if raw, ok := m.Get(pointer); ok {
			t.Errorf("Get(%q) = %s, want none", pointer, raw)
		}
	}
	if raw, ok := m.Get("/o//"); !ok || string(raw) != "2" {
		t.Errorf(`Get("/o//") = %s, want 2`, raw)
	}
	for _, pointer := range []string{"/n", "/lone", "/a", "/x"} {
		if s, ok := m.Text(pointer); ok || s != "" {
			t.Errorf("Text(%q) = %q, want none", pointer, s)
		}
	}
	for _, pointer := range []string{"/o", "/s", "/x", ""} {
		if n := m.Len(pointer); n != -1 {
			t.Errorf("Len(%q) = %d, want -1", pointer, n)
		}
	}
	m.Items("/o", func(int, []byte) bool {
		t.Error("Items visits a member of an object, want none")
		return true
	})
	m.Members("/a", func(string, []byte) bool {
		t.Error("Members visits an element of an array, want none")
		return true
	})
	calls := 0
	m.Members("", func(string, []byte) bool { calls++; return false })
	m.Items("/a", func(int, []byte) bool { calls++; return false })
	if calls != 2 {
		t.Errorf("Members and Items called yield %d times in all, want 2: yield "+
			"returned false each time", calls)
	}
	bare := parse(t, []byte(`{"jsonrpc":"2.0","method":"a","params":null}`))
	if _, ok := bare.Get(""); ok || bare.Len("/x") != -1 {
		t.Error("Get or Len found a value in null params, want none")
	}
}

func TestNamesWithATildeAreFound(t *testing.T) {
	m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"~a":1,"b~c":2,"/d":3}}`))
	for pointer, want := range map[string]string{"/~0a": "1", "/b~0c": "2", "/~1d": "3",
		"/~a": "", "/~01d": ""} {
		if raw, _ := m.Get(pointer); string(raw) != want {
			t.Errorf("Get(%q) = %q, want %q", pointer, raw, want)
		}
	}
}

func TestErrorCode(t *testing.T) {
	for raw, want := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"error":{"message":"m","code":-32002}}`:          -32002,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32000.0}}`:                      0,
		`{"jsonrpc":"2.0","id":1,"error":{"code":"-32000"}}`:                      0,
		`{"jsonrpc":"2.0","id":1,"error":{"code":99999999999999999999999}}`:       0,
		`{"jsonrpc":"2.0","id":1,"error":{}}`:                                     0,
		`{"jsonrpc":"2.0","id":1,"result":{"code":5}}`:                            0,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"code":5}}`:               0,
		`{"jsonrpc":"2.0","id":1,"error":{"code":5,"data":{"code":6},"x":[[]]} }`: 5,
	} {
		if got := parse(t, []byte(raw)).ErrorCode(); got != want {
			t.Errorf("ErrorCode of %s = %d, want %d", raw, got, want)
		}
	}
}

func TestNewMessages(t *testing.T) {
	tests := []struct {
		m    *mcp.Message
		kind mcp.Kind
		want string
	}{
		{mcp.NewRequest("1", "tools/list", nil), mcp.Request,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`},
		{mcp.NewRequest(`"a"`, "x\n", []byte(`{"name":"y"}`)), mcp.Request,
			`{"jsonrpc":"2.0","id":"a","method":"x\n","params":{"name":"y"}}`},
		{mcp.NewNotification("n", nil), mcp.Notification, `{"jsonrpc":"2.0","method":"n"}`},
		{mcp.NewNotification("n", []byte(`{"_meta":{"a":1}}`)), mcp.Notification,
			`{"jsonrpc":"2.0","method":"n","params":{"_meta":{"a":1}}}`},
		{mcp.NewNotification("n", []byte(`{"_meta":["a",1]}`)), mcp.Notification,
			`{"jsonrpc":"2.0","method":"n","params":{"_meta":["a",1]}}`},
		{mcp.NewResponse("1", nil), mcp.Response, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{mcp.NewResponse("1", []byte(`{"a":[]}`)), mcp.Response,
			`{"jsonrpc":"2.0","id":1,"result":{"a":[]}}`},
		{mcp.NewError("1", -31000, `refused "by" policy`, nil), mcp.Error,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-31000,"message":"refused \"by\" policy"}}`},
		{mcp.NewError("", -32700, "m", []byte(`{"a":1}`)), mcp.Error,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m","data":{"a":1}}}`},
	}
	for _, tt := range tests {
		got := string(tt.m.Append(nil))
		if got != tt.want || tt.m.Kind != tt.kind || tt.m.Size() != len(tt.want) {
			t.Errorf("got %v %s, want %v %s", tt.m.Kind, got, tt.kind, tt.want)
		}
		again := parse(t, []byte(tt.want))
		if again.ID() != tt.m.ID() || again.Method != tt.m.Method ||
			string(again.Body()) != string(tt.m.Body()) {
			t.Errorf("parsed again as %q %q %s, want %q %q %s", again.ID(), again.Method,
				again.Body(), tt.m.ID(), tt.m.Method, tt.m.Body())
		}
		agrees(t, tt.m)
		agrees(t, tt.m.WithID("12345"))
	}
}

func TestQuoteIsReadByDecoders(t *testing.T) {
	for s, want := range map[string]string{"": "",
		"a\"\\\n\x00\u2028é😀</script>": "a\"\\\n\x00\u2028é😀</script>", "bad \xff": "bad \uFFFD"} {
		var got string
		if err := json.Unmarshal(mcp.Quote(s), &got); err != nil || got != want {
			t.Errorf("Quote(%q) = %s, which decodes to %q, error %v; want %q", s, mcp.Quote(s), got,
				err, want)
		}
	}
}

func TestKindAndDirectionStrings(t *testing.T) {
	for got, want := range map[string]string{
		mcp.Request.String(): "request", mcp.Notification.String(): "notification",
		mcp.Response.String(): "response", mcp.Error.String(): "error",
		mcp.ToServer.String(): "to_server", mcp.ToClient.String(): "to_client",
		mcp.Kind(9).String(): "none", mcp.Direction(9).String(): "none",
	} {
		if got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
