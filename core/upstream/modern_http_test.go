package upstream_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// openModernSite opens a session with a modern server over HTTP. It returns the session, the
// server, and a function that closes both.
func openModernSite(t *testing.T,
	serve func(r request) *upstream.HTTPResponse) (proxy.Server, *fakeHTTP, func()) {
	t.Helper()
	web := &fakeHTTP{serve: serve}
	u := upstream.New(upstream.Options{Name: "web", Era: "modern", Dial: upstream.Dial{HTTP: web}})
	return openModernSession(t, u, "a", ""), web, func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestHeadersOfAModernRequest(t *testing.T) {
	for _, c := range []struct{ name, request, mcpMethod, mcpName string }{
		{"a list has no name", upstreamtest.ModernRequest(`1`, "tools/list", ``, ``),
			"tools/list", ""},
		{"a prompt", upstreamtest.ModernRequest(`1`, "prompts/get", ``, `,"name":"p"`),
			"prompts/get", "p"},
		{"a resource", upstreamtest.ModernRequest(`1`, "resources/read", ``,
			`,"uri":"file:///a b"`),
			"resources/read", "file:///a b"},
		{"a task", upstreamtest.ModernRequest(`1`, "tasks/update", ``, `,"taskId":"t"`),
			"tasks/update", "t"},
		{"a name that is not ASCII", upstreamtest.ModernRequest(`1`, "prompts/get", ``,
			`,"name":"\u00fc"`),
			"prompts/get", "=?base64?w7w=?="},
		{"a name with a line break", upstreamtest.ModernRequest(`1`, "prompts/get", ``,
			`,"name":"a\nb"`),
			"prompts/get", "=?base64?YQpi?="},
		{"a name that ends with a space", upstreamtest.ModernRequest(`1`, "prompts/get", ``,
			`,"name":"a "`),
			"prompts/get", "=?base64?YSA=?="},
		{"a name that looks encoded", upstreamtest.ModernRequest(`1`, "prompts/get", ``,
			`,"name":"=?base64?YQ==?="`), "prompts/get", "=?base64?PT9iYXNlNjQ/WVE9PT89?="},
		{"a name that begins with =?BASE64? in capitals",
			upstreamtest.ModernRequest(`1`, "prompts/get", ``,
				`,"name":"=?BASE64?YQ==?="`), "prompts/get", "=?BASE64?YQ==?="},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
					return resultResponse(r.ID, `{}`)
				})
				defer end()
				upstreamtest.StartCall(t, s, &upstreamtest.Client{},
					c.request).ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
				h := web.seen[0].header
				want := map[string]string{"MCP-Protocol-Version": "2026-07-28",
					"Mcp-Method": c.mcpMethod, "Mcp-Name": c.mcpName, "Mcp-Session-Id": ""}
				for name, v := range want {
					if h.Get(name) != v {
						t.Errorf("%s is %q, want %q", name, h.Get(name), v)
					}
				}
				if got := web.requestLog(); len(got) != 1 {
					t.Errorf("the server saw %q, want one request", got)
				}
			})
		})
	}
}

func TestRequestIsRetriedOnceWhenTheServerContradictsItself(t *testing.T) {
	// the client's answer for each number of refusals; "" stands for an error
	for refusals, want := range map[int]string{1: `{"jsonrpc":"2.0","id":"c","result":{}}`, 2: ``} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			s, _, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
				if n++; n <= refusals {
					return httpResponse(400, replace(
						`{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25","2026-07-28"]}}}`, "ID", string(r.ID)))
				}
				return httpResponse(200, replace(`{"jsonrpc":"2.0","id":ID,"result":{}}`,
					"ID", string(r.ID)))
			})
			defer end()
			p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
				upstreamtest.ModernRequest(`"c"`, "prompts/get", ``, `,"name":"x"`))
			if want == "" {
				p.ExpectError("refused a revision that it claimed to speak")
			} else {
				p.ExpectAnswer(want)
			}
		})
	}
}

