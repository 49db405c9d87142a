package gatekit.resources.redact_test

import data.gatekit.resources.redact

config := {"resources/redact": {"rules": [{"uris": ["file:///*.env"], "pattern": "KEY=.*", "with": "KEY=[gone]"}]}}

read(uri, contents) := {"method": "resources/read", "kind": "response", "name": uri, "result": {"contents": contents}}

expected := {{"pattern": "KEY=.*", "with": "KEY=[gone]"}}

test_selected_resources_are_redacted if {
	redact.redact == expected with input as read("file:///a/b.env", [{"uri": "file:///a/b.env", "text": "x"}]) with data.config as config
	redact.redact == expected with input as read("file:///a/b.env", [{"uri": "other:", "text": "x"}]) with data.config as config
	redact.redact == expected with input as read("file:///a", [{"uri": "file:///a/b.env", "text": "x"}]) with data.config as config
	redact.redact == expected with input as {"method": "tools/call", "kind": "response", "result": {"content": [{"type": "text"}, {"type": "resource", "resource": {"uri": "file:///b.env"}}]}} with data.config as config
	redact.redact == expected with input as {"method": "prompts/get", "kind": "response", "result": {"messages": [{"content": {"type": "resource", "resource": {"uri": "file:///b.env"}}}]}} with data.config as config
}

test_other_resources_pass if {
	count(redact.redact) == 0 with input as read("file:///a.txt", [{"uri": "file:///a.txt", "text": "x"}]) with data.config as config
	count(redact.redact) == 0 with input as {"method": "tools/call", "kind": "response", "result": {}} with data.config as config
}

test_selected_blobs_are_denied if {
	count(redact.deny) == 1 with input as read("file:///b.env", [{"blob": "eA=="}]) with data.config as config
	count(redact.deny) == 0 with input as read("file:///b.png", [{"blob": "eA=="}]) with data.config as config
	count(redact.deny) == 0 with input as read("file:///b.env", [{"blob": "eA=="}]) with data.config as {"resources/redact": {"rules": [{"uris": ["*"], "pattern": "x", "with": "y", "blobs": true}]}}
}

test_other_spellings_of_a_uri_are_redacted if {
	every uri in {"file:///a/b.%65nv", "FILE:///a/B.ENV", "file:///a/b%2eenv", "file:///a/b.e%256ev", "file:///a/c/../b.env/.", "file:///a//b.env"} {
		redact.redact == expected with input as read(uri, [{"uri": "x:", "text": "x"}]) with data.config as config
		redact.redact == expected with input as {"method": "tools/call", "kind": "response", "result": {"content": [{"type": "resource", "resource": {"uri": uri}}]}} with data.config as config
	}
}

test_task_results_are_redacted if {
	blocks := [{"type": "resource", "resource": {"uri": "file:///b.env"}}]
	redact.redact == expected with input as {"method": "tasks/result", "kind": "response", "result": {"content": blocks}} with data.config as config
	redact.redact == expected with input as {"method": "tasks/get", "kind": "response", "result": {"result": {"content": blocks}}} with data.config as config
	redact.redact == expected with input as {"method": "notifications/tasks", "kind": "notification", "params": {"result": {"content": blocks}}} with data.config as config
}
