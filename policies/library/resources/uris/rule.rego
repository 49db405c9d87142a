# METADATA
# title: Allows only resources with permitted URI schemes and hosts.
# description: |
#   Hides resources with a dangerous URI. Denies reading them, and denies results that link to them.
#   A URI is dangerous when its scheme runs code or embeds content (javascript, data, ...), when it
#   has a user name or password, or when parsers disagree about its parts. A URI is also dangerous
#   when its host belongs to this machine or network: a loopback, private, link-local or metadata
#   address. The address may also be written as a decimal, octal or hexadecimal number, or inside an
#   IPv6 address.
#   Settings:
#     schemes, hosts: names or patterns that are allowed. All other schemes or hosts are denied.
#     deny_schemes, deny_hosts: names or patterns that are denied.
#     internal: hosts of this machine or network that are allowed.
package gatekit.resources.uris

import data.config["resources/uris"] as config

deny contains sprintf("URI refused: %s", [problem]) if {
	input.method in {"resources/read", "resources/subscribe", "resources/unsubscribe", "resources/directory/read", "skills/get"}
	input.kind == "request"
	some problem in problems(name)
}

default name := null

name := input.name

deny contains sprintf("URI template refused: %s", [problem]) if {
	input.method == "completion/complete"
	input.kind == "request"
	input.params.ref.type == "ref/resource"
	some problem in problems(with_example_values(object.get(input.params.ref, "uri", null)))
}

hide contains item.uri if {
	input.method in {"resources/list", "resources/directory/read", "skills/list"}
	input.kind == "response"
	some item in input.items
	count(problems(item.uri)) > 0
}

hide contains item.uriTemplate if {
	input.method == "resources/templates/list"
	input.kind == "response"
	some item in input.items
	count(problems(with_example_values(item.uriTemplate))) > 0
}

hide contains uri if {
	input.method == "subscriptions/listen"
	input.kind == "request"
	some uri in input.params.notifications.resourceSubscriptions
	count(problems(uri)) > 0
}

deny contains sprintf("link in the result refused: %s", [problem]) if {
	some block in blocks
	block.type == "resource_link"
	some problem in problems(object.get(block, "uri", null))
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

deny contains sprintf("link in the prompt refused: %s", [problem]) if {
	input.method == "prompts/get"
	input.kind == "response"
	some message in input.result.messages
	message.content.type == "resource_link"
	some problem in problems(object.get(message.content, "uri", null))
}

# Replaces the variables of a template by example values. The real values are checked when the
# resulting URI is read.
with_example_values(template) := regex.replace(template, `\{[^}]*\}`, "x1.example") if is_string(template)

with_example_values(template) := null if not is_string(template)

problems(uri) := {"the URI is not text"} if not is_string(uri)

problems(uri) := {problem | some problem in found_problems(gatekit.uri.parse(uri))} if is_string(uri)

found_problems(parsed) := {problem | some problem, true in {
	parsed.fault: parsed.fault != "",
	"the URI contains a user name": parsed.user,
	sprintf("the host is not public (%s)", [parsed.special]): not_public(parsed),
	sprintf("the scheme %s is not allowed", [parsed.scheme]): denied_scheme(parsed.scheme),
	sprintf("the host %s is not allowed", [parsed.host]): denied_host(parsed),
}}

default not_public(_) := false

not_public(parsed) if {
	parsed.special != ""
	not parsed.scheme == "file" # roots/traversal checks file URIs
	not matches(object.get(config, "internal", []), parsed.host)
}

default denied_scheme(_) := false

denied_scheme(scheme) if matches(object.get(config, "deny_schemes", ["javascript", "vbscript", "data", "blob", "about", "view-source", "gopher", "dict", "ldap", "ldaps", "tftp", "jar", "php", "expect", "netdoc"]), scheme)

denied_scheme(scheme) if {
	config.schemes
	not matches(config.schemes, scheme)
}

default denied_host(_) := false

denied_host(parsed) if {
	parsed.host != ""
	matches(object.get(config, "deny_hosts", []), parsed.host)
}

denied_host(parsed) if {
	config.hosts
	parsed.scheme in {"http", "https", "ws", "wss", "ftp", "sse"}
	not matches(config.hosts, parsed.host)
}

matches(patterns, text) if {
	some pattern in patterns
	glob.match(lower(pattern), null, text)
}
