# METADATA
# title: Describe this policy in one line
# description: |
#   Policies get every message as `input`. `gatekit policy explain` prints the input for a message.
#   A message that no rule denies passes.
#   To record the decisions without enforcing them, add `custom: {mode: shadow}` here.
package gatekit.policy_name

# deny stops a message. The text is the reason in the audit log. This rule denies calls of some
# tools.
deny contains sprintf("%s is not for agents", [input.name]) if {
	input.kind == "request"
	input.method == "tools/call"
	input.name in denied_tools
}

# hide removes these tools from lists, too.
hide contains item.name if {
	input.kind == "response"
	input.method == "tools/list"
	some item in input.items
	item.name in denied_tools
}

denied_tools := {"delete_everything"}

# Other effects:
#   redact contains {"path": "/arguments/token", "with": "[gone]"}
#   set contains {"path": …, "value": …}
#   ask contains {"reason": …}            # a person must approve the message
#   label contains "tainted"              # stays with the session, in input.session.labels
#   note contains …                       # text for the audit log
