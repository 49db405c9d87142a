package gatekit.policy_name_test

import data.gatekit.policy_name

call(name) := {
	"direction": "to_server", "kind": "request", "method": "tools/call",
	"server": "files", "name": name,
}

test_denied_tools_cannot_be_called if {
	reasons := policy_name.deny with input as call("delete_everything")
	reasons == {"delete_everything is not for agents"}
}

test_denied_tools_are_not_listed if {
	policy_name.hide == {"delete_everything"} with input as {
		"kind": "response", "method": "tools/list",
		"items": [{"name": "read"}, {"name": "delete_everything"}],
	}
}

test_other_tools_can_be_called if {
	count(policy_name.deny) == 0 with input as call("read")
}
