# METADATA
# title: Blocks outgoing calls after a session has read private data and untrusted content.
# description: |
#   Untrusted content can contain instructions that make a model send private data away. Once a
#   session has received both, this rule denies what could carry data to the tools and servers in
#   egress: calls, reads, vendor methods, answers and errors of the client, unknown task ids, and any
#   text in other messages that is not the client's description of itself or a word of the protocol.
#   The reason of a cancellation is removed.
#   The first message of a source puts the label flow/private or flow/untrusted on the session: a
#   result, an error, progress, a log message, a question, the state of a task. Lists of tools,
#   prompts and resources, and answers to initialize and server/discover, set no label. When several
#   tools of a server were called, questions and notifications count as those of each of them.
#   Labels stay until the session ends, or Gatekit with labels = "principal" in [policy].
#   Settings:
#     private, untrusted, egress: each {tools, servers}. tools are names or patterns; one that contains
#       __ means server__tool. servers are names or patterns, and stand for all that a server sends.
package gatekit.flow.exfiltration

import data.config["flow/exfiltration"] as config

label contains sprintf("flow/%s", [group]) if {
	input.direction == "to_client"
	not input.method in without_content
	some group in ["private", "untrusted"]
	in_group(group)
}

deny contains "this message could send out private data: the session has read private data and untrusted content" if {
	tainted
	sends_out
	in_group("egress")
}

redact contains {"path": "/reason", "with": "[removed]"} if {
	input.method == "notifications/cancelled"
	tainted
	in_group("egress")
}

tainted if {
	input.direction == "to_server"
	"flow/private" in input.session.labels
	"flow/untrusted" in input.session.labels
}

# What a server answers to these describes the server, or confirms.
without_content := {
	"initialize",
	"server/discover",
	"ping",
	"tools/list",
	"prompts/list",
	"resources/list",
	"resources/templates/list",
	"logging/setLevel",
	"subscriptions/listen",
}

# The other methods need a text of the model or the user.
may_lack_text := without_content | {
	"tasks/get",
	"tasks/result",
	"tasks/list",
	"tasks/cancel",
	"notifications/initialized",
	"notifications/cancelled",
	"notifications/roots/list_changed",
}

sends_out if not input.method in may_lack_text

sends_out if input.kind in {"response", "error"}

sends_out if {
	some name, value in params
	not is_protocol(name, value)
}

sends_out if {
	some key, value in meta
	not is_protocol_meta(key, value)
}

# The methods of the first rule need no look at their params, which may be large.
params := input.params if input.method in may_lack_text

meta := params._meta

is_protocol("_meta", _)

is_protocol("level", value) if value in levels

is_protocol("taskId", _) if _ = input.tools[0]

# These two are removed or replaced on the way.
is_protocol("requestId", _) if input.method == "notifications/cancelled"

is_protocol("reason", _) if input.method == "notifications/cancelled"

is_protocol(name, _) if {
	name in {"protocolVersion", "clientInfo", "capabilities"}
	input.method == "initialize"
}

is_protocol("notifications", filter) if {
	every name, value in filter {
		name in {"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds"}
		value in {true, false, []}
	}
}

# A number of any length could carry data.
is_protocol_meta("progressToken", value) if {
	is_number(value)
	value == floor(value)
	abs(value) < 9007199254740992
}

is_protocol_meta("io.modelcontextprotocol/protocolVersion", value) if regex.match(`^20\d\d-\d\d-\d\d$`, value)

is_protocol_meta("io.modelcontextprotocol/logLevel", value) if value in levels

# A client may describe itself as before, and for the first time.
is_protocol_meta(key, _) if {
	key in {"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities"}
	input.session.known_client
}

levels := {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

in_group(group) if from_server(group)

in_group(group) if {
	some tool in input.tools
	tool_is(config[group].tools, tool)
}

# The message is about a task that any tool of the server may have created.
in_group(group) if {
	not input.tools
	may_be_of_server(config[group].tools)
}

from_server(group) if {
	some pattern in config[group].servers
	glob.match(pattern, null, input.server)
}

# A pattern that contains __ matches the name as clients see it: server__tool.
tool_is(patterns, tool) if {
	some pattern in patterns
	not contains(pattern, "__")
	glob.match(pattern, null, tool)
}

tool_is(patterns, tool) if {
	some pattern in patterns
	contains(pattern, "__")
	glob.match(pattern, null, sprintf("%s__%s", [input.server, tool]))
}

may_be_of_server(patterns) if {
	some pattern in patterns
	not contains(pattern, "__")
}

may_be_of_server(patterns) if {
	some pattern in patterns
	glob.match(split(pattern, "__")[0], null, input.server)
}
