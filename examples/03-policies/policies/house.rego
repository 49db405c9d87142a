# METADATA
# title: The rules of this house
# description: |
#   Nothing is deleted. Code names stay inside. What a plan says does not go into notes, and a note about a customer needs a human.
package gatekit.house

# The tools for it are not in the list, and cannot be called.
hide contains item.name if {
	input.method == "tools/list"
	input.kind == "response"
	some item in input.items
	startswith(item.name, "delete_")
}

# What a tool answers is gone through, whatever the tool.
redact contains {"pattern": `(?i)blue heron`, "with": "[codename]"} if {
	input.method == "tools/call"
	input.kind == "response"
}

# A label stays with the session to its end. It is the answer that tells a plan: input.request is what was asked for. A path has many spellings (./plan.txt, /srv/files/plan.txt): any part
# of it that begins so will do.
label contains "plans" if {
	input.method == "tools/call"
	input.kind == "response"
	input.server == "files"
	regex.match(`(?i)(^|[/\\])plan`, input.request.arguments.path)
}

deny contains "the session has read a plan, and notes are not for plans" if {
	noting
	"plans" in input.session.labels
}

ask contains "the note is about a customer" if {
	noting
	contains(lower(input.params.arguments.note), "customer")
}

noting if {
	input.method == "tools/call"
	input.kind == "request"
	input.server == "notes"
	input.name == "add_note"
}
