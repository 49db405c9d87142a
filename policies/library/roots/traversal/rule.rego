# METADATA
# title: Paths stay within the roots
# description: |
#   Refuses arguments that are paths, and resource URIs, that lead out of the roots in any reading of them: encoded, with backslashes, through links of this machine; and hides such resources (templates it does not: what is made of them is judged).
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
	walk(input.params.arguments, [place, text])
	is_string(text)
	is_path(place)
	why := gatekit.path.fault(text, bounds(loose(place)))
	why != ""
}

deny contains sprintf("a name in the argument %s: %s", [concat("/", [sprintf("%v", [k]) | some k in place]), why]) if {
	input.method in {"tools/call", "prompts/get"}
	input.kind == "request"
	concerned
	walk(input.params.arguments, [place, value])
	is_object(value)
	is_path(place)
	some name, _ in value # files: {"a/b": "…"}
	why := gatekit.path.fault(name, bounds(true))
	why != ""
}

deny contains sprintf("the argument %s: %s", [input.params.argument.name, why]) if {
	input.method == "completion/complete"
	input.kind == "request"
	concerned
	is_path([input.params.argument.name])
	why := gatekit.path.fault(input.params.argument.value, bounds(true))
	why != ""
}

deny contains sprintf("the URI: %s", [why]) if {
	input.method in {"resources/read", "resources/subscribe", "resources/unsubscribe"}
	input.kind == "request"
	concerned
	why := gatekit.path.fault(input.name, bounds(true))
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
	gatekit.path.fault(item.uri, bounds(true)) != ""
}

hide contains uri if {
	input.method == "subscriptions/listen"
	input.kind == "request"
	concerned
	some uri in input.params.notifications.resourceSubscriptions
	gatekit.path.fault(uri, bounds(true)) != ""
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

bounds(relative) := {"roots": roots, "base": object.get(config, "base", ""), "home": object.get(config, "home", ""), "relative": relative, "links": links, "anywhere": object.get(config, "anywhere", false)}

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

sort_of_path(place, _) if input.item.inputSchema.properties[place[0]].format in {"path", "file-path", "directory-path", "uri", "uri-reference", "file-uri"}

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
sure := `(?:(?i:^|[_.\- ])(?i:paths?|files?|file_?names?|file_?paths?|dirs?|director(?:y|ies)|folders?|cwd|workdir)|Paths?|Files?|FileNames?|Filenames?|Dirs?|Director(?:y|ies)|Folders?)$`

maybe := `(?:(?i:^|[_.\- ])(?i:ur[il]s?|source|destination|src|dst|dest|target|root|roots|location)|Ur[il]s?|UR[IL]s?|Source|Destination|Root|Location)$`

default loose(_) := false

loose(_) if {
	config.relative == true
}

loose(place) if {
	some name in last_name(place)
	not regex.match(sure, name)
	regex.match(maybe, name)
}
