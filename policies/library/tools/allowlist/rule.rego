# METADATA
# title: Allows only the tools that its settings name.
# description: |
#   Hides every tool that the settings do not name, and denies calls to it. Without settings, no
#   tool is allowed.
#   A tool that a server adds or renames later stays hidden until somebody adds it to the settings.
#   Settings:
#     tools: names or patterns with *, for every server. A pattern that contains __ means
#       server__tool.
#     servers: for each server's name, the names or patterns of its tools.
package gatekit.tools.allowlist

import data.config["tools/allowlist"] as config

hide contains item.name if {
	input.method == "tools/list"
	input.kind == "response"
	some item in input.items
	not allowed(item.name)
}

deny contains "the tool is not in the allowlist" if {
	input.method == "tools/call"
	input.kind == "request"
	not listed # `not allowed(input.name)` is undefined when there is no name
}

listed if allowed(input.name)

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
