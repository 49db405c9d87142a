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

// newLeakyServer returns a server that puts the planted key into every field that can contain text.
// received returns the headers and bodies of all requests that the server has received.
func newLeakyServer(revision string) (h http.Handler, received func() string) {
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
			c.Result(`{"tools":[{"name":"leak","description":` + text("the description") +
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
	var requests bytes.Buffer
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			mu.Lock()
			r.Header.Write(&requests)
			requests.Write(b)
			mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(b))
			s.ServeHTTP(w, r)
		}), func() string {
			mu.Lock()
			defer mu.Unlock()
			return requests.String()
		}
}

// Further secrets. Each is concatenated from parts, so that secret scanners do not find it in this
// file.
var (
	codename       = "Blue " + "Heron " + "Seven"      // a policy redacts it in results
	deniedArgument = "hunter2-" + "correct-horse"      // in a call that a policy denies
	askedArgument  = "wire-transfer-" + "to-4711-0815" // in a call that a human has to approve
	serverToken    = "upstream-" + "token-9f8e7d6c"    // in a header for the server
	clientToken    = "client-" + "token-1a2b3c4d"      // in a header of the client
	sinkToken      = "receiver-" + "token-5e6f7a8b"    // in a header for a sink
)

// fullRecordingConfig returns a configuration in which gatekit writes and sends everything that it
// can: the audit log with the given settings, sinks of every format, telemetry and the process log.
func fullRecordingConfig(t *testing.T, collector *otlpCollector, bodies, durability string) string {
	webhook, _ := startWebhook(t, nil)
	sinks := sinkTable("hook", "webhook", fmt.Sprintf("url = %q", webhook),
		fmt.Sprintf("headers = { Authorization = \"Bearer %s\" }", sinkToken))
	for _, name := range format.Names() {
		sinks += sinkTable(name, "file",
			fmt.Sprintf("path = \"sent/%s\"\nformat = %q", name, name))
	}
	if bodies == "digest" {
		// This sink is unavailable, so gatekit keeps the records for a later time.
		sinks += sinkTable("down", "webhook", `url = "http://127.0.0.1:9/"`)
	}
	return harness.AuditTable +
		fmt.Sprintf("bodies = %q\ndurability = %q\nanchor = \"anchors\"\n", bodies, durability) +
		sinks + collector.config("http", "tools = true\ninterval = \"1s\"") +
		"[log]\nlevel = \"debug\"\nformat = \"json\"\n"
}

// encodings returns forms of a secret from which it can be recovered or recognised: hex, URL
// encoding, base64 at every alignment, and its SHA-256.
func encodings(secret string) (all []string) {
	sum := sha256.Sum256([]byte(secret))
	all = []string{secret, hex.EncodeToString([]byte(secret)), url.QueryEscape(secret),
		hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:])}
	for shift := range 3 { // the secret may begin at any byte of a group of 3 that base64 encodes
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := encoding.EncodeToString([]byte(strings.Repeat("-", shift) + secret))
			// without the characters that also depend on the bytes before and after the secret
			all = append(all, text[(shift*8+5)/6:len(text)-1])
		}
	}
	return all
}

// TestSecretsReachNoPeerAndNoFile puts a key into every field of messages that can contain text,
// and other secrets into arguments and headers. No secret may reach a file, a sink, the collector,
// or a peer that must not have the secret.
func TestSecretsReachNoPeerAndNoFile(t *testing.T) {
	for _, c := range []struct{ client, server, bodies, durability string }{
		{"2025-11-25", "2025-11-25", "none", "fsync"},
		{"2025-11-25", mcptest.Modern, "digest", "write"},
		{mcptest.Modern, "2025-11-25", "redacted", "async"},
		{mcptest.Modern, mcptest.Modern, "redacted", "fsync"},
	} {
		name := fmt.Sprintf("%s before %s, bodies %s, %s", c.client, c.server, c.bodies,
			c.durability)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSecrets(t, c.client, c.server, c.bodies, c.durability)
		})
	}
}

