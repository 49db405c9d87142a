package shared

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
)

// taskBox serves a server with tasks over HTTP, to all replicas. Each call of the tool echo creates
// a task. It keeps the ids of the tasks that were cancelled.
type taskBox struct {
	url     string
	created atomic.Int64

	mu        sync.Mutex
	cancelled []string
}

func startTaskBox(t *testing.T, revision string) *taskBox {
	box := &taskBox{}
	s := mcptest.Toolbox("box", revision)
	s.Capabilities = `{"tools":{},"prompts":{},"tasks":{"list":{},"cancel":{},"requests":` +
		`{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	task := func(id string) string {
		return fmt.Sprintf(`"taskId":%q,"status":"working","createdAt":"2026-01-01T00:00:00Z",`+
			`"lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null,"ttlMs":null`, id)
	}
	s.Handle["tools/call"] = func(c *mcptest.Call) {
		id := fmt.Sprint("t", box.created.Add(1))
		if revision == mcptest.Modern {
			c.Result(`{"resultType":"task",` + task(id) + `}`)
		} else {
			c.Result(`{"task":{` + task(id) + `}}`)
		}
	}
	s.Handle["tasks/get"] = func(c *mcptest.Call) {
		c.Result(`{` + task(mcptest.Text(c.Params, "taskId")) + `}`)
	}
	s.Handle["tasks/cancel"] = func(c *mcptest.Call) {
		id := mcptest.Text(c.Params, "taskId")
		box.mu.Lock()
		box.cancelled = append(box.cancelled, id)
		box.mu.Unlock()
		c.Result(`{` + strings.Replace(task(id), "working", "cancelled", 1) + `}`)
	}
	s.Handle["tasks/list"] = func(c *mcptest.Call) {
		var all []string
		for i := range box.created.Load() {
			all = append(all, `{`+task(fmt.Sprint("t", i+1))+`}`)
		}
		c.Result(`{"tasks":[` + strings.Join(all, ",") + `]}`)
	}
	box.url = harness.ServeWithoutCredentials(t, s)
	return box
}

// taskReplicas starts replicas in front of a server with tasks, for users of an issuer.
func taskReplicas(t *testing.T, n int, box *taskBox, i *issuertest.Issuer, address,
	rest string) (all []*harness.Gatekit) {
	t.Helper()
	// public_url and state_key belong to [listen], which harness.StartHTTP begins
	config := "public_url = \"https://gatekit.example\"\n" + sharedTable(address,
		`timeout = "5s"`) + fmt.Sprintf("[listen.auth]\nscopes = [\"mcp\"]\n"+
		"[[listen.auth.issuer]]\nissuer = %q\n", i.URL) + rest + harness.HTTPServer("own", box.url)
	for range n {
		all = append(all, harness.StartHTTP(t, config))
	}
	return all
}

// user is a client of a replica with a token.
type user struct {
	*mcptest.Client
	t        *testing.T
	revision string
}

