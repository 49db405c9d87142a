# METADATA
# title: Redacts sensitive text in resources.
# description: |
#   Replaces text that matches a pattern. The rule searches the resources with the given URIs (in
#   any spelling) in results of resources/read, tools, tasks and prompts. A selected resource that
#   is not text (a blob) cannot be searched, so the message is denied.
#   Settings:
#     rules: a list of {uris, pattern, with, blobs}. "uris" are patterns with *. "pattern" is an RE2
#       pattern. "with" is the replacement. If "blobs" is true, blobs pass.
package gatekit.resources.redact

import data.config["resources/redact"] as config

redact contains {"pattern": entry.pattern, "with": entry["with"]} if {
	some entry in config.rules
	some resource in resources
	selected(entry, resource)
}

deny contains "a resource that is not text cannot be searched" if {
	some entry in config.rules
	not entry.blobs
	some resource in resources
	_ = resource.blob
	selected(entry, resource)
}

resources contains resource if {
	input.method == "resources/read"
	input.kind == "response"
	some resource in input.result.contents
}

resources contains block.resource if {
	input.method in {"tools/call", "tasks/result"}
	input.kind == "response"
	some block in input.result.content
}

resources contains block.resource if {
	input.method == "tasks/get"
	input.kind == "response"
	some block in input.result.result.content
}

resources contains block.resource if {
	input.method == "notifications/tasks"
	input.kind == "notification"
	some block in input.params.result.content
}

resources contains message.content.resource if {
	input.method == "prompts/get"
	input.kind == "response"
	some message in input.result.messages
}

selected(entry, _) if {
	input.method == "resources/read" # compare the requested URI: the result may have another one
	matches(entry, input.name)
}

selected(entry, resource) if matches(entry, resource.uri)

# A server may accept other spellings of the same URI, such as %2E for a dot.
matches(entry, uri) if {
	some spelling in gatekit.uri.readings(uri)
	some pattern in entry.uris
	glob.match(lower(pattern), null, spelling)
}