func TestAnswersOverModernHTTP(t *testing.T) {
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`
	for _, c := range []struct {
		name, answer string // the id of the request replaces ID in the answer
		status       int
		want         string // the client's answer; "" if the call fails
		fails        string // a part of the error; "" if the call is answered
	}{
		{"a result", `{"jsonrpc":"2.0","id":ID,"result":{}}`, 200,
			`{"jsonrpc":"2.0","id":"c","result":{}}`, ``},
		{"an error", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"m"}}`, 200,
			`{"jsonrpc":"2.0","id":"c","error":{"code":-32603,"message":"m"}}`, ``},
		{"an error with HTTP 400",
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"m"}}`, 400,
			`{"jsonrpc":"2.0","id":"c","error":{"code":-32602,"message":"m"}}`, ``},
		{"an error without an id", `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"m"}}`,
			404,
			`{"jsonrpc":"2.0","id":"c","error":{"code":-32601,"message":"m"}}`, ``},
		{"a missing capability", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32021,"message":"m"}}`,
			400, `{"jsonrpc":"2.0","id":"c","error":{"code":-32021,"message":"m"}}`, ``},
		{"an unsupported revision",
			`{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"m"}}`, 400,
			``, `refused a revision that it claimed to speak`},
		{"the answer to another request", `{"jsonrpc":"2.0","id":99,"result":{}}`, 200,
			``, `the server sent no answer`},
		{"a body that is not JSON", `oops`, 500, ``, `HTTP 500`},
		{"an empty body", ``, 202, ``, `HTTP 202`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
					return httpResponse(c.status, replace(c.answer, "ID", string(r.ID)))
				})
				defer end()
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
					upstreamtest.ModernRequest(`"c"`, "prompts/get", ``, `,"name":"x"`))
				if c.fails != "" {
					p.ExpectError(c.fails)
				} else {
					p.ExpectAnswer(c.want)
				}
			})
		})
	}
	t.Run("a stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
				e := newFakeStream()
				e.send("", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
				e.send("", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":98,"progress":1}}`)
				e.send("", `{"jsonrpc":"2.0","id":5,"method":"roots/list"}`)
				e.send("", `{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
				return streamResponse(e)
			})
			defer end()
			c := &upstreamtest.Client{}
			upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`"c"`,
				"prompts/get", `"progressToken":"p",`,
				`,"name":"x"`)).ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
			c.ExpectReceived(t, progress)
		})
	})
	t.Run("a stream that breaks fails the call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
				e := newFakeStream(conn.Event{ID: "7"})
				e.end()
				return streamResponse(e)
			})
			defer end()
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`"c"`,
				"prompts/get", ``,
				`,"name":"x"`)).ExpectError("broke")
			if got := web.requestLog(); len(got) != 1 {
				t.Errorf("the server saw %q, want one request", got)
			}
		})
	})
}

func TestCancelOverModernHTTPClosesTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeStream()
		s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
			return streamResponse(e)
		})
		defer end()
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`"c"`,
			"prompts/get", ``, `,"name":"x"`))
		p.ExpectWaiting()
		p.Cancel(&proxy.CancelledError{})
		p.ExpectError("cancelled")
		if !e.isClosed() {
			t.Error("the stream is still open after the call was cancelled")
		}
		if got := web.requestLog(); len(got) != 1 {
			t.Errorf("the server saw %q, want one request", got)
		}
	})
}

func TestSubscriptionOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeStream()
		s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
			return streamResponse(e)
		})
		defer end()
		c := &upstreamtest.Client{}
		p := upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`7`, "subscriptions/listen",
			``,
			`,"notifications":{"toolsListChanged":true}`))
		p.ExpectWaiting()
		id := web.seen[0].ID
		e.send("", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, id)
		c.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}`)
		e.send("", `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%[1]s}}}`, id)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":7}}}`)
	})
}

// annotated is a result of tools/list. The tool x declares headers for some of its arguments. MORE
// stands for further members of the result.
const annotated = `{"resultType":"complete","tools":[
	{"name":"plain","inputSchema":{"type":"object"}},
	{"name":"x","inputSchema":{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"n":{"type":"integer","x-mcp-header":"N"},
		"on":{"type":"boolean","x-mcp-header":"On"},
		"bad":{"type":"string","x-mcp-header":"no good"},
		"a/b":{"type":"object","properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}}}}}]MORE}`

