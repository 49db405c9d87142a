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

// counts has the number of messages for each key.
type counts map[string]int

// peerCounts counts the messages that the client and the server wrote and read.
type peerCounts struct{ wrote, read counts }

// observed counts the messages of one run as each observer saw them.
type observed struct {
	peers     peerCounts
	plugin    counts // messages that the plugin inspected
	policy    counts // messages that the policies inspected
	recorded  counts // records of messages that the peers wrote
	forwarded counts // records of messages that were forwarded, or made by Gatekit
}

// scenario is a client and one or two servers, with their transports and the setting of [names]
// prefix. The servers have the same revision.
type scenario struct {
	client, server string // revisions
	front, back    string // transports of the client and of the servers: "stdio" or "http"
	prefix         string
	servers        int
}

func (s scenario) String() string {
	return fmt.Sprintf("client %s over %s, server %s over %s, prefix %s, %d servers", s.client,
		s.front, s.server, s.back, s.prefix, s.servers)
}

// isBridged reports whether the client and the server are of different eras.
func (s scenario) isBridged() bool { return mcp.EraOf(s.client) != mcp.EraOf(s.server) }

// serverNames returns the names of the servers.
func (s scenario) serverNames() []string { return []string{"box", "bag"}[:s.servers] }

// scenarios returns these scenarios, each over stdio and over HTTP:
//
//   - each revision with itself, and each legacy revision with the modern revision, in both roles
//   - the oldest and the newest legacy revision, in both roles
//   - the newest legacy revision and the modern revision: all pairs, with prefixes in the names
//
// The pairs of the last line run with two servers, too, and with different transports of the client
// and the server.
func scenarios() (all []scenario) {
	legacy := []string{mcp.Rev20241105, mcp.Rev20250326, mcp.Rev20250618, mcp.Rev20251125}
	pairs := [][2]string{{mcp.Rev20260728, mcp.Rev20260728},
		{mcp.Rev20241105, mcp.Rev20251125}, {mcp.Rev20251125, mcp.Rev20241105}}
	for _, r := range legacy {
		pairs = append(pairs, [2]string{r, r}, [2]string{r, mcp.Rev20260728},
			[2]string{mcp.Rev20260728, r})
	}
	for _, pair := range pairs {
		add := func(front, back, prefix string, servers int) {
			all = append(all, scenario{pair[0], pair[1], front, back, prefix, servers})
		}
		isNewest := min(pair[0], pair[1]) >= mcp.Rev20251125
		for _, transport := range []string{"stdio", "http"} {
			add(transport, transport, "never", 1)
			if isNewest {
				add(transport, transport, "always", 1)
				add(transport, transport, "always", 2)
			}
		}
		if isNewest {
			add("stdio", "http", "never", 1)
			add("http", "stdio", "never", 1)
		}
	}
	return all
}

// TestEveryMessageIsInspectedAndRecorded sends every method of every revision in both directions.
// It compares the messages that the peers wrote and read with the messages that a plugin and a
// policy inspected, and with the audit log. The table in docs/protocol.md lists the exceptions.
// Each exception must happen.
func TestEveryMessageIsInspectedAndRecorded(t *testing.T) {
	table := readExceptions(t)
	t.Run("pairs", func(t *testing.T) {
		for _, s := range scenarios() {
			t.Run(s.String(), func(t *testing.T) {
				if testing.Short() && (s.front != "stdio" || s.back != "stdio" ||
					s.prefix != "never" || min(s.client, s.server) < mcp.Rev20251125) {
					t.Skip("left out by -short: one of many revisions, transports and prefixes")
				}
				t.Parallel()
				check(t, s, table)
			})
		}
	})
	if !t.Failed() && !testing.Short() {
		table.reportUnused(t)
	}
}

