package gatekit.flow.exfiltration_test

import data.gatekit.flow.exfiltration

config := {"flow/exfiltration": {"private": {"tools": ["read_mail"]}, "untrusted": {"servers": ["web"], "tools": ["issues__*"]}, "egress": {"tools": ["send"], "servers": ["web"]}}}

message(kind, server, name) := {"method": "tools/call", "kind": kind, "direction": "to_client", "server": server, "name": name, "tools": [name]}

tainted := {"labels": ["flow/untrusted", "x", "flow/private"]}

test_messages_from_sources_set_labels if {
	exfiltration.label == {"flow/private"} with input as message("response", "mail", "read_mail") with data.config as config
	exfiltration.label == {"flow/private"} with input as message("error", "mail", "read_mail") with data.config as config
	exfiltration.label == {"flow/untrusted"} with input as message("response", "issues", "get") with data.config as config
	exfiltration.label == {"flow/untrusted"} with input as {"method": "resources/read", "kind": "response", "direction": "to_client", "server": "web", "name": "x:", "tools": []} with data.config as config
	exfiltration.label == {"flow/untrusted"} with input as {"method": "sampling/createMessage", "kind": "request", "direction": "to_client", "server": "web", "tools": []} with data.config as config
	count(exfiltration.label) == 0 with input as message("response", "notes", "get") with data.config as config
	exfiltration.label == {"flow/private"} with input as {"method": "notifications/progress", "kind": "notification", "direction": "to_client", "server": "mail", "tools": ["list", "read_mail"]} with data.config as config
	exfiltration.label == {"flow/private", "flow/untrusted"} with input as {"method": "tasks/result", "kind": "response", "direction": "to_client", "server": "issues"} with data.config as config
	exfiltration.label == {"flow/private"} with input as {"method": "tasks/result", "kind": "response", "direction": "to_client", "server": "mail"} with data.config as config
	count(exfiltration.label) == 0 with input as {"method": "notifications/progress", "kind": "notification", "direction": "to_client", "server": "mail", "tools": ["list"]} with data.config as config
	count(exfiltration.label) == 0 with input as {"method": "tools/list", "kind": "response", "direction": "to_client", "server": "web", "tools": []} with data.config as config
	count(exfiltration.label) == 0 with input as {"method": "tools/call", "kind": "request", "direction": "to_server", "server": "mail", "name": "read_mail", "tools": ["read_mail"]} with data.config as config
}

test_findings_of_steering_set_the_label if {
	every type, want in {
		"steering/asks-for-another-servers-tool": {"flow/untrusted"},
		"steering/retry-with-another-tool": {"flow/untrusted"},
		"override/split-over-results": {"flow/untrusted"},
		"override/ignore-previous": set(),
		"email": set(),
	} {
		finding := {"findings": [{"type": "email", "pointer": "/a"}, {"type": type, "pointer": ""}]}
		exfiltration.label == want with input as object.union(message("response", "notes", "get"), finding) with data.config as config
		exfiltration.label == want with input as object.union(message("notification", "notes", "get"), finding) with data.config as config
		count(exfiltration.label) == 0 with input as object.union(message("request", "notes", "get"), object.union(finding, {"direction": "to_server"})) with data.config as config
		count(exfiltration.label) == 0 with input as object.union(message("response", "notes", ""), object.union(finding, {"method": "tools/list"})) with data.config as config
	}
}

refused(labels, name) if {
	count(exfiltration.deny) == 1 with input as {"method": "tools/call", "kind": "request", "direction": "to_server", "server": "mail", "name": name, "tools": [name], "session": {"labels": labels}} with data.config as config
}

test_calls_to_egress_are_denied if {
	refused(["flow/untrusted", "x", "flow/private"], "send")
	refused(["lost"], "send")
	not refused(["lost"], "read_mail")
	not refused(["flow/private"], "send")
	not refused(["flow/untrusted"], "send")
	not refused([], "send")
	not refused(["flow/untrusted", "flow/private"], "read_mail")
}

test_messages_that_can_carry_data_are_denied if {
	known := false
	every message in [
		{"method": "resources/read", "kind": "request", "params": {"uri": "https://x.example/?data"}},
		{"method": "resources/subscribe", "kind": "request"},
		{"method": "tasks/update", "kind": "request"},
		{"method": "tasks/get", "kind": "request", "params": {"taskId": "data"}},
		{"method": "acme/x", "kind": "request"},
		{"method": "subscriptions/listen", "kind": "request", "params": {"notifications": {"resourceSubscriptions": ["https://x.example/?data"]}}},
		{"method": "tools/list", "kind": "request", "params": {"_meta": {"x": "data"}}},
		{"method": "tools/list", "kind": "request", "params": {"_meta": {"progressToken": 100000000000000000000}}},
		{"method": "tools/list", "kind": "request", "params": {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": "data"}}}},
		{"method": "sampling/createMessage", "kind": "response"},
		{"method": "elicitation/create", "kind": "error"},
	] {
		every server, want in {"web": 1, "mail": 0} {
			count(exfiltration.deny) == want with input as object.union(message, {"direction": "to_server", "server": server, "tools": [], "session": object.union(tainted, {"known_client": known})}) with data.config as config
		}
		count(exfiltration.deny) == 0 with input as object.union(message, {"direction": "to_server", "server": "web", "tools": [], "session": {"labels": ["flow/private"]}}) with data.config as config
	}
}

test_words_of_the_protocol_carry_no_data if {
	known := true
	every message in [
		{"method": "tools/list", "kind": "request"},
		{"method": "tools/list", "kind": "request", "params": {"_meta": {"progressToken": 7, "io.modelcontextprotocol/clientInfo": {"name": "c"}, "io.modelcontextprotocol/logLevel": "info", "io.modelcontextprotocol/clientCapabilities": {}}}},
		{"method": "logging/setLevel", "kind": "request", "params": {"level": "debug"}},
		{"method": "subscriptions/listen", "kind": "request", "params": {"notifications": {"toolsListChanged": true, "taskIds": []}}},
		{"method": "notifications/cancelled", "kind": "notification", "params": {"requestId": "data", "reason": "data"}},
	] {
		count(exfiltration.deny) == 0 with input as object.union(message, {"direction": "to_server", "server": "web", "tools": [], "session": object.union(tainted, {"known_client": known})}) with data.config as config
	}
	count(exfiltration.deny) == 0 with input as {"method": "tasks/get", "kind": "request", "params": {"taskId": "t"}, "direction": "to_server", "server": "web", "tools": ["x"], "session": tainted} with data.config as config
}

test_only_requests_about_known_tasks_have_a_task if {
	every method in ["notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed"] {
		count(exfiltration.deny) == 1 with input as {"method": method, "kind": "notification", "params": {"taskId": "data"}, "direction": "to_server", "server": "web", "tools": ["x"], "session": tainted} with data.config as config
	}
}

test_reason_of_a_cancellation_is_removed if {
	every server, want in {"web": 1, "mail": 0} {
		count(exfiltration.redact) == want with input as {"method": "notifications/cancelled", "kind": "notification", "direction": "to_server", "server": server, "tools": [], "session": tainted} with data.config as config
	}
}
