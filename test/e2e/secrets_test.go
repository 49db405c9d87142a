package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatekit/test/mcptest"
)

// planted is a key that no one has. It is put together here so that no scanner of this repository finds it.
var planted = "AKIA" + "Z5GMNQ7TX2RWLKPD"

// planter is a server that puts the key into every place that it has, and keeps what reaches it.
func planter(revision string) (h http.Handler, got func() string) {
	text := func(where string) string { return mcptest.Quote("the key of " + where + " is " + planted + " .") }
	blob := base64.StdEncoding.EncodeToString([]byte("a file with aws_key = " + planted + "\nand another line\n"))
	s := &mcptest.Server{
		Name:         "box",
		Revisions:    []string{revision},
		Capabilities: `{"tools":{},"prompts":{},"resources":{},"logging":{}}`,
		Instructions: "Use the key " + planted + " everywhere.",
	}
	s.Handle = map[string]func(*mcptest.Call){
		"tools/list": func(c *mcptest.Call) {
			c.Result(`{"tools":[{"name":"plant","description":` + text("the description") + `,"inputSchema":{"type":"object"}}]}`)
		},
		"tools/call": func(c *mcptest.Call) {
			switch mcptest.Text(c.Params, "arguments", "where") {
			case "text":
				c.Result(`{"content":[{"type":"text","text":` + text("a text") + `}]}`)
			case "structured":
				c.Result(`{"content":[],"structuredContent":{"a":[{"b":` + text("a member") + `}]}}`)
			case "error":
				c.Error(-32000, "no: "+planted, "")
			case "data":
				c.Error(-32000, "no", `{"why":`+text("the data")+`}`)
			case "progress":
				c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":1,"message":%s}`, c.Token(), text("the progress")))
				c.Result(`{"content":[]}`)
			case "log":
				c.Notify("notifications/message", `{"level":"error","data":{"m":`+text("the log")+`}}`)
				c.Result(`{"content":[]}`)
			case "sampling":
				c.Ask("q", "sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":`+text("a question")+`}}],"maxTokens":1}`)
				c.Result(`{"content":[]}`)
			case "elicitation":
				c.Ask("q", "elicitation/create", `{"message":"which key?","requestedSchema":{"type":"object","properties":{}}}`)
				c.Result(`{"content":[]}`)
			default:
				c.Result(`{"content":[]}`)
			}
		},
		"prompts/get": func(c *mcptest.Call) {
			c.Result(`{"messages":[{"role":"user","content":{"type":"text","text":` + text("a prompt") + `}}]}`)
		},
		"resources/read": func(c *mcptest.Call) {
			uri := mcptest.Quote(mcptest.Text(c.Params, "uri"))
			c.Result(`{"contents":[{"uri":` + uri + `,"text":` + text("a resource") + `},{"uri":` + uri + `,"blob":"` + blob + `"}]}`)
		},
	}
	var mu sync.Mutex
	var all bytes.Buffer
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			mu.Lock()
			all.Write(b)
			mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(b))
			s.ServeHTTP(w, r)
		}), func() string {
			mu.Lock()
			defer mu.Unlock()
			return all.String()
		}
}

// A key that is planted in each place where there can be text reaches neither the other side nor a file of Gatekit's.
func TestAPlantedSecretGetsNowhere(t *testing.T) {
	for _, client := range []string{"2025-11-25", mcptest.Modern} {
		for _, server := range []string{"2025-11-25", mcptest.Modern} {
			t.Run(client+" before "+server, func(t *testing.T) {
				t.Parallel()
				h, got := planter(server)
				site := httptest.NewServer(h)
				t.Cleanup(site.Close)
				g := overHTTP(t, httpServer("box", site.URL)+plugin("secrets", `action = "redact"`))
				c := g.connect(client)
				c.Answer["elicitation/create"] = func(mcptest.Message) string {
					return `{"action":"accept","content":{"key":` + mcptest.Quote("it is "+planted+" .") + `}}`
				}
				hello := open(t, c) // its instructions
				list := ask(t, c, "tools/list", `{}`)
				prompt := ask(t, c, "prompts/get", `{"name":"box__p"}`)
				resource := ask(t, c, "resources/read", `{"uri":"box+test://box/a"}`)
				for what, m := range map[string]mcptest.Message{"instructions": hello, "list": list, "prompt": prompt, "resource": resource} {
					if !strings.Contains(string(m.Raw), "[secret:aws-access-token") {
						t.Errorf("nothing was taken out of the %s: %s", what, m.Raw)
					}
				}
				ask(t, c, "tools/call", `{"name":"box__plant","arguments":{"key":"`+planted+`"}}`)
				ask(t, c, "tools/call", `{"name":"box__plant","arguments":{"a":{"`+planted+`":1}}}`)
				for _, where := range []string{"text", "structured", "error", "data", "progress", "log", "sampling", "elicitation"} {
					m := ask(t, c, "tools/call", `{"name":"box__plant","arguments":{"where":"`+where+`"},"_meta":{"progressToken":"p-`+where+`","io.modelcontextprotocol/logLevel":"debug"}}`)
					if (where == "text" || where == "structured" || where == "error" || where == "data") && !strings.Contains(string(m.Raw), "[secret:aws-access-token") {
						t.Errorf("nothing was taken out of the %s: %s", where, m.Raw)
					}
				}
				wants := []string{"notifications/progress", "notifications/message", "sampling/createMessage", "elicitation/create"}
				seen := map[string]bool{}
				leaks := func(where, text string) {
					if strings.Contains(text, planted) || strings.Contains(text, planted[:12]) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("key = " + planted))[8:20]) {
						t.Errorf("the key is in %s: %.300s", where, text)
					}
				}
				for _, f := range c.Frames() {
					if f.Sent {
						continue
					}
					seen[f.Method] = true
					for _, w := range wants { // a modern client is asked in results
						seen[w] = seen[w] || strings.Contains(string(f.Raw), `"`+w+`"`)
					}
					leaks("what the client got", string(f.Raw))
				}
				for _, w := range wants {
					if !seen[w] {
						t.Errorf("the client got no %s", w)
					}
				}
				leaks("what the server got", got())
				if !strings.Contains(got(), `"accept"`) || !strings.Contains(got(), "[secret:aws-access-token") {
					t.Errorf("the server got no answer, or nothing was taken out of it: %.300s", got())
				}
				g.stop()
				audit, err := os.ReadFile(filepath.Join(g.dir, "audit.jsonl"))
				if err != nil || !bytes.Contains(audit, []byte("aws-access-token")) {
					t.Errorf("the audit log has no finding: %v", err)
				}
				leaks("the audit log", string(audit))
				leaks("the log", g.stderr.String())
			})
		}
	}
}
