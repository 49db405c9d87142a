package everymessage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// counts has the number of messages with a key.
type counts map[string]int

// sent has what the peers wrote, and what they read.
type sent struct{ wrote, read counts }

// observed has what each observer saw of one run.
type observed struct {
	peers  sent
	plugin counts // what the plugin was asked about
	policy counts // what the policies were asked about
	// the records of messages that the peers wrote, those among them that the stages were asked
	// about, and the records of messages that were forwarded or made by Gatekit
	recorded, inspected, forwarded counts
	// the records of answers to requests that Gatekit itself made: no stage is asked about them
	own counts
}

// TestEveryMessageIsInspectedAndRecorded sends every method of every revision in both directions,
// and compares what the peers wrote and read with what a plugin and a policy saw and with the audit
// log. The exceptions are those that docs/protocol.md names.
func TestEveryMessageIsInspectedAndRecorded(t *testing.T) {
	for _, revision := range []string{mcp.Rev20241105, mcp.Rev20250326, mcp.Rev20250618,
		mcp.Rev20251125, mcp.Rev20260728} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(revision+" over "+transport, func(t *testing.T) {
				t.Parallel()
				check(t, revision, transport)
			})
		}
	}
}

func check(t *testing.T, revision, transport string) {
	dir := t.TempDir()
	pluginNotes, serverNotes := filepath.Join(dir, "plugin"), filepath.Join(dir, "server")
	server := harness.StdioServer("box", []string{os.Args[0], "spy-server", serverNotes, revision},
		"GORACE", "atexit_sleep_ms=0")
	if transport == "http" {
		s := httptest.NewServer(notedHTTP(serverNotes, revision))
		t.Cleanup(s.Close)
		server = harness.HTTPServer("box", s.URL)
	}
	config := server + "methods = [\"acme/*\"]\n[names]\nprefix = \"never\"\n" +
		fmt.Sprintf("[[plugin]]\nname = \"spy\"\ncommand = [%q, \"spy-plugin\", %q]\n", os.Args[0],
			pluginNotes) +
		harness.PolicyFile(t, `note contains concat(" ", [input.direction, input.kind, `+
			`object.get(input, "method", "")])`+"\n")
	var g *harness.Gatekit
	var c *mcptest.Client
	if transport == "http" {
		g = harness.StartHTTP(t, config)
		c = g.Connect(revision)
	} else {
		g, c = harness.SpawnStdio(t, config, revision)
	}
	c.Capabilities = `{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},` +
		`"roots":{"listChanged":true},"tasks":{"requests":{"elicitation":{"create":{}}}}}`
	answer := c.Answer["elicitation/create"]
	c.Answer["elicitation/create"] = func(m mcptest.Message) string {
		if mcptest.Text(m.Params, "message") == "take back" {
			<-t.Context().Done() // the server takes the question back
		}
		return answer(m)
	}
	harness.Handshake(t, c)
	play(t, c, revision, transport)

	// Notifications are delivered after the play, so the sets may be equal a moment later only.
	deadline := time.Now().Add(10 * time.Second)
	for {
		faults := compare(observe(t, g, c, pluginNotes, serverNotes), transport)
		if len(faults) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, f := range faults {
				t.Error(f)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// play sends every method, from the client and from the server.
func play(t *testing.T, c *mcptest.Client, revision, transport string) {
	modern := revision >= mcptest.Modern
	const uri = `{"uri":"test://box/a"}`
	params := map[string]string{
		"tools/call": `{"name":"echo","arguments":{}}`, "prompts/get": `{"name":"plain"}`,
		"resources/read": uri, "resources/subscribe": uri, "resources/unsubscribe": uri,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"greet"},` +
			`"argument":{"name":"who","value":"a"}}`,
		"logging/setLevel": `{"level":"debug"}`, "tasks/get": `{"taskId":"t"}`,
		"tasks/result": `{"taskId":"t"}`, "tasks/cancel": `{"taskId":"t"}`,
		"tasks/update": `{"taskId":"t","inputResponses":{}}`,
		"sampling/createMessage": `{"messages":[{"role":"user","content":{"type":"text",` +
			`"text":"say"}}],"maxTokens":9}`,
		"elicitation/create":                       `{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`,
		"notifications/cancelled":                  `{"requestId":"unknown"}`,
		"notifications/progress":                   `{"progressToken":"unknown","progress":1}`,
		"notifications/message":                    `{"level":"error","data":"x"}`,
		"notifications/resources/updated":          uri,
		"notifications/elicitation/complete":       `{"elicitationId":"e"}`,
		"notifications/tasks/status":               `{"taskId":"t","status":"working"}`,
		"notifications/tasks":                      `{"taskId":"t","status":"working"}`,
		"notifications/subscriptions/acknowledged": `{"notifications":{}}`,
	}
	unknown := []mcp.Method{{Name: "no/such", Kind: mcp.Request},
		{Name: "acme/vendor", Kind: mcp.Request},
		{Name: "notifications/no/such", Kind: mcp.Notification},
		{Name: "acme/notice", Kind: mcp.Notification}}
	var lines []string // of the server
	for _, m := range slices.Concat(mcp.Methods(), unknown) {
		p := cmp.Or(params[m.Name], `{}`)
		if m.Kind == mcp.Request {
			lines = append(lines, fmt.Sprintf(
				`{"jsonrpc":"2.0","id":"s-%d","method":%q,"params":%s}`, len(lines), m.Name, p))
			switch m.Name {
			case "initialize", "subscriptions/listen": // initialize came with the handshake
			case "server/discover":
				if modern {
					harness.Request(t, c, m.Name, p)
				}
			default:
				harness.Request(t, c, m.Name, p)
			}
		} else {
			lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, m.Name,
				p))
			c.Notify(m.Name, p)
		}
	}
	mark := c.Mark()
	c.Send(c.Request(`"w"`, "tools/call",
		`{"name":"wait","arguments":{"tag":"w"},"_meta":{"progressToken":"w"}}`))
	if _, err := c.AwaitMethod(harness.Context(t), mark, "notifications/progress"); err != nil {
		t.Fatal(err)
	}
	raw := func(lines ...string) {
		t.Helper()
		b, _ := json.Marshal(append(lines, `{"jsonrpc":"2.0","id":$ID,"result":{"content":[]`+
			map[bool]string{true: `,"resultType":"complete"`}[modern]+`}}`))
		harness.Request(t, c, "tools/call",
			fmt.Sprintf(`{"name":"raw","arguments":{"lines":%s},"_meta":{"progressToken":"p"}}`, b))
	}
	for _, l := range lines {
		raw(l)
	}
	raw(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,` +
		`"progress":1}}`)
	if !modern && revision >= mcp.Rev20250618 {
		raw(`{"jsonrpc":"2.0","id":"back","method":"elicitation/create","params":` +
			`{"message":"take back","requestedSchema":{"type":"object","properties":{}}}}`)
		raw(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"back",` +
			`"reason":"changed my mind"}}`)
	}
	if !modern || transport == "stdio" {
		c.Notify("notifications/cancelled", `{"requestId":"w","reason":"enough"}`)
		harness.CallTool(t, c, "cancelled", `{"tag":"w"}`)
	}
}

// observe counts what all observers have seen so far.
func observe(t *testing.T, g *harness.Gatekit, c *mcptest.Client, pluginNotes,
	serverNotes string) observed {
	t.Helper()
	o := observed{peers: sent{counts{}, counts{}}, plugin: counts{}, policy: counts{},
		recorded: counts{}, inspected: counts{}, forwarded: counts{},
		own: counts{}}
	client, server := newCounter("to_server", "to_client"), newCounter("to_client", "to_server")
	for _, f := range c.Frames() {
		client.count(o.peers, f.Sent, f.Message)
	}
	for _, line := range readLines(t, serverNotes) {
		m, err := mcptest.Parse([]byte(line[2:]))
		if err != nil {
			t.Fatalf("the server's note %q: %v", line, err)
		}
		server.count(o.peers, line[0] == '<', m)
	}
	for _, line := range readLines(t, pluginNotes) {
		o.plugin[known(line)]++
	}
	for _, line := range readLines(t, filepath.Join(g.Dir, "audit.jsonl")) {
		r, err := audit.ParseRecord([]byte(line))
		if err != nil {
			continue // it is being written
		}
		o.record(&r)
	}
	return o
}

// record counts a record of the audit log.
func (o *observed) record(r *audit.Record) {
	if r.IsEvent() {
		return
	}
	k, isInspected := known(key(r.Direction, r.Kind, r.Method)), false
	for _, s := range r.Steps {
		for _, f := range s.Findings {
			if _, note, ok := strings.Cut(f.Type, ": "); ok {
				k, isInspected = known(strings.Trim(note, `"`)), true
				o.policy[k]++
			}
		}
	}
	if isInspected {
		o.inspected[k]++
	}
	isOwn := r.Action == "own"
	if isOwn && r.After == nil {
		o.own[k]++
	}
	if r.Action != "answer" && (!isOwn || r.After == nil) {
		o.recorded[k]++
	}
	if r.After != nil {
		o.forwarded[k]++
	}
}

