package gatekit.sampling.gate_test

import data.gatekit.sampling.gate

sampling_request(params) := {"method": "sampling/createMessage", "kind": "request", "direction": "to_client", "server": "files", "params": params, "session": {"calls": {}, "minute": {}}}

config(more) := {"sampling/gate": object.union({"servers": ["fi*"]}, more)}

test_no_server_is_allowed_without_settings if {
	count(gate.deny) == 1 with input as sampling_request({"maxTokens": 1})
	count(gate.deny) == 1 with input as {"method": "sampling/createMessage", "kind": "request"} with data.config as config({})
	count(gate.deny) == 1 with input as object.union(sampling_request({}), {"server": "evil"}) with data.config as config({})
	count(gate.deny) == 0 with input as sampling_request({"maxTokens": 1, "includeContext": "none"}) with data.config as config({})
}

test_other_models_are_denied if {
	count(gate.deny) == 1 with input as sampling_request({"modelPreferences": {"hints": [{"name": "claude-x"}, {"name": "other"}]}}) with data.config as config({"models": ["claude-*"]})
	count(gate.deny) == 1 with input as sampling_request({"modelPreferences": {"hints": [{}]}}) with data.config as config({"models": ["claude-*"]})
	count(gate.deny) == 0 with input as sampling_request({"modelPreferences": {"hints": [{"name": "Claude-x"}]}}) with data.config as config({"models": ["claude-*"]})
	count(gate.deny) == 0 with input as sampling_request({}) with data.config as config({"models": ["claude-*"]})
	count(gate.deny) == 1 with input as {"method": "sampling/createMessage", "kind": "response", "result": {"model": "other"}} with data.config as config({"models": ["claude-*"]})
	count(gate.deny) == 1 with input as {"method": "sampling/createMessage", "kind": "response", "result": {}} with data.config as config({"models": ["claude-*"]})
	count(gate.deny) == 0 with input as {"method": "sampling/createMessage", "kind": "response", "result": {"model": "claude-x"}} with data.config as config({"models": ["claude-*"]})
}

test_too_many_tokens_are_denied if {
	every params in [{"maxTokens": 101}, {}, {"maxTokens": "5"}, {"maxTokens": null}] {
		count(gate.deny) == 1 with input as sampling_request(params) with data.config as config({"max_tokens": 100})
	}
	count(gate.deny) == 0 with input as sampling_request({"maxTokens": 100}) with data.config as config({"max_tokens": 100})
}

test_too_many_requests_are_denied if {
	often := object.union(sampling_request({}), {"session": {"calls": {"sampling/createMessage files": 3}, "minute": {"sampling/createMessage files": 2}}})
	count(gate.deny) == 1 with input as often with data.config as config({"per_session": 3})
	count(gate.deny) == 0 with input as often with data.config as config({"per_session": 4})
	count(gate.deny) == 1 with input as often with data.config as config({"per_minute": 2})
	count(gate.deny) == 0 with input as often with data.config as config({"per_minute": 3})
	count(gate.deny) == 1 with input as sampling_request({}) with data.config as config({"per_session": 0})
}

test_context_and_tools_need_a_setting if {
	every value in ["thisServer", "allServers", "", false, null] {
		count(gate.deny) == 1 with input as sampling_request({"includeContext": value}) with data.config as config({})
	}
	count(gate.deny) == 0 with input as sampling_request({"includeContext": "thisServer"}) with data.config as config({"context": ["none", "thisServer"]})
	every params in [{"tools": []}, {"tools": [{"name": "x"}]}, {"toolChoice": {"mode": "auto"}}, {"tools": false}] {
		count(gate.deny) == 1 with input as sampling_request(params) with data.config as config({})
		count(gate.deny) == 0 with input as sampling_request(params) with data.config as config({"tools": true})
	}
}
