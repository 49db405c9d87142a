package gatekit.tools.schema_test

import data.gatekit.tools.schema

call(check) := {"method": "tools/call", "kind": "request", "server": "files", "name": "read", "schema": check}

result(check) := {"method": "tools/call", "kind": "response", "server": "files", "name": "read", "schema": check}

with_problem := {"state": "mismatch", "reason": "", "problems": ["/x is of type number, not string"], "undeclared": []}

with_undeclared := {"state": "undeclared", "reason": "", "problems": [], "undeclared": ["y"]}

unlisted := {"state": "unlisted", "unlisted": "first", "reason": "", "problems": [], "undeclared": []}

again := {"state": "unlisted", "unlisted": "again", "reason": "", "problems": [], "undeclared": []}

unusable := {"state": "unusable", "reason": "the schema is too large", "problems": [], "undeclared": []}

test_problems_are_notes_by_default if {
	count(schema.deny) == 0 with input as call(with_problem)
	schema.note == {"argument /x is of type number, not string"} with input as call(with_problem)
	count(schema.deny) == 0 with input as result(with_problem)
	schema.note == {"structuredContent /x is of type number, not string"} with input as result(with_problem)
	count(schema.note) == 0 with input as call(with_undeclared)
	count(schema.note) == 1 with input as call(unlisted)
	count(schema.note) == 0 with input as call(again)
	count(schema.note) == 0 with input as result(unlisted)
	count(schema.note) == 1 with input as call(unusable)
	count(schema.note) == 1 with input as result(unusable)
}

test_settings_deny if {
	count(schema.deny) == 1 with input as call(with_problem) with data.config as {"tools/schema": {"arguments": "deny"}}
	count(schema.deny) == 0 with input as result(with_problem) with data.config as {"tools/schema": {"arguments": "deny"}}
	count(schema.deny) == 1 with input as result(with_problem) with data.config as {"tools/schema": {"results": "deny"}}
	count(schema.deny) == 1 with input as call(with_undeclared) with data.config as {"tools/schema": {"undeclared": "deny"}}
	count(schema.note) == 1 with input as call(with_undeclared) with data.config as {"tools/schema": {"undeclared": "note"}}
	count(schema.deny) == 1 with input as call(unlisted) with data.config as {"tools/schema": {"unlisted": "deny"}}
	count(schema.deny) == 1 with input as call(again) with data.config as {"tools/schema": {"unlisted": "deny"}}
	count(schema.deny) == 0 with input as call(unusable) with data.config as {"tools/schema": {"arguments": "deny", "undeclared": "deny", "unlisted": "deny", "results": "deny"}}
	count(schema.deny) == 0 with input as call(with_problem) with data.config as {"tools/schema": {"arguments": "deny", "servers": ["other"]}}
}
