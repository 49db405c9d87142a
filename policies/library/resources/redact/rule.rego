# METADATA
# title: Resources without what is nobody's business
# description: |
#   Replaces what matches a pattern in the resources whose URIs are named, as they are read or come within the results of tools and prompts.
#   A resource that is meant and is no text (a blob) cannot be searched, and is refused.
#   Settings: rules, a list of {uris, patterns with *; pattern, in RE2; with, what stands there instead; blobs, true lets blobs pass}.
package gatekit.resources.redact

import data.config["resources/redact"] as config

redact contains {"pattern": entry.pattern, "with": entry["with"]} if {
	input.method in {"resources/read", "tools/call", "prompts/get"}
	input.kind == "response"
	some entry in config.rules
	some resource in resources
	meant(entry, resource)
}

deny contains "a resource that is no text cannot be searched" if {
	input.method in {"resources/read", "tools/call", "prompts/get"}
	input.kind == "response"
	some entry in config.rules
	not entry.blobs
	some resource in resources
	_ = resource.blob
	meant(entry, resource)
}

resources contains resource if {
	input.method == "resources/read"
	some resource in input.result.contents
}

resources contains block.resource if {
	input.method == "tools/call"
	some block in input.result.content
}

resources contains message.content.resource if {
	input.method == "prompts/get"
	some message in input.result.messages
}

meant(entry, _) if {
	input.method == "resources/read" # what was asked for, whatever the answer calls it
	some pattern in entry.uris
	glob.match(pattern, null, input.name)
}

meant(entry, resource) if {
	some pattern in entry.uris
	glob.match(pattern, null, resource.uri)
}
