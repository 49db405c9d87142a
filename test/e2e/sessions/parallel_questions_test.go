package sessions

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// eraPairs holds the revisions of a client and its server, for every pair of eras.
var eraPairs = []struct{ client, server string }{
	{mcptest.Modern, mcptest.Modern},
	{mcptest.Modern, "2025-11-25"},
	{"2025-11-25", mcptest.Modern},
	{"2025-11-25", "2025-11-25"},
}

// getStream is the transport of a legacy server over Streamable HTTP that sends its questions on
// the session's GET stream. Such a question does not show the call that it belongs to.
const getStream = "http, questions on the GET stream"

// TestParallelQuestionsReachTheirOwnClient makes clients call a tool that asks the client, each
// eight times at once. All questions to a client are open at the same time. Each question must
// reach the client that made the call, and the tool must get this client's answer.
func TestParallelQuestionsReachTheirOwnClient(t *testing.T) {
	harness.Long(t, "starts servers for each pair of eras")
	for _, pair := range eraPairs {
		for _, back := range []string{"stdio", "http", getStream} {
			if back == getStream && pair.server == mcptest.Modern {
				continue // a modern server asks in the result of a call
			}
			t.Run(fmt.Sprintf("%s before %s %s", pair.client, pair.server, back),
				func(t *testing.T) {
					// Each subtest has a server of its own, which has never asked a client.
					config := func(t *testing.T) string {
						if back != getStream {
							return harness.ScriptedServerOver(t, "box", pair.server, back)
						}
						box := mcptest.Toolbox("box", pair.server)
						box.AsksOnStream = true
						s := httptest.NewServer(box)
						t.Cleanup(s.Close)
						return harness.HTTPServer("box", s.URL)
					}
					t.Run("over stdio", func(t *testing.T) {
						g, c := harness.SpawnStdio(t, config(t), pair.client)
						callInParallel(t, g, c)
					})
					t.Run("over http", func(t *testing.T) {
						g := harness.StartHTTP(t, config(t))
						callInParallel(t, g, g.Connect(pair.client), g.Connect(pair.client))
					})
					if pair.client == mcptest.Modern {
						return
					}
					t.Run("over http without a GET stream", func(t *testing.T) {
						g := harness.StartHTTP(t, config(t))
						callInParallel(t, g, connectWithoutStream(g, pair.client),
							connectWithoutStream(g, pair.client))
					})
				})
		}
	}
}

// TestParallelCallsShareASessionOfAServerWithoutAGETStream checks that modern clients use one
// session of a legacy server that can ask only on the stream of a call. A question on such a stream
// shows its call.
func TestParallelCallsShareASessionOfAServerWithoutAGETStream(t *testing.T) {
	box := mcptest.Toolbox("box", "2025-11-25")
	refused := make(chan struct{}, 64) // has an element for each GET
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			box.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		refused <- struct{}{}
	}))
	t.Cleanup(s.Close)
	g := harness.StartHTTP(t, harness.HTTPServer("box", s.URL))
	g.Client(mcptest.Modern) // opens the session
	select {
	case <-refused:
	case <-harness.Context(t).Done():
		t.Fatal("got no GET, want one for the session's stream")
	}
	callInParallel(t, g, g.Connect(mcptest.Modern), g.Connect(mcptest.Modern))
	if n := box.OpenSessions(); n != 1 {
		t.Errorf("got %d sessions at the server, want 1", n)
	}
}

// connectWithoutStream connects a legacy client that opens no GET stream.
func connectWithoutStream(g *harness.Gatekit, revision string) *mcptest.Client {
	over := mcptest.NewHTTP(g.URL)
	over.NoStream = true
	c := mcptest.NewClient(over, revision)
	g.T.Cleanup(func() { c.Close() })
	return c
}

