# METADATA
# title: Limits how often tools are called.
# description: |
#   Denies tool calls that exceed a limit for the session, or for any sixty seconds of the session.
#   The built-in plugin "limits" has more kinds of limits, and also limits the size of results.
#   Denied calls do not count. Calls in flight do count, so concurrent calls cannot exceed a limit.
#   Settings:
#     per_session, per_minute: the maximum number of calls of all tools together.
#     tools: a list of {tools, per_session, per_minute}. An entry limits each of its tools
#       separately. The tools of an entry are names or patterns. A pattern that contains __ means
#       server__tool.
package gatekit.limits.rate

import data.config["limits/rate"] as config

deny contains "too many calls in this session" if {
	input.method == "tools/call"
	input.kind == "request"
	object.get(input.session.calls, "", 0) >= config.per_session
}

deny contains "too many calls within a minute" if {
	input.method == "tools/call"
	input.kind == "request"
	object.get(input.session.minute, "", 0) >= config.per_minute
}

deny contains "too many calls of this tool in this session" if {
	input.method == "tools/call"
	input.kind == "request"
	some entry in config.tools
	tool_is(entry.tools)
	object.get(input.session.calls, sprintf("%s %s", [input.server, input.name]), 0) >= entry.per_session
}

deny contains "too many calls of this tool within a minute" if {
	input.method == "tools/call"
	input.kind == "request"
	some entry in config.tools
	tool_is(entry.tools)
	object.get(input.session.minute, sprintf("%s %s", [input.server, input.name]), 0) >= entry.per_minute
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
