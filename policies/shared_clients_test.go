package policies_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/policies"
)

// clientRules give the session a label when the tool "read" is called, and deny unknown clients
// from then on.
const clientRules = `label contains "private" if { input.kind == "request"; input.name == "read" }
deny contains "another client" if { input.kind == "request"; input.name == "send"
	"private" in input.session.labels; not input.session.known_client }
`

// callFrom returns a call of the tool, as a modern client with this name sends it.
func callFrom(tool, client string) *mcp.Message {
	return sent(mcp.NewRequest("1", "tools/call", fmt.Appendf(nil, `{"name":%q,"arguments":{},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":%q,"version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}`, tool, client)), mcp.ToServer, tool)
}

// A client that has described itself on one replica cannot put data into another description on a
// replica that has seen none yet.
func TestReplicasKnowTheClientsOfASession(t *testing.T) {
	for _, byPrincipal := range []bool{false, true} {
		var state shared.Memory
		labels := func(o *policies.Options) { o.LabelsByPrincipal = byPrincipal }
		replica := func() *policies.Stage { return replicaOf(t, &state, clientRules, labels) }
		a, b := replica(), replica()
		if refused(t, a, callFrom("send", "first")) {
			t.Error("the first client is denied")
		}
		for i := range 3 { // without labels, further clients become known
			refused(t, b, callFrom("send", fmt.Sprint("client ", i)))
		}
		if refused(t, a, callFrom("read", "client 0")) {
			t.Error("a call that sets the label is denied")
		}
		for name, s := range map[string]*policies.Stage{"a": a, "b": b, "new": replica()} {
			for _, client := range []string{"first", "client 0", "client 1", "client 2"} {
				if refused(t, s, callFrom("send", client)) {
					t.Errorf("%s: the known client %s is denied", name, client)
				}
			}
			for range 2 {
				if !refused(t, s, callFrom("send", "data")) {
					t.Errorf("%s: another client may send", name)
				}
			}
			refused(t, s, callFrom("other", "more data")) // no rule reads known_client
			if !refused(t, s, callFrom("send", "more data")) {
				t.Errorf("%s: another client may send after another call", name)
			}
			answer := answered(callFrom("send", "even more"), `{}`)
			inspected(t, s, answer)
			if !refused(t, s, callFrom("send", "even more")) {
				t.Errorf("%s: another client may send after an answer", name)
			}
		}
		if got := refused(t, b, ofSession("s2", callFrom("send", "first"))); got {
			t.Error("in another session, the first client is denied")
		}
		if got := refused(t, b, ofSession("s2", callFrom("send", "x"))); got != byPrincipal {
			t.Errorf("labels by principal %v: in another session, a second client is denied: %v",
				byPrincipal, got)
		}
		for _, client := range []string{"first", "x"} { // no rule reads the labels
			refused(t, a, ofSession("s3", callFrom("other", client)))
		}
		refused(t, b, ofSession("s3", callFrom("read", "first")))
		if got := refused(t, b, ofSession("s3", callFrom("send", "x"))); got != byPrincipal {
			t.Errorf("labels by principal %v: in a third session, a second client is denied: %v",
				byPrincipal, got)
		}
	}
}

// A first description that is long could carry data.
func TestLongFirstDescriptionOfReplicas(t *testing.T) {
	var state shared.Memory
	a, b := replicaOf(t, &state, clientRules, nil), replicaOf(t, &state, clientRules, nil)
	long := strings.Repeat("x", 1000)
	refused(t, a, callFrom("read", ""))
	if !refused(t, b, callFrom("send", long)) {
		t.Error("a second, long description is known")
	}
	other := func(m *mcp.Message) *mcp.Message { return ofSession("s2", m) }
	if !refused(t, a, other(callFrom("read", long))) && !refused(t, b, other(callFrom("send",
		long))) {
		t.Error("a first, long description is known in a session with a label")
	}
}

// The bound of the first description is that of a single Gatekit.
func TestLengthOfTheFirstDescription(t *testing.T) {
	for _, length := range []int{1000, 1001} {
		var state shared.Memory
		a, b := replicaOf(t, &state, clientRules, nil), replicaOf(t, &state, clientRules, nil)
		client := strings.Repeat("x", length-len(`{"name":"","version":"1"}`+`{}`))
		refused(t, a, callFrom("read", client))
		if got := refused(t, b, callFrom("send", client)); got != (length > 1000) {
			t.Errorf("with a first description of %d bytes, a call is denied: %v", length, got)
		}
	}
}