func TestAnnotatedArgumentsAreRepeatedInHeaders(t *testing.T) {
	const arguments = `,"name":"x","arguments":{"region":"\u00e9","n":42.0,"on":false,"bad":"b","a/b":{"deep":"d"}}`
	want := http.Header{"Mcp-Param-Region": {"=?base64?w6k=?="}, "Mcp-Param-N": {"42"},
		"Mcp-Param-On": {"false"}, "Mcp-Param-Deep": {"d"}}
	params := func(h http.Header) http.Header {
		found := http.Header{}
		for name, v := range h {
			if len(name) > 10 && name[:10] == "Mcp-Param-" {
				found[name] = v
			}
		}
		return found
	}
	check := func(t *testing.T, web *fakeHTTP, log ...string) {
		t.Helper()
		if got := web.requestLog(); !slices.Equal(got, log) {
			t.Errorf("the server saw %q, want %q", got, log)
		}
		calls := web.requests("POST tools/call")
		if got := params(calls[len(calls)-1].header); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the call has the headers %v, want %v", got, want)
		}
	}
	serve := func(r request) *upstream.HTTPResponse {
		if r.Method == "tools/list" {
			return resultResponse(r.ID, replace(annotated, "MORE", ``))
		}
		return resultResponse(r.ID, `{}`)
	}
	t.Run("the client's own tools/list shows the annotations", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, web, end := openModernSite(t, serve)
			defer end()
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
				"tools/list", ``, ``))
			synctest.Wait()
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				"tools/call", ``,
				arguments)).ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			check(t, web, "POST tools/list", "POST tools/call")
		})
	})
	t.Run("Gatekit lists the tools once when no client has listed them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
				switch {
				case r.Method == "tools/list" && !contains(r.body, "cursor"):
					return resultResponse(r.ID,
						`{"tools":[{"name":"first","inputSchema":{}}],"nextCursor":"c\u0031"}`)
				case r.Method == "tools/list" && !contains(r.body, `"cursor":"c\u0031"`):
					return httpResponse(400, "wrong cursor")
				}
				return serve(r)
			})
			defer end()
			for range 2 {
				upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
					"tools/call", `"progressToken":1,"io.modelcontextprotocol/logLevel":"info","x":1,`, arguments)).ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			}
			check(t, web, "POST tools/list", "POST tools/list", "POST tools/call",
				"POST tools/call")
			const listParams = `{"_meta":{"x":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`
			if got := string(web.seen[0].Params); got != listParams {
				t.Errorf("tools/list has the params %s\nwant %s", got, listParams)
			}
		})
	})
	t.Run("Gatekit lists the tools again after a header mismatch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			changed := false
			s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
				switch {
				case r.Method == "tools/list" && !changed:
					return resultResponse(r.ID, `{"tools":[{"name":"x","inputSchema":{}}]}`)
				case r.Method == "tools/call" && r.header.Get("Mcp-Param-N") == "":
					changed = true
					return httpResponse(400, fmt.Sprintf(
						`{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"m"}}`, r.ID))
				}
				return serve(r)
			})
			defer end()
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				"tools/call", ``,
				arguments)).ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			check(t, web, "POST tools/list", "POST tools/call", "POST tools/list",
				"POST tools/call")
		})
	})
	t.Run("absent and null arguments have no header", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, web, end := openModernSite(t, serve)
			defer end()
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				"tools/call", ``,
				`,"name":"x","arguments":{"region":null,"n":{}}`)).ExpectAnswer(
				`{"jsonrpc":"2.0","id":2,"result":{}}`)
			if got := params(web.requests("POST tools/call")[0].header); len(got) > 0 {
				t.Errorf("the call has the headers %v, want none for its arguments", got)
			}
		})
	})
}

