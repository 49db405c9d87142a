# METADATA
# title: Paths stay within the roots
# description: |
#   Refuses arguments that are paths, and resource URIs, that lead out of the roots in any reading of them: encoded, with backslashes, through links of this machine; and hides such resources, and templates of which nothing else can be made.
#   A path is an argument that is named like one (path, file, dir, uri, output_path, …), that its schema declares as one (format), or that is configured. Refuses answers to roots/list that do so, too.
#   Settings: roots, folders (absent: those that the client declared; none known: every path is refused); base, where relative paths start; relative, true lets those pass that do not climb
#   (absent: refused without a base); home, what ~ stands for (absent: refused); remote, servers whose links are not this machine's; servers, to which it applies (all); arguments and except,
#   more and fewer that are paths; declared, true adds the roots that the client declared to those that are configured, and does not judge them; anywhere, true lets paths lie anywhere: refused
#   are those that climb without looking like it.
package gatekit.roots.traversal

import data.config["roots/traversal"] as config

deny contains sprintf("the argument %s: %s", [concat("/", [sprintf("%v", [k]) | some k in place]), why]) if {
	input.method in {"tools/call", "prompts/get"}
	input.kind == "request"
	concerned
	suspect
	walk(input.params.arguments, [place, text])
	is_string(text)
	is_path(place)
	why := fault(text, loose(place))
	why != ""
}

# Where paths may lie anywhere, few arguments are worth asking what they are for.
suspect if not config.anywhere

suspect if {
	config.anywhere
	gatekit.path.disguised(input.params.arguments)
}

fault(text, relative) := gatekit.path.fault(text, bounds(relative)) if not config.anywhere

fault(text, _) := gatekit.path.disguise(text) if config.anywhere

deny contains sprintf("a name in the argument %s: %s", [concat("/", [sprintf("%v", [k]) | some k in place]), why]) if {
	input.method in {"tools/call", "prompts/get"}
	input.kind == "request"
	concerned
	suspect
	walk(input.params.arguments, [place, value])
	is_object(value)
	is_path(place)
	some name, _ in value # files: {"a/b": "…"}
	why := fault(name, true)
	why != ""
}

deny contains sprintf("the argument %s: %s", [name, why]) if {
	input.method == "completion/complete"
	input.kind == "request"
	concerned
	some [name, value] in completed
	completes_path(name)
	walk(value, [_, text])
	is_string(text)
	why := fault(text, true)
	why != ""
}

completed contains [input.params.argument.name, input.params.argument.value]

completed contains [name, value] if some name, value in input.params.context.arguments

completes_path(name) if is_path([name])

completes_path(_) if startswith(lower(input.params.ref.uri), "file:") # it becomes a part of the URI

deny contains "the URI template: nothing within the roots can be made of it" if {
	input.method == "completion/complete"
	input.kind == "request"
	concerned
	input.params.ref.type == "ref/resource"
	astray(input.params.ref.uri)
}

deny contains sprintf("the URI: %s", [why]) if {
	input.method in {"resources/read", "resources/subscribe", "resources/unsubscribe"}
	input.kind == "request"
	concerned
	why := fault(input.name, true)
	why != ""
}

deny contains "there is no URI" if {
	input.method in {"resources/read", "resources/subscribe", "resources/unsubscribe"}
	input.kind == "request"
	concerned
	not named
}

named if is_string(input.name)

hide contains item.uri if {
	input.method == "resources/list"
	input.kind == "response"
	concerned
	some item in input.items
	fault(item.uri, true) != ""
}

hide contains item.uriTemplate if {
	input.method == "resources/templates/list"
	input.kind == "response"
	concerned
	some item in input.items
	astray(item.uriTemplate)
}

# Where it begins is not within the roots, and none of them is within that; or it leads out again, whatever is filled in.
astray(template) if {
	begin := beginning(template)
	fault(begin, true) != ""
	not above(begin)
}

astray(template) if {
	fault(beginning(template), true) == ""
	fault(regex.replace(template, `\{[^}]*\}`, "x"), true) != ""
}

beginning(template) := template if not contains(template, "{")

beginning(template) := regex.replace(regex.replace(template, `[^/{]*\{.*$`, ""), `(?i)^file:/*$`, "file:///") if contains(template, "{")

above(begin) if {
	some root in roots
	gatekit.path.fault(root, object.union(bounds(false), {"roots": [begin], "links": false})) == ""
}

hide contains uri if {
	input.method == "subscriptions/listen"
	input.kind == "request"
	concerned
	some uri in input.params.notifications.resourceSubscriptions
	fault(uri, true) != ""
}

deny contains "an answer without roots" if {
	input.method == "roots/list"
	input.kind == "response"
	concerned
	not trusting
	not answered
}

answered if is_array(input.result.roots)

deny contains sprintf("the root %d: it is no file URI within the roots", [i]) if {
	input.method == "roots/list"
	input.kind == "response"
	concerned
	not trusting
	some i, root in input.result.roots
	not permitted(root)
}

# A root is held against those that are configured, or else only against itself: it has to be the file URI of a folder.
permitted(root) if {
	startswith(lower(root.uri), "file:")
	limits := object.union(bounds(false), {"roots": object.get(config, "roots", [root.uri])})
	gatekit.path.fault(root.uri, limits) == ""
}

