package limits_test

import (
	"testing"

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

// told is a message with what the boundary knows of it.
type told func(*mcp.Message)

func from(principal, session string) told {
	return func(m *mcp.Message) { m.Principal, m.Session = principal, session }
}

func in(exchange string) told { return func(m *mcp.Message) { m.Exchange = exchange } }

func at(server string) told { return func(m *mcp.Message) { m.Server = server } }

func tell(m *mcp.Message, more []told) *mcp.Message {
	m.Session, m.Exchange, m.Server = "s1", "1", "files"
	for _, f := range more {
		f(m)
	}
	return m
}

func call(tool, arguments string, more ...told) *mcp.Message {
	m := mcp.NewRequest("1", "tools/call", []byte(`{"name":`+string(mcp.Quote(tool))+
		`,"arguments":`+arguments+`}`))
	m.Direction, m.Name = mcp.ToServer, tool
	return tell(m, more)
}

func result(method, body string, more ...told) *mcp.Message {
	m := mcp.NewResponse("1", []byte(body))
	m.Direction, m.Method, m.Name = mcp.ToClient, method, "read"
	return tell(m, more)
}

func failed(body string, more ...told) *mcp.Message {
	m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":` + body + `}`))
	if err != nil {
		panic(err)
	}
	m.Direction, m.Method = mcp.ToClient, "tools/call"
	return tell(m, more)
}

func ask(method string, more ...told) *mcp.Message {
	m := mcp.NewRequest("9", method, []byte(`{}`))
	m.Direction = mcp.ToClient
	return tell(m, more)
}

func notify(method string, to mcp.Direction, more ...told) *mcp.Message {
	m := mcp.NewNotification(method, []byte(`{}`))
	m.Direction = to
	return tell(m, more)
}

func inspect(t testing.TB, s sdk.Stage, m *mcp.Message) sdk.Verdict {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil {
		t.Fatalf("inspect %s %s: %v", m.Method, m.Kind, err)
	}
	return v
}

// passes and refuses say what becomes of a message.
func passes(t testing.TB, s sdk.Stage, m *mcp.Message) {
	t.Helper()
	if v := inspect(t, s, m); v.Action != pipeline.Allow {
		t.Fatalf("%s of %s: got the action %d (%s), want it allowed", m.Method, m.Name, v.Action,
			v.Reason)
	}
}

func refuses(t testing.TB, s sdk.Stage, m *mcp.Message, why, kind string) {
	t.Helper()
	v := inspect(t, s, m)
	if v.Action != pipeline.Deny || v.Reason != why || len(v.Findings) == 0 ||
		v.Findings[0].Type != kind {
		t.Fatalf("%s of %s: got the action %d (%q, findings %v), want it refused (%q, %s)",
			m.Method, m.Name, v.Action, v.Reason, v.Findings, why, kind)
	}
}
