# METADATA
# title: Blocks outgoing calls after a session has read private data and untrusted content.
# description: |
#   Untrusted content can contain instructions that make a model send private data away. After a
#   session has received private data and untrusted content, this rule protects the tools and
#   servers in egress. It denies messages to them that could carry data: calls, reads, vendor
#   methods, results and errors of the client, and unknown task ids. It also denies messages with
#   any other text, except the client's description of itself and words of the protocol. It removes
#   the reason of a cancellation.
#   A message from a source puts the label flow/private or flow/untrusted on the session. Such
#   messages are results, errors, progress, log messages, server requests and task states. Lists of
#   tools, prompts and resources set no label, and neither do results of initialize and
#   server/discover. If several tools of a server were called, a request or notification of the
#   server counts as a message from each of these tools.
#   A message of any server sets flow/untrusted, too, if the plugin injection finds that it asks for
#   a call of another tool (steering/*), or that it completes a command that is split over several
#   results (*/split-over-results). The plugin must be configured for this.
#   Labels stay until the session ends. With labels = "principal" in [policy], they stay until
#   Gatekit ends. With [shared], all replicas know them. After this state was lost, sessions count
#   as having read both for session_idle.
#   Settings:
#     private: the sources of private data, as {tools, servers}.
#     untrusted: the sources of untrusted content, as {tools, servers}.
#     egress: the tools and servers through which data can leave, as {tools, servers}.
#     tools are names or patterns. A pattern that contains __ means server__tool. servers are names
#       or patterns, and stand for all messages of these servers.
package gatekit.flow.exfiltration

import data.config["flow/exfiltration"] as config

label contains sprintf("flow/%s", [group]) if {
	input.direction == "to_client"
	not input.method in without_content
	some group in ["private", "untrusted"]
	in_group(group)
}

label contains "flow/untrusted" if {
	input.direction == "to_client"
	not input.method in without_content
	some finding in input.findings
	is_of_strangers(finding.type)
}

# The types of findings about words of strangers, whichever server has sent them.
is_of_strangers(type) if startswith(type, "steering/")

is_of_strangers(type) if endswith(type, "/split-over-results")

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

# True for a message to a server, when the session has received private data and untrusted content.
tainted if {
	input.direction == "to_server"
	"flow/private" in input.session.labels
	"flow/untrusted" in input.session.labels
}

# Gatekit has lost the labels of the session, which its replicas share. It may have had both.
tainted if {
	input.direction == "to_server"
	"lost" in input.session.labels
}

# A result of one of these methods describes the server, or confirms the request.
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

# A message of one of these methods may lack a text of the model or of the user. All other methods
# need such a text.
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

# For all other methods, the first rule of sends_out decides without a look at the params, which may
# be large.
params := input.params if input.method in may_lack_text

meta := params._meta

is_protocol("_meta", _)

is_protocol("level", value) if value in levels

# A task is known if Gatekit knows the tool that created it. For a notification, input.tools has
# other tools: those that the session has called.
is_protocol("taskId", _) if {
	input.method in {"tasks/get", "tasks/result", "tasks/cancel"}
	input.kind == "request"
	_ = input.tools[0]
}

# Gatekit replaces the requestId of a cancellation. The rule redact above replaces the reason.
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

# Only integers below 2^53 are allowed, because a longer number could carry data.
is_protocol_meta("progressToken", value) if {
	is_number(value)
	value == floor(value)
	abs(value) < 9007199254740992
}

is_protocol_meta("io.modelcontextprotocol/protocolVersion", value) if regex.match(`^20\d\d-\d\d-\d\d$`, value)

is_protocol_meta("io.modelcontextprotocol/logLevel", value) if value in levels

# A client may describe itself for the first time, or in the same way as before.
is_protocol_meta(key, _) if {
	key in {"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities"}
	input.session.known_client
}

levels := {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

# True when the message is from, or for egress to, a server or tool of the group.
in_group(group) if server_in_group(group)

in_group(group) if {
	some tool in input.tools
	tool_is(config[group].tools, tool)
}

# The message is about a task that any tool of the server may have created.
in_group(group) if {
	not input.tools
	may_be_of_server(config[group].tools)
}

server_in_group(group) if {
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