// check runs one scenario and fails the test if a fault is not in the table of exceptions.
func check(t *testing.T, s scenario, table *exceptions) {
	dir := t.TempDir()
	pluginNotes := filepath.Join(dir, "plugin")
	serverNotes := map[string]string{} // by the server's name
	config := ""
	for _, name := range s.serverNames() {
		notes := filepath.Join(dir, name)
		serverNotes[name] = notes
		if s.back == "http" {
			h := httptest.NewServer(notedHTTP(notes, name, s.server))
			t.Cleanup(h.Close)
			config += harness.HTTPServer(name, h.URL)
		} else {
			config += harness.StdioServer(name, []string{os.Args[0], "spy-server", notes, name,
				s.server}, "GORACE", "atexit_sleep_ms=0")
		}
		config += "methods = [\"acme/*\"]\n"
	}
	config += fmt.Sprintf("[names]\nprefix = %q\n", s.prefix) +
		fmt.Sprintf("[[plugin]]\nname = \"spy\"\ncommand = [%q, \"spy-plugin\", %q]\n"+
			"sandbox = { level = \"off\" }\n", os.Args[0], pluginNotes) + // it writes its notes
		harness.PolicyFile(t, `note contains concat(" ", [input.direction, input.kind, `+
			`object.get(input, "method", "")])`+"\n")
	var g *harness.Gatekit
	var c *mcptest.Client
	if s.front == "http" {
		g = harness.StartHTTP(t, config)
		c = g.Connect(s.client)
	} else {
		g, c = harness.SpawnStdio(t, config, s.client)
	}
	c.Capabilities = `{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},` +
		`"roots":{"listChanged":true},"tasks":{"requests":{"elicitation":{"create":{}}}}}`
	answer := c.Answer["elicitation/create"]
	c.Answer["elicitation/create"] = func(m mcptest.Message) string {
		// With several servers, the message begins with the name of the server.
		if strings.HasSuffix(mcptest.Text(m.Params, "message"), "take back") {
			<-t.Context().Done() // the server takes the question back
		}
		return answer(m)
	}
	harness.Handshake(t, c)
	play(t, c, s)

	// Some notifications are delivered after play has returned, so the counts may become equal a
	// moment later.
	deadline := time.Now().Add(10 * time.Second)
	for {
		faults := compare(observe(t, s, g, c, pluginNotes, serverNotes), s)
		unexplained := table.explain(s, faults)
		if len(unexplained) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, f := range unexplained {
				t.Error(f)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// play sends every method, from the client and from the server.
func play(t *testing.T, c *mcptest.Client, s scenario) {
	isModern := s.client >= mcptest.Modern
	namePrefix, uriPrefix := "", ""
	if s.prefix == "always" {
		namePrefix, uriPrefix = "box__", "box+"
	}
	const serverURI = `{"uri":"test://box/a"}`
	uri := fmt.Sprintf(`{"uri":%q}`, uriPrefix+"test://box/a")
	params := map[string]string{
		"tools/call":     `{"name":"` + namePrefix + `echo","arguments":{}}`,
		"prompts/get":    `{"name":"` + namePrefix + `plain"}`,
		"resources/read": uri, "resources/subscribe": uri, "resources/unsubscribe": uri,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"` + namePrefix + `greet"},` +
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
		"notifications/resources/updated":          serverURI,
		"notifications/elicitation/complete":       `{"elicitationId":"e"}`,
		"notifications/tasks/status":               `{"taskId":"t","status":"working"}`,
		"notifications/tasks":                      `{"taskId":"t","status":"working"}`,
		"notifications/subscriptions/acknowledged": `{"notifications":{}}`,
	}
	unknown := []mcp.Method{{Name: "no/such", Kind: mcp.Request},
		{Name: "acme/vendor", Kind: mcp.Request},
		{Name: "notifications/no/such", Kind: mcp.Notification},
		{Name: "acme/notice", Kind: mcp.Notification}}
	var lines []string // the messages that the server sends
	for _, m := range slices.Concat(mcp.Methods(), unknown) {
		p := cmp.Or(params[m.Name], `{}`)
		if m.Kind == mcp.Request {
			lines = append(lines, fmt.Sprintf(
				`{"jsonrpc":"2.0","id":"s-%d","method":%q,"params":%s}`, len(lines), m.Name, p))
			switch m.Name {
			case "initialize": // sent in the handshake
			case "subscriptions/listen": // gets no answer while the subscription is open
			case "server/discover":
				if isModern {
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
	wait := func() {
		mark := c.Mark()
		c.Send(c.Request(`"w"`, "tools/call", `{"name":"`+namePrefix+
			`wait","arguments":{"tag":"w"},"_meta":{"progressToken":"w"}}`))
		if _, err := c.AwaitMethod(harness.Context(t), mark, "notifications/progress"); err != nil {
			t.Fatal(err)
		}
	}
	// A modern client gets a legacy server's question inside the result of a call, so the server
	// asks in a call of the tool "ask". With two calls in flight, a message of the server would not
	// show which of them it belongs to. Therefore the waiting call starts after these questions.
	asksInCalls := isModern && s.server < mcptest.Modern
	if !asksInCalls {
		wait()
	}
	raw := func(lines ...string) {
		t.Helper()
		b, _ := json.Marshal(append(lines, `{"jsonrpc":"2.0","id":$ID,"result":{"content":[]`+
			map[bool]string{true: `,"resultType":"complete"`}[s.server >= mcptest.Modern]+`}}`))
		harness.Request(t, c, "tools/call",
			fmt.Sprintf(`{"name":"`+namePrefix+`raw","arguments":{"lines":%s},"_meta":{"progressToken":"p"}}`, b))
	}
	for _, l := range lines {
		if m, err := mcptest.Parse([]byte(l)); err == nil && m.IsRequest() && asksInCalls {
			harness.Request(t, c, "tools/call", fmt.Sprintf(
				`{"name":"%sask","arguments":{"method":%q,"params":%s}}`, namePrefix, m.Method,
				m.Params))
			continue
		}
		raw(l)
	}
	if asksInCalls {
		wait()
	}
	if s.server >= mcptest.Modern { // the server asks inside a result
		for _, method := range []string{"sampling/createMessage", "elicitation/create",
			"roots/list"} {
			harness.Request(t, c, "tools/call", fmt.Sprintf(
				`{"name":"%sask","arguments":{"method":%q,"params":%s}}`, namePrefix, method,
				cmp.Or(params[method], `{}`)))
		}
	}
	raw(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,` +
		`"progress":1}}`)
	if !isModern && !s.isBridged() && s.client >= mcp.Rev20250618 {
		mark := c.Mark()
		raw(`{"jsonrpc":"2.0","id":"back","method":"elicitation/create","params":` +
			`{"message":"take back","requestedSchema":{"type":"object","properties":{}}}}`)
		// If the server cancelled the question earlier, its inspection could be interrupted.
		if _, err := c.AwaitMethod(harness.Context(t), mark, "elicitation/create"); err != nil {
			t.Fatal(err)
		}
		raw(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"back",` +
			`"reason":"changed my mind"}}`)
	}
	if s.servers > 1 {
		harness.CallTool(t, c, "bag__echo", `{}`)
		harness.Request(t, c, "resources/read", `{"uri":"bag+test://bag/a"}`)
		harness.CallTool(t, c, "bag__ask", fmt.Sprintf(
			`{"method":"sampling/createMessage","params":%s}`, params["sampling/createMessage"]))
	}
	if !isModern || s.front == "stdio" {
		c.Notify("notifications/cancelled", `{"requestId":"w","reason":"enough"}`)
		harness.CallTool(t, c, namePrefix+"cancelled", `{"tag":"w"}`)
	}
}

