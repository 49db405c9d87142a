package gatekit.limits.rate_test

import data.gatekit.limits.rate

call := {"method": "tools/call", "kind": "request", "server": "files", "name": "read", "session": {"calls": {"": 5, "files read": 3}, "minute": {"": 4, "files read": 2}}}

refused(config) if count(rate.deny) == 1 with input as call with data.config as {"limits/rate": config}

passes(config) if count(rate.deny) == 0 with input as call with data.config as {"limits/rate": config}

test_calls_at_a_limit_are_denied if {
	refused({"per_session": 5})
	passes({"per_session": 6})
	refused({"per_minute": 4})
	passes({"per_minute": 5})
	refused({"tools": [{"tools": ["re*"], "per_session": 3}]})
	passes({"tools": [{"tools": ["re*"], "per_session": 4}]})
	refused({"tools": [{"tools": ["files__*"], "per_minute": 2}]})
	passes({"tools": [{"tools": ["files__*"], "per_minute": 3}]})
	passes({"tools": [{"tools": ["write"], "per_minute": 0}]})
	passes({})
}

test_count_of_a_new_tool_is_zero if {
	count(rate.deny) == 1 with input as object.union(call, {"session": {"calls": {}, "minute": {}}, "name": "new"}) with data.config as {"limits/rate": {"tools": [{"tools": ["new"], "per_session": 0}]}}
	count(rate.deny) == 0 with input as object.union(call, {"name": "new"}) with data.config as {"limits/rate": {"tools": [{"tools": ["new"], "per_session": 1}]}}
}
