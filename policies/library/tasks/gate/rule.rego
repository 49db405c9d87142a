# METADATA
# title: Allows tasks only with the servers that its settings name.
# description: |
#   Denies requests and notifications about tasks, requests that ask to run as a task, and results
#   that are a task, for every server that the settings do not name. A task outlives the call that
#   created it, so the task may act when nobody is waiting for its result.
#   Settings:
#     servers: names or patterns (absent: none).
#     methods: the task methods that are allowed with these servers (absent: all).
package gatekit.tasks.gate

import data.config["tasks/gate"] as config

deny contains "tasks are not allowed with the server" if {
	input.kind in {"request", "notification"}
	about_tasks
	not allowed
}

deny contains "this task method is not allowed with the server" if {
	input.kind in {"request", "notification"}
	about_tasks
	config.methods
	not method_allowed
}

deny contains "tasks are not allowed with the server" if {
	input.method == "subscriptions/listen"
	_ = input.params.notifications.taskIds[_]
	not allowed
}

deny contains "the request asks to run as a task" if {
	input.kind == "request"
	_ = input.params.task
	not allowed
}

deny contains "the result is a task" if {
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

method_allowed if {
	some pattern in config.methods
	glob.match(pattern, null, input.method)
}