concerned if not config.servers

concerned if {
	some pattern in config.servers
	glob.match(pattern, null, input.server)
}

# The client's word for its roots is taken.
trusting if config.declared

trusting if config.anywhere

bounds(relative) := {"roots": roots, "base": object.get(config, "base", ""), "home": object.get(config, "home", ""), "relative": relative, "links": links}

roots := config.roots if not config.declared

roots := declared if not config.roots

roots := array.concat(config.roots, declared) if config.declared

declared := [root.uri | some root in input.roots]

default links := true

links := false if {
	some pattern in config.remote
	glob.match(pattern, null, input.server)
}

# A place is that of a path by the last name in it.
is_path(place) if {
	some name in last_name(place)
	not excepted(place, name)
	sort_of_path(place, name)
}

sort_of_path(_, name) if regex.match(sure, name)

sort_of_path(_, name) if regex.match(maybe, name)

# What its schema says of the place, or of what is at it.
sort_of_path(place, _) if {
	at := object.get(input.item.inputSchema, [step | some k in place; some step in steps(k)], {})
	some schema in array.concat([at], object.get(at, "anyOf", []))
	schema.format in formats
}

steps(k) := ["properties", k] if is_string(k)

steps(k) := ["items"] if is_number(k)

# In schemas that are put together of others: all below the names that any of those gives such a format, itself or by a reference.
sort_of_path(place, _) if {
	some k in place
	k in formatted
}

sort_of_path(_, _) if unnamed

formatted contains names_in(place)[count(names_in(place)) - 1] if some place in declaring

# Names that the schema does not say are those of paths.
unnamed if {
	some place in declaring
	count(names_in(place)) == 0
	not place[0] in {"$defs", "definitions"}
	some k in place
	k in {"additionalProperties", "patternProperties"}
}

names_in(place) := [k | some i, k in place; place[i - 1] == "properties"]

declaring contains place if {
	walk(input.item.inputSchema, [place, schema])
	schema.format in formats
	some k in place
	k in {"allOf", "anyOf", "oneOf", "if", "then", "else", "additionalProperties", "patternProperties", "prefixItems", "dependentSchemas", "$defs", "definitions"}
}

declaring contains place if {
	count(referred) > 0
	walk(input.item.inputSchema, [place, schema])
	schema["$ref"] in referred
}

# The definitions that are paths themselves, or by others that they refer to.
referred contains ref if {
	some ref, _ in definitions
	some reached in graph.reachable(uses, {ref})
	walk(definitions[reached], [place, schema])
	not "properties" in place
	schema.format in formats
}

uses[ref] := {schema["$ref"] | walk(definition, [place, schema]); not "properties" in place} if some ref, definition in definitions

definitions[sprintf("#/%s/%s", [at, name])] := definition if {
	some at in {"$defs", "definitions"}
	some name, definition in input.item.inputSchema[at]
}

formats := {"path", "file-path", "directory-path", "uri", "uri-reference", "file-uri"}

# {"file": {"name": "/etc"}}
sort_of_path(place, name) if {
	name in {"name", "value"}
	some i, k in place
	i < count(place) - 1
	is_string(k)
	regex.match(sure, k)
}

sort_of_path(place, name) if {
	some entry in config.arguments
	entry_is(entry, place, name)
}

excepted(place, name) if {
	some entry in config.except
	entry_is(entry, place, name)
}

# An entry's argument is a name at any depth, or a pointer; * in it stands for any characters.
entry_is(entry, place, name) if {
	tool_is(object.get(entry, "tools", ["*"]))
	not startswith(entry.argument, "/")
	glob.match(entry.argument, null, name)
	count(place) > 0
}

entry_is(entry, place, _) if {
	tool_is(object.get(entry, "tools", ["*"]))
	startswith(entry.argument, "/")
	glob.match(entry.argument, null, sprintf("/%s", [concat("/", [sprintf("%v", [k]) | some k in place])]))
}

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

last_name(place) := {names[count(names) - 1]} if {
	names := [k | some k in place; is_string(k)]
	count(names) > 0
}

# Names that are always those of paths, and those that can be of other things, too: of these a relative text may be no path at all.
sure := `(?:(?i:^|[_.\- ])(?i:paths?|files?|(?:path|file)_?names?|(?:base|root|home|out|output|in|input|tmp|temp|src|dst|dest|target|work|working|project|repo|parent|old|new|full|abs|file|config|log)(?:paths?|files?|dirs?|director(?:y|ies)|folders?)|dirs?|director(?:y|ies)|folders?|cwd)|Paths?|Path[Nn]ames?|Files?|File[Nn]ames?|Dirs?|Director(?:y|ies)|Folders?)(?:_?\d+)?$`

maybe := `(?:(?i:^|[_.\- ])(?i:ur[il]s?|source|destination|src|dst|dest|target|root|roots|location)|Ur[il]s?|UR[IL]s?|Source|Destination|Root|Location)(?:_?\d+)?$`

default loose(_) := false

loose(_) if {
	config.relative == true
}

loose(place) if last_name(place) & {"name", "value"} != set()

loose(place) if {
	some name in last_name(place)
	not regex.match(sure, name)
	regex.match(maybe, name)
}