// counter counts the messages of one peer. It finds the method of an answer by the id of its
// request.
type counter struct {
	out, in           string            // directions
	outgoing, ingoing map[string]string // methods of requests by id
}

func newCounter(out, in string) *counter {
	return &counter{out, in, map[string]string{}, map[string]string{}}
}

func (c *counter) count(to sent, wrote bool, m mcptest.Message) {
	direction, set, requests, answered := c.in, to.read, c.ingoing, c.outgoing
	if wrote {
		direction, set, requests, answered = c.out, to.wrote, c.outgoing, c.ingoing
	}
	kind, method := "notification", m.Method
	switch {
	case m.IsRequest():
		kind, requests[string(m.ID)] = "request", method
	case m.Method == "":
		kind, method = "response", answered[string(m.ID)]
		if m.Error != nil {
			kind = "error"
		}
	}
	if id := string(mcptest.At(m.Params, "requestId")); method == "notifications/cancelled" {
		delete(answered, id) // an answer that comes later is an answer to nothing
		delete(requests, id)
	}
	set[known(key(direction, kind, method))]++
}

// known returns the key without a method that the specification does not have: such a method may be
// missing in records.
func known(k string) string {
	at := strings.LastIndexByte(k, ' ') + 1
	if _, ok := mcp.LookupMethod(k[at:]); ok {
		return k
	}
	return k[:at]
}

