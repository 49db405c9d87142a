# METADATA
# title: Servers ask the client's model only when they may
# description: |
#   Refuses sampling/createMessage, but from the servers that are named; and from those what asks for more than is allowed.
#   A model is held against models in the server's hints and in the client's answer. What a server does not say (maxTokens) counts as too much.
#   Settings: servers, names or patterns; models; max_tokens; per_session and per_minute, how often a server may ask; context, values of includeContext (none); tools, true lets it name tools.
package gatekit.sampling.gate

import data.config["sampling/gate"] as config

deny contains "the server may not ask the client's model" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	not allowed
}

allowed if {
	some pattern in config.servers
	glob.match(pattern, null, input.server)
}

deny contains "it asks for a model that is not allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	config.models
	some hint in input.params.modelPreferences.hints
	not model(hint)
}

model(hint) if permitted(hint.name)

deny contains "the answer is of a model that is not allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "response"
	config.models
	not answered
}

answered if permitted(input.result.model)

permitted(name) if {
	some pattern in config.models
	glob.match(lower(pattern), null, lower(name))
}

deny contains "it asks for more tokens than are allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	config.max_tokens
	not modest
}

modest if {
	is_number(input.params.maxTokens)
	input.params.maxTokens <= config.max_tokens
}

deny contains "it asks too often in this session" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	object.get(input.session.calls, sprintf("%s %s", [input.method, input.server]), 0) >= config.per_session
}

deny contains "it asks too often in a minute" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	object.get(input.session.minute, sprintf("%s %s", [input.method, input.server]), 0) >= config.per_minute
}

deny contains "it asks for more context than is allowed" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	_ = input.params.includeContext
	not input.params.includeContext in object.get(config, "context", ["none"])
}

deny contains "it names tools" if {
	input.method == "sampling/createMessage"
	input.kind == "request"
	some member in ["tools", "toolChoice"]
	_ = input.params[member]
	not config.tools
}
