# METADATA
# title: Resources of allowed schemes and hosts only
# description: |
#   Refuses to read, and hides, resources whose URIs run code or hold their content (javascript, data, …), have a user in them, are read differently by different readers, or lead into this
#   machine or network in any spelling: loopback, private, link-local, metadata addresses, as decimal, octal or hexadecimal numbers, within IPv6. Refuses results with links to such.
#   Settings: schemes and hosts, names or patterns of those that are allowed (all others are refused); deny_schemes and deny_hosts; internal, hosts that are allowed although they are inside.
package gatekit.resources.uris

import data.config["resources/uris"] as config

deny contains sprintf("the URI: %s", [why]) if {
	input.method in {"resources/read", "resources/subscribe", "resources/unsubscribe"}
	input.kind == "request"
	some why in faults(name)
}

default name := null

name := input.name

deny contains sprintf("the URI template: %s", [why]) if {
	input.method == "completion/complete"
	input.kind == "request"
	input.params.ref.type == "ref/resource"
	some why in faults(filled(object.get(input.params.ref, "uri", null)))
}

hide contains item.uri if {
	input.method == "resources/list"
	input.kind == "response"
	some item in input.items
	count(faults(item.uri)) > 0
}

hide contains item.uriTemplate if {
	input.method == "resources/templates/list"
	input.kind == "response"
	some item in input.items
	count(faults(filled(item.uriTemplate))) > 0
}

hide contains uri if {
	input.method == "subscriptions/listen"
	input.kind == "request"
	some uri in input.params.notifications.resourceSubscriptions
	count(faults(uri)) > 0
}

deny contains sprintf("a link in the result: %s", [why]) if {
	some block in blocks
	block.type == "resource_link"
	some why in faults(object.get(block, "uri", null))
}

blocks contains block if {
	input.method in {"tools/call", "tasks/result"}
	input.kind == "response"
	some block in input.result.content
}

blocks contains block if {
	input.method == "tasks/get"
	input.kind == "response"
	some block in input.result.result.content
}

blocks contains block if {
	input.method == "notifications/tasks"
	input.kind == "notification"
	some block in input.params.result.content
}

deny contains sprintf("a link in the prompt: %s", [why]) if {
	input.method == "prompts/get"
	input.kind == "response"
	some message in input.result.messages
	message.content.type == "resource_link"
	some why in faults(object.get(message.content, "uri", null))
}

# What stands for a variable of a template is judged when it is filled in and read.
filled(template) := regex.replace(template, `\{[^}]*\}`, "x1.example") if is_string(template)

filled(template) := null if not is_string(template)

faults(uri) := {"it is no text"} if not is_string(uri)

faults(uri) := {why | some why in reasons(gatekit.uri.parse(uri))} if is_string(uri)

reasons(parsed) := {why | some why, true in {
	parsed.fault: parsed.fault != "",
	"it has a user in it": parsed.user,
	sprintf("its host is %s", [parsed.special]): inside(parsed),
	sprintf("the scheme %s is not allowed", [parsed.scheme]): foreign_scheme(parsed.scheme),
	sprintf("the host %s is not allowed", [parsed.host]): foreign_host(parsed),
}}

default inside(_) := false

inside(parsed) if {
	parsed.special != ""
	not parsed.scheme == "file" # roots/traversal
	not matches(object.get(config, "internal", []), parsed.host)
}

default foreign_scheme(_) := false

foreign_scheme(scheme) if matches(object.get(config, "deny_schemes", ["javascript", "vbscript", "data", "blob", "about", "view-source", "gopher", "dict", "ldap", "ldaps", "tftp", "jar", "php", "expect", "netdoc"]), scheme)

foreign_scheme(scheme) if {
	config.schemes
	not matches(config.schemes, scheme)
}

default foreign_host(_) := false

foreign_host(parsed) if {
	parsed.host != ""
	matches(object.get(config, "deny_hosts", []), parsed.host)
}

foreign_host(parsed) if {
	config.hosts
	parsed.scheme in {"http", "https", "ws", "wss", "ftp", "sse"}
	not matches(config.hosts, parsed.host)
}

matches(patterns, text) if {
	some pattern in patterns
	glob.match(lower(pattern), null, text)
}
