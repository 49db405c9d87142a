# METADATA
# title: Only tools that read
# description: |
#   Hides every tool whose definition does not say that it only reads (annotations.readOnlyHint), and refuses to call one.
#   Annotations are the server's own word: use it for servers that you trust to say the truth. A tool that was never listed is refused.
#   Settings: except, names or patterns with * (those with __ are server__tool) of tools that are allowed whatever they say.
package gatekit.tools.readonly

import data.config["tools/readonly"] as config

hide contains item.name if {
	input.method == "tools/list"
	input.kind == "response"
	some item in input.items
	not reads(item)
	not excepted(item.name)
}

deny contains "the tool does not say that it only reads" if {
	input.method == "tools/call"
	input.kind == "request"
	not known_reader # not reads(input.item), which holds nothing when the tool was never listed
	not excepted(input.name)
}

known_reader if reads(input.item)

reads(item) if item.annotations.readOnlyHint == true

excepted(name) if {
	some pattern in config.except
	not contains(pattern, "__")
	glob.match(pattern, null, name)
}

excepted(name) if {
	some pattern in config.except
	contains(pattern, "__")
	glob.match(pattern, null, sprintf("%s__%s", [input.server, name]))
}
