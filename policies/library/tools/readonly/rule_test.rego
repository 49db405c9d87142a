package gatekit.tools.readonly_test

import data.gatekit.tools.readonly

read_only_tool := {"name": "read", "annotations": {"readOnlyHint": true}}

write_tool := {"name": "write", "annotations": {"readOnlyHint": false}}

undeclared := {"name": "other"}

test_only_read_only_tools_are_listed if {
	readonly.hide == {"write", "other"} with input as {"method": "tools/list", "kind": "response", "items": [read_only_tool, write_tool, undeclared]}
}

test_read_only_tools_may_be_called if {
	count(readonly.deny) == 0 with input as {"method": "tools/call", "kind": "request", "name": "read", "item": read_only_tool}
}

test_other_tools_are_denied if {
	count(readonly.deny) == 1 with input as {"method": "tools/call", "kind": "request", "name": "write", "item": write_tool}
	count(readonly.deny) == 1 with input as {"method": "tools/call", "kind": "request", "name": "never-listed"}
}

test_exception_for_one_server_covers_no_other_server if {
	readonly.hide == {"other"} with input as {"method": "tools/list", "kind": "response", "server": "a", "items": [write_tool, undeclared]} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
	readonly.hide == {"write", "other"} with input as {"method": "tools/list", "kind": "response", "server": "b", "items": [write_tool, undeclared]} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
	count(readonly.deny) == 0 with input as {"method": "tools/call", "kind": "request", "server": "a", "name": "write"} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
	count(readonly.deny) == 1 with input as {"method": "tools/call", "kind": "request", "server": "b", "name": "write"} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
}

test_exceptions_are_allowed if {
	readonly.hide == {"other"} with input as {"method": "tools/list", "kind": "response", "items": [read_only_tool, write_tool, undeclared]}
		with data.config as {"tools/readonly": {"except": ["wr*"]}}
	count(readonly.deny) == 0 with input as {"method": "tools/call", "kind": "request", "name": "write.it"}
		with data.config as {"tools/readonly": {"except": ["wr*"]}}
}