func connectUser(t *testing.T, g *harness.Gatekit, i *issuertest.Issuer, subject,
	revision string) user {
	t.Helper()
	h := mcptest.NewHTTP(g.URL)
	h.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims("https://gatekit.example/mcp",
		map[string]any{"sub": subject})))
	c := mcptest.NewClient(h, revision)
	c.Capabilities = `{"tasks":{"requests":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	t.Cleanup(func() { c.Close() })
	harness.Handshake(t, c)
	return user{c, t, revision}
}

func (u user) do(method, params string) mcptest.Message {
	u.t.Helper()
	m, err := u.Do(harness.Context(u.t), u.ID(), method, params)
	if err != nil {
		u.t.Errorf("%s: %v", method, err) // not Fatal: other goroutines call do, too
	}
	return m
}

// createTask calls a tool, which creates a task. It returns the answer and the id of the task.
func (u user) createTask() (answer mcptest.Message, id string) {
	u.t.Helper()
	params := `{"name":"own__echo","arguments":{}}`
	if u.revision != mcptest.Modern {
		params = `{"name":"own__echo","arguments":{},"task":{}}`
	}
	answer = u.do("tools/call", params)
	return answer, mcptest.Text(answer.Result, "taskId") +
		mcptest.Text(answer.Result, "task", "taskId")
}

func (u user) getTask(id string) mcptest.Message {
	u.t.Helper()
	return u.do("tasks/get", fmt.Sprintf(`{"taskId":%q}`, id))
}

func wantUnknown(t *testing.T, what, id string, m mcptest.Message) {
	t.Helper()
	if got := mcptest.Text(m.Error, "message"); got != fmt.Sprintf("Unknown task: %q", id) {
		t.Errorf("%s: got %s, want Unknown task", what, m.Raw)
	}
}

// A task belongs to the principal that created it, on every replica. Nobody else can use it, not
// even while it is being created, and nobody can use a task that no replica has seen.
func TestTasksBelongToTheirPrincipalOnEveryReplica(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			server, box, i := redistest.Start(t), startTaskBox(t, revision), issuertest.Start(t)
			all := taskReplicas(t, 2, box, i, server.Addr, "")
			ann, annThere := connectUser(t, all[0], i, "ann", revision),
				connectUser(t, all[1], i, "ann", revision)
			bob := connectUser(t, all[1], i, "bob", revision)

			var race sync.WaitGroup
			race.Go(func() { // guesses the ids while they are created
				for n := 1; n <= 20; n++ {
					id := fmt.Sprint("own+t", n)
					wantUnknown(t, "bob, while ann creates tasks", id, bob.getTask(id))
				}
			})
			var ids []string
			for range 20 {
				answer, id := ann.createTask()
				if id == "" {
					t.Fatalf("ann got %s, want a task", answer.Raw)
				}
				ids = append(ids, id)
				if m := annThere.getTask(id); m.Error != nil {
					t.Errorf("ann at the other replica: %s, want the task", m.Raw)
				}
			}
			race.Wait()
			for _, id := range ids {
				wantUnknown(t, "bob", id, bob.getTask(id))
			}
			wantUnknown(t, "ann, a task of nobody", "own+t99", annThere.getTask("own+t99"))
			wantUnknown(t, "bob, tasks/cancel", ids[0], bob.do("tasks/cancel",
				fmt.Sprintf(`{"taskId":%q}`, ids[0])))
			if m := annThere.do("tasks/cancel", fmt.Sprintf(`{"taskId":%q}`,
				ids[0])); m.Error != nil {
				t.Errorf("ann at the other replica: tasks/cancel got %s", m.Raw)
			}
			if revision != mcptest.Modern {
				if m := bob.do("tasks/list", `{}`); strings.Contains(string(m.Raw), "taskId") {
					t.Errorf("bob lists %s, want no task", m.Raw)
				}
				if m := annThere.do("tasks/list", `{}`); strings.Count(string(m.Raw),
					`"taskId"`) != 20 {
					t.Errorf("ann lists %s, want 20 tasks", m.Raw)
				}
			}
			if keys := server.Do(t, "KEYS", "*"); strings.Contains(keys, "own") ||
				strings.Contains(keys, "ann") {
				t.Errorf("the keys tell what they are for: %s", keys)
			}
			all[1].WantRecords("to_server request tasks/get own t1 deny",
				"to_server request tasks/cancel own t1 deny",
				"to_server request tasks/get own t1 pass")
			all[1].WantReasons("no replica has seen the principal create the task")
			for _, r := range all[1].Records() {
				if r.Method == "tasks/get" && r.Server == "own" && (r.Action == "deny") !=
					(r.Principal == i.URL+"#bob" || r.Name == "t99") {
					t.Errorf("tasks/get of %s by %s has the action %s", r.Name, r.Principal,
						r.Action)
				}
			}
		})
	}
}

// Without the server, a replica denies the tasks that it does not know, and a new task is denied
// and cancelled.
func TestTasksWithoutTheServer(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			server, box, i := redistest.Start(t), startTaskBox(t, revision), issuertest.Start(t)
			all := taskReplicas(t, 2, box, i, server.Addr, "")
			ann, annThere := connectUser(t, all[0], i, "ann", revision),
				connectUser(t, all[1], i, "ann", revision)
			_, id := ann.createTask()
			away := kill(t, server)
			for _, check := range []func(){
				func() {
					if m := annThere.getTask(id); !harness.IsDenied(m) {
						t.Errorf("a task that this replica does not know: %s, want a denial", m.Raw)
					}
				},
				func() {
					if m := ann.getTask(id); m.Error != nil {
						t.Errorf("a task that this replica knows: %s, want the task", m.Raw)
					}
				},
				func() {
					if m := ann.do("prompts/get", `{"name":"own__plain"}`); m.Error != nil {
						t.Errorf("a request without a task: %s, want a result", m.Raw)
					}
				},
				func() {
					if m, id := annThere.createTask(); !harness.IsDenied(m) || id != "" {
						t.Errorf("a new task: %s, want a denial", m.Raw)
					}
				},
			} {
				if !away.isShort() {
					t.Log("the machine is too busy to check what tasks do without the server")
					return
				}
				check()
			}
			eventually(t, "the new task is cancelled", func() bool {
				box.mu.Lock()
				defer box.mu.Unlock()
				return strings.Join(box.cancelled, " ") == "t2"
			})
			eventually(t, "the cancellation is recorded", func() bool {
				for _, r := range all[1].Records() {
					if r.Method == "tasks/cancel" && r.Kind == "response" && r.Action == "own" {
						return true
					}
				}
				return false
			})
			all[1].WantRecords("to_server request tasks/get own t1 deny",
				"to_client response tools/call own echo deny",
				"to_server request tasks/cancel own t2 own")
			all[1].WantReasons("shared state is not available",
				"shared state is not available: Gatekit cancels the new task")
		})
	}
}
