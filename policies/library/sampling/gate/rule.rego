# METADATA
# title: Lets only permitted servers ask the client's model.
# description: |
#   Denies sampling/createMessage from servers that the settings do not name. Denies requests of the
#   named servers if they ask for more than is allowed. The allowed models apply to the server's
#   hints and to the model in the client's result. If max_tokens is set, a request without maxTokens
#   is denied.
#   Settings:
#     servers: servers that may ask (absent: none). Names or patterns.
#     models: models that servers may ask for, and that may answer (absent: all). Names or patterns.
#     max_tokens: the maximum number of tokens that one request may ask for.
#     per_session, per_minute: how often one server may ask.
#     context: allowed values of includeContext (absent: only "none").
#     tools: true allows requests that contain tools.
package gatekit.sampling.gate

import data.config["sampling/gate"] as config

deny contains "the server is not allowed to ask the client's model" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	not allowed
}

allowed if {
	some pattern in config.servers
	glob.match(pattern, null, input.server)
}

deny contains "the request asks for a model that is not allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	config.models
	some hint in input.params.modelPreferences.hints
	not hint_allowed(hint)
}

hint_allowed(hint) if model_allowed(hint.name)

deny contains "the result is from a model that is not allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "response"
	config.models
	not result_allowed
}

result_allowed if model_allowed(input.result.model)

model_allowed(name) if {
	some pattern in config.models
	glob.match(lower(pattern), null, lower(name))
}

deny contains "the request asks for more tokens than are allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	config.max_tokens
	not within_limit
}

within_limit if {
	is_number(input.params.maxTokens)
	input.params.maxTokens <= config.max_tokens
}

deny contains "too many sampling requests in this session" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	object.get(input.session.calls, sprintf("%s %s", [input.method, input.server]), 0) >= config.per_session
}

deny contains "too many sampling requests within a minute" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	object.get(input.session.minute, sprintf("%s %s", [input.method, input.server]), 0) >= config.per_minute
}

deny contains "the request asks for more context than is allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	_ = input.params.includeContext
	not input.params.includeContext in object.get(config, "context", ["none"])
}

deny contains "the request contains tools" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	some member in ["tools", "toolChoice"]
	_ = input.params[member]
	not config.tools
}
