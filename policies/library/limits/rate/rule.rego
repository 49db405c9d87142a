# METADATA
# title: Calls are limited
# description: |
#   Refuses calls of tools beyond a number in a session, or in any sixty seconds of it; the plugin limits knows more, and also limits results.
#   Calls that were refused do not count. Calls that are under way do, so that many at once are no way round.
#   Settings: per_session and per_minute, of all tools together; tools, a list of {tools, names or patterns (those with __ are server__tool); per_session; per_minute}, of each tool on its own.
package gatekit.limits.rate

import data.config["limits/rate"] as config

deny contains "too many calls in this session" if {
	input.method == "tools/call"
	input.kind == "request"
	object.get(input.session.calls, "", 0) >= config.per_session
}

deny contains "too many calls in a minute" if {
	input.method == "tools/call"
	input.kind == "request"
	object.get(input.session.minute, "", 0) >= config.per_minute
}

deny contains "too many calls of the tool in this session" if {
	input.method == "tools/call"
	input.kind == "request"
	some entry in config.tools
	tool_is(entry.tools)
	object.get(input.session.calls, sprintf("%s %s", [input.server, input.name]), 0) >= entry.per_session
}

deny contains "too many calls of the tool in a minute" if {
	input.method == "tools/call"
	input.kind == "request"
	some entry in config.tools
	tool_is(entry.tools)
	object.get(input.session.minute, sprintf("%s %s", [input.server, input.name]), 0) >= entry.per_minute
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
