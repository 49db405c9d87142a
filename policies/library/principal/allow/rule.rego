# METADATA
# title: Allows principals only the servers and items that its settings grant.
# description: |
#   Hides every tool, prompt, resource and skill that no grant covers, and denies its use. Denies all
#   other requests, notifications and instructions of a server for which the principal has no grant.
#   Without settings, nobody may use anything.
#   A grant applies if all its conditions apply, and has at least one: `principals`, `issuers`,
#   `groups`, `scopes` or `clients`. Groups have the same name at different issuers. Add `issuers`
#   to a condition on groups if there are several issuers.
#   Settings:
#     grants: a list of objects with these members.
#       principals: ids of principals or patterns with *, such as token:ci. * is everybody.
#       issuers: issuers of the access token.
#       groups: groups, of which the principal is in at least one.
#       scopes: scopes of the access token, all of which are needed.
#       clients: OAuth client ids or patterns.
#       servers: names of servers or patterns.
#       tools, prompts, resources: names or URIs, or patterns. A grant without these three members
#         covers everything of its servers. Resources are also templates and skills.
package gatekit.principal.allow

import data.config["principal/allow"] as config

# The grants that apply to the principal and the server of the message.
grants contains grant if {
	some grant in config.grants
	has_condition(grant)
	every condition in object.keys(grant) & conditions {
		applies(condition, grant[condition])
	}
	matches(grant.servers, input.server)
}

conditions := {"principals", "issuers", "groups", "scopes", "clients"}

has_condition(grant) if count(object.keys(grant) & conditions) > 0

applies("principals", patterns) if matches(patterns, input.principal.id)

applies("issuers", issuers) if input.principal.issuer in issuers

applies("groups", groups) if {
	some group in input.principal.groups
	group in groups
}

applies("scopes", scopes) if {
	every scope in scopes {
		scope in input.principal.scopes
	}
}

applies("clients", patterns) if {
	input.principal.client != ""
	matches(patterns, input.principal.client)
}

kinds := {"tools", "prompts", "resources"}

# True when a grant covers everything of the server.
everything if {
	some grant in grants
	count(object.keys(grant) & kinds) == 0
}

covered(_, _) if everything

covered(kind, name) if {
	is_string(name)
	some grant in grants
	matches(grant[kind], name)
}

# The kind of the items in each list, and of the item that each request uses.
listed := {
	"tools/list": "tools",
	"prompts/list": "prompts",
	"resources/list": "resources",
	"resources/templates/list": "resources",
	"resources/directory/read": "resources",
	"skills/list": "resources",
}

used := {
	"tools/call": "tools",
	"prompts/get": "prompts",
	"resources/read": "resources",
	"resources/subscribe": "resources",
	"resources/unsubscribe": "resources",
	"resources/directory/read": "resources",
	"skills/get": "resources",
}

hide contains name if {
	input.kind == "response"
	kind := listed[input.method]
	some item in input.items
	name := name_of(kind, item)
	not covered(kind, name)
}

name_of(kind, item) := item.name if kind in {"tools", "prompts"}

name_of("resources", item) := item.uri if input.method != "resources/templates/list"

name_of("resources", item) := item.uriTemplate if input.method == "resources/templates/list"

deny contains sprintf("the principal has no grant for these %s", [kind]) if {
	input.kind == "request"
	kind := used[input.method]
	not used_is_covered # `not covered(kind, input.name)` is undefined when there is no name
}

used_is_covered if covered(used[input.method], input.name)

deny contains sprintf("the principal has no grant for these %s", [kind]) if {
	input.kind == "request"
	input.method == "completion/complete"
	kind := {"ref/prompt": "prompts", "ref/resource": "resources"}[input.params.ref.type]
	not covered(kind, object.get(input.params.ref, {"prompts": "name", "resources": "uri"}[kind], null))
}

# Every session has these messages, also of servers that the principal may not use.
common := {"initialize", "server/discover", "ping", "notifications/initialized", "notifications/cancelled"}

deny contains "the principal has no grant for this server" if {
	input.kind in {"request", "notification"}
	not input.method in common
	not listed[input.method]
	not used[input.method]
	input.server != ""
	count(grants) == 0
}

redact contains {"path": "/instructions", "with": ""} if {
	input.kind == "response"
	input.method in {"initialize", "server/discover"}
	input.result.instructions != ""
	count(grants) == 0
}

matches(patterns, text) if {
	some pattern in patterns
	glob.match(pattern, null, text)
}
