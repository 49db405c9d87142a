# METADATA
# title: Only methods that are known
# description: |
#   Refuses requests and notifications, in both directions, whose method no revision of the specification has, but for those that are named.
#   What nobody knows nobody can judge: no other rule says anything of such a message.
#   Settings: methods, names or patterns; servers, by a server's name those that are allowed with it alone.
package gatekit.vendor.methods

import data.config["vendor/methods"] as config

deny contains "the method is not known" if {
	input.kind in {"request", "notification"}
	not input.method in known
	not allowed
}

deny contains "there is no method" if {
	input.kind in {"request", "notification"}
	not named
}

named if is_string(input.method)

allowed if {
	some pattern in config.methods
	glob.match(pattern, null, input.method)
}

allowed if {
	some pattern in config.servers[input.server]
	glob.match(pattern, null, input.method)
}

known := {
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
