# METADATA
# title: Only tools that are named
# description: |
#   Hides every tool that is not named, and refuses to call one. Without settings there are none.
#   A tool that a server adds later, or renames, is not seen before somebody has named it.
#   Settings: tools, names or patterns with * (those with __ are server__tool, others apply to every server); servers, by a server's name the names or patterns of its tools.
package gatekit.tools.allowlist

import data.config["tools/allowlist"] as config

hide contains item.name if {
	input.method == "tools/list"
	input.kind == "response"
	some item in input.items
	not allowed(item.name)
}

deny contains "the tool is not allowed" if {
	input.method == "tools/call"
	input.kind == "request"
	not known # not allowed(input.name), which holds nothing when there is no name
}

known if allowed(input.name)

allowed(name) if {
	some pattern in config.tools
	not contains(pattern, "__")
	glob.match(pattern, null, name)
}

allowed(name) if {
	some pattern in config.tools
	contains(pattern, "__")
	glob.match(pattern, null, sprintf("%s__%s", [input.server, name]))
}

allowed(name) if {
	some pattern in config.servers[input.server]
	glob.match(pattern, null, name)
}
