package gatekit.principal.allow_test

import data.gatekit.principal.allow

acme := "https://login.acme.example"

config := {"principal/allow": {"grants": [
	{"issuers": [acme], "groups": ["dev", "ops"], "servers": ["github"]},
	{"issuers": [acme], "groups": ["dev"], "servers": ["jira"], "tools": ["get_*"], "resources": ["jira://*"]},
	{"principals": ["token:ci"], "scopes": ["deploy", "mcp"], "servers": ["prod*"]},
	{"clients": ["editor"], "groups": ["legal"], "servers": ["files"]},
]}}

nobody := {"id": "", "issuer": "", "client": "", "groups": [], "scopes": []}

dev := object.union(nobody, {"id": sprintf("%s#ann", [acme]), "issuer": acme, "groups": ["dev"]})

call(principal, server, name) := {"method": "tools/call", "kind": "request", "direction": "to_server", "server": server, "name": name, "principal": principal}

denied(message) if {
	reasons := allow.deny with input as message with data.config as config
	count(reasons) > 0
}

hidden(message) := names if {
	names := allow.hide with input as message with data.config as config
}

test_groups_count_for_their_issuer_only if {
	not denied(call(dev, "github", "anything"))
	denied(call(object.union(dev, {"issuer": "https://login.evil.example"}), "github", "anything"))
	denied(call(object.union(dev, {"groups": ["legal"]}), "github", "anything"))
	denied(call(nobody, "github", "anything"))
}

test_tools_of_a_grant if {
	not denied(call(dev, "jira", "get_issue"))
	denied(call(dev, "jira", "delete_issue"))
	denied(call(dev, "jira", "forget_issue"))
	denied({"method": "tools/call", "kind": "request", "server": "jira", "principal": dev})
	denied({"method": "prompts/get", "kind": "request", "server": "jira", "name": "get_x", "principal": dev})
	not denied({"method": "resources/read", "kind": "request", "server": "jira", "name": "jira://1", "principal": dev})
	denied({"method": "resources/read", "kind": "request", "server": "jira", "name": "file:///1", "principal": dev})
}

test_all_conditions_are_needed if {
	ci := object.union(nobody, {"id": "token:ci", "scopes": ["mcp", "deploy"]})
	not denied(call(ci, "prod-eu", "x"))
	denied(call(object.union(ci, {"scopes": ["deploy"]}), "prod-eu", "x"))
	denied(call(object.union(ci, {"id": "token:ci2"}), "prod-eu", "x"))
	denied(call(ci, "github", "x"))
	legal := object.union(nobody, {"id": "x#y", "client": "editor", "groups": ["legal"]})
	not denied(call(legal, "files", "x"))
	denied(call(object.union(legal, {"client": "chat"}), "files", "x"))
}

test_grant_without_condition_covers_nothing if {
	count(allow.deny) == 1 with input as call(dev, "github", "x") with data.config as {"principal/allow": {"grants": [{"servers": ["*"]}]}}
	count(allow.deny) == 1 with input as call(dev, "github", "x")
}

test_everybody_can_have_a_grant if {
	everybody := {"principal/allow": {"grants": [{"principals": ["*"], "servers": ["docs"]}]}}
	count(allow.deny) == 0 with input as call(nobody, "docs", "x") with data.config as everybody
	count(allow.deny) == 0 with input as call(dev, "docs", "x") with data.config as everybody
}

test_lists_show_what_can_be_used if {
	tools := {"method": "tools/list", "kind": "response", "server": "jira", "principal": dev, "items": [{"name": "get_issue"}, {"name": "delete_issue"}]}
	hidden(tools) == {"delete_issue"}
	hidden(object.union(tools, {"server": "github"})) == set()
	hidden(object.union(tools, {"server": "prod"})) == {"get_issue", "delete_issue"}
	not denied(tools)
	hidden({"method": "resources/list", "kind": "response", "server": "jira", "principal": dev, "items": [{"uri": "jira://1"}, {"uri": "x://1"}]}) == {"x://1"}
	hidden({"method": "resources/templates/list", "kind": "response", "server": "jira", "principal": dev, "items": [{"uriTemplate": "x://{a}"}]}) == {"x://{a}"}
	hidden({"method": "prompts/list", "kind": "response", "server": "jira", "principal": dev, "items": [{"name": "get_x"}]}) == {"get_x"}
}

completion(ref) := {"method": "completion/complete", "kind": "request", "server": "jira", "principal": dev, "params": {"ref": ref}}

test_completion_needs_the_prompt_or_template if {
	not denied(completion({"type": "ref/resource", "uri": "jira://{id}"}))
	denied(completion({"type": "ref/resource", "uri": "x://{id}"}))
	denied(completion({"type": "ref/resource"}))
	denied(completion({"type": "ref/prompt", "name": "get_x"}))
}

log_message(server) := {"method": "notifications/message", "kind": "notification", "direction": "to_client", "server": server, "principal": dev}

test_servers_without_grant_say_nothing if {
	denied(log_message("prod"))
	not denied(log_message("github"))
	denied({"method": "sampling/createMessage", "kind": "request", "direction": "to_client", "server": "prod", "principal": dev})
	not denied({"method": "initialize", "kind": "request", "server": "prod", "principal": dev})
	started := {"method": "initialize", "kind": "response", "server": "prod", "principal": dev, "result": {"instructions": "Read me."}}
	emptied := allow.redact with input as started with data.config as config
	emptied == {{"path": "/instructions", "with": ""}}
	kept := allow.redact with input as object.union(started, {"server": "github"}) with data.config as config
	kept == set()
}
