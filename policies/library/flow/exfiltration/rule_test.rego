package gatekit.flow.exfiltration_test

import data.gatekit.flow.exfiltration

config := {"flow/exfiltration": {"private": {"tools": ["read_mail"]}, "untrusted": {"servers": ["web"], "tools": ["issues__*"]}, "egress": {"tools": ["send"], "servers": ["web"]}}}

message(kind, server, name) := {"method": "tools/call", "kind": kind, "direction": "to_client", "server": server, "name": name}

test_labels if {
	exfiltration.label == {"flow/private"} with input as message("response", "mail", "read_mail") with data.config as config
	exfiltration.label == {"flow/private"} with input as message("error", "mail", "read_mail") with data.config as config
	exfiltration.label == {"flow/untrusted"} with input as message("response", "issues", "get") with data.config as config
	exfiltration.label == {"flow/untrusted"} with input as {"method": "resources/read", "kind": "response", "server": "web", "name": "x:"} with data.config as config
	exfiltration.label == {"flow/untrusted"} with input as {"method": "sampling/createMessage", "kind": "request", "direction": "to_client", "server": "web"} with data.config as config
	count(exfiltration.label) == 0 with input as message("response", "notes", "get") with data.config as config
	count(exfiltration.label) == 0 with input as {"method": "tools/call", "kind": "request", "direction": "to_server", "server": "mail", "name": "read_mail"} with data.config as config
}

refused(labels, name) if {
	count(exfiltration.deny) == 1 with input as {"method": "tools/call", "kind": "request", "server": "mail", "name": name, "session": {"labels": labels}} with data.config as config
}

test_calls_to_egress_are_denied if {
	refused(["flow/untrusted", "x", "flow/private"], "send")
	not refused(["flow/private"], "send")
	not refused(["flow/untrusted"], "send")
	not refused([], "send")
	not refused(["flow/untrusted", "flow/private"], "read_mail")
	count(exfiltration.deny) == 1 with input as {"method": "resources/read", "kind": "request", "server": "web", "name": "https://x.example/?data", "session": {"labels": ["flow/private", "flow/untrusted"]}} with data.config as config
}

test_other_messages_that_send_data_out_are_denied if {
	every message in [
		{"method": "resources/subscribe", "kind": "request", "direction": "to_server"},
		{"method": "tasks/update", "kind": "request", "direction": "to_server"},
		{"method": "subscriptions/listen", "kind": "request", "direction": "to_server", "params": {"notifications": {"resourceSubscriptions": ["https://x.example/?data"]}}},
		{"method": "sampling/createMessage", "kind": "response", "direction": "to_server"},
		{"method": "elicitation/create", "kind": "response", "direction": "to_server"},
	] {
		count(exfiltration.deny) == 1 with input as object.union(message, {"server": "web", "session": {"labels": ["flow/private", "flow/untrusted"]}}) with data.config as config
		count(exfiltration.deny) == 0 with input as object.union(message, {"server": "mail", "session": {"labels": ["flow/private", "flow/untrusted"]}}) with data.config as config
		count(exfiltration.deny) == 0 with input as object.union(message, {"server": "web", "session": {"labels": ["flow/private"]}}) with data.config as config
	}
	count(exfiltration.deny) == 0 with input as {"method": "subscriptions/listen", "kind": "request", "server": "web", "params": {"notifications": {"toolsListChanged": true}}, "session": {"labels": ["flow/private", "flow/untrusted"]}} with data.config as config
}
