package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
)

// describesSession notes input.session for each message.
const describesSession = `note contains concat(" ", [
	substring(object.get(input.session, ["client", "name"], "-"), 0, 5),
	substring(object.get(input.session, ["capabilities", "n"], "-"), 0, 5),
	json.marshal(input.session.known_client),
	object.get(input.session, "log_level", "-"),
])
label contains "l" if input.name == "labels"
`

// noteOf returns the note on a message, which must pass.
func noteOf(t *testing.T, s *policies.Stage, m *mcp.Message) string {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil || v.Action == pipeline.Deny || len(v.Findings) != 1 {
		t.Fatalf("the verdict is %+v, error %v; want one note", v, err)
	}
	note, _ := strings.CutPrefix(v.Findings[0].Type, "t: ")
	return strings.Trim(note, `"`)
}

// describing returns a request of a modern revision with the members of meta in its _meta.
func describing(meta string) *mcp.Message {
	return sent(mcp.NewRequest("1", "tools/list", []byte(`{"_meta":{`+strings.ReplaceAll(meta, `"/`,
		`"io.modelcontextprotocol/`)+`}}`)), mcp.ToServer, "")
}

// aClient returns the members of _meta that describe a client.
func aClient(name string) string {
	return `"/clientInfo":{"name":"` + name + `"},"/clientCapabilities":{"n":"` + name + `"}`
}

// TestInputDescribesSession sends the messages of one session in each case, and checks
// input.session for each message.
func TestInputDescribesSession(t *testing.T) {
	initialize := func(name string) *mcp.Message {
		return sent(mcp.NewRequest("1", "initialize", []byte(`{"clientInfo":{"name":"`+name+
			`"},"capabilities":{"n":"`+name+`"}}`)), mcp.ToServer, "")
	}
	setLevel := func(level string) *mcp.Message {
		return sent(mcp.NewRequest("1", "logging/setLevel", []byte(`{"level":"`+level+`"}`)),
			mcp.ToServer, "")
	}
	ping := func() *mcp.Message { return sent(mcp.NewRequest("1", "ping", nil), mcp.ToServer, "") }
	fromServer := func(meta string) *mcp.Message {
		m := describing(meta)
		m.Direction = mcp.ToClient
		return m
	}
	failed := sent(mcp.NewError("1", -5, "no", nil), mcp.ToClient, "")
	failed.Method, failed.Request = "logging/setLevel", setLevel("error")
	const modern = `"/protocolVersion":"2026-01-01"`
	type step struct {
		m    *mcp.Message
		want string // the client, its capability n, whether the client is known, the log level
	}
	for name, steps := range map[string][]step{
		"nothing": {{ping(), "- - true -"}},
		"initialize": {{initialize("c"), "c c true -"}, {ping(), "c c true -"},
			{answered(initialize("c"), `{}`), "c c true -"},
			{describing(aClient("d")), "d d false -"}, {ping(), "c c true -"}},
		"initialize again": {{initialize("c"), "c c true -"}, {initialize("d"), "d d false -"},
			{ping(), "d d true -"}},
		"requests of modern revisions": {{describing(aClient("c")), "c c true -"},
			{ping(), "c c true -"}, {describing(aClient("d")), "d d false -"},
			{describing(aClient("d")), "d d true -"}, {ping(), "c c true -"},
			{answered(describing(aClient("e")), `{}`), "e e false -"},
			{describing(aClient("e")), "e e false -"}},
		"parts of a description": {{describing(`"/clientInfo":{"name":"c"}`), "c - true -"},
			{ping(), "c - true -"}, {describing(`"/clientCapabilities":{"n":"d"}`), "- d false -"},
			{ping(), "c d true -"}, {describing(aClient("e")), "e e false -"},
			{ping(), "c d true -"}},
		"members of initialize in another request": {{sent(mcp.NewRequest("1", "ping",
			[]byte(`{"clientInfo":{"name":"c"}}`)), mcp.ToServer, ""), "- - true -"}},
		"descriptions of servers": {{fromServer(aClient("c")), "- - true -"},
			{ping(), "- - true -"}},
		"a notification": {{sent(mcp.NewNotification("notifications/x",
			describing(aClient("c")).Body()), mcp.ToServer, ""), "- - true -"}},
		"a log level": {{setLevel("debug"), "- - true -"}, {ping(), "- - true -"},
			{answered(setLevel("debug"), `{}`), "- - true -"}, {ping(), "- - true debug"},
			{failed, "- - true debug"}, {ping(), "- - true debug"},
			{answered(setLevel("none"), `{}`), "- - true debug"}, {ping(), "- - true debug"},
			{answered(setLevel("error"), `{}`), "- - true debug"}, {ping(), "- - true error"},
			{describing(modern), "- - true -"},
			{describing(modern + `,"/logLevel":"debug"`), "- - true debug"},
			{describing(modern + `,"/logLevel":"none"`), "- - true -"},
			{answered(describing(modern+`,"/logLevel":"info"`), `{}`), "- - true info"},
			{fromServer(modern + `,"/logLevel":"info"`), "- - true error"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := loaded(t, describesSession)
			for i, c := range steps {
				if got := noteOf(t, s, c.m); got != c.want {
					t.Errorf("message %d: input.session has %s, want %s", i, got, c.want)
				}
			}
		})
	}
}

