# METADATA
# title: Tasks only where they are allowed
# description: |
#   Refuses requests and notifications about tasks, requests that are to run as one, and answers that turn out to be one, but for the servers that are named.
#   A task outlives the call that began it: what it does later is not asked for by anybody who waits.
#   Settings: servers, names or patterns (none); methods, those about tasks that are allowed there (all).
package gatekit.tasks.gate

import data.config["tasks/gate"] as config

deny contains "tasks are not allowed" if {
	input.kind in {"request", "notification"}
	about_tasks
	not allowed
}

deny contains "this is not allowed with tasks" if {
	input.kind in {"request", "notification"}
	about_tasks
	config.methods
	not permitted
}

deny contains "tasks are not allowed" if {
	input.method == "subscriptions/listen"
	_ = input.params.notifications.taskIds[_]
	not allowed
}

deny contains "it is to run as a task" if {
	input.kind == "request"
	_ = input.params.task
	not allowed
}

deny contains "the answer is a task" if {
	input.kind == "response"
	not about_tasks
	is_task
	not allowed
}

about_tasks if regex.match(`^(notifications/)?tasks(/|$)`, input.method)

is_task if _ = input.result.task

is_task if input.result.resultType == "task"

allowed if {
	some pattern in config.servers
	glob.match(pattern, null, input.server)
}

permitted if {
	some pattern in config.methods
	glob.match(pattern, null, input.method)
}
