# METADATA
# title: Blocks methods that the MCP specification does not define.
# description: |
#   Denies requests and notifications with a method that no revision of the specification defines,
#   in both directions. Allows the methods in the settings, and those of the extensions for tasks
#   and skills. Most other rules do not check methods that the specification does not define.
#   Settings:
#     methods: names or patterns of methods that are allowed with every server.
#     servers: for each server's name, the names or patterns of methods that are allowed with it.
package gatekit.vendor.methods

import data.config["vendor/methods"] as config

deny contains "the MCP specification does not define the method" if {
	input.kind in {"request", "notification"}
	not input.method in defined
	not allowed
}

deny contains "the message has no method" if {
	input.kind in {"request", "notification"}
	not has_method
}

has_method if is_string(input.method)

allowed if {
	some pattern in config.methods
	glob.match(pattern, null, input.method)
}

allowed if {
	some pattern in config.servers[input.server]
	glob.match(pattern, null, input.method)
}

defined := {
	"initialize",
	"server/discover",
	"ping",
	"tools/list",
	"tools/call",
	"resources/list",
	"resources/templates/list",
	"resources/read",
	"resources/subscribe",
	"resources/unsubscribe",
	"resources/directory/read",
	"skills/list",
	"skills/get",
	"prompts/list",
	"prompts/get",
	"completion/complete",
	"logging/setLevel",
	"subscriptions/listen",
	"tasks/get",
	"tasks/result",
	"tasks/list",
	"tasks/cancel",
	"tasks/update",
	"sampling/createMessage",
	"roots/list",
	"elicitation/create",
	"notifications/initialized",
	"notifications/cancelled",
	"notifications/progress",
	"notifications/message",
	"notifications/tools/list_changed",
	"notifications/prompts/list_changed",
	"notifications/resources/list_changed",
	"notifications/resources/updated",
	"notifications/roots/list_changed",
	"notifications/elicitation/complete",
	"notifications/tasks/status",
	"notifications/tasks",
	"notifications/subscriptions/acknowledged",
}