// testSecrets makes a session between a client and a server of the given revisions, and then
// searches for the secrets. bodies and durability are settings of the audit log.
func testSecrets(t *testing.T, clientRevision, serverRevision, bodies, durability string) {
	const rego = `
redact contains {"pattern": "Blue Heron [A-Z][a-z]+", "with": "[codename]"} if input.kind in {"response", "notification", "error"}
deny contains "it is refused" if startswith(input.params.arguments.word, "hunter2")
ask contains "it is a transfer" if { input.kind == "request"; input.params.arguments.transfer }
`
	h, received := newLeakyServer(serverRevision)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	tmp, err := os.MkdirTemp("", "s") // a short name, since the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	dir, collector := t.TempDir(), newOTLPCollector(t)
	config := harness.HTTPServer("box", server.URL) +
		"methods = [\"vendor/*\"]\nheaders = { Authorization = \"Bearer ${env:UPSTREAM}\" }\n" +
		harness.Builtin("secrets", `action = "redact"`) + harness.PolicyFile(t, rego) +
		fullRecordingConfig(t, collector, bodies, durability)
	g := harness.StartHTTPIn(t, dir, config, "UPSTREAM="+serverToken,
		"XDG_STATE_HOME="+filepath.Join(dir, "state"), "TMPDIR="+tmp)

	conn := mcptest.NewHTTP(g.URL)
	conn.Header.Set("Authorization", "Bearer "+clientToken)
	conn.Header.Set("Cookie", "session="+clientToken)
	c := mcptest.NewClient(conn, clientRevision)
	t.Cleanup(func() { c.Close() })
	c.Name = "a client with " + harness.PlantedKey
	c.Capabilities = `{"sampling":{},"elicitation":{},"roots":{}}`
	c.Answer["elicitation/create"] = func(m mcptest.Message) string {
		if mcptest.Text(m.Params, "message") != "which key?" { // gatekit's request for approval
			return `{"action":"decline"}`
		}
		return `{"action":"accept","content":{"key":` +
			mcptest.Quote("it is "+harness.PlantedKey+" .") + `}}`
	}
	sendSecrets(t, c)
	framesWithoutNames := c.Frames()
	sendSecretNames(t, c)

	checkClientFrames(t, framesWithoutNames)
	wantNoSecret(t, "the requests to the server", received(), harness.PlantedKey,
		harness.PlantedKey[:12], deniedArgument, askedArgument, clientToken, sinkToken)
	if !strings.Contains(received(), "Authorization: Bearer "+serverToken) {
		t.Errorf("the server received %.300s, want its token in a header", received())
	}
	if !strings.Contains(received(), `"accept"`) ||
		!strings.Contains(received(), "[secret:aws-access-token") {
		t.Errorf("the server received %.300s, want an elicitation result with a redaction",
			received())
	}

	if files, err := filepath.Glob(tmp + "/*"); err != nil || len(files) == 0 {
		t.Errorf("TMPDIR has no files (%v), want gatekit's temporary files there", err)
	}
	written := readFiles(t, dir, tmp)
	g.Stop()
	const atEnd = " at the end"
	for name, text := range readFiles(t, dir, tmp) {
		written[name+atEnd] = text
	}
	written["the process log"] = g.Stderr.String()
	collector.mu.Lock()
	written["the requests to the collector"] = collector.bodies.String()
	if len(collector.spans) == 0 || len(collector.metrics) == 0 {
		t.Error("the collector received no spans or no metrics")
	}
	collector.mu.Unlock()
	for name, text := range written {
		wantNoSecret(t, name, text, harness.PlantedKey, harness.PlantedKey[:12], codename,
			deniedArgument, askedArgument, serverToken, clientToken, sinkToken)
	}
	for name, want := range map[string]string{
		"audit.jsonl": "aws-access-token", "sent/csv": "SECURITY_BLOCK",
		"sent/ocsf": `"class_uid":6003`, "sent/text": "deny",
		"sent/jsonl": `"action":"ask"`, "anchors": "\n— ",
		"audit.jsonl.tree/checkpoint": "\n— ",
	} {
		if text := written[filepath.Join(dir, name)+atEnd]; !strings.Contains(text, want) {
			t.Errorf("%s does not contain %q: %.300s", name, want, text)
		}
	}
	log := written[filepath.Join(dir, "audit.jsonl")+atEnd]
	if strings.Contains(log, `"body":`) != (bodies == "redacted") {
		t.Errorf("with bodies = %q the log is %.300s; want bodies only with \"redacted\"", bodies,
			log)
	}
}

