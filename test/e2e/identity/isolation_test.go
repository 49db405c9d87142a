package identity_test

import (
	"os/exec"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// messages returns the messages of a method that a client has received.
func messages(c user, method string) (all []string) {
	for _, f := range c.Frames() {
		if !f.Sent && f.Method == method {
			all = append(all, string(f.Raw))
		}
	}
	return all
}

// Two principals use the same server at the same time, with the same ids, progress tokens and
// resources. Each gets only what belongs to its own requests.
func TestPrincipalsGetOnlyTheirOwn(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := start(t, i, harness.HTTPServer("own", ownerServer(t, revision))+
				harness.ScriptedServer("here", "-revisions", revision))
			ann, bob := connect(t, g, i, "ann", revision), connect(t, g, i, "bob", revision)

			harness.StartWaitingCall(t, ann.Client, "own", "77", "a")
			harness.StartWaitingCall(t, bob.Client, "own", "77", "b")
			for name, c := range map[string]user{"ann": ann, "bob": bob} {
				if got := messages(c, "notifications/progress"); len(got) != 1 {
					t.Errorf("%s got the progress %q, want that of the own call", name, got)
				}
			}
			if revision != mcptest.Modern { // later clients end the request
				if err := bob.Notify("notifications/cancelled", `{"requestId":77}`); err != nil {
					t.Fatal(err)
				}
				harness.CallTool(t, bob.Client, "own__cancelled", `{"tag":"b"}`)
				harness.WantNoAnswer(t, ann.Client, "77")
			}

			const uri = "own+file:///own/r0"
			mark := ann.Mark()
			if revision == mcptest.Modern {
				ann.Send(ann.Request(`"l"`, "subscriptions/listen",
					`{"notifications":{"resourceSubscriptions":["`+uri+`"]}}`))
				if _, err := ann.AwaitMethod(harness.Context(t), mark,
					"notifications/subscriptions/acknowledged"); err != nil {
					t.Fatal(err)
				}
			} else {
				harness.Request(t, ann.Client, "resources/subscribe", `{"uri":"`+uri+`"}`)
			}
			for _, c := range []user{bob, ann} {
				harness.CallTool(t, c.Client, "own__update", `{"uri":"file:///own/r0"}`)
			}
			if _, err := ann.AwaitMethod(harness.Context(t), mark,
				"notifications/resources/updated"); err != nil {
				t.Fatal(err)
			}
			harness.CallTool(t, bob.Client, "own__echo", "{}")
			if got := messages(bob, "notifications/resources/updated"); len(got) > 0 {
				t.Errorf("bob got %q for ann's subscription", got)
			}

			if a, b := serverPID(t, ann, "here"), serverPID(t, bob, "here"); a == b {
				t.Errorf("ann and bob use the same process, %d", a)
			}
			ann.Close() // so that gatekit does not wait for the open calls
			bob.Close()
			g.Stop()
			calls := map[string]int{}
			for _, r := range g.Records() {
				if r.Name == "wait" && r.Kind == "request" {
					calls[strings.TrimPrefix(r.Principal, i.URL+"#")]++
				}
			}
			if len(calls) != 2 || calls["ann"] != 1 || calls["bob"] != 1 {
				t.Errorf("the records have the calls %v, want one of ann and one of bob", calls)
			}
		})
	}
}

