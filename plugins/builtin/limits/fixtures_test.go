package limits_test

import (
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/limits"
	"gatekit/plugins/sdk"
)

func newStage(t testing.TB, config string) sdk.Stage {
	t.Helper()
	p := limits.Plugin()
	if err := p.Check([]byte(config)); err != nil {
		t.Fatalf("check %s: %v", config, err)
	}
	s, err := p.New([]byte(config))
	if err != nil {
		t.Fatalf("new stage of %s: %v", config, err)
	}
	return s
}

// field sets a field of a message that is not part of its JSON.
type field func(*mcp.Message)

func principalSession(principal, session string) field {
	return func(m *mcp.Message) { m.Principal, m.Session = identity.FromID(principal), session }
}

func exchange(id string) field { return func(m *mcp.Message) { m.Exchange = id } }

func server(name string) field { return func(m *mcp.Message) { m.Server = name } }

// withFields sets the default fields of m, and then the given fields.
func withFields(m *mcp.Message, fields []field) *mcp.Message {
	m.Session, m.Exchange, m.Server = "s1", "1", "files"
	for _, set := range fields {
		set(m)
	}
	return m
}

func call(tool, arguments string, fields ...field) *mcp.Message {
	m := mcp.NewRequest("1", "tools/call", []byte(`{"name":`+string(mcp.Quote(tool))+
		`,"arguments":`+arguments+`}`))
	m.Direction, m.Name = mcp.ToServer, tool
	return withFields(m, fields)
}

func result(method, body string, fields ...field) *mcp.Message {
	m := mcp.NewResponse("1", []byte(body))
	m.Direction, m.Method, m.Name = mcp.ToClient, method, "read"
	return withFields(m, fields)
}

func errorResponse(body string, fields ...field) *mcp.Message {
	m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":` + body + `}`))
	if err != nil {
		panic(err)
	}
	m.Direction, m.Method = mcp.ToClient, "tools/call"
	return withFields(m, fields)
}

func serverRequest(method string, fields ...field) *mcp.Message {
	m := mcp.NewRequest("9", method, []byte(`{}`))
	m.Direction = mcp.ToClient
	return withFields(m, fields)
}

func notification(method string, direction mcp.Direction, fields ...field) *mcp.Message {
	m := mcp.NewNotification(method, []byte(`{}`))
	m.Direction = direction
	return withFields(m, fields)
}

func inspect(t testing.TB, s sdk.Stage, m *mcp.Message) sdk.Verdict {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil {
		t.Fatalf("inspect %s %s: %v", m.Method, m.Kind, err)
	}
	return v
}

// requireAllowed fails the test unless the stage allows m.
func requireAllowed(t testing.TB, s sdk.Stage, m *mcp.Message) {
	t.Helper()
	if v := inspect(t, s, m); v.Action != pipeline.Allow {
		t.Fatalf("%s of %s: got the action %d (%s), want allow", m.Method, m.Name, v.Action,
			v.Reason)
	}
}

// requireDenied fails the test unless the stage denies m with the given reason, and the first
// finding has the given type.
func requireDenied(t testing.TB, s sdk.Stage, m *mcp.Message, reason, findingType string) {
	t.Helper()
	v := inspect(t, s, m)
	if v.Action != pipeline.Deny || v.Reason != reason || len(v.Findings) == 0 ||
		v.Findings[0].Type != findingType {
		t.Fatalf("%s of %s: got the action %d (%q, findings %v), want deny (%q, a finding %s)",
			m.Method, m.Name, v.Action, v.Reason, v.Findings, reason, findingType)
	}
}
