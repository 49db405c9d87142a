# METADATA
# title: Resources without what is nobody's business
# description: |
#   Replaces what matches a pattern in the resources whose URIs are named, in any spelling of them, as they are read or come within the results of tools, tasks and prompts.
#   A resource that is meant and is no text (a blob) cannot be searched, and is refused.
#   Settings: rules, a list of {uris, patterns with *; pattern, in RE2; with, what stands there instead; blobs, true lets blobs pass}.
package gatekit.resources.redact

import data.config["resources/redact"] as config

redact contains {"pattern": entry.pattern, "with": entry["with"]} if {
	some entry in config.rules
	some resource in resources
	meant(entry, resource)
}

deny contains "a resource that is no text cannot be searched" if {
	some entry in config.rules
	not entry.blobs
	some resource in resources
	_ = resource.blob
	meant(entry, resource)
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

meant(entry, _) if {
	input.method == "resources/read" # what was asked for, whatever the answer calls it
	matches(entry, input.name)
}

meant(entry, resource) if matches(entry, resource.uri)

# The server may take another spelling for the same, %2E for a dot.
matches(entry, uri) if {
	some reading in gatekit.uri.readings(uri)
	some pattern in entry.uris
	glob.match(lower(pattern), null, reading)
}
