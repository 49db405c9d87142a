# METADATA
# title: Allows only the skills that its settings name.
# description: |
#   Hides every skill that the settings do not name, and denies skills/get for it. Without settings,
#   no skill is allowed.
#   A URI with the scheme `skill` can be read only if it is in the directory of an allowed skill.
#   The files of a skill may have another scheme. If the skill was hidden from a list, these files
#   cannot be read.
#   Settings name a skill by its path: acme/refunds is skill://acme/refunds/SKILL.md. A pattern like
#   acme/* covers every path below acme. A pattern that contains :// is compared with the URI of the
#   skill's directory: github://owner/repo/skills/refunds.
#   Settings:
#     skills: paths or patterns with *, for every server.
#     servers: for each server's name, the paths or patterns of its skills.
#     dynamic: true also allows skills whose files have no digests.
package gatekit.skills.allowlist

import data.config["skills/allowlist"] as config

hide contains item.uri if {
	input.method == "skills/list"
	input.kind == "response"
	some item in input.items
	not allowed_skill(item.uri)
}

hide contains item.uri if {
	input.method == "skills/list"
	input.kind == "response"
	some item in input.items
	item.resources == "dynamic"
	not config.dynamic
}

deny contains "the skill is not in the allowlist" if {
	input.method == "skills/get"
	input.kind == "request"
	not listed # `not allowed_skill(input.name)` is undefined when there is no name
}

listed if allowed_skill(input.name)

deny contains "the skill's files have no digests" if {
	input.method == "skills/get"
	input.kind == "response"
	input.result.skill.resources == "dynamic"
	not config.dynamic
}

deny contains "the URI is in no skill of the allowlist" if {
	input.method in {"resources/read", "resources/subscribe", "resources/directory/read"}
	input.kind == "request"
	regex.match(`^[\x00-\x20]*(?i:skill)[\x00-\x20]*:`, input.name)
	not in_allowed_skill
}

in_allowed_skill if {
	plain(input.name)
	some directory in directories
	allowed(directory)
}

# The directories that contain a URI. For resources/directory/read, the URI itself is one of these
# directories. A directory has at least three parts: skill://pdf is "skill:", "" and "pdf".
directories contains concat("/", array.slice(parts, 0, n)) if {
	parts := split(input.name, "/")
	some n in numbers.range(3, count(parts))
	n < count(parts)
}

directories contains input.name if input.method == "resources/directory/read"

allowed_skill(uri) if {
	plain(uri)
	endswith(uri, "/SKILL.md")
	allowed(trim_suffix(uri, "/SKILL.md"))
}

# True when every server reads the URI as the same path.
plain(uri) if {
	not regex.match(`(?i)%(?:2e|2f|5c|25|00)|[\\?#\x00-\x20]|/\.{1,2}(?:/|$)`, uri)
	not regex.match(`//.*//`, uri)
}

allowed(directory) if {
	some pattern in patterns
	contains(pattern, "://")
	glob.match(pattern, null, directory)
}

allowed(directory) if {
	some pattern in patterns
	not contains(pattern, "://")
	startswith(directory, "skill://")
	glob.match(pattern, null, trim_prefix(directory, "skill://"))
}

patterns contains pattern if some pattern in config.skills

patterns contains pattern if some pattern in config.servers[input.server]
