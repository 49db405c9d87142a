package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatekit/audit/format"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// planter is a server that puts the key into every place that it has, and keeps what reaches it.
func planter(revision string) (h http.Handler, got func() string) {
	text := func(where string) string {
		return mcptest.Quote("the key of " + where + " is " + harness.PlantedKey + " .")
	}
	blob := base64.StdEncoding.EncodeToString([]byte("a file with aws_key = " + harness.PlantedKey +
		"\nand another line\n"))
	s := &mcptest.Server{
		Name:         "box",
		Revisions:    []string{revision},
		Capabilities: `{"tools":{},"prompts":{},"resources":{},"logging":{}}`,
		Instructions: "Use the key " + harness.PlantedKey + " everywhere.",
	}
	s.Handle = map[string]func(*mcptest.Call){
		"tools/list": func(c *mcptest.Call) {
			c.Result(`{"tools":[{"name":"plant","description":` + text("the description") +
				`,"inputSchema":{"type":"object"}}]}`)
		},
		"tools/call": func(c *mcptest.Call) {
			switch mcptest.Text(c.Params, "arguments", "where") {
			case "text":
				c.Result(`{"content":[{"type":"text","text":` + text("a text") + `}]}`)
			case "structured":
				c.Result(`{"content":[],"structuredContent":{"a":[{"b":` + text("a member") +
					`}]}}`)
			case "codename":
				c.Result(`{"content":[{"type":"text","text":"the codename is ` + codename +
					`, again ` + codename + `"}]}`)
			case "error":
				c.Error(-32000, "no: "+harness.PlantedKey, "")
			case "data":
				c.Error(-32000, "no", `{"why":`+text("the data")+`}`)
			case "progress":
				c.Notify("notifications/progress",
					fmt.Sprintf(`{"progressToken":%s,"progress":1,"message":%s}`, c.Token(),
						text("the progress")))
				c.Result(`{"content":[]}`)
			case "log":
				c.Notify("notifications/message", `{"level":"error","data":{"m":`+text("the log")+
					`}}`)
				c.Result(`{"content":[]}`)
			case "sampling":
				c.Ask("q", "sampling/createMessage",
					`{"messages":[{"role":"user","content":{"type":"text","text":`+
						text("a question")+`}}],"maxTokens":1}`)
				c.Result(`{"content":[]}`)
			case "elicitation":
				c.Ask("q", "elicitation/create",
					`{"message":"which key?","requestedSchema":{"type":"object","properties":{}}}`)
				c.Result(`{"content":[]}`)
			default:
				c.Result(`{"content":[]}`)
			}
		},
		"prompts/get": func(c *mcptest.Call) {
			c.Result(`{"messages":[{"role":"user","content":{"type":"text","text":` +
				text("a prompt") + `}}]}`)
		},
		"resources/read": func(c *mcptest.Call) {
			uri := mcptest.Quote(mcptest.Text(c.Params, "uri"))
			c.Result(`{"contents":[{"uri":` + uri + `,"text":` + text("a resource") + `},{"uri":` +
				uri + `,"blob":"` + blob + `"}]}`)
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

// Secrets beside the planted key, each of which Gatekit must keep for itself in another way.
var (
	codename = "Blue " + "Heron " + "Seven"      // a policy takes it out of answers
	refused  = "hunter2-" + "correct-horse"      // in a call that a policy refuses
	transfer = "wire-transfer-" + "to-4711-0815" // in a call that a human has to approve
	// in a header for the server, from the environment
	upstream  = "upstream-" + "token-9f8e7d6c"
	clients   = "client-" + "token-1a2b3c4d"   // in a header of the client
	receivers = "receiver-" + "token-5e6f7a8b" // in headers for sinks and the collector
)

// keeping is the configuration of everything that Gatekit writes and sends.
func keeping(t *testing.T, to *otelStub, bodies, durability string) string {
	web, _ := hook(t, nil)
	table := sinkTable("hook",
		"webhook", fmt.Sprintf("url = %q\nheaders = { Authorization = \"Bearer %s\" }", web,
			receivers))
	for _, form := range format.Names() {
		table += sinkTable(form, "file", fmt.Sprintf("path = \"sent/%s\"\nformat = %q", form, form))
	}
	if bodies == "digest" {
		// what it has not taken is kept for it
		table += sinkTable("down", "webhook", `url = "http://127.0.0.1:9/"`)
	}
	return harness.AuditTable + fmt.Sprintf("bodies = %q\ndurability = %q\nanchor = \"anchors\"\n",
		bodies,
		durability) + table +
		to.config("http", "tools = true\ninterval = \"1s\"") +
		"[log]\nlevel = \"debug\"\nformat = \"json\"\n"
}

// forms are how a secret may be written so that who finds it has it.
func forms(secret string) (all []string) {
	sum := sha256.Sum256([]byte(secret))
	all = []string{secret, hex.EncodeToString([]byte(secret)), url.QueryEscape(secret),
		hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:])}
	for shift := range 3 { // it may begin anywhere in what is encoded
		for _, code := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := code.EncodeToString([]byte(strings.Repeat("-", shift) + secret))
			all = append(all, text[(shift*8+5)/6:len(text)-1])
		}
	}
	return all
}