// sendSecrets opens the session. It makes requests with the key and other secrets in their
// arguments, and requests whose results contain the key. It checks that results are redacted.
func sendSecrets(t *testing.T, c *mcptest.Client) {
	handshake := harness.Handshake(t, c)
	list := harness.Request(t, c, "tools/list", `{}`)
	prompt := harness.Request(t, c, "prompts/get", `{"name":"box__p"}`)
	resource := harness.Request(t, c, "resources/read", `{"uri":"box+test://box/a"}`)
	for what, m := range map[string]mcptest.Message{"instructions": handshake, "tool list": list,
		"prompt": prompt, "resource": resource} {
		if !strings.Contains(string(m.Raw), "[secret:aws-access-token") {
			t.Errorf("the %s contains no redaction: %s", what, m.Raw)
		}
	}
	harness.Request(t, c, "tools/call",
		`{"name":"box__leak","arguments":{"key":"`+harness.PlantedKey+`"}}`)
	harness.Request(t, c, "tools/call",
		`{"name":"box__leak","arguments":{"a":{"`+harness.PlantedKey+`":1}}}`)
	for _, where := range []string{"text", "structured", "error", "data", "progress", "log",
		"sampling", "elicitation"} {
		m := harness.Request(t, c, "tools/call",
			`{"name":"box__leak","arguments":{"where":"`+where+
				`"},"_meta":{"progressToken":"p-`+where+
				`","io.modelcontextprotocol/logLevel":"debug"}}`)
		inAnswer := where == "text" || where == "structured" || where == "error" || where == "data"
		if inAnswer && !strings.Contains(string(m.Raw), "[secret:aws-access-token") {
			t.Errorf("the answer with the key in %q contains no redaction: %s", where, m.Raw)
		}
	}
	m := harness.Request(t, c, "tools/call",
		`{"name":"box__leak","arguments":{"where":"codename"}}`)
	if !strings.Contains(string(m.Raw), "[codename]") {
		t.Errorf("the result with the codename contains no redaction: %s", m.Raw)
	}
	for _, arguments := range []string{`{"word":"` + deniedArgument + `"}`,
		`{"transfer":"` + askedArgument + `"}`} {
		m := harness.Request(t, c, "tools/call",
			`{"name":"box__leak","arguments":`+arguments+`}`)
		if !harness.IsDenied(m) {
			t.Errorf("the call with %s got %s, want a denial", arguments, m.Raw)
		}
	}
}

// sendSecretNames sends messages whose method, name, URI, cursor or id contains the key. Some name
// the server, and others name no server. Error messages to the client may repeat the key, because
// the client itself sent the key.
func sendSecretNames(t *testing.T, c *mcptest.Client) {
	key := harness.PlantedKey
	for _, r := range []struct{ method, params string }{
		{"tools/call", `{"name":"box__` + key + `"}`},
		{"tools/call", `{"name":"` + key + `"}`},
		{"tools/call", `{"name":"nobody__` + key + `","arguments":{"a":1}}`},
		{"prompts/get", `{"name":"box__` + key + `"}`},
		{"prompts/get", `{"name":"` + key + `"}`},
		{"resources/read", `{"uri":"box+file:///x?token=` + key + `"}`},
		{"resources/read", `{"uri":"file:///x?token=` + key + `"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"box__` + key +
			`"},"argument":{"name":"a","value":"b"}}`},
		{"completion/complete", `{"ref":{"type":"` + key +
			`"},"argument":{"name":"a","value":"b"}}`},
		{"x/" + key, `{}`}, {key, `{}`},
		{"vendor/" + key, `{}`},
		{"tools/list", `{"cursor":"` + key + `"}`},
	} {
		if m, err := c.Call(t.Context(), r.method, r.params); err == nil && m.Error == nil {
			t.Errorf("%s %s got %s, want an error", r.method, r.params, m.Raw)
		}
	}
	c.Notify("notifications/"+key, `{}`)
	c.Notify("notifications/cancelled", `{"requestId":"`+key+`"}`)
	if _, err := c.Do(t.Context(), mcptest.Quote(key), "tools/list", `{}`); err != nil {
		t.Error(err)
	}
}

// checkClientFrames fails the test if the client received a secret. It also fails the test unless
// the client received every kind of notification and server request.
func checkClientFrames(t *testing.T, frames []mcptest.Frame) {
	methods := []string{"notifications/progress", "notifications/message",
		"sampling/createMessage", "elicitation/create"}
	received := map[string]bool{}
	for _, f := range frames {
		if f.Sent {
			continue
		}
		received[f.Method] = true
		for _, m := range methods { // modern clients get server requests as members of results
			received[m] = received[m] || strings.Contains(string(f.Raw), `"`+m+`"`)
		}
		wantNoSecret(t, "a message to the client", string(f.Raw), harness.PlantedKey,
			harness.PlantedKey[:12], codename, serverToken, sinkToken)
	}
	for _, m := range methods {
		if !received[m] {
			t.Errorf("the client received no %s", m)
		}
	}
}

// wantNoSecret fails the test if the text contains one of the secrets in any encoding.
func wantNoSecret(t *testing.T, what, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		for _, encoded := range encodings(secret) {
			if i := strings.Index(text, encoded); i >= 0 {
				t.Errorf("%s: contains the secret %q, as %q: …%.300s", what, secret, encoded,
					text[max(0, i-100):])
			}
		}
	}
}

// readFiles returns the contents of all files below the folders, except the configuration. It
// ignores files that Gatekit deletes meanwhile.
func readFiles(t *testing.T, dirs ...string) map[string]string {
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
