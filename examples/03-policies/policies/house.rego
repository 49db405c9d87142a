# METADATA
# title: Policies of the team
# description: |
#   Nothing is deleted. Code names are redacted. Text of a plan does not go into notes. A note about
#   a customer needs approval.
package gatekit.house

# Tools that delete are not in the list, and cannot be called.
hide contains item.name if {
	input.method == "tools/list"
	input.kind == "response"
	some item in input.items
	startswith(item.name, "delete_")
}

# Redacts code names in the results of all tools.
redact contains {"pattern": `(?i)blue heron`, "with": "[codename]"} if {
	input.method == "tools/call"
	input.kind == "response"
}

# Labels the session when it has read a plan. The label stays until the session ends. The rule is for
# responses, because only a response shows that the plan was read. input.request has the params of
# its request. A path has many spellings (./plan.txt, /srv/files/plan.txt). So the path of a plan is
# any path with a part that begins with "plan".
label contains "plans" if {
	input.method == "tools/call"
	input.kind == "response"
	input.server == "files"
	regex.match(`(?i)(^|[/\\])plan`, input.request.arguments.path)
}

deny contains "the session has read a plan, and notes are not for plans" if {
	adds_note
	"plans" in input.session.labels
}

ask contains "the note is about a customer" if {
	adds_note
	contains(lower(input.params.arguments.note), "customer")
}

adds_note if {
	input.method == "tools/call"
	input.kind == "request"
	input.server == "notes"
	input.name == "add_note"
}