// A key that is planted in each place where there can be text reaches neither the other side nor a
// file of Gatekit's, and neither do other things that it has to keep for itself.
func TestAPlantedSecretGetsNowhere(t *testing.T) {
	const rego = `
redact contains {"pattern": "Blue Heron [A-Z][a-z]+", "with": "[codename]"} if input.kind in {"response", "notification", "error"}
deny contains "it is refused" if startswith(input.params.arguments.word, "hunter2")
ask contains "it is a transfer" if { input.kind == "request"; input.params.arguments.transfer }
`
	for i, eras := range [][2]string{{"2025-11-25", "2025-11-25"}, {"2025-11-25", mcptest.Modern},
		{mcptest.Modern, "2025-11-25"}, {mcptest.Modern, mcptest.Modern}} {
		client, server := eras[0], eras[1]
		bodies, durability := []string{"none", "digest", "redacted", "redacted"}[i],
			[]string{"fsync", "write", "async", "fsync"}[i]
		t.Run(fmt.Sprintf("%s before %s, bodies %s, %s", client, server, bodies, durability),
			func(t *testing.T) {
				t.Parallel()
				h, got := planter(server)
				site := httptest.NewServer(h)
				t.Cleanup(site.Close)
				tmp, err := os.MkdirTemp("", "s") // short: sockets are made there
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.RemoveAll(tmp) })
				dir, to := t.TempDir(), newOTelStub(t)
				g := harness.StartHTTPIn(t, dir, harness.HTTPServer("box",
					site.URL)+"methods = [\"vendor/*\"]\nheaders = { Authorization = \"Bearer "+
					"${env:UPSTREAM}\" }\n"+harness.Builtin("secrets", `action = "redact"`)+
					harness.PolicyFile(t, rego)+
					keeping(t, to, bodies, durability), "UPSTREAM="+upstream,
					"XDG_STATE_HOME="+filepath.Join(dir, "state"), "TMPDIR="+tmp)
				wire := mcptest.NewHTTP(g.URL)
				wire.Header.Set("Authorization", "Bearer "+clients)
				c := mcptest.NewClient(wire, client)
				t.Cleanup(func() { c.Close() })
				c.Name = "a client with " + harness.PlantedKey
				c.Capabilities = `{"sampling":{},"elicitation":{},"roots":{}}`
				c.Answer["elicitation/create"] = func(m mcptest.Message) string {
					if mcptest.Text(m.Params, "message") != "which key?" { // whether it is approved
						return `{"action":"decline"}`
					}
					return `{"action":"accept","content":{"key":` + mcptest.Quote("it is "+
						harness.PlantedKey+
						" .") + `}}`
				}
				hello := harness.Handshake(t, c) // its instructions
				list := harness.Request(t, c, "tools/list", `{}`)
				prompt := harness.Request(t, c, "prompts/get", `{"name":"box__p"}`)
				resource := harness.Request(t, c, "resources/read", `{"uri":"box+test://box/a"}`)
				for what, m := range map[string]mcptest.Message{"instructions": hello, "list": list,
					"prompt": prompt, "resource": resource} {
					if !strings.Contains(string(m.Raw), "[secret:aws-access-token") {
						t.Errorf("nothing was taken out of the %s: %s", what, m.Raw)
					}
				}
				harness.Request(t, c, "tools/call", `{"name":"box__plant","arguments":{"key":"`+
					harness.PlantedKey+`"}}`)
				harness.Request(t, c, "tools/call", `{"name":"box__plant","arguments":{"a":{"`+
					harness.PlantedKey+`":1}}}`)
				for _, where := range []string{"text", "structured", "error", "data", "progress",
					"log", "sampling", "elicitation"} {
					m := harness.Request(t, c,
						"tools/call", `{"name":"box__plant","arguments":{"where":"`+
							where+`"},"_meta":{"progressToken":"p-`+where+
							`","io.modelcontextprotocol/logLevel":"debug"}}`)
					if (where == "text" || where == "structured" || where == "error" ||
						where == "data") && !strings.Contains(string(m.Raw),
						"[secret:aws-access-token") {
						t.Errorf("nothing was taken out of the %s: %s", where, m.Raw)
					}
				}
				if m := harness.Request(t, c, "tools/call",
					`{"name":"box__plant","arguments":{"where":"codename"}}`); !strings.Contains(string(m.Raw), "[codename]") {
					t.Errorf("no codename was taken out of %s", m.Raw)
				}
				for _, arguments := range []string{`{"word":"` + refused + `"}`,
					`{"transfer":"` + transfer + `"}`} {
					if m := harness.Request(t, c, "tools/call", `{"name":"box__plant","arguments":`+
						arguments+
						`}`); string(mcptest.At(m.Error, "code")) != "-31000" {
						t.Errorf("what is refused answered %s", m.Raw)
					}
				}
				// What a message is about, and what it is, can be a secret as well; some of these
				// have a server, others nobody knows. The client is told what there is not, in its
				// own words.
				answered := c.Frames()
				for _, ask := range []struct{ method, params string }{
					{"tools/call", `{"name":"box__` + harness.PlantedKey + `"}`},
					{"tools/call", `{"name":"` + harness.PlantedKey + `"}`},
					{"tools/call", `{"name":"nobody__` + harness.PlantedKey +
						`","arguments":{"a":1}}`},
					{"prompts/get", `{"name":"box__` + harness.PlantedKey + `"}`},
					{"prompts/get", `{"name":"` + harness.PlantedKey + `"}`},
					{"resources/read", `{"uri":"box+file:///x?token=` + harness.PlantedKey + `"}`},
					{"resources/read", `{"uri":"file:///x?token=` + harness.PlantedKey + `"}`},
					{"completion/complete", `{"ref":{"type":"ref/prompt","name":"box__` +
						harness.PlantedKey +
						`"},"argument":{"name":"a","value":"b"}}`},
					{"completion/complete", `{"ref":{"type":"` + harness.PlantedKey +
						`"},"argument":{"name":"a","value":"b"}}`},
					{"x/" + harness.PlantedKey, `{}`}, {harness.PlantedKey, `{}`},
					{"vendor/" + harness.PlantedKey, `{}`},
					{"tools/list", `{"cursor":"` + harness.PlantedKey + `"}`},
				} {
					if m, err := c.Call(t.Context(), ask.method, ask.params); err == nil &&
						m.Error == nil {
						t.Errorf("%s %s answered %s", ask.method, ask.params, m.Raw)
					}
				}
				c.Notify("notifications/"+harness.PlantedKey, `{}`)
				c.Notify("notifications/cancelled", `{"requestId":"`+harness.PlantedKey+`"}`)
				if _, err := c.Do(t.Context(), mcptest.Quote(harness.PlantedKey),
					"tools/list", `{}`); err != nil {
					t.Error(err)
				}

				leaks := func(where, text string, secrets ...string) {
					t.Helper()
					for _, secret := range secrets {
						for _, form := range forms(secret) {
							if at := strings.Index(text, form); at >= 0 {
								t.Errorf("%q is in %s, as %q: …%.300s", secret, where, form,
									text[max(0, at-100):])
							}
						}
					}
				}
				wants := []string{"notifications/progress", "notifications/message",
					"sampling/createMessage", "elicitation/create"}
				seen := map[string]bool{}
				for _, f := range answered {
					if f.Sent {
						continue
					}
					seen[f.Method] = true
					for _, w := range wants { // a modern client is asked in results
						seen[w] = seen[w] || strings.Contains(string(f.Raw), `"`+w+`"`)
					}
					leaks("what the client got", string(f.Raw), harness.PlantedKey,
						harness.PlantedKey[:12], codename,
						upstream, receivers)
				}
				for _, w := range wants {
					if !seen[w] {
						t.Errorf("the client got no %s", w)
					}
				}
				leaks("what the server got", got(), harness.PlantedKey, harness.PlantedKey[:12],
					refused, transfer,
					clients, receivers)
				if !strings.Contains(got(), `"accept"`) || !strings.Contains(got(),
					"[secret:aws-access-token") {
					t.Errorf("the server got no answer, or nothing was taken out of it: %.300s",
						got())
				}
				if left, err := filepath.Glob(tmp + "/*"); err != nil || len(left) == 0 {
					t.Errorf("the folder for what is temporary is another: %v", err)
				}
				written := walk(t, dir, tmp)
				g.Stop()
				for name, text := range walk(t, dir, tmp) {
					written[name+" at the end"] = text
				}
				written["the log of the process"] = g.Stderr.String()
				to.mu.Lock()
				written["what the collector got"] = to.all.String()
				if len(to.spans) == 0 || len(to.metrics) == 0 {
					t.Error("the collector got no spans, or no metrics")
				}
				to.mu.Unlock()
				for name, text := range written {
					leaks(name, text, harness.PlantedKey, harness.PlantedKey[:12], codename,
						refused, transfer, upstream,
						clients, receivers)
				}
				for name, part := range map[string]string{
					"audit.jsonl": "aws-access-token", "sent/csv": "SECURITY_BLOCK",
					"sent/ocsf": `"class_uid":6003`, "sent/text": "deny",
					"sent/jsonl": `"action":"ask"`, "anchors": "\n— ",
					"audit.jsonl.tree/checkpoint": "\n— ",
				} {
					if !strings.Contains(written[filepath.Join(dir, name)+" at the end"], part) {
						t.Errorf("%s does not hold %q: %.300s", name, part,
							written[filepath.Join(dir, name)+" at the end"])
					}
				}
				if text := written[filepath.Join(dir,
					"audit.jsonl")+" at the end"]; strings.Contains(text,
					`"body":`) != (bodies == "redacted") {
					t.Errorf("bodies are %s, and the log is %.300s", bodies, text)
				}
			})
	}
}

// walk reads all files below the folders but the configuration, and those that a gatekit which runs
// puts in the place of others meanwhile.
func walk(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && d.Name() != "gatekit.toml" {
				var b []byte
				b, err = os.ReadFile(path)
				all[path] = string(b)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
