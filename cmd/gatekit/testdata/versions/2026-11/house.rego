# METADATA
# title: Policies of the team
package gatekit.house

# Servers that ask the client's model do not get the context of other servers.
set contains {"path": "/includeContext", "value": "none"} if {
	input.method == "sampling/createMessage"
	input.kind == "request"
}

# Another policy of the session.
# deny contains "no more files today" if { input.server == "files"; input.kind == "request" }
