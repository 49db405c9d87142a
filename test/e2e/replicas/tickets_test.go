package replicas

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// asking is a client of one principal at each replica, which puts no answers into its calls.
type asking struct {
	fleet   *fleet
	name    string
	clients []*mcptest.Client
}

func (f *fleet) asking(t *testing.T, name string) *asking {
	a := &asking{fleet: f, name: name}
	for _, url := range f.urls() {
		c, _ := f.connect(url, name, mcptest.Modern)
		t.Cleanup(func() { c.Close() })
		a.clients = append(a.clients, c)
	}
	return a
}

// begin makes a call of which the server asks something, and returns the params with the answer.
func (a *asking) begin(t *testing.T, replica int, server, id string) (params string) {
	t.Helper()
	call := fmt.Sprintf(`"name":"%s__work","arguments":{"id":%q,"ask":"roots"}`, server, id)
	c := a.clients[replica]
	m, err := c.Do(harness.Context(t), c.ID(), "tools/call", "{"+call+"}")
	ticket := mcptest.At(m.Result, "requestState")
	if err != nil || ticket == nil {
		t.Fatalf("the call %s got %s, %v, want a question", id, m.Raw, err)
	}
	var key string
	for key = range members(mcptest.At(m.Result, "inputRequests")) {
	}
	return fmt.Sprintf(`{%s,"requestState":%s,"inputResponses":{%s:{"roots":[]}}}`, call, ticket,
		mcptest.Quote(key))
}

// answer sends params at a replica, and returns the error; "" if it got the result of the call.
func (a *asking) answer(t *testing.T, replica int, params, id string) string {
	t.Helper()
	c := a.clients[replica]
	m, err := c.Do(harness.Context(t), c.ID(), "tools/call", params)
	if err != nil {
		t.Fatal(err)
	}
	if mcptest.Text(m.Result, "content", 0, "text") == "ran "+id {
		return ""
	}
	return string(m.Raw)
}

// TestTicketsAreUsedOnce sends the answer to each question to all replicas at the same time. The
// question is that of a call which is parked at one replica, or that of a modern server, which any
// replica can take the answer to. One answer is taken, and the call is run once.
func TestTicketsAreUsedOnce(t *testing.T) {
	harness.Long(t, "starts three replicas")
	races, workers := 150, 8
	if isLong() {
		races = 10_000
	}
	f := startFleet(t, "")
	var refused atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		a := f.asking(t, fmt.Sprint("racer-", w))
		all.Go(func() {
			for n := w; n < races; n += workers {
				server := []string{modernServer, legacyServer}[n/workers%2]
				id := fmt.Sprintf("race-%d", n)
				params := a.begin(t, n%replicaCount, server, id)
				var taken atomic.Int64
				var race sync.WaitGroup
				for replica := range replicaCount {
					race.Go(func() {
						switch fault := a.answer(t, replica, params, id); {
						case fault == "":
							taken.Add(1)
						case strings.Contains(fault, "-32602"):
							refused.Add(1)
						default:
							t.Errorf("%s at replica %d: %s", id, replica, fault)
						}
					})
				}
				race.Wait()
				if taken.Load() != 1 || f.ledger.count(id) != 1 {
					t.Errorf("%s of the server %q: %d answers were taken, and the call was run "+
						"%d times, want once", id, server, taken.Load(), f.ledger.count(id))
				}
			}
		})
	}
	all.Wait()
	f.verify()
	if runs := f.ledger.check(t); runs != races || refused.Load() != int64(2*races) {
		t.Errorf("%d calls were run and %d answers refused, want %d and %d", runs, refused.Load(),
			races, 2*races)
	}
}

// TestForeignIDsAreRefused uses the session and the tickets of one principal as another one, at
// each replica.
func TestForeignIDsAreRefused(t *testing.T) {
	harness.Long(t, "starts three replicas")
	f := startFleet(t, "")
	owner, h := f.connect(f.replicas[0].URL, "owner", "2025-11-25")
	defer owner.Close()
	harness.Handshake(t, owner)
	a, thief := f.asking(t, "owner"), f.asking(t, "thief")
	for replica, url := range f.urls() {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"old__work",` +
			`"arguments":{"id":"stolen"}}}`
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Mcp-Session-Id", h.Session())
		r.Header.Set("Authorization", "Bearer "+f.token("thief"))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNotFound {
			t.Errorf("replica %d: a foreign session got %s, want status 404", replica,
				answer.Status)
		}
		for _, server := range []string{modernServer, legacyServer} {
			id := fmt.Sprintf("%s-%d", server, replica)
			params := a.begin(t, 0, server, id)
			if fault := thief.answer(t, replica, params, id); !strings.Contains(fault, "-32602") {
				t.Errorf("replica %d: a foreign ticket of %s got %q, want an error", replica,
					server, fault)
			}
			if n := f.ledger.count(id); n != 0 {
				t.Errorf("replica %d: with a foreign ticket, a call of %s was run", replica, server)
			}
			if fault := a.answer(t, (replica+1)%replicaCount, params, id); fault != "" {
				t.Errorf("the principal of the ticket got %s", fault)
			}
		}
	}
	harness.CallTool(t, owner, "old__work", `{"id":"own"}`)
	if n := f.ledger.count("stolen"); n != 0 {
		t.Errorf("a call in a foreign session was run %d times", n)
	}
	f.verify()
	f.ledger.check(t)
	refusals := 0
	for _, g := range f.replicas {
		for _, r := range g.Records() {
			if strings.HasSuffix(r.Principal, "#thief") && r.Action == "answer" {
				refusals++
			}
		}
	}
	if want := 3 * replicaCount; refusals != want {
		t.Errorf("the logs have %d refusals of the thief, want %d", refusals, want)
	}
}

// members returns the members of a JSON object.
func members(object json.RawMessage) (all map[string]json.RawMessage) {
	_ = json.Unmarshal(object, &all)
	return all
}

// TestTicketOfADeadReplica kills the replica that has parked a call. The client learns that its
// ticket is not valid any more, and makes the call again.
func TestTicketOfADeadReplica(t *testing.T) {
	harness.Long(t, "starts three replicas")
	f := startFleet(t, "")
	a := f.asking(t, "owner")
	params := a.begin(t, 0, legacyServer, "parked")
	f.replicas[0].Killed = true
	f.replicas[0].Cmd.Process.Kill()
	<-f.replicas[0].Exited
	for _, replica := range []int{1, 2} {
		const want = `"error":{"code":-32602,"message":"invalid or expired requestState`
		if fault := a.answer(t, replica, params, "parked"); !strings.Contains(fault, want) {
			t.Errorf("replica %d answers %q, want %s", replica, fault, want)
		}
		f.replicas[replica].WantRecords("to_client error tools/call - - answer")
	}
	if n := f.ledger.count("parked"); n != 0 {
		t.Errorf("the call was run %d times, want not at all", n)
	}
	again := a.begin(t, 1, legacyServer, "parked")
	if fault := a.answer(t, 2, again, "parked"); fault != "" {
		t.Errorf("the call that was made again got %s", fault)
	}
	f.replicas[0].KillChildren()
	f.replicas[0] = f.replicas[0].StartAgain()
	f.verify()
	f.ledger.check(t)
}
