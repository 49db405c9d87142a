package shared

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
)

// changingServer is a server for several replicas that declares what it is told.
type changingServer struct {
	config string
	tools  atomic.Value // the function that returns the tools as JSON
}

func newChangingServer(t *testing.T, name string) *changingServer {
	t.Helper()
	c := &changingServer{}
	c.declare("reads")
	s := mcptest.Toolbox(name, "2025-11-25")
	s.Handle["tools/list"] = func(call *mcptest.Call) {
		call.Result(fmt.Sprintf(`{"tools":[%s]}`, c.tools.Load().(func() string)()))
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	c.config = harness.HTTPServer(name, web.URL)
	return c
}

func tool(name, description string) string {
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name,
		description)
}

// declare makes the server declare the tool echo with a description, and more tools.
func (c *changingServer) declare(description string, more ...string) {
	list := strings.Join(append([]string{tool("echo", description)}, more...), ",")
	c.tools.Store(func() string { return list })
}

// startPinned is startReplica for a configuration without a server.
func startPinned(t *testing.T, dir, state, config string) *replica {
	t.Helper()
	table, address := admin(t)
	g := harness.StartHTTPIn(t, dir, config+table, "XDG_STATE_HOME="+state)
	return &replica{g, g.Connect(mcptest.Modern), address, state}
}

func startAllPinned(t *testing.T, n int, config string) (all []*replica) {
	t.Helper()
	for range n {
		all = append(all, startPinned(t, t.TempDir(), t.TempDir(), config))
	}
	return all
}

// listed returns the tools that the replica lists: their names and descriptions.
func (r *replica) listed() (all []string) {
	r.T.Helper()
	for _, raw := range harness.ListAll(r.T, r.client, "tools/list", "tools") {
		var item struct{ Name, Description string }
		if err := json.Unmarshal(raw, &item); err != nil {
			r.T.Fatal(err)
		}
		all = append(all, item.Name+" "+item.Description)
	}
	return all
}

// toolsOf returns the tools of an answer to tools/list: their names and descriptions.
func toolsOf(t *testing.T, m mcptest.Message) (all []string) {
	t.Helper()
	var items []struct{ Name, Description string }
	if list := mcptest.At(m.Result, "tools"); list != nil {
		if err := json.Unmarshal(list, &items); err != nil {
			t.Error(err)
		}
	}
	for _, item := range items {
		all = append(all, item.Name+" "+item.Description)
	}
	return all
}

// wantListed waits until the replicas list the tools.
func wantListed(t *testing.T, all []*replica, want ...string) {
	t.Helper()
	for i, r := range all {
		eventually(t, fmt.Sprintf("replica %d lists %q", i, want), func() bool {
			return slices.Equal(r.listed(), want)
		})
	}
}

const trusting = "[pins]\nfirst = \"trust\"\n"

// What one replica trusts at first use, the others compare with; and what is approved beside one of
// them holds at all of them. No lock file is written. Each has the records.
func TestReplicasTrustOneDefinition(t *testing.T) {
	server := redistest.Start(t)
	box := newChangingServer(t, "box")
	config := sharedTable(server.Addr, `timeout = "5s"`) + trusting + box.config
	all := startAllPinned(t, 2, config)
	wantListed(t, all[:1], "box__echo reads")
	all[0].WantRecords("- - - box - pin")
	all[0].WantReasons("trusted at first use: tool echo; shared pins sha256:")
	box.declare("reads and mails")
	if got := all[1].listed(); len(got) > 0 {
		t.Errorf("a replica that sees another definition first lists %q", got)
	}
	if got := all[1].refusal(); got == "" {
		t.Error("it lets a call pass")
	}
	all[1].WantRecords("- - - box - pin", "to_client response tools/list box - hide",
		"to_server request tools/call box echo deny")
	all[1].WantReasons("approved at another replica: ", "not as approved: 1 text")
	// After the list, the replica may have begun anew with what the other one approves. Then it is
	// known that the tool was hidden, and not yet why.
	if got := strings.Join(all[1].reasons("deny"), "\n"); got !=
		"not as approved: it has changed (text)" &&
		got != "the tool is hidden: the stage removed it from its list" {
		t.Errorf("the call was denied because of %q", got)
	}
	wantListed(t, all[:1])
	output := all[1].mustRun("pin", "approve", "box", "--yes")
	if !strings.Contains(output, "approved: 1 definition") {
		t.Errorf("gatekit pin approve says %q", output)
	}
	wantListed(t, all, "box__echo reads and mails")
	all[1].WantRecords("- - - box echo approve")
	all[0].WantReasons("approved at another replica: tool echo; shared pins sha256:")
	if output := all[0].mustRun("pin", "show"); !strings.HasPrefix(output, "box  1 item") {
		t.Errorf("gatekit pin show prints %q", output)
	}
	if output, ok := all[0].gatekit("pin", "verify"); ok ||
		!strings.Contains(output, "there is no ") {
		t.Errorf("gatekit pin verify without a lock file: success %t: %s", ok, output)
	}
	// The clients have listed tools only, so nothing else is approved.
	if output, ok := all[0].gatekit("pin", "verify", "--shared"); ok ||
		!strings.Contains(output, "prompt greet") || strings.Contains(output, "tool echo") {
		t.Errorf("gatekit pin verify --shared: success %t: %s", ok, output)
	}
	if output, _ := all[0].gatekit("doctor"); strings.Contains(output, "not in ") {
		t.Errorf("doctor does not know what replicas approve:\n%s", output)
	}
	all = append(all, startPinned(t, t.TempDir(), t.TempDir(), config))
	wantListed(t, all, "box__echo reads and mails")
	all[2].WantReasons("server box has shared pins sha256:")
	box.declare("reads")
	if output := all[0].mustRun("pin", "diff", "--shared"); !strings.Contains(output, "tool echo") {
		t.Errorf("gatekit pin diff --shared does not show the change: %s", output)
	}
	for i, r := range all {
		if got := r.listed(); len(got) > 0 {
			t.Errorf("replica %d lists the definition from before the approval: %q", i, got)
		}
		if _, err := os.Stat(filepath.Join(r.Dir, "gatekit.lock")); err == nil {
			t.Errorf("replica %d has written a lock file", i)
		}
	}
}

