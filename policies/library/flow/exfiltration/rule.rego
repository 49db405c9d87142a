# METADATA
# title: Private data and strangers' words do not leave together
# description: |
#   Once a session has had private data and words of strangers, it refuses the calls by which something can leave, and the client's answers to servers of egress: what strangers wrote could have asked for that.
#   The session is labelled by the answers (also errors) of tools, resources and prompts, and keeps its labels to its end.
#   Settings: private, untrusted and egress, each {tools, names or patterns (those with __ are server__tool); servers, names or patterns, for all that they answer}.
package gatekit.flow.exfiltration

import data.config["flow/exfiltration"] as config

label contains sprintf("flow/%s", [sort]) if {
	input.method in {"tools/call", "resources/read", "prompts/get", "completion/complete", "tasks/result", "tasks/get"}
	input.kind in {"response", "error"}
	some sort in ["private", "untrusted"]
	among(sort)
}

# What a server asks, and tells, reaches the model as well.
label contains sprintf("flow/%s", [sort]) if {
	input.direction == "to_client"
	input.kind in {"request", "notification"}
	some sort in ["private", "untrusted"]
	served(sort)
}

deny contains "the session has private data and words of strangers, and this could carry them out" if {
	carries
	among("egress")
	"flow/private" in input.session.labels
	"flow/untrusted" in input.session.labels
}

carries if {
	input.method in {"tools/call", "resources/read", "resources/subscribe", "resources/unsubscribe", "prompts/get", "completion/complete", "tasks/update"}
	input.kind == "request"
}

carries if {
	input.method == "subscriptions/listen"
	input.kind == "request"
	_ = input.params.notifications.resourceSubscriptions[_] # URIs, of which a server can be told by asking for them
}

# What the model, or the user, answers a server.
carries if {
	input.method in {"sampling/createMessage", "elicitation/create", "tasks/get", "tasks/result"}
	input.kind == "response"
	input.direction == "to_server"
}

among(sort) if served(sort)

among(sort) if {
	input.method == "tools/call"
	tool_is(config[sort].tools)
}

served(sort) if {
	some pattern in config[sort].servers
	glob.match(pattern, null, input.server)
}

# A pattern with __ is that of a name as clients see it, server__tool.
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
