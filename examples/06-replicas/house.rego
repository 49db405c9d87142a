# METADATA
# title: Policies of the team
# description: Text of a plan does not go into notes.
package gatekit.house

# Labels the session when a response shows that it has read a plan.
label contains "plans" if {
	input.method == "tools/call"
	input.kind == "response"
	input.server == "files"
	regex.match(`(?i)(^|[/\\])plan`, input.request.arguments.path)
}

deny contains "the session has read a plan" if {
	input.method == "tools/call"
	input.kind == "request"
	input.server == "notes"
	"plans" in input.session.labels
}