// What a client got without a token, it cannot use with one, and the reverse. A session of the
// local user does not become that of a principal.
func TestAnonymousClientsAreNoPrincipals(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := harness.StartHTTP(t, `public_url = "https://gatekit.example"
[listen.auth]
anonymous = true
[[listen.auth.issuer]]
issuer = "`+i.URL+"\"\n"+harness.HTTPServer("own", ownerServer(t, revision)))
			bearer := "Bearer " + i.Token("first", i.Claims(resource, nil))
			connect := func(authorization string) user {
				h := mcptest.NewHTTP(g.URL)
				h.NoStream = true // its goroutine would read the header that this test changes
				if authorization != "" {
					h.Header.Set("Authorization", authorization)
				}
				c := mcptest.NewClient(h, revision)
				t.Cleanup(func() { c.Close() })
				harness.Handshake(t, c)
				return user{c, h}
			}
			ann, anyone := connect(bearer), connect("")

			for name, c := range map[string]user{"ann": ann, "the anonymous client": anyone} {
				own, other := c.http.Header.Get("Authorization"), bearer
				if own != "" {
					other = ""
				}
				as := func(authorization string) {
					if c.http.Header.Del("Authorization"); authorization != "" {
						c.http.Header.Set("Authorization", authorization)
					}
				}
				method, params := "tools/list", "{}"
				if revision == mcptest.Modern { // there are no sessions
					c.Capabilities = `{"elicitation":{"form":{}}}`
					const ask = `{"name":"own__ask","arguments":{"method":"elicitation/create",` +
						`"params":{"mode":"form","message":"who?","requestedSchema":` +
						`{"type":"object","properties":{}}}}`
					asked, err := c.Do(harness.Context(t), c.ID(), "tools/call", ask+"}")
					state := mcptest.Text(asked.Result, "requestState")
					if err != nil || state == "" {
						t.Fatalf("%s: got %v and %s, want a question", name, err, asked.Raw)
					}
					method, params = "tools/call", ask+`,"inputResponses":{"q":{"action":`+
						`"accept","content":{}}},"requestState":"`+state+`"}`
				}
				as(other)
				if m, err := c.Do(harness.Context(t), c.ID(), method, params); err == nil &&
					m.Error == nil {
					t.Errorf("%s: as another one, the client got %s", name, m.Result)
				}
				as(own)
				if m, err := c.Do(harness.Context(t), c.ID(), method, params); err != nil ||
					m.Error != nil {
					t.Errorf("%s: got %v and the error %s, want a result", name, err, m.Error)
				}
			}
			g.Stop()
			principals := map[string]bool{}
			for _, r := range g.Records() {
				principals[r.Principal] = true
			}
			if !principals["local:anonymous"] || !principals[i.URL+"#ann"] {
				t.Errorf("the records name %v", principals)
			}
		})
	}
}

// An approval counts for the principal whose call it is for, and not for the same call of another.
func TestApprovalsBelongToTheirPrincipal(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := start(t, i, harness.PolicyFile(t, `ask contains "each echo" if {
	input.method == "tools/call"
	input.kind == "request"
	input.params.name == "echo"
}
`))
			ann := connectAs(t, g, i, "ann", revision, "{}") // so nobody is asked for approval
			bob := connectAs(t, g, i, "bob", revision, "{}")
			call := func(c user) mcptest.Message {
				m, err := c.Tool(harness.Context(t), "box__echo", `{"text":"x"}`)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			call(ann)
			approve := func(args ...string) string {
				cmd := exec.CommandContext(harness.Context(t), peers.Gatekit(t),
					append([]string{"approve"}, args...)...)
				cmd.Dir = g.Dir
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("approve %q: %v\n%s", args, err, out)
				}
				return string(out)
			}
			var id string
			for line := range strings.Lines(approve()) { // other tests have the same store
				if strings.Contains(line, i.URL+"#ann") {
					id, _, _ = strings.Cut(line, " ")
				}
			}
			approve(id)
			if m := call(bob); !harness.IsDenied(m) {
				t.Errorf("with ann's approval, bob got %s%s", m.Result, m.Error)
			}
			if m := call(ann); m.Error != nil {
				t.Errorf("with her approval, ann got the error %s", m.Error)
			}
			g.Stop()
			asked, answered := map[string]bool{}, map[string]bool{}
			for _, r := range g.Records() {
				name := strings.TrimPrefix(r.Principal, i.URL+"#")
				asked[name] = asked[name] || r.Action == "ask"
				answered[name] = answered[name] ||
					r.String() == "to_client response tools/call box echo pass"
			}
			if !asked["ann"] || !asked["bob"] || !answered["ann"] || answered["bob"] {
				t.Errorf("approvals are asked for by %v, and calls of %v were answered; want "+
					"both, and ann alone", asked, answered)
			}
		})
	}
}
