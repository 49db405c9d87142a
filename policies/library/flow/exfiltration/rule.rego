# METADATA
# title: Blocks outgoing calls after a session has read private data and untrusted content.
# description: |
#   Untrusted content can contain instructions that make a model send private data away. Once a
#   session has received both, this rule denies calls to the tools and servers in egress, and the
#   client's answers to requests of those servers.
#   Results (also errors) of tools, resources and prompts, and requests and notifications from servers
#   put the label flow/private or flow/untrusted on the session. Labels stay until the session ends.
#   Settings:
#     private, untrusted, egress: each {tools, servers}. tools are names or patterns; one that contains
#       __ means server__tool. servers are names or patterns, and stand for all that a server sends.
package gatekit.flow.exfiltration

import data.config["flow/exfiltration"] as config

label contains sprintf("flow/%s", [group]) if {
	input.method in {"tools/call", "resources/read", "prompts/get", "completion/complete", "tasks/result", "tasks/get"}
	input.kind in {"response", "error"}
	some group in ["private", "untrusted"]
	in_group(group)
}

# Requests and notifications from a server also reach the model.
label contains sprintf("flow/%s", [group]) if {
	input.direction == "to_client"
	input.kind in {"request", "notification"}
	some group in ["private", "untrusted"]
	from_server(group)
}

deny contains "this message could send out private data: the session has read private data and untrusted content" if {
	sends_out
	in_group("egress")
	"flow/private" in input.session.labels
	"flow/untrusted" in input.session.labels
}

sends_out if {
	input.method in {"tools/call", "resources/read", "resources/subscribe", "resources/unsubscribe", "prompts/get", "completion/complete", "tasks/update"}
	input.kind == "request"
}

sends_out if {
	input.method == "subscriptions/listen"
	input.kind == "request"
	_ = input.params.notifications.resourceSubscriptions[_] # a server could encode data in the URIs
}

# Answers of the model, or of the user, to a server.
sends_out if {
	input.method in {"sampling/createMessage", "elicitation/create", "tasks/get", "tasks/result"}
	input.kind == "response"
	input.direction == "to_server"
}

in_group(group) if from_server(group)

in_group(group) if {
	input.method == "tools/call"
	tool_is(config[group].tools)
}

from_server(group) if {
	some pattern in config[group].servers
	glob.match(pattern, null, input.server)
}

# A pattern that contains __ matches the name as clients see it: server__tool.
tool_is(patterns) if {
	some pattern in patterns
	not contains(pattern, "__")
	glob.match(pattern, null, input.name)
}

tool_is(patterns) if {
	some pattern in patterns
	contains(pattern, "__")
	glob.match(pattern, null, sprintf("%s__%s", [input.server, input.name]))
}