func TestHeaderMismatch(t *testing.T) {
	refuse := func(r request) *upstream.HTTPResponse {
		return httpResponse(400, fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"m"}}`, r.ID,
			mcp.CodeHeaderMismatch))
	}
	t.Run("a name is not encoded for a server that does not decode names", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
				if r.header.Get("Mcp-Name") != "ü" {
					return refuse(r)
				}
				return resultResponse(r.ID, `{}`)
			})
			defer end()
			for range 2 {
				upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
					"prompts/get", ``,
					`,"name":"ü"`)).ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			}
			if n := len(web.requestLog()); n != 3 {
				t.Errorf("the server got %d requests for two calls, want 3: one is repeated", n)
			}
		})
	})
	t.Run("a name with a control character is always encoded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, web, end := openModernSite(t, refuse)
			defer end()
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				"prompts/get", ``,
				`,"name":"a\r\nX: y"`)).ExpectError("rejected the headers")
			if n := len(web.requestLog()); n != 1 {
				t.Errorf("the server got %d requests, want 1", n)
			}
		})
	})
	t.Run("the number of retries is bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, web, end := openModernSite(t, refuse)
			defer end()
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				"tools/call", ``,
				`,"name":"ü"`)).ExpectError("rejected the headers")
			if n := len(web.requests("POST tools/call")); n != 3 {
				t.Errorf("the call was sent %d times, want 3", n)
			}
		})
	})
}

func TestVendorNotificationIsPosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := 202
		s, web, end := openModernSite(t, func(r request) *upstream.HTTPResponse {
			return httpResponse(code, "")
		})
		defer end()
		n := upstreamtest.Pass(t, `{"jsonrpc":"2.0","method":"acme/event"}`)
		if err := s.Notify(t.Context(), n); err != nil {
			t.Error(err)
		}
		if h := web.seen[0].header; h.Get("Mcp-Method") != "acme/event" ||
			h.Get("MCP-Protocol-Version") != "2026-07-28" {
			t.Errorf("the notification has the headers %v, want its method and revision", h)
		}
		code = 500
		if err := s.Notify(t.Context(), n); !errors.As(err, new(*proxy.UnavailableError)) {
			t.Errorf("after an HTTP 500: the error is %v, want an UnavailableError", err)
		}
	})
}

// FuzzNameHeader checks that Mcp-Name is a valid header value, whatever the name is, and that it
// decodes to the name.
func FuzzNameHeader(f *testing.F) {
	for _, s := range []string{"", "a", " a", "a\t", "é", "a\nb", "=?base64?YQ==?=", "=?base64?",
		"?=", "\x00", "\x7f", "日本"} {
		f.Add(s)
	}
	var got http.Header
	web := &fakeHTTP{serve: func(r request) *upstream.HTTPResponse {
		got = r.header
		return resultResponse(r.ID, `{}`)
	}}
	u := upstream.New(upstream.Options{Name: "web", Era: "modern", Dial: upstream.Dial{HTTP: web}})
	f.Cleanup(func() { u.Close() })
	f.Fuzz(func(t *testing.T, name string) {
		if !utf8.ValidString(name) {
			return
		}
		s := openModernSession(t, u, "a", "")
		defer s.Close()
		if _, err := s.Call(t.Context(),
			upstreamtest.Pass(t, upstreamtest.ModernRequest(`1`, "prompts/get", ``,
				`,"name":`+string(mcp.Quote(name)))),
			&upstreamtest.Client{}); err != nil {
			t.Fatal(err)
		}
		v := got.Get("Mcp-Name")
		for i := range len(v) {
			if v[i] != '\t' && (v[i] < ' ' || v[i] >= 0x7f) {
				t.Fatalf("%q is not a valid header value", v)
			}
		}
		if strings.Trim(v, " \t") != v {
			t.Fatalf("%q begins or ends with a space or tab, which HTTP removes", v)
		}
		if in, ok := strings.CutPrefix(v, "=?base64?"); ok && strings.HasSuffix(in, "?=") {
			b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(in, "?="))
			if err != nil {
				t.Fatal(err)
			}
			v = string(b)
		}
		if v != name {
			t.Errorf("Mcp-Name decodes to %q, want %q", v, name)
		}
	})
}
