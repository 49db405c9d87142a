# METADATA
# title: What this policy is for, in a line
# description: |
#   Every message is shown to the policies as `input`; `gatekit policy explain` prints one. A policy lets pass what it says nothing of.
#   With `custom: {mode: shadow}` here it is judged and recorded, and not enforced.
package gatekit.policy_name

# deny refuses a message; the text is the reason, for the audit log. Here: a call of a tool that is not for agents.
deny contains sprintf("%s is not for agents", [input.name]) if {
	input.kind == "request"
	input.method == "tools/call"
	input.name in refused
}

# hide takes such a tool out of the list, too.
hide contains item.name if {
	input.kind == "response"
	input.method == "tools/list"
	some item in input.items
	item.name in refused
}

refused := {"delete_everything"}

# There is also: redact contains {"path": "/arguments/token", "with": "[gone]"}, set contains {"path": …, "value": …}, ask contains {"reason": …} (a human has to approve),
# label contains "tainted" (stays with the session, as input.session.labels), note contains … (for the audit log).
