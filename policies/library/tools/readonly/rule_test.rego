package gatekit.tools.readonly_test

import data.gatekit.tools.readonly

reader := {"name": "read", "annotations": {"readOnlyHint": true}}

writer := {"name": "write", "annotations": {"readOnlyHint": false}}

silent := {"name": "other"}

test_only_readers_are_listed if {
	readonly.hide == {"write", "other"} with input as {"method": "tools/list", "kind": "response", "items": [reader, writer, silent]}
}

test_readers_are_called if {
	count(readonly.deny) == 0 with input as {"method": "tools/call", "kind": "request", "name": "read", "item": reader}
}

test_others_are_refused if {
	count(readonly.deny) == 1 with input as {"method": "tools/call", "kind": "request", "name": "write", "item": writer}
	count(readonly.deny) == 1 with input as {"method": "tools/call", "kind": "request", "name": "never-listed"}
}

test_an_exception_of_one_server if {
	readonly.hide == {"other"} with input as {"method": "tools/list", "kind": "response", "server": "a", "items": [writer, silent]} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
	readonly.hide == {"write", "other"} with input as {"method": "tools/list", "kind": "response", "server": "b", "items": [writer, silent]} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
	count(readonly.deny) == 0 with input as {"method": "tools/call", "kind": "request", "server": "a", "name": "write"} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
	count(readonly.deny) == 1 with input as {"method": "tools/call", "kind": "request", "server": "b", "name": "write"} with data.config as {"tools/readonly": {"except": ["a__wr*"]}}
}

test_exceptions if {
	readonly.hide == {"other"} with input as {"method": "tools/list", "kind": "response", "items": [reader, writer, silent]}
		with data.config as {"tools/readonly": {"except": ["wr*"]}}
	count(readonly.deny) == 0 with input as {"method": "tools/call", "kind": "request", "name": "write.it"}
		with data.config as {"tools/readonly": {"except": ["wr*"]}}
}
