# METADATA
# title: Allows only tools that declare themselves read-only.
# description: |
#   Hides every tool whose definition lacks annotations.readOnlyHint = true, and denies calls to it.
#   A tool that was never listed is denied as well.
#   The server writes the annotations: use this rule only with servers that you trust.
#   Settings:
#     except: tools that are allowed whatever they declare. Names or patterns with *. A pattern that
#       contains __ means server__tool.
package gatekit.tools.readonly

import data.config["tools/readonly"] as config

hide contains item.name if {
	input.method == "tools/list"
	input.kind == "response"
	some item in input.items
	not read_only(item)
	not excepted(item.name)
}

deny contains "the tool does not declare itself read-only" if {
	input.method == "tools/call"
	input.kind == "request"
	not declared_read_only # `not read_only(input.item)` is undefined when the tool was never listed
	not excepted(input.name)
}

declared_read_only if read_only(input.item)

read_only(item) if item.annotations.readOnlyHint == true

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
