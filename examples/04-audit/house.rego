# METADATA
# title: Rules of the house
package gatekit.house

# Servers that ask the client's model are not told what other servers said.
set contains {"path": "/includeContext", "value": "none"} if {
	input.method == "sampling/createMessage"
	input.kind == "request"
}

# The session takes the comment sign away.
# deny contains "no more files today" if { input.server == "files"; input.kind == "request" }