func readLines(t *testing.T, path string) (lines []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if bytes.HasSuffix(line, []byte("\n")) {
			lines = append(lines, string(bytes.TrimSuffix(line, []byte("\n"))))
		}
	}
	return lines
}

// compare returns what differs between the sets and is no exception.
func compare(o observed, transport string) (faults []string) {
	all := counts{}
	for _, c := range []counts{o.peers.wrote, o.peers.read, o.plugin, o.policy, o.recorded,
		o.forwarded} {
		maps.Copy(all, c)
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if transport == "http" && k == "to_client response " {
			continue // the connection of a cancelled request is closed: its answer does not arrive
		}
		differs := func(what string, got, want int) {
			if got != want {
				faults = append(faults, fmt.Sprintf("%s: %s %d, want %d", k, what, got, want))
			}
		}
		differs("the policy saw", o.policy[k], o.plugin[k])
		differs("the log has of what peers wrote", o.recorded[k], o.peers.wrote[k])
		differs("the log has of what peers read", o.forwarded[k], o.peers.read[k])
		differs("the plugin saw", o.plugin[k]+o.own[k], o.peers.wrote[k])
	}
	return faults
}

// TestDenialsOfWhatGatekitAnswers denies requests that Gatekit answers itself: a ping, an unknown
// method, a method of another revision, a method that the other side sends, an unknown tool.
func TestDenialsOfWhatGatekitAnswers(t *testing.T) {
	config := harness.ScriptedServer("box") + harness.PolicyFile(t,
		`deny contains "no" if input.method in {"ping", "no/such", "sampling/createMessage", `+
			`"tasks/update"}`+"\n\n"+
			`deny contains "no" if input.params.name == "nowhere__tool"`+"\n")
	for _, revision := range harness.Revisions {
		harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
			c *mcptest.Client) {
			harness.Handshake(t, c)
			for method, params := range map[string]string{"ping": `{}`, "no/such": `{}`,
				"sampling/createMessage": `{}`, "tasks/update": `{"taskId":"t"}`,
				"tools/call": `{"name":"nowhere__tool"}`} {
				harness.WantDenied(t, c, method, params)
			}
			if revision == mcptest.Modern {
				return // its servers send no requests
			}
			// the server's ping
			m := harness.Request(t, c, "tools/call", `{"name":"box__ask","arguments":`+
				`{"method":"ping","params":{}}}`)
			if code := string(mcptest.At(m.Result, "structuredContent", "error",
				"code")); code != "-31000" {
				t.Errorf("the server's ping was answered with %s, want error -31000", m.Raw)
			}
		})
	}
}
