# METADATA
# title: Checks arguments against patterns, lengths and hosts.
# description: |
#   Denies calls of tools and prompts whose arguments do not match a pattern, are too long, start
#   with a dash (a program would read such an argument as an option), or are URLs of other hosts.
#   An argument is selected by its name, at any depth, or by a JSON pointer. Case is ignored,
#   because some servers ignore it. Each element of an array is checked; an object is denied.
#   In a completion request the argument is incomplete: only its length and a leading dash are
#   checked.
#   Settings:
#     rules: a list of checks. Each check names an argument and the tools (absent: all). It has one
#       or more of pattern (which must match the whole text), max_length, no_leading_dash and hosts.
package gatekit.tools.arguments

import data.config["tools/arguments"] as config

deny contains sprintf("argument %s: %s", [entry.argument, problem]) if {
	input.method in {"tools/call", "prompts/get"}
	input.kind == "request"
	some entry in config.rules
	tool_is(object.get(entry, "tools", ["*"]))
	walk(input.params.arguments, [keys, value])
	selects(entry, keys)
	not is_array(value)
	some problem in problems(entry, value)
}

deny contains sprintf("argument %s: %s", [entry.argument, problem]) if {
	input.method == "completion/complete"
	input.kind == "request"
	some entry in config.rules
	tool_is(object.get(entry, "tools", ["*"]))
	walk(input.params.context.arguments, [keys, value])
	selects(entry, keys)
	not is_array(value)
	some problem in problems(entry, value)
}

deny contains sprintf("argument %s: %s", [entry.argument, problem]) if {
	input.method == "completion/complete"
	input.kind == "request"
	some entry in config.rules
	tool_is(object.get(entry, "tools", ["*"]))
	selects(entry, [input.params.argument.name])
	some problem in problems(object.remove(entry, ["pattern", "hosts"]), input.params.argument.value)
}

# Without a name, the rule cannot tell which checks apply.
deny contains "the request names no tool or prompt" if {
	input.method in {"tools/call", "prompts/get"}
	input.kind == "request"
	not has_name
}

has_name if is_string(input.name)

selects(entry, keys) if {
	not startswith(entry.argument, "/")
	names := [k | some k in keys; is_string(k)]
	fold_case(names[count(names) - 1]) == fold_case(entry.argument)
}

# A pointer also selects everything below the value that it names, such as the elements of an array.
selects(entry, keys) if {
	startswith(entry.argument, "/")
	pointer := sprintf("/%s", [concat("/", [sprintf("%v", [k]) | some k in keys])])
	some end in ["", "/*"]
	glob.match(fold_case(sprintf("%s%s", [entry.argument, end])), null, fold_case(pointer))
}

# Two names that Go's encoding/json treats as equal are equal here.
fold_case(name) := replace(lower(name), "ſ", "s")

problems(_, value) := {"the value is not text"} if is_object(value)

problems(_, value) := set() if is_null(value)

problems(entry, value) := text_problems(entry, sprintf("%v", [value])) if {
	not is_object(value)
	not is_null(value)
}

text_problems(entry, text) := {problem | some problem, true in {
	"the value does not match the pattern": breaks_pattern(entry, text),
	"the value is too long": too_long(entry, text),
	"the value starts with a dash": starts_with_dash(entry, text),
	"the value is not a URL of an allowed host": other_host(entry, text),
}}

default breaks_pattern(_, _) := false

breaks_pattern(entry, text) if not regex.match(sprintf(`\A(?:%s)\z`, [entry.pattern]), text)

default too_long(_, _) := false

too_long(entry, text) if count(text) > entry.max_length

default starts_with_dash(_, _) := false

starts_with_dash(entry, text) if {
	entry.no_leading_dash
	regex.match(`^[\s"'\x00]*[-\x{2010}-\x{2015}\x{2212}\x{fe58}\x{fe63}\x{ff0d}]`, text)
}

default other_host(_, _) := false

other_host(entry, text) if {
	entry.hosts
	not allowed_host(entry, gatekit.uri.parse(text))
}

allowed_host(entry, parsed) if {
	parsed.fault == ""
	not parsed.user
	parsed.scheme in {"http", "https"}
	some pattern in entry.hosts
	glob.match(lower(pattern), null, parsed.host)
	may_match(parsed, pattern)
}

# A host of this machine or network must be listed by its whole name.
may_match(parsed, _) if parsed.special == ""

may_match(parsed, pattern) if parsed.host == lower(pattern)

# A pattern that contains __ matches the name as clients see it: server__tool.
tool_is(patterns) if {
	some pattern in patterns
	not contains(pattern, "__")
	glob.match(pattern, null, input.name)
}

tool_is(patterns) if {
	some pattern in patterns
	contains(pattern, "__")
	glob.match(pattern, null, sprintf("%s__%s", [input.server, input.name]))
}
