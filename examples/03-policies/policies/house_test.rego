package gatekit.house_test

import data.gatekit.house

note(text, labels) := {
	"direction": "to_server", "kind": "request", "method": "tools/call",
	"server": "notes", "name": "add_note",
	"params": {"name": "add_note", "arguments": {"note": text}},
	"session": {"labels": labels},
}

response_for(path) := {
	"direction": "to_client", "kind": "response", "method": "tools/call",
	"server": "files", "name": "read_file",
	"request": {"name": "read_file", "arguments": {"path": path}},
}

test_tools_that_delete_are_hidden if {
	house.hide == {"delete_file"} with input as {
		"kind": "response", "method": "tools/list",
		"items": [{"name": "read_file"}, {"name": "delete_file"}],
	}
}

test_code_names_are_redacted if {
	some r in house.redact with input as response_for("welcome.txt")
	regex.replace("The Blue Heron ships.", r.pattern, r["with"]) == "The [codename] ships."
}

test_no_notes_after_reading_a_plan if {
	every path in {
		"plan.txt", "./plan.txt", "/srv/files/plan.txt", "drafts/../plan.txt", "plan.txt/.",
		"Plan.txt", "plans/may.txt", `drafts\plan.txt`,
	} {
		house.label == {"plans"} with input as response_for(path)
	}
	count(house.deny) == 1 with input as note("anything", ["plans"])
}

test_other_notes_are_allowed if {
	every path in {"welcome.txt", "/srv/files/airplane.txt", "drafts/no-plan.txt"} {
		count(house.label) == 0 with input as response_for(path)
	}
	count(house.deny) == 0 with input as note("anything", [])
	count(house.ask) == 0 with input as note("anything", [])
}

test_note_about_a_customer_needs_approval if {
	house.ask == {"the note is about a customer"} with input as note("Call the Customer", [])
}