// questionKinds has each kind of question that a server asks a client.
var questionKinds = []struct {
	method string
	params func(tag string) string               // of a question with the tag
	tag    func(question mcptest.Message) string // the tag of a question
	answer func(client int, tag string) string   // the client's answer to a question with the tag
}{
	{"elicitation/create",
		func(tag string) string {
			return fmt.Sprintf(
				`{"message":%q,"requestedSchema":{"type":"object","properties":{}}}`, tag)
		},
		func(q mcptest.Message) string { return mcptest.Text(q.Params, "message") },
		func(client int, tag string) string {
			return fmt.Sprintf(`{"action":"accept","content":{"client":%d,"asked":%q}}`, client,
				tag)
		}},
	{"sampling/createMessage",
		func(tag string) string {
			return fmt.Sprintf(`{"messages":[],"systemPrompt":%q,"maxTokens":9}`, tag)
		},
		func(q mcptest.Message) string { return mcptest.Text(q.Params, "systemPrompt") },
		func(client int, tag string) string {
			return fmt.Sprintf(`{"role":"assistant","content":{"type":"text","text":"client %d: %s"},"model":"m"}`, client, tag)
		}},
	{"roots/list", // a question for the roots is the same in every call
		func(string) string { return `{}` },
		func(mcptest.Message) string { return "" },
		func(client int, _ string) string {
			return fmt.Sprintf(`{"roots":[{"uri":"file:///client-%d"}]}`, client)
		}},
}

// callInParallel makes each client call a tool that asks the client, in rounds of concurrent calls:
// a round for each kind of question, then a round with all kinds. A client answers the questions of
// a round when it has received all of them.
func callInParallel(t *testing.T, g *harness.Gatekit, clients ...*mcptest.Client) {
	const parallel = 8
	rounds := len(questionKinds) + 1
	kindOf := func(round, call int) int {
		if round < len(questionKinds) {
			return round
		}
		return call % len(questionKinds)
	}
	var all sync.WaitGroup
	for n, c := range clients {
		asked := make(chan struct{}, parallel*rounds)
		answer := make(chan struct{}) // closed when the client has all questions of a round
		failed := make(chan struct{}) // closed when a question is missing
		var mu sync.Mutex
		for _, kind := range questionKinds {
			c.Answer[kind.method] = func(m mcptest.Message) string {
				mu.Lock()
				wait := answer
				mu.Unlock()
				asked <- struct{}{}
				select {
				case <-wait:
				case <-failed:
				}
				return kind.answer(n, kind.tag(m))
			}
		}
		harness.Handshake(t, c)
		all.Go(func() {
			for round := range rounds {
				var calls sync.WaitGroup
				for i := range parallel {
					calls.Go(func() {
						kind := questionKinds[kindOf(round, i)]
						tag := fmt.Sprintf("client %d, round %d, call %d", n, round, i)
						m, err := c.Tool(harness.Context(t), "box__ask", fmt.Sprintf(
							`{"method":%q,"params":%s}`, kind.method, kind.params(tag)))
						want := kind.answer(n, tag)
						got := string(mcptest.At(m.Result, "structuredContent", "result"))
						if err != nil || got != want {
							t.Errorf("%s, %s: got %s, %v; want %s", tag, kind.method,
								harness.Clip(m.Raw), err, want)
						}
					})
				}
				for range parallel {
					select {
					case <-asked:
					case <-time.After(harness.Patience / 8):
						t.Errorf("client %d, round %d: got fewer than %d questions", n, round,
							parallel)
						close(failed)
						return
					}
				}
				mu.Lock()
				close(answer)
				answer = make(chan struct{})
				mu.Unlock()
				calls.Wait()
			}
		})
	}
	all.Wait()
	want := map[string]int{}
	for round := range rounds {
		for call := range parallel {
			method := questionKinds[kindOf(round, call)].method
			want["to_client request "+method+" box - pass"] += len(clients)
			want["to_server response "+method+" box - pass"] += len(clients)
		}
	}
	got := map[string]int{}
	for _, r := range g.Records() {
		for _, kind := range questionKinds {
			if r.Method == kind.method {
				got[r.String()]++
			}
		}
	}
	for record, n := range want {
		if got[record] != n {
			t.Errorf("got %d records %s, want %d", got[record], record, n)
		}
		delete(got, record)
	}
	if len(got) > 0 {
		t.Errorf("got the records %v, want none besides each question and its answer", got)
	}
}
