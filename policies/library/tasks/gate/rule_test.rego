package gatekit.tasks.gate_test

import data.gatekit.tasks.gate

task(method) := {"method": method, "kind": "request", "server": "box", "params": {"taskId": "1"}}

config(more) := {"tasks/gate": object.union({"servers": ["b*"]}, more)}

test_task_methods_need_a_setting if {
	every method in {"tasks/get", "tasks/list", "tasks/result", "tasks/cancel", "tasks/update", "tasks/new", "notifications/tasks", "notifications/tasks/status"} {
		count(gate.deny) == 1 with input as task(method)
		count(gate.deny) == 1 with input as object.union(task(method), {"kind": "notification"})
		count(gate.deny) == 0 with input as task(method) with data.config as config({})
		count(gate.deny) == 1 with input as {"method": method, "kind": "request"} with data.config as config({})
	}
	count(gate.deny) == 0 with input as task("tasks/get") with data.config as config({"methods": ["tasks/get"]})
	count(gate.deny) == 1 with input as task("tasks/cancel") with data.config as config({"methods": ["tasks/get"]})
}

test_requests_and_results_that_are_tasks_are_denied if {
	every value in [{}, {"ttl": 1}, null, false] {
		count(gate.deny) == 1 with input as {"method": "tools/call", "kind": "request", "server": "box", "params": {"task": value}}
		count(gate.deny) == 0 with input as {"method": "tools/call", "kind": "request", "server": "box", "params": {"task": value}} with data.config as config({})
	}
	count(gate.deny) == 0 with input as {"method": "tools/call", "kind": "request", "server": "box", "params": {"arguments": {"task": "x"}}}
	count(gate.deny) == 1 with input as {"method": "tools/call", "kind": "response", "server": "box", "result": {"task": {"taskId": "1"}}}
	count(gate.deny) == 1 with input as {"method": "tools/call", "kind": "response", "server": "box", "result": {"resultType": "task", "taskId": "1"}}
	count(gate.deny) == 0 with input as {"method": "tools/call", "kind": "response", "server": "box", "result": {"content": []}}
	count(gate.deny) == 0 with input as {"method": "tools/list", "kind": "request", "server": "box"}
}

listen(filter) := {"method": "subscriptions/listen", "kind": "request", "server": "box", "params": {"notifications": filter}}

test_subscriptions_to_tasks_are_denied if {
	count(gate.deny) == 1 with input as listen({"taskIds": ["1"]})
	count(gate.deny) == 0 with input as listen({"taskIds": ["1"]}) with data.config as config({})
	count(gate.deny) == 0 with input as listen({"taskIds": [], "toolsListChanged": true})
}