// A hide rule may ask for the known clients, when a tool is listed and when it is used.
func TestHideRuleReadsTheKnownClients(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	const rule = `hide contains "x" if { input.method == "tools/list"
	"private" in input.session.labels; not input.session.known_client }
label contains "private" if { input.kind == "request"; input.name == "read" }
`
	a, b := replicaOf(t, state, rule, nil), replicaOf(t, state, rule, nil)
	refused(t, a, callFrom("read", "first"))
	for client, hidden := range map[string]bool{"first": false, "data": true} {
		if got := isHidden(verdictOf(t, b, callFrom("x", client))); got != hidden {
			t.Errorf("the tool is hidden from the client %s: %v", client, got)
		}
	}
	state.Fail(shared.ErrUnavailable)
	if got := verdictOf(t, replicaOf(t, state, rule, nil), callFrom("x",
		"first")); got != "denied: shared state is not available" {
		t.Errorf("without the state: %s", got)
	}
}

// A rule may ask for nothing but the known clients.
func TestRuleReadsOnlyTheKnownClients(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	const rule = `deny contains "another" if { input.name == "send"; not input.session.known_client }`
	refused(t, replicaOf(t, state, rule, nil), callFrom("other", "first"))
	state.Fail(shared.ErrUnavailable)
	s := replicaOf(t, state, rule, nil)
	if v := inspected(t, s, callFrom("send", "data")); v.Action != pipeline.Deny ||
		v.Reason != "shared state is not available" || !v.Temporary {
		t.Errorf("without the state: %v %q, temporary: %v", v.Action, v.Reason, v.Temporary)
	}
	if refused(t, s, callFrom("other", "data")) {
		t.Error("without the state, a call that no rule can deny is denied")
	}
	state.Fail(nil)
	if got := verdictOf(t, s, callFrom("send", "data")); !strings.Contains(got, "another") {
		t.Errorf("another client: %s", got)
	}
}

// A description that sets the label itself does not become known, unless it is the first.
func TestClientThatSetsTheLabel(t *testing.T) {
	var state shared.Memory
	a, b := replicaOf(t, &state, clientRules, nil), replicaOf(t, &state, clientRules, nil)
	refused(t, a, callFrom("other", "first"))
	refused(t, a, callFrom("read", "second"))
	for _, s := range []*policies.Stage{a, b} {
		if !refused(t, s, callFrom("send", "second")) {
			t.Error("the client that has set the label may send")
		}
		if refused(t, s, callFrom("send", "first")) {
			t.Error("the first client is denied")
		}
	}
}

// Sixteen clients of a session are known, the latest ones.
func TestKnownClientsAreBounded(t *testing.T) {
	var state shared.Memory
	a, b := replicaOf(t, &state, clientRules, nil), replicaOf(t, &state, clientRules, nil)
	for i := range 20 {
		refused(t, a, callFrom("send", fmt.Sprint(i)))
	}
	refused(t, a, callFrom("read", "19"))
	for _, s := range []*policies.Stage{a, b} {
		for i := range 20 {
			if got := refused(t, s, callFrom("send", fmt.Sprint(i))); got != (i < 4) {
				t.Errorf("client %d is denied: %v", i, got)
			}
		}
	}
}

// The known clients stay known while they are used. Without the state, a replica that does not know
// a client denies it, and other messages pass.
func TestKnownClientsWithoutTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		replica := func() *policies.Stage { return replicaOf(t, state, clientRules, nil) }
		a := replica()
		refused(t, a, callFrom("read", "first"))
		time.Sleep(60 * 24 * time.Hour)
		refused(t, replica(), callFrom("other", "first"))
		time.Sleep(60 * 24 * time.Hour)
		b := replica()
		refused(t, b, callFrom("read", "first"))
		if !refused(t, b, callFrom("send", "data")) {
			t.Error("after months, another client may send")
		}
		later := func(m *mcp.Message) *mcp.Message { return ofSession("s2", m) }
		refused(t, a, later(callFrom("read", "first")))
		time.Sleep(91 * 24 * time.Hour)
		c := replica()
		refused(t, c, later(callFrom("read", "another")))
		if refused(t, c, later(callFrom("send", "another"))) {
			t.Error("after three months, the first client is not forgotten")
		}
		refused(t, b, callFrom("read", "first"))
		state.Fail(shared.ErrUnavailable)
		if got := verdictOf(t, replica(), callFrom("send",
			"first")); got != "denied: shared state is not available" {
			t.Errorf("without the state: %s", got)
		}
		if refused(t, replica(), callFrom("other", "first")) {
			t.Error("without the state, a message that no rule denies is denied")
		}
		state.Fail(nil)
		state.Lose()
		refused(t, a, callFrom("read", "first")) // the label
		if !refused(t, a, callFrom("send", "data")) {
			t.Error("after a loss, another client may send where the first one is known")
		}
		c = replica()
		if refused(t, c, callFrom("send", "first")) || !refused(t, c, callFrom("send", "data")) {
			t.Error("after a loss, another replica does not know the first client only")
		}
	})
}