// TestKnownClients checks which clients are known in a session that has labels.
func TestKnownClients(t *testing.T) {
	for _, byPrincipal := range []bool{false, true} {
		s, err := policies.Load(policies.Options{Files: loaded(t, describesSession).Files(),
			LabelsByPrincipal: byPrincipal})
		if err != nil {
			t.Fatal(err)
		}
		isKnown := func(session, client string) bool {
			m := describing(client)
			m.Session = session
			return strings.Contains(noteOf(t, s, m), " true ")
		}
		setLabel := func(session string) { noteOf(t, s, in(called("labels", `{}`), "", session)) }
		for i := range 17 {
			isKnown("many", aClient(fmt.Sprint(i)))
		}
		setLabel("many")
		for i := range 18 { // the session remembers 16 descriptions
			if got := isKnown("many", aClient(fmt.Sprint(i))); got != (i < 16) {
				t.Errorf("client %d is known: %v, want %v", i, got, i < 16)
			}
		}
		setLabel("late")
		for i, want := range []bool{true, true, false, false, true} {
			client := map[bool]string{true: aClient("c"), false: aClient("d")}[want]
			if got := isKnown("late", client); got != want {
				t.Errorf("after a label, client %d is known: %v, want %v", i, got, want)
			}
		}
		// other sessions of the principal have its labels
		isKnown("other", aClient("c"))
		isKnown("other", aClient("d"))
		if got := isKnown("other", aClient("d")); got == byPrincipal {
			t.Errorf("labels by principal: %v: a later client is known: %v, want %v", byPrincipal,
				got, !byPrincipal)
		}
		// the first description may have 1000 bytes
		const rest = `{"name":""}` + `{"n":""}`
		for i, c := range []struct {
			client, capabilities int
			want                 bool
		}{{0, 1000 - len(rest), true}, {0, 1001 - len(rest), false}, {1000 - len(rest), 0, true},
			{1001 - len(rest), 0, false}, {500, 501 - len(rest), false}} {
			got := isKnown(fmt.Sprint("size", i), `"/clientInfo":{"name":"`+strings.Repeat("c",
				c.client)+`"},"/clientCapabilities":{"n":"`+strings.Repeat("d", c.capabilities)+`"}`)
			if got != c.want {
				t.Errorf("a first client of %d bytes with capabilities of %d more bytes is known: "+
					"%v, want %v", c.client, c.capabilities, got, c.want)
			}
		}
	}
}

// TestLongestClientInformation checks clientInfo of the maximal length, and of one byte more.
func TestLongestClientInformation(t *testing.T) {
	for n, want := range map[int]bool{4 << 10: true, 4<<10 + 1: false} {
		s := loaded(t, `note contains sprintf("%v", [is_object(object.get(input.session, "client", null))])`)
		info := `{"name":"` + strings.Repeat("c", n-len(`{"name":""}`)) + `"}`
		for _, m := range []*mcp.Message{describing(`"/clientInfo":` + info), describing("")} {
			if got := noteOf(t, s, m); got != fmt.Sprint(want) {
				t.Errorf("clientInfo of %d bytes is in the input: %s, want %v", n, got, want)
			}
		}
	}
}
