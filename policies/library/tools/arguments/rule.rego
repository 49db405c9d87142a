# METADATA
# title: Arguments are what they may be
# description: |
#   Refuses calls with arguments that do not match a pattern, are too long, begin with a dash (so that a program takes them for options), or lead to other hosts.
#   An argument is meant wherever it is, by its name, or at one place, by a pointer, in letters of any case, which some servers do not tell apart; each element of an array is held against the
#   same. An object in its place is refused.
#   One that is being completed is half written: only its length and its dash are looked at.
#   Settings: rules, a list of {tools (all), argument, pattern (of the whole text), max_length, no_leading_dash, hosts}.
package gatekit.tools.arguments

import data.config["tools/arguments"] as config

deny contains sprintf("the argument %s: %s", [entry.argument, why]) if {
	input.method in {"tools/call", "prompts/get"}
	input.kind == "request"
	some entry in config.rules
	tool_is(object.get(entry, "tools", ["*"]))
	walk(input.params.arguments, [place, value])
	entry_is(entry, place)
	not is_array(value)
	some why in faults(entry, value)
}

deny contains sprintf("the argument %s: %s", [entry.argument, why]) if {
	input.method == "completion/complete"
	input.kind == "request"
	some entry in config.rules
	tool_is(object.get(entry, "tools", ["*"]))
	walk(input.params.context.arguments, [place, value])
	entry_is(entry, place)
	not is_array(value)
	some why in faults(entry, value)
}

deny contains sprintf("the argument %s: %s", [entry.argument, why]) if {
	input.method == "completion/complete"
	input.kind == "request"
	some entry in config.rules
	tool_is(object.get(entry, "tools", ["*"]))
	entry_is(entry, [input.params.argument.name])
	some why in faults(object.remove(entry, ["pattern", "hosts"]), input.params.argument.value)
}

# Without a name it cannot be said that a rule is not meant.
deny contains "there is no name" if {
	input.method in {"tools/call", "prompts/get"}
	input.kind == "request"
	not named
}

named if is_string(input.name)

entry_is(entry, place) if {
	not startswith(entry.argument, "/")
	names := [k | some k in place; is_string(k)]
	folded(names[count(names) - 1]) == folded(entry.argument)
}

entry_is(entry, place) if {
	startswith(entry.argument, "/")
	pointer := sprintf("/%s", [concat("/", [sprintf("%v", [k]) | some k in place])])
	some end in ["", "/*"]
	glob.match(folded(sprintf("%s%s", [entry.argument, end])), null, folded(pointer))
}

# Names that Go's encoding/json takes for one are one.
folded(name) := replace(lower(name), "ſ", "s")

faults(_, value) := {"it is no text"} if is_object(value)

faults(_, value) := set() if is_null(value)

faults(entry, value) := text_faults(entry, sprintf("%v", [value])) if {
	not is_object(value)
	not is_null(value)
}

text_faults(entry, text) := {why | some why, true in {
	"it does not match the pattern": mismatch(entry, text),
	"it is too long": long(entry, text),
	"it begins with a dash": dashed(entry, text),
	"it is no URL of an allowed host": foreign(entry, text),
}}

default mismatch(_, _) := false

mismatch(entry, text) if not regex.match(sprintf(`\A(?:%s)\z`, [entry.pattern]), text)

default long(_, _) := false

long(entry, text) if count(text) > entry.max_length

default dashed(_, _) := false

dashed(entry, text) if {
	entry.no_leading_dash
	regex.match(`^[\s"'\x00]*[-\x{2010}-\x{2015}\x{2212}\x{fe58}\x{fe63}\x{ff0d}]`, text)
}

default foreign(_, _) := false

foreign(entry, text) if {
	entry.hosts
	not local_host(entry, gatekit.uri.parse(text))
}

local_host(entry, parsed) if {
	parsed.fault == ""
	not parsed.user
	parsed.scheme in {"http", "https"}
	some pattern in entry.hosts
	glob.match(lower(pattern), null, parsed.host)
	outside(parsed, pattern)
}

# A pattern admits what is inside this network only by its whole name.
outside(parsed, _) if parsed.special == ""

outside(parsed, pattern) if parsed.host == lower(pattern)

# A pattern with __ is that of a name as clients see it, server__tool.
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
