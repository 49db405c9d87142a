package mcp_test

import (
	"testing"

	"gatekit/core/mcp"
)

// The table has five marks for each method, one for each revision, oldest first. A mark is ● if its
// revision has the method.
func TestEachRevisionHasItsMethods(t *testing.T) {
	revisions := []string{mcp.Rev20241105, mcp.Rev20250326, mcp.Rev20250618, mcp.Rev20251125,
		mcp.Rev20260728}
	table := map[string]string{
		"initialize": "●●●●–", "server/discover": "––––●", "ping": "●●●●–",
		"tools/list": "●●●●●", "tools/call": "●●●●●",
		"resources/list": "●●●●●", "resources/templates/list": "●●●●●", "resources/read": "●●●●●",
		"resources/subscribe": "●●●●–", "resources/unsubscribe": "●●●●–",
		"prompts/list": "●●●●●", "prompts/get": "●●●●●",
		"completion/complete": "●●●●●", "logging/setLevel": "●●●●–",
		"subscriptions/listen": "––––●",
		"tasks/get":            "–––●●", "tasks/result": "–––●–", "tasks/list": "–––●–",
		"tasks/cancel": "–––●●", "tasks/update": "––––●",
		"sampling/createMessage": "●●●●●", "roots/list": "●●●●●", "elicitation/create": "––●●●",
		"notifications/initialized": "●●●●–", "notifications/cancelled": "●●●●●",
		"notifications/progress": "●●●●●", "notifications/message": "●●●●●",
		"notifications/tools/list_changed": "●●●●●", "notifications/prompts/list_changed": "●●●●●",
		"notifications/resources/list_changed": "●●●●●",
		"notifications/resources/updated":      "●●●●●",
		"notifications/roots/list_changed":     "●●●●–",
		"notifications/elicitation/complete":   "–––●–",
		"notifications/tasks/status":           "–––●–", "notifications/tasks": "––––●",
		"notifications/subscriptions/acknowledged": "––––●",
	}
	for name, marks := range table {
		m, ok := mcp.LookupMethod(name)
		if !ok || m.Name != name {
			t.Errorf("LookupMethod(%q) finds no method", name)
			continue
		}
		got := ""
		for _, r := range revisions {
			if m.ExistsIn(r) {
				got += "●"
			} else {
				got += "–"
			}
		}
		if got != marks {
			t.Errorf("%s is in the revisions %s, want %s", name, got, marks)
		}
		if (m.Kind == mcp.Notification) != (len(name) > 14 && name[:14] == "notifications/") {
			t.Errorf("%s is a %s, want a notification if and only if its name begins with "+
				"notifications/", name, m.Kind)
		}
		if (m.Route == 0) != (m.Direction == mcp.ToClient) {
			t.Errorf("%s has direction %s and route %d, want route 0 only for to_client", name,
				m.Direction, m.Route)
		}
	}
	if _, ok := mcp.LookupMethod("ui/initialize"); ok {
		t.Error("LookupMethod finds ui/initialize, want none: it is not a method between a " +
			"client and a server")
	}
}

// The catalogue of places that hold names has every NamePointer and ItemNamePointer of the table of
// methods.
func TestMethodPointersAreInTheCatalogue(t *testing.T) {
	for _, name := range []string{
		"tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read",
		"resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get",
		"tasks/get", "tasks/result", "tasks/cancel", "tasks/update", "tasks/list",
		"notifications/resources/updated", "notifications/tasks/status", "notifications/tasks",
	} {
		m, _ := mcp.LookupMethod(name)
		to := m.Direction
		if to == 0 {
			to = mcp.ToServer
		}
		kind, want := m.Kind, m.NamePointer
		if m.ItemsPointer != "" {
			kind, to, want = mcp.Response, mcp.ToClient, m.ItemsPointer+"/*"+m.ItemNamePointer
		}
		if name == "notifications/tasks/status" {
			to = mcp.ToClient
		}
		found := false
		for _, p := range mcp.NamePlaces(name, kind, to) {
			found = found || p.Pattern == want
		}
		if !found {
			t.Errorf("%s: the catalogue has no place %q", name, want)
		}
	}
}

func TestCreatedTaskID(t *testing.T) {
	for name, c := range map[string]struct{ method, result, want string }{
		"a task of 2025-11-25":        {"tools/call", `{"task":{"taskId":"t"}}`, "t"},
		"a task of 2026-07-28":        {"tools/call", `{"resultType":"task","taskId":"t"}`, "t"},
		"the result of a tool":        {"tools/call", `{"resultType":"complete","taskId":"t"}`, ""},
		"an id that is no string":     {"tools/call", `{"task":{"taskId":1}}`, ""},
		"a task of the client":        {"sampling/createMessage", `{"task":{"taskId":"t"}}`, "t"},
		"the status of a task":        {"tasks/get", `{"resultType":"task","taskId":"t"}`, ""},
		"the result of a legacy task": {"tasks/result", `{"task":{"taskId":"t"}}`, ""},
	} {
		m := mcp.NewResponse("1", []byte(c.result))
		m.Method = c.method
		if id, ok := mcp.CreatedTaskID(m); id != c.want || ok != (c.want != "") {
			t.Errorf("%s: CreatedTaskID = %q, %v, want %q", name, id, ok, c.want)
		}
	}
	if id, ok := mcp.CreatedTaskID(mcp.NewRequest("1",
		"tools/call", []byte(`{"task":{"taskId":"t"}}`))); ok {
		t.Errorf("CreatedTaskID of a request = %q, want none", id)
	}
}
