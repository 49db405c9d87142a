package gatekit.tools.allowlist_test

import data.gatekit.tools.allowlist

config := {"tools/allowlist": {"tools": ["read_*", "github__search"], "servers": {"files": ["list", "get.*"]}}}

list(server) := {"method": "tools/list", "kind": "response", "server": server, "items": [{"name": n} | some n in {"read_file", "search", "list", "get.x", "Read_file", "read"}]}

call(server, name) := {"method": "tools/call", "kind": "request", "server": server, "name": name}

test_other_tools_are_hidden if {
	allowlist.hide == {"search", "Read_file", "read"} with input as list("files") with data.config as config
	allowlist.hide == {"list", "get.x", "Read_file", "read"} with input as list("github") with data.config as config
}

test_list_and_call_agree if {
	every server in {"files", "github", "other"} {
		every item in list(server).items {
			hidden := item.name in allowlist.hide with input as list(server) with data.config as config
			denied := count(allowlist.deny) > 0 with input as call(server, item.name) with data.config as config
			hidden == denied
		}
	}
}

test_server_cannot_imitate_another_server if {
	count(allowlist.deny) == 1 with input as call("evil", "github__search") with data.config as config
}

test_no_tool_is_allowed_without_settings if {
	count(allowlist.deny) == 1 with input as call("files", "read_file")
	count(allowlist.hide) == 6 with input as list("files")
}

test_call_without_name_is_denied if {
	count(allowlist.deny) == 1 with input as {"method": "tools/call", "kind": "request"} with data.config as config
	count(allowlist.deny) == 1 with input as {"method": "tools/call", "kind": "request"} with data.config as {"tools/allowlist": {"tools": ["*"]}}
}