// observe counts what all observers have seen so far.
func observe(t *testing.T, s scenario, g *harness.Gatekit, c *mcptest.Client, pluginNotes string,
	serverNotes map[string]string) observed {
	t.Helper()
	o := observed{peers: peerCounts{counts{}, counts{}}, plugin: counts{}, policy: counts{},
		recorded: counts{}, forwarded: counts{}}
	client := newCounter("to_server", "to_client")
	for _, f := range c.Frames() {
		client.count(o.peers, f.Sent, f.Message)
	}
	for _, path := range serverNotes {
		server := newCounter("to_client", "to_server")
		// Gatekit closes the connection of the cancelled call, so the answer is lost.
		server.losesWait = s.back == "http" && s.server >= mcptest.Modern
		for _, line := range readLines(t, path) {
			m, err := mcptest.Parse([]byte(line[2:]))
			if err != nil {
				t.Fatalf("the server's note %q: %v", line, err)
			}
			server.count(o.peers, line[0] == '<', m)
		}
	}
	for _, line := range readLines(t, pluginNotes) {
		o.plugin[normalizeKey(line)]++
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
	k := normalizeKey(key(r.Direction, r.Kind, r.Method))
	// The policy's note of a message is the type of a finding: mine: "to_server request ping".
	for _, s := range r.Steps {
		for _, f := range s.Findings {
			if _, note, ok := strings.Cut(f.Type, ": "); ok {
				k = normalizeKey(strings.Trim(note, `"`))
				o.policy[k]++
			}
		}
	}
	isOwn := r.Action == "own" && r.Direction == "to_server" // made by Gatekit
	if r.Action != "answer" && r.Action != "park" && !isOwn {
		o.recorded[k]++
	}
	if r.After != nil || isOwn {
		o.forwarded[k]++
	}
}

// counter counts the messages of one peer. It finds the method of an answer by the id of its
// request.
type counter struct {
	out, in           string            // directions
	outgoing, ingoing map[string]string // methods of requests by id
	losesWait         bool              // answers of the tool "wait" count as answers to no request
}

func newCounter(out, in string) *counter {
	return &counter{out: out, in: in, outgoing: map[string]string{}, ingoing: map[string]string{}}
}

func (c *counter) count(to peerCounts, wrote bool, m mcptest.Message) {
	direction, set, requests, answered := c.in, to.read, c.ingoing, c.outgoing
	if wrote {
		direction, set, requests, answered = c.out, to.wrote, c.outgoing, c.ingoing
	}
	kind, method := "notification", m.Method
	switch {
	case m.IsRequest():
		kind = "request"
		if !c.losesWait || mcptest.Text(m.Params, "name") != mcptest.Wait {
			requests[string(m.ID)] = method
		}
	case m.Method == "":
		kind, method = "response", answered[string(m.ID)]
		if m.Error != nil {
			kind = "error"
		}
	}
	if id := string(mcptest.At(m.Params, "requestId")); method == "notifications/cancelled" {
		delete(answered, id) // a later answer belongs to no request
		delete(requests, id)
	}
	set[normalizeKey(key(direction, kind, method))]++
}

// normalizeKey returns the key k, without its method if the specification does not define the
// method. A record may lack such a method.
func normalizeKey(k string) string {
	at := strings.LastIndexByte(k, ' ') + 1
	if _, ok := mcp.LookupMethod(k[at:]); ok {
		return k
	}
	return k[:at]
}

// readLines returns the complete lines of a file; none if the file does not exist.
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

// fault is a pair of counts of the messages with one key. The counts differ, but should be equal.
type fault struct {
	key       string // of the messages
	kind      string // "policy", "recorded", "forwarded" or "inspected"; see String
	got, want int
}

func (f fault) String() string {
	return fmt.Sprintf("%s: %s: %d, want %d", f.key, map[string]string{
		"policy":    "messages that the policy inspected, against the plugin",
		"inspected": "messages that the plugin inspected, against those that peers wrote",
		"recorded":  "records of messages that peers wrote, against those that peers wrote",
		"forwarded": "records of forwarded messages, against those that peers read",
	}[f.kind], f.got, f.want)
}

// compare returns a fault for each two counts that should be equal and are not.
func compare(o observed, s scenario) (faults []fault) {
	all := counts{}
	for _, c := range []counts{o.peers.wrote, o.peers.read, o.plugin, o.policy, o.recorded,
		o.forwarded} {
		maps.Copy(all, c)
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if (s.front == "http" || s.back == "http") && k == "to_client response " {
			continue // a cancelled request's connection is closed, so its answer is lost
		}
		differs := func(kind string, got, want int) {
			if got != want {
				faults = append(faults, fault{k, kind, got, want})
			}
		}
		differs("policy", o.policy[k], o.plugin[k])
		differs("recorded", o.recorded[k], o.peers.wrote[k])
		differs("forwarded", o.forwarded[k], o.peers.read[k])
		differs("inspected", o.plugin[k], o.peers.wrote[k])
	}
	return faults
}

// TestRefusedMessagesOfServersAreRecorded makes a server send messages that the client does not
// get, and checks that each of them is recorded.
func TestRefusedMessagesOfServersAreRecorded(t *testing.T) {
	const done = `{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"resultType":"complete"}}`
	progress := func(n string) string {
		return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` +
			`$TOKEN,"progress":` + n + `}}`
	}
	result := func(members string) string {
		return `{"jsonrpc":"2.0","id":$ID,"result":{"content":[],` + members + `}}`
	}
	for _, test := range []struct {
		name, client, server string
		lines                []string
		want                 string // record of the message
	}{
		{"a result of an unknown type, legacy client", "2025-11-25", mcptest.Modern,
			[]string{result(`"resultType":"odd"`)}, "to_client response tools/call box raw drop"},
		{"a result of an unknown type, modern client", mcptest.Modern, mcptest.Modern,
			[]string{result(`"resultType":"odd"`)}, "to_client response tools/call box raw drop"},
		{"a type that is a number", mcptest.Modern, mcptest.Modern,
			[]string{result(`"resultType":5`)}, "to_client response tools/call box raw drop"},
		{"input requests in a complete result", mcptest.Modern, mcptest.Modern,
			[]string{result(`"resultType":"complete","inputRequests":{}`)},
			"to_client response tools/call box raw drop"},
		{"invalid input requests, modern client", mcptest.Modern, mcptest.Modern,
			[]string{result(`"resultType":"input_required","inputRequests":5`)},
			"to_client response tools/call box raw drop"},
		{"invalid input requests, legacy client", "2025-11-25", mcptest.Modern,
			[]string{result(`"resultType":"input_required","inputRequests":5`)},
			"to_client response tools/call box raw pass"},
		{"progress that does not rise", "2025-11-25", mcptest.Modern,
			[]string{progress("2"), progress("1"), done},
			"to_client notification notifications/progress box - drop"},
		{"a log message that the client did not ask for", mcptest.Modern, "2025-11-25",
			[]string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert",` +
				`"data":1}}`, done}, "to_client notification notifications/message box - drop"},
		{"a list change without a subscription", mcptest.Modern, "2025-11-25",
			[]string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, done},
			"to_client notification notifications/tools/list_changed box - drop"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g, c := harness.SpawnStdio(t, harness.ScriptedServer("box", "-revisions", test.server),
				test.client)
			harness.Handshake(t, c)
			harness.SendRaw(t, c, test.lines...)
			g.WantRecords(test.want)
		})
	}
}

// TestRequestsThatGatekitAnswersCanBeDenied denies requests that Gatekit answers itself: a ping, an
// unknown method, a method of another revision, a method that the other side sends, an unknown
// tool.
func TestRequestsThatGatekitAnswersCanBeDenied(t *testing.T) {
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
				return // modern servers send no requests
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