// Of several definitions of one tool that replicas see at the same time, they trust one.
func TestReplicasNeverTrustTwoDefinitions(t *testing.T) {
	const tools = 20
	server := redistest.Start(t)
	box := newChangingServer(t, "box")
	var lists atomic.Int64
	box.tools.Store(func() string { // each list has other definitions
		n := lists.Add(1)
		var all []string
		for i := range tools {
			all = append(all, tool(fmt.Sprintf("t%d", i), fmt.Sprintf("definition %d", n)))
		}
		return strings.Join(all, ",")
	})
	all := startAllPinned(t, 3, sharedTable(server.Addr, `timeout = "5s"`)+trusting+box.config)
	var mu sync.Mutex
	shown, late := map[string]bool{}, 0
	var clients sync.WaitGroup
	for _, r := range all {
		for range 3 {
			clients.Go(func() {
				m, err := r.client.Call(harness.Context(t), "tools/list", `{}`)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if harness.IsDenied(m) { // the stage has two seconds, and waits for the others
					late++
				}
				for _, tool := range toolsOf(t, m) {
					shown[tool] = true
				}
			})
		}
	}
	clients.Wait()
	if len(shown) != tools && (len(shown) > 0 || late == 0) {
		t.Errorf("clients saw %d definitions of %d tools: %v", len(shown), tools, shown)
	}
	trusted := 0
	for _, r := range all {
		for _, reason := range r.reasons("pin") {
			if strings.Contains(reason, "trusted at first use: ") {
				trusted++
			}
		}
	}
	if trusted != 1 && late == 0 { // what was recorded late is not stored
		t.Errorf("the logs have %d records of trust, want 1", trusted)
	}
}

// While the shared state is away, nothing new is trusted, what was read stays, and a server of
// which nothing was read is refused. What the state has lost is stored again.
func TestPinsWithoutTheServer(t *testing.T) {
	server := redistest.Start(t)
	box, more := newChangingServer(t, "box"), newChangingServer(t, "more")
	config := sharedTable(server.Addr, `timeout = "2s"`) + trusting + box.config
	all := startAllPinned(t, 2, config)
	wantListed(t, all, "box__echo reads")
	away := kill(t, server)
	box.declare("reads", tool("new", "is new"))
	for i, r := range all {
		if !away.isShort() {
			t.Log("the machine is too busy to check what is listed without the server")
			break
		}
		if got := r.listed(); !slices.Equal(got, []string{"box__echo reads"}) {
			t.Errorf("replica %d without the server lists %q", i, got)
		}
		if got := r.refusal(); got != "" {
			t.Errorf("replica %d without the server answers a call with %s", i, got)
		}
		r.WantReasons("not trusted at first use: ")
	}
	eventually(t, "a tool that was not listed is refused", func() bool {
		m := harness.Request(t, all[0].client, "tools/call",
			`{"name":"box__unlisted","arguments":{}}`)
		return harness.IsDenied(m)
	})
	if away.isShort() {
		all[0].WantReasons("not as approved: shared state is not available")
	}

	file := filepath.Join(all[0].Dir, "gatekit.toml")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	harness.ReplaceFile(t, file, []byte(string(before)+"\n"+more.config))
	eventually(t, "the new server is refused", func() bool {
		harness.Request(t, all[0].client, "tools/call", `{"name":"more__echo","arguments":{}}`)
		const denied = "to_server request tools/call more echo deny"
		return !away.isShort() || slices.ContainsFunc(all[0].Records(),
			func(r harness.Record) bool { return r.String() == denied })
	})
	if away.isShort() {
		if got := all[0].listed(); !slices.Equal(got, []string{"box__echo reads"}) {
			t.Errorf("with a server that was not read, the list is %q", got)
		}
		all[0].WantRecords("to_client response tools/list more - hide")
	} else {
		t.Log("the machine is too busy to check the list with a server that was not read")
	}

	server.RestartEmpty(t)
	wantRefusals(t, all, "") // nothing is stopped any more
	wantListed(t, all[:1], "box__echo reads", "box__new is new", "more__echo reads")
	late := startPinned(t, t.TempDir(), t.TempDir(), config)
	box.declare("reads and mails", tool("new", "is new"))
	wantListed(t, append(all[1:], late), "box__new is new")
}
