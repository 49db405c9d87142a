# METADATA
# title: Checks arguments and results against the tool's own schemas.
# description: |
#   Compares the arguments of a call with the inputSchema that the server listed for the tool in
#   this session, and structuredContent of the result with the outputSchema. Formats such as "email"
#   are not checked. If the tool was not listed, the rule adds a note to its first call that passes
#   in the session. If the schema cannot be compiled, the rule adds a note. The check is bounded in size, depth and steps, and loads no other documents.
#   Settings:
#     arguments: "deny" denies arguments that do not match (default: "note", in the audit record).
#     results: "deny" denies results that do not match (default: "note").
#     undeclared: "deny" also denies arguments that the schema does not declare, if it does not say
#       whether there may be others; "note" adds a note (default: they are allowed).
#     unlisted: "deny" denies calls of tools that were not listed (default: "note").
#     servers: the servers to which the rule applies (absent: all).
package gatekit.tools.schema

import data.config["tools/schema"] as config

deny contains sprintf("argument %s", [problem]) if {
	input.method == "tools/call"
	input.kind == "request"
	config.arguments == "deny"
	applies
	input.schema.state == "mismatch"
	some problem in input.schema.problems
}

deny contains sprintf("the schema does not declare the argument %s", [name]) if {
	input.method == "tools/call"
	input.kind == "request"
	config.undeclared == "deny"
	applies
	input.schema.state in {"undeclared", "mismatch"}
	some name in input.schema.undeclared
}

deny contains "the tool was not listed in this session: request tools/list first" if {
	input.method == "tools/call"
	input.kind == "request"
	config.unlisted == "deny"
	applies
	input.schema.state == "unlisted"
}

deny contains sprintf("structuredContent %s", [problem]) if {
	input.method == "tools/call"
	input.kind == "response"
	config.results == "deny"
	applies
	input.schema.state == "mismatch"
	some problem in input.schema.problems
}

note contains sprintf("argument %s", [problem]) if {
	input.method == "tools/call"
	input.kind == "request"
	object.get(config, "arguments", "note") == "note"
	applies
	input.schema.state == "mismatch"
	some problem in input.schema.problems
}

note contains sprintf("the schema does not declare the argument %s", [name]) if {
	input.method == "tools/call"
	input.kind == "request"
	config.undeclared == "note"
	applies
	input.schema.state in {"undeclared", "mismatch"}
	some name in input.schema.undeclared
}

note contains "the tool was not listed in this session, so its arguments are not checked" if {
	input.method == "tools/call"
	input.kind == "request"
	object.get(config, "unlisted", "note") == "note"
	applies
	input.schema.unlisted == "first"
}

note contains sprintf("the arguments are not checked: %s", [input.schema.reason]) if {
	input.method == "tools/call"
	input.kind == "request"
	applies
	input.schema.state == "unusable"
}

note contains sprintf("structuredContent %s", [problem]) if {
	input.method == "tools/call"
	input.kind == "response"
	object.get(config, "results", "note") == "note"
	applies
	input.schema.state == "mismatch"
	some problem in input.schema.problems
}

note contains sprintf("structuredContent is not checked: %s", [input.schema.reason]) if {
	input.method == "tools/call"
	input.kind == "response"
	applies
	input.schema.state == "unusable"
}

applies if not config.servers

applies if {
	some pattern in config.servers
	glob.match(pattern, null, input.server)
}
