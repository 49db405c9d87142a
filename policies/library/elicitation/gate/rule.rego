# METADATA
# title: Blocks elicitation that asks for secrets or opens suspicious URLs.
# description: |
#   Denies forms that ask for passwords, tokens, keys, codes, card or social security numbers, or
#   for the contents of files with secrets. It knows words of many languages. A form asks for a secret
#   if the label or the description of a field is one, if a sentence demands one ("Enter your
#   password"), or if a text names one and a field takes anything ("Value", "Answer"). A form may
#   speak about a secret ("Name of the new token", "Why was the key revoked?"); this adds a note to
#   the record. A classifier, trained on forms in 17 languages, denies requests in other words, and
#   lets a short form pass with a note if the form only seems to ask. A form in which the user can
#   only confirm or choose cannot ask for a secret. Denies forms with a link for the user to open. The URL that a tool wants to use ("Delete the
#   webhook https://ci.example.com/?") only adds a note. Denies forms that mix alphabets within a word.
#   Denies URLs that are not https, or contain a user name or a secret. Denies URLs whose host is an
#   address or a name of the local network. Denies URLs whose host mixes alphabets, or imitates a
#   well-known site (paypaI.com, google.com-login.example), unless the setting hosts lists it.
#   International names of one script are allowed.
#   Settings:
#     servers: servers that may ask (absent: all). Names or patterns.
#     hosts: hosts of the URLs (absent: all public hosts). Names or patterns.
#     except: names of fields that are not secrets.
#     forms: false denies all forms.
#     pages: false denies all URLs.
#     loopback: true allows URLs of this machine, also with http.
package gatekit.elicitation.gate

import data.config["elicitation/gate"] as config

deny contains "the server is not allowed to ask the user" if {
	input.method == "elicitation/create"
	input.kind == "request"
	config.servers
	not allowed
}

allowed if {
	some pattern in config.servers
	glob.match(pattern, null, input.server)
}

deny contains "the mode is neither form nor url" if {
	input.method == "elicitation/create"
	input.kind == "request"
	not mode in {"form", "url"}
}

default mode := "" # for a request without params

mode := object.get(input.params, "mode", "form")

deny contains "forms are not allowed" if {
	input.method == "elicitation/create"
	input.kind == "request"
	config.forms == false
	mode == "form"
}

deny contains "URLs are not allowed" if {
	input.method == "elicitation/create"
	input.kind == "request"
	config.pages == false
	mode == "url"
}

deny contains "the form has no message or no fields" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	not has_fields
}

has_fields if {
	is_object(input.params.requestedSchema.properties)
	is_string(input.params.message)
}

deny contains sprintf("the form asks for a secret: %s", [substring(text, 0, 60)]) if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	not is_long
	some text in requests_for_secrets
	not is_contradicted
}

deny contains sprintf("the form asks for a secret: %s", [substring(input.params.message, 0, 60)]) if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	not is_long
	form_score >= certain_score
}

note contains "the form may ask for a secret" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	not is_long
	form_score >= possible_score
	form_score < certain_score
	count(requests_for_secrets) == 0
}

note contains "the form may ask for a secret" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	not is_long
	count(requests_for_secrets) > 0
	is_contradicted
}

# Long texts are not searched for words, because this costs time.
deny contains "the texts of the form have more than 20,000 characters" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	is_long
}

is_long if sum([count(text) | some text in texts; is_string(text)]) > 20000

deny contains "a field has the name of a secret" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	not is_long
	some label in field_labels
	regex.match(secret_labels, words(label))
	not is_something_else(label)
}

note contains "the form speaks about a secret, but does not ask for one" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	not is_long
	count(requests_for_secrets) == 0
	form_score < possible_score
	some text in mentions
	names_secret(without_harmless(words(text)))
}

# A classifier judges the form, too. These are the sums from which it denies a form on its own, from
# which it adds a note, and below which it withdraws a denial for the words of the form.
certain_score := 120

possible_score := 0

harmless_score := -150

form_score := gatekit.form.score({
	"message": input.params.message,
	"fields": [described(keys[count(keys) - 1], field) |
		walk(input.params.requestedSchema, [keys, field])
		count(keys) > 1
		keys[count(keys) - 2] == "properties"
		not is_choice(field)
		not excepted(keys[count(keys) - 1])
	],
}) if {
	is_string(input.params.message)
}

described(name, field) := object.union(
	{"name": name},
	{member: text_of(field, member) | some member in ["title", "description", "type", "format"]},
)

default text_of(_, _) := ""

text_of(field, member) := field[member] if is_string(field[member])

# True when the classifier takes the form for harmless. It does not count for a sentence such as
# "Enter your password", and in a long form, whose other words would hide such a sentence.
is_contradicted if {
	form_score < harmless_score
	count(split(words_of_form, " ")) < 60
	not is_unmistakable
}

is_unmistakable if {
	some text in mentions
	demands_secret(text)
	regex.match(concat("", [`\byour (\w+ ){0,3}(`, secret_nouns, `)\b`]), words(text))
}

is_unmistakable if {
	some text in mentions
	demands_secret(text)
	regex.match(strong_secrets, words(text))
}

# p a s s w o r d, p@ssw0rd
is_unmistakable if {
	some text in mentions
	not regex.match(any_secret, words(text))
}

# The label is a secret, and nothing else: "Your password".
is_unmistakable if {
	some label in field_labels
	some spelled in spellings(words(label))
	regex.match(secret_words, spelled)
	regex.match(`^(your|the|my|user|new|old|current|of|account|\d+|\s)*$`, regex.replace(spelled, secret_words, " "))
}

# True when the form has a field into which the user can write text.
has_text_field if {
	walk(input.params.requestedSchema, [keys, field])
	count(keys) > 1
	keys[count(keys) - 2] == "properties"
	not is_choice(field)
}

is_choice(field) if field.type == "boolean"

is_choice(field) if field.format in {"date", "date-time"}

is_choice(field) if {
	field.type == "object"
	is_object(field.properties) # walk visits these fields separately
}

is_choice(field) if has_options(field)

is_choice(field) if {
	field.type == "array"
	has_options(field.items)
}

has_options(field) if {
	some word in ["enum", "oneOf", "anyOf"]
	count(field[word]) > 0
	every option in field[word] {
		is_fixed(word, option)
	}
}

is_fixed("enum", _)

is_fixed(word, option) if {
	word != "enum"
	_ = option.const
}

deny contains "the text mixes alphabets within a word" if {
	input.method == "elicitation/create"
	input.kind == "request"
	some text in texts
	regex.match(mixed_alphabets, without_invisible(text))
}

deny contains "the form contains a link" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	some text in links
	is_for_the_user(text)
}

note contains "the form names a URL, but does not ask the user to open it" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	some text in links
	not is_for_the_user(text)
}

links contains text if {
	some text in texts
	not text in examples_of_uris
	regex.match(`(?i)\b(https?|javascript|data|file)(:|%3a)/*\S|\bwww\.`, without_invisible(text))
}

# True when a text asks the user to open its link. Other texts name the URL that a tool wants to use:
# "Delete the webhook https://ci.example.com/start?".
is_for_the_user(text) if regex.match(`(?i)\b(javascript|data|file)(:|%3a)`, without_invisible(text))

is_for_the_user(text) if {
	regex.match(link_words, words(text))
	not asks_permission(text)
}

is_for_the_user(text) if {
	regex.match(opening_words, words(text))
	not regex.match(opening_tools, words(text))
	not asks_permission(text)
}

# "Navigate to https://example.com and click Remove?"
asks_permission(text) if {
	regex.match(`(?is)^\W*(shall i |may i |should i |allow me to |ok to |okay to )?(navigate|open|fetch|load|delete|remove|create|send|post|put|publish|clone|download|use|add|connect|call|request|browse|go|crawl|scrape|index|import|export|push|pull|visit|click|follow|submit|register|subscribe|unsubscribe|update|replace|allow|approve|retry|deploy|upload|check)\b.*\?\s*$`, text)
	not regex.match(`\b(log ?in|sign ?in|sign ?on|verify|your|password|account|renew|re ?authenticate)\b`, words(text))
}

# A field may say how its value looks.
examples_of_uris contains text if {
	walk(input.params.requestedSchema, [_, field])
	some name in ["default", "description", "title"]
	text := field[name]
	is_string(text)
	regex.match(`(?i)^[^:/]*(\b(for example|e\.g\.|such as|like|example:|starts? with|format:)\s*[('"\x60]*(https?://|www\.)\S*)?$`, text)
}

examples_of_uris contains field["default"] if {
	walk(input.params.requestedSchema, [_, field])
	field.format == "uri"
	is_string(field["default"])
}

deny contains sprintf("URL refused: %s", [problem]) if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "url"
	some problem in problems(object.get(input.params, "url", ""))
}

# Revision 2025-11-25: an error can list URLs that the user must open before the client tries again.
deny contains sprintf("URL refused: %s", [problem]) if {
	input.kind == "error"
	input.error.code == -32042
	some elicitation in input.error.data.elicitations
	some problem in problems(object.get(elicitation, "url", ""))
}

deny contains "the server is not allowed to ask the user" if {
	input.kind == "error"
	input.error.code == -32042
	config.servers
	not allowed
}

deny contains "URLs are not allowed" if {
	input.kind == "error"
	input.error.code == -32042
	config.pages == false
}

problems(url) := {"the URL is not text"} if not is_string(url)

problems(url) := {problem | some problem in found_problems(url, gatekit.uri.parse(url))} if is_string(url)

found_problems(url, parsed) := {problem | some problem, true in {
	parsed.fault: parsed.fault != "",
	"the scheme is not https": not_https(url, parsed),
	"the URL contains a user name": parsed.user,
	sprintf("the host is not public (%s)", [parsed.special]): not_public(url, parsed),
	"the host is an address": is_address(url, parsed),
	parsed.imitation: unlisted_imitation(parsed),
	"the host is not allowed": other_host(parsed.host),
	"the URL contains a secret": regex.match(`(?i)[?&#;](access_?token|auth_?token|id_?token|refresh_?token|token|api_?key|key|secret|client_?secret|password|passwd|pwd|session_?id|sid|jwt|sig|signature)=[^&#]`, url),
}}

default not_https(_, _) := false

not_https(url, parsed) if {
	parsed.scheme != "https"
	not loopback_allowed(url, parsed)
}

default not_public(_, _) := false

not_public(url, parsed) if {
	parsed.special != ""
	not loopback_allowed(url, parsed)
}

default is_address(_, _) := false

is_address(url, parsed) if {
	regex.match(`^[0-9.]+$|:`, parsed.host)
	not loopback_allowed(url, parsed)
}

# True for a URL of this machine, when the settings allow such URLs. The host must be written as it
# is read: 2130706433 is another spelling of 127.0.0.1.
loopback_allowed(url, parsed) if {
	config.loopback
	parsed.scheme in {"http", "https"}
	contains(lower(url), parsed.host)
	is_loopback(parsed)
}

is_loopback(parsed) if parsed.host == "localhost"

is_loopback(parsed) if parsed.special == "loopback"

default unlisted_imitation(_) := false

unlisted_imitation(parsed) if {
	parsed.imitation != ""
	not listed(parsed.host)
}

default other_host(_) := false

other_host(host) if {
	config.hosts
	not listed(host)
}

listed(host) if {
	some pattern in config.hosts
	glob.match(lower(pattern), null, host)
}

# Names of fields, at any depth.
names contains name if {
	walk(input.params.requestedSchema, [keys, _])
	count(keys) > 1
	keys[count(keys) - 2] == "properties"
	name := keys[count(keys) - 1]
	not excepted(name)
}

texts contains name if some name in names

texts contains input.params.message

# Texts that are shown beside a field. The options of a choice are left out, because they do not ask
# for a secret.
texts contains text if {
	walk(input.params.requestedSchema, [keys, text])
	is_string(text)
	count([k | some i, k in keys; k in {"enum", "enumNames", "oneOf", "anyOf"}; not is_field_name(keys, i)]) == 0
	count([name | some i, name in keys; i > 0; keys[i - 1] == "properties"; excepted(name)]) == 0
}

# True when keys[i] is the name of a field, and not a keyword of the schema.
is_field_name(keys, i) if keys[i - 1] == "properties"

excepted(name) if name in config.except

without_invisible(text) := regex.replace(text, `[\x{ad}\x{200b}-\x{200f}\x{2060}-\x{2064}\x{feff}\x{34f}\x{180e}]`, "")

words(text) := gatekit.text.words(text)

# The texts that can ask for something. Texts of a choice, and default values, count only if they
# contain a verb such as "enter".
labels contains text if {
	some text in texts
	not text in names
	not text in quiet
}

labels contains name if {
	some name in names
	not name in quiet
	not titled(name)
}

quiet contains text if {
	walk(input.params.requestedSchema, [keys, text])
	is_string(text)
	text != input.params.message
	is_value_or_of_choice(keys)
	not regex.match(entry_verbs, words(text))
	not text in loud
}

# Texts that also stand beside a field into which the user can write.
loud contains text if {
	walk(input.params.requestedSchema, [keys, text])
	is_string(text)
	not is_value_or_of_choice(keys)
}

is_value_or_of_choice(keys) if keys[count(keys) - 1] in {"default", "examples", "pattern", "format", "type"}

is_value_or_of_choice(keys) if {
	is_object(input.params.requestedSchema)
	field := object.get(input.params.requestedSchema, array.slice(keys, 0, count(keys) - 1), {})
	keys[count(keys) - 1] in {"title", "description"}
	is_choice(field)
}

quiet contains name if {
	walk(input.params.requestedSchema, [keys, field])
	count(keys) > 1
	keys[count(keys) - 2] == "properties"
	name := keys[count(keys) - 1]
	is_choice(field)
}

# True when the title of the field contains the name, and therefore says more than the name.
titled(name) if {
	walk(input.params.requestedSchema, [keys, field])
	keys[count(keys) - 1] == name
	is_string(field.title)
	title := words(field.title)
	contains(title, words(name))
	title != words(name)
}

# The label of a field is its title, or its name if there is no title.
field_labels contains label if {
	walk(input.params.requestedSchema, [keys, field])
	count(keys) > 1
	keys[count(keys) - 2] == "properties"
	is_object(field)
	not is_choice(field)
	not excepted(keys[count(keys) - 1])
	label := object.get(field, "title", keys[count(keys) - 1])
	is_string(label)
}

# Texts with a word that may be a secret. Only these are looked at closely.
mentions contains text if {
	some text in labels
	is_string(text)
	not repeats_name(text)
	some spelled in spellings(words(text))
	regex.match(any_secret, spelled)
}

# "Delete prod/db/password?", and beside the field: "Type prod/db/password".
repeats_name(text) if {
	regex.match(`^(Type|Enter|Write) \S+/\S+$`, text)
	contains(input.params.message, concat("", [" ", split(text, " ")[1], " "]))
	regex.match(`(?i)^(delete|remove|revoke|rotate|destroy|drop|purge)\b.*\?`, input.params.message)
}

# Texts of the form that ask for the value of a secret. A text that only names a secret is not one of
# them: the form must also have a field for it.
requests_for_secrets contains label if {
	some label in mentions
	is_of_field(label)
	asks_for_secret(label)
	not is_something_else(label)
}

requests_for_secrets contains text if {
	some text in mentions
	demands_secret(text)
}

requests_for_secrets contains text if {
	has_vague_field
	some text in mentions
	asks_for_secret(text)
	not is_something_else(text)
}

requests_for_secrets contains text if {
	some text in mentions
	text in descriptions
	defines_secret(text)
}

requests_for_secrets contains text if {
	has_vague_field
	some text in mentions
	regex.match(long_secrets, words(text))
}

# "Card number and CVV" is a request, whatever the label of the field is.
requests_for_secrets contains text if {
	text := input.params.message
	text in mentions
	plain := without_harmless(words(text))
	count(split(plain, " ")) < 9
	not contains(text, "?")
	regex.match(concat("", [`(^|\byour )(\S+ ){0,3}(`, strong_secrets, `)`]), without_modifiers(plain))
	not is_about_secret(plain)
}

requests_for_secrets contains text if {
	some text in labels
	contains_secret_file(text)
	not is_path_asked
}

# "postgres://user:password@host"
requests_for_secrets contains text if {
	some text in labels
	regex.match(`://[^/\s:@]+:[^/\s@]+@`, text)
}

is_of_field(label) if label in field_labels

is_of_field(label) if label in names

descriptions contains field.description if {
	walk(input.params.requestedSchema, [_, field])
	is_string(field.description)
}

# True when a field can get any value, because its label is as vague as "Value", or has one or two
# letters.
has_vague_field if {
	some field in vague_fields
	not is_numeric(field)
}

has_vague_field if {
	count(vague_fields) > 0
	regex.match(numeric_secrets, words_of_form)
}

vague_fields contains field if {
	walk(input.params.requestedSchema, [keys, field])
	count(keys) > 1
	keys[count(keys) - 2] == "properties"
	is_object(field)
	not is_choice(field)
	not excepted(keys[count(keys) - 1])
	label := keys[count(keys) - 1]
	is_vague(object.get(field, "title", label))
	is_vague(object.get(field, "description", "value"))
}

# A vague label is explained by the description.
field_labels contains field.description if {
	walk(input.params.requestedSchema, [keys, field])
	count(keys) > 1
	keys[count(keys) - 2] == "properties"
	is_string(field.description)
	not is_choice(field)
	not excepted(keys[count(keys) - 1])
	is_vague(object.get(field, "title", keys[count(keys) - 1]))
	trim_space(regex.replace(field.description, examples, "")) != ""
}

is_vague(label) if {
	is_string(label)
	regex.match(vague_labels, words(label))
	not lower(label) in {"id", "to", "cc", "os", "ip", "pr", "tz", "vm", "by", "no"}
}

is_vague(label) if not is_string(label)

is_numeric(field) if field.type in {"integer", "number"}

# True when the form says what a word such as "token" or "pin" means in it.
is_something_else(label) if {
	plain := words(label)
	some pair in other_meanings
	regex.match(pair[0], plain)
	regex.match(pair[1], words_of_form)
}

words_of_form := concat(" ", [words(text) | some text in texts; is_string(text)])

# True when a sentence has a verb such as "enter", and the verb's object is a secret.
demands_secret(text) if {
	some sentence in regex.split(`[.!?]\s+|[。！？।؟]|[()\n]`, without_quotes(without_paths(regex.replace(without_examples(text), `\b[a-z]+[A-Z]\w*\(`, "("))))
	some spelled in spellings(without_harmless(words(sentence)))
	rest := without_harmless(spelled)
	not regex.match(text_work, rest)
	not asks_for_purpose(rest)
	is_demanded(rest)
}

demands_secret(text) if refers_to_secret(text)

# "Write file src/auth/password.ts?"
without_paths(text) := regex.replace(text, `(^|\s)[\w.-]*(/[\w.-]+)+\.[a-z]{1,5}\b`, " file") if contains(text, "/")

else := text

without_examples(text) := regex.replace(text, examples, "") if text in descriptions

else := text

# Quoted texts of things that have a text: "Localization key for 'Enter your password'".
without_quotes(text) := regex.replace(text, `"[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|'[^']*'($|[\s.?!,;)])`, " ") if regex.match(texts_in_quotes, words(text))

else := text

is_demanded(rest) if {
	regex.match(foreign_verbs, rest)
	names_secret(regex.replace(rest, foreign_properties, " "))
}

is_demanded(rest) if {
	regex.match(`\b(what|which) (number|code|digits)\b`, rest)
	regex.match(sending_words, words(input.params.message))
}

is_demanded(rest) if regex.match(`\b(paste|copy|enter|provide|send|give me) (\S+ ){0,4}cookies?\b`, rest)

# "User name (and the password)"
is_demanded(rest) if regex.match(concat("", [`^(and|plus|including|also|then|with) (the|your|its) (\w+ )?`, secret_nouns, `\b`]), rest)

is_demanded(rest) if {
	some object in objects(rest)
	is_secret_object(object, rest)
}

# The texts behind the verbs of a sentence, up to the next preposition. "the name for the token" is
# not the token, but "the value of the token" is.
objects(rest) := [object |
	some i, piece in regex.split(demanding_verbs, regex.replace(rest, others_act, " "))
	i > 0
	object := trim_space(regex.split(object_ends, regex.replace(piece, contents_of, " "))[0])
	not regex.match(gerunds, object)
]

is_secret_object(object, _) if regex.match(secret_words, without_modifiers(object))

is_secret_object(object, _) if regex.match(`\byour (\w+ ){0,3}keys?$|\b(your|admin|root|router|bank|server) (\w+ )?log ?ins?$|\bpat$|\bpin\b|\bcookies?\b|\b(magic|log ?in|sign in|verification|confirmation|reset) links?\b|\b(redirect|callback) (url|uri|link)\b|\b(key|token|secret) itself\b|\bfull (key|token)\b`, without_modifiers(object))

is_secret_object(object, rest) if {
	regex.match(code_words, object)
	regex.match(code_contexts, rest)
}

is_secret_object(object, _) if {
	regex.match(`\b(codes?|digits)\b|^(a |the |that |this )?numbers?\b`, object)
	regex.match(sending_words, words(input.params.message))
}

# Some secrets are described by more than their object: "the 12 words of your wallet".
is_secret_object(_, rest) if regex.match(long_secrets, rest)

# In English, a noun before another noun only describes it: "token transfer", "password reset".
without_modifiers(text) := without_phrases(text, modifiers(text))

without_phrases(text, phrases) := strings.replace_n({phrase: " " | some phrase in phrases}, text)

modifiers(text) := {phrase[0] |
	is_english
	some phrase in regex.find_all_string_submatch_n(concat("", [`\b(`, secret_nouns, `|(verification|confirmation|security|access|login|sms|authentication|recovery) codes?) (\pL{2,})\b`]), text, -1)
	not regex.match(words_after_nouns, phrase[count(phrase) - 1])
}

# Questions about a secret that is there: "Copy the secret to which environments?", "What is the token
# for?".
asks_for_purpose(text) if {
	regex.match(purposes, text)
	not regex.match(`\b(your|which you|whom you|what you)\b`, text)
}

purposes := `\b(to|with|into|in|for|from|at|under) (which|whom|what)\b|\bwhat (is|are|was) (the|a|an|this|that|these|those) .*\b(stored|kept|used|made|called|named|like|about|for|good|meant|protected|allowed)\b`

# "Translate 'Enter your password'" asks for a translation.
text_work := `^(please )?(translat|rewrit|rewrite|rephras|reword|locali[sz]|proofread|shorten)`

is_english if regex.match(`\b(the|your|which|what|please|how|this|with|should|enter|and|from|an)\b`, words_of_form)

# A description that begins with a secret says what to write into the field.
defines_secret(text) if {
	sentence := regex.split(`[.!?;]\s+|[()\n]`, text)[0]
	not is_list(sentence)
	plain := without_harmless(words(regex.replace(sentence, examples, "")))
	head := regex.split(object_ends, regex.replace(plain, contents_of, " "))[0]
	regex.match(concat("|", [secret_words, `\bpin$`]), without_modifiers(head))
	not is_about_secret(plain)
}

defines_secret(text) if {
	plain := without_harmless(words(text))
	regex.match(code_words, plain)
	regex.match(sending_words, plain)
	not is_about_secret(plain)
}

defines_secret(text) if regex.match(long_secrets, words(text))

# "password, passkey or single sign-on" are kinds of values, and not a value.
is_list(text) if regex.match(`(?i),.*\b(or|and|oder|und|ou|et|o|e|y)\b`, text)

is_path_asked if {
	some label in field_labels
	regex.match(`\b(path|file|folder|directory|location|profile|pfad|datei|ordner|chemin|fichier|ruta|archivo|percorso|caminho|arquivo)\b`, words(label))
	not regex.match(`\b(contents?|paste|copy|output|upload|inhalt|contenu|contenido|contenuto|conteudo)\b`, words_of_form)
}

asks_for_secret(text) if {
	some part in regex.split(`[.!?;:]\s+|[。！？；：।؟]|[()\n]`, text)
	rest := without_modifiers(without_harmless(words(part)))
	regex.match(`\b(is|are) (missing|required|needed|not set|not configured|empty)\b`, rest)
	not regex.match(`^no\b|\bnot (required|needed)\b`, rest)
	regex.match(secret_words, rest)
}

asks_for_secret(text) if {
	some part in regex.split(`[.!?;:]\s+|[。！？；：।؟]|[()\n]`, text)
	some spelled in spellings(without_harmless(words(part)))
	rest := without_modifiers(without_harmless(spelled))
	names_secret(rest)
	not is_about_secret(rest)
}

# "We made a token for you. Paste it here."
refers_to_secret(text) if {
	regex.match(`\b(enter|type|paste|insert|provide|put|drop|share|add|supply|attach|give me|send me) (it|them|this one|yours|both|the value|its value|the contents?)\b|\b(enter|type|paste|insert|provide|put|give|give me|send|send me) ((the|a) )?(current|old|new|full|whole|existing|actual|fresh|valid|working) (one|value)\b`, words(text))
	names_secret(regex.replace(words(text), harmless_words, " "))
}

# "The API wants a key. Put yours here." "Which key is it? Full value please."
refers_to_secret(text) if {
	regex.match(`\b(enter|type|paste|insert|provide|put|drop|share|add|supply|attach|give|send) (me |us )?yours\b|\b(full|whole|entire|complete|actual|plain) value\b`, words(text))
	regex.match(`\b(a|your|which) (\w+ )?(keys?|tokens?|secrets?)\b`, regex.replace(words(text), harmless_words, " "))
}

contains_secret_file(text) if {
	not is_command_to_approve(text)
	regex.match(secret_files, lower(text))
	not regex.match(`\b(where|which|path|name of|location|folder|names? only|only (the|its) names?|left out|ignored|excluded|skipped|never (read|sent|uploaded))\b`, lower(text))
}

# "The agent wants to run: export TOKEN=$(gh auth token)", and the user can only add a remark.
is_command_to_approve(text) if {
	text == input.params.message
	regex.match(`\b(run|runs|execute|command|approve|allow)\b`, words(text))
	not regex.match(`\b(your|yours|paste|enter|output|result|then|please)\b`, words(text))
	every label in field_labels {
		regex.match(`^(\w+ )?(reason|note|notes|comment|comments|remark|remarks|why|feedback|explanation|justification)( \(optional\)| optional)?$`, words(label))
	}
}

# p a s s w o r d, p@ssw0rd
spellings(text) := {text, joined(text), strings.replace_n({"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s"}, text)}

joined(text) := regex.replace(text, `\b(\pL) `, "$1") if regex.match(`\b\pL \pL \pL\b`, text)

else := text

names_secret(text) if regex.match(secret_words, text)

names_secret(text) if {
	regex.match(`\bpin\b|暗証|\bпин\b|핀 ?번호`, text)
	regex.match(entry_verbs, text)
}

names_secret(text) if {
	regex.match(`\bcookies?\b`, text)
	regex.match(`\b(enter|paste|copy|provide|share|send|insert|supply)\b`, text)
}

names_secret(text) if {
	regex.match(code_words, text)
	regex.match(code_contexts, text)
}

# A part of a text that asks to delete or to find a secret, and not to write it down.
is_about_secret(text) if {
	regex.match(about_verbs, text)
	not regex.match(entry_verbs, text)
	not regex.match(`\b(which|what) (password|passphrase|passcode|pin|code|key|token)s? (do you|did you|unlocks?|opens?|lets)\b`, text)
	not regex.match(`\b(create|choose|set|pick|add|save|store) (a|an|your|the)? ?(new |strong |own )*(password|passphrase|passcode|pin)\b`, text)
}

# "Translate 'Enter your password'" asks for a translation.
is_about_secret(text) if regex.match(`^(please )?translat`, text)

without_harmless(text) := regex.replace(regex.replace(text, warnings, " "), harmless_words, " ")

# Most forms have only ASCII letters. A search for words of other scripts would take most of the time,
# so these words are left out then: none of them can match. The names with latin_ and other_ are the
# two parts of such a list.
is_ascii if not regex.match(`[^\x00-\x7f]`, json.marshal(input.params))

entry_verbs := concat("|", [english_verbs, foreign_verbs])

english_verbs := `\b(enter|type (in|your|the|it)|paste|provide|give|share|tell|send|supply|input|submit|fill|copy|reply|retype|attach|write (down|your|the))\b`

foreign_verbs := latin_foreign_verbs if is_ascii

else := concat("|", [latin_foreign_verbs, other_foreign_verbs])

latin_foreign_verbs := `\bqual e\b|\bcual es\b|\bquelle? est\b|\bwie lautet\b|\bnedir\b|eingeben|\bgib\b|geben sie|\bsaisi|\bentrez\b|\bintrodu(ce|zca|zcan|cir|ceti|za)\b|\bingres[ae]\b|\bescrib|inserisc|\bdigit[ea]\b|\binsira\b|girin|yapistir|\bpodaj|wpisz|wklej|\bvoer|\bvul\b|\bplak\b|\bnhap\b|\bdan\b|masukkan|tempel|\banna\b|syota|kirjoita|liita|adja meg|irja be|illessz|indtast|\bskriv\b|indsaet|\bange\b|klistra|fyll i|oppgi|zadejte|zadaj|vlozte|napiste|scrieti|lipiti|wprowadz|przeslij|jak(ie|i|a) jest (twoj|twoje|twoja)|\bpega(r|d)?\b|\bdime\b|\benvia(r|me|nos)?\b|proporcion[ae]|\bfacilit[ae]|\bcole\b|\binforme\b|\bforneca|\benvie\b|incolla|\bscrivi\b|fornisci|\binvia\b|\bdimmi\b|\bcollez\b|\bindiquez\b|\bdonnez\b|fournissez|\btapez\b|\benvoyez\b|renseignez|communiquez|\bveuillez\b|einfug|eintrag|fugen sie|trage\w* \w+ .*\bein\b|fuge\w* \w+ .*\bein\b|\bkopier|\bschick|\bnenn|\bangeben\b|w(ie|as) (ist|lautet) (dein|ihr)|wat is (je|uw|jouw)|\btyp\b|\bgeef\b|\bstuur\b|\byazin|gonderin|paylasin|nedir\b|\bcho biet\b|la gi\b|\bketik|\bkirim|\bberikan|vad ar (ditt|din)|\bnecesito\b|\bpreciso (d|da|do|de)|\bmi serve\b|\bnodig\b|\bbrauche|benotig|\bbesoin\b|il me faut|potrzebuj|\bbutuh|ihtiyac|\bcho toi\b|wiederhol`

other_foreign_verbs := `εισ[αά]γ|πληκτρολογ|введите|вставьте|输入|粘贴|輸入|入力|貼り付け|입력|붙여|أدخل|الصق|दर्ज|पेस्ट|εισ[αά]γετε|введіть|вставте|вкажіть|надайте|укажите|пришлите|напишите|сообщите|скажите|назовите|(какой|какая|каков) (у вас|у тебя|ваш|твой)|填写|填寫|提供|告诉|告訴|复制|键入|貼上|贴上|是什么|是多少|是什麼|教えて|記入|送って|書いて|コピー|何です|알려|적어|보내 ?주|제공|복사|무엇|뭐|اكتب|ارسل|أرسل|زود|انسخ|ادخل|إدخال|ما (هي|هو)|बताए|बताइए|भेजें|डालें|लिखें|क्या है|нужен|нужна|потрібен|需要|必要です|필요|चाहिए|أحتاج|احتاج`

# Verbs whose object the user is asked for.
demanding_verbs := `\b(enter|type( in)?|retype|paste( in)?|insert|input|provide|supply|submit|give( (me|us))?|tell( (me|us))|send( (me|us))?|share|copy|attach|fill in|write( down)?|reply with|confirm|verify|needs? your|requires? your|want your|what (is|was|are)|what s|let me have|show me|hand over|hand (me|us)|drop (me|us|your)|pass me|list your|read out|read me|dictate|punch in|put (in )?your|(we|i)( \w+)? (need|require|want)|upload|reveal|disclose|(unlock|log ?in|sign in) with your)\b`

# Somebody else enters the secret: "What do users see when they type a wrong password?"
others_act := `\b(they|users?|customers?|people|persons?|someone|somebody|anyone|visitors?|he|she|employees?|members?|attackers?|clients?|players?|guests?|students?|who|scripts?|does it|does the \w+|will be asked to) (\w+ )?(enters?|types?|pastes?|provides?|inputs?|supply|supplies|submits?|gives?|shares?|sends?|copy|copies)\b`

texts_in_quotes := `\b(strings?|texts?|labels?|keys?|buttons?|titles?|translat\w+|captions?|headings?|placeholders?|errors?|slides?|posters?|tickets?|story|stories|tasks?|cases?|branch|commit|subject|faq|page|column|note|reminder|macro|warning|criteria|spelling|spell|wording|locali\w+)\b`

object_ends := `\b(to|of|for|about|on|with|that|which|who|whose|why|how|where|whether|if|when|from|in|so|because|before|after|by|at|into|like|such as|than|are called|is called|should be called|means?)\b`

# "the value of" means the thing itself.
contents_of := `\b(values?|contents?|copy|digits?|letters?|characters?|words|part|half|rest|whole|text|string|output) (of|from|in|for|on)\b`

# Verbs of an object that is an act: "confirm deleting the token".
gerunds := `^(the |this )?(\w+ing|delet\w+|remov\w+|revo[kc]\w+|rotat\w+|renew\w*|destructive|transfer)\b|^(the|this|that|each|every) (\w+ ){1,4}(a|an|another) \w+`

# Words that may stand behind a secret: "password again", "token value". Other nouns make the secret a
# part of a name, and verbs make a statement about it.
words_after_nouns := `^(values?|data|info|information|details|strings?|contents?|json|file|files|header|pair|pairs|codes?|numbers?|digits?|characters?|phrases?|words?|answers?|keys?|tokens?|secrets?|access|recovery|signing|passwords?|passcode|passphrase|pins?|cookies?|credentials?|cert|certificate|here|below|above|again|now|please|and|or|is|are|was|you|we|i|they|he|it|your|our|my|his|the|a|an|this|these|then|so|shown|sent|used|needed|required|expected|missing|itself|separated|twice|once|first|exactly|as|if|to|of|for|about|on|with|that|which|who|whose|why|how|where|when|from|in|because|before|after|by|at|into|only|repeat|repeated|unlocks?|opens?|protects?|lets|works?|gets|do|did|should|can|confirm|confirmation|verify|hex|base64|pem|plain|unencrypted|encrypted|manually|one|two|three|all|each|every|comma|per|\w+ly|printed|received|provided|given|asap|today|afterwards|later|but|until|while|since|within|under|over|up|out|back|down|it|them|me|us|him|her|belonging|contained|found|available|named|called|pls|thanks|instead|too|also|together|still|yet|just|right|everything|everywhere|somewhere|online|offline|exactly|carefully|issued|generated|created|copied|displayed|stored|saved|starting|starts|begins|not|must|will|ihres|deines|mot|de|eingeben|ein|hier|girin|anda|du|aici|tu|su)$`

# Secrets that have only digits.
numeric_secrets := `\b(pins?|otp|codes?|cv[vc]|ssn|digits?|tan|nip|numbers?|numero|nummer|kod\w*|codigo|codice|chiffres|cifre|cifras)\b|ziffer|nummer|код|цифр|номер|代码|数字|码|碼|番号|コード|번호|코드|رمز|رقم|कोड|नंबर`

# Labels of fields into which anything can be written.
vague_labels := `^((your|the|my|enter|please|a|an|deine?|ihre?|votre|tu|su|sua|seu|il|la|le|el|o) )*(values?( ?\d+)?|\w{1,2}|answers?|inputs?|responses?|reply|replies|texts?|data|contents?|outputs?|fields?|results?|strings?|info|information|details?|codes?|keys?|digits?|numbers?|words?|phrases?|frases?|frasi|logins?|auth|authorization|authentication|entry|entries|confirm|confirmation|verify|verification|verif|proof|prompt|here|message|user ?input|it|thing|item|x+|foo|bar|json|env|file|current|old|new( (value|one|code|key|entry))?|value ?\d|json key|header value|combination|\d+ ?(桁|位|자리)|(file )?contents?|everything|block|\d+ (letters|digits|characters|words)|repeat|again|repetition|wiederholung|tra loi|eingabe|antwort|wert|nummer|numara|numer|nomor|inhalt|vastaus|valasz|raspuns|svar|feld|angabe|zahl|ziffern|worter|schlussel|bestatigung|valeur|reponse|saisie|texte|contenu|champ|cle|mots|chiffres|numero|valor|respuesta|texto|entrada|contenido|campo|clave|codigo|palabras|digitos|valore|risposta|testo|contenuto|chiave|codice|parole|cifre|resposta|conteudo|chave|palavras|waarde|antwoord|invoer|tekst|inhoud|veld|sleutel|woorden|cijfers|wartosc|odpowiedz|pole|kod|klucz|slowa|cyfry|deger|yanit|cevap|giris|metin|alan|anahtar|kelimeler|sayi|gia tri|cau tra loi|ma|khoa|nilai|jawaban|isi|masukan|kode|kunci|varde|svar|nyckel|hodnota|odpoved|klic|kod|valoare|raspuns|cod|cheie)( ?\d+)?$|^(значени\S*|ответ|текст|поле|данные|ввод|код|ключ|слова|цифры|номер|κωδικ\S*|значення|відповідь|值|答案|回答|内容|内容|输入|輸入|代码|数字|号码|密钥|密鑰|文本|値|入力|入力値|コード|番号|テキスト|キー|값|답변|입력|내용|코드|번호|키|숫자|\d+자리|텍스트|القيمة|الاجابة|الإجابة|الرمز|النص|المفتاح|मान|उत्तर|कोड|इनपुट|कुंजी|ערך|τιμη)$`

# Short words that name a secret in one form and something else in another, and what the other form
# speaks about.
other_meanings := [
	[`^(sessions?|tokens?|keys?|secrets?|credentials?)( ids?)?$`, `\b(resume|revoke|delete|remove|rotate|disable|list|open|close|continue|show|inspect|rename|restore|expire|attach|detach|mount|use) which (\w+ )?(sessions?|tokens?|keys?|secrets?|credentials?)\b`],
	[`\bseed words?$`, `\b(topic|cluster\w*|lda|generator|puzzle|crossword|keyword|search|model)\b`],
	[`\bpin ?codes?$`, `\b(postal|zip|shipping|delivery address|india|city and|and city|town|district|post office)\b`],
	[`^cookies?$`, `\b(bak(e|es|ed|ing)|recipes?|oven|dough|chocolate|snacks?|dessert|kitchen)\b`],
	[`\bpins?( (numbers?|names?))?$|^pin\b`, `\b(sewing|needles?|hair|cushion|gpio|relays?|led|sensors?|arduino|raspberry|esp32|esp8266|breadboard|header|connector|pinout|pull(ed)? (up|down)s?|analog|vcc|jumpers?|solder\w*|servo|microcontroller|i2c|spi|uart|voltage|maps?|latitude|longitude|pinterest|boards?|bowling|corkboard|lapel|wiring|chip|motor)\b`],
	[`\bpass(es)?$`, `\b(boarding|season|ski|museum|train|travel|bus|metro|day|event|backstage|visitor|parking|resort|mountain|festival|wallet pass)\b`],
	[`\bsession( ids?)?$`, `\b(agents?|runs?|chats?|threads?|conversations?|recordings?|training|tmux|terminal|debug\w*|conference|workshop|coaching|therapy|game|browser tabs?|meeting|lesson|yoga|speaker|talk)\b`],
	[`\baccount (numbers?|no)$`, `\b(chart of accounts|ledger|bookkeeping|book keeping|accounting|cost centers?|journal entr(y|ies)|debit and credit)\b`],
	[`\btokens?( (in|out|a|b|0|1|id|ids))?$`, `\b(symbols?|crypto|track|portfolio|market|prices?|swaps?|mint\w*|nft|erc ?\d+|bridges?|parser|lexer|tokeni[sz]er|grammar|ticker|coins?|liquidity|pool|airdrop|staking|stake|blockchain|dex|usdc|usdt|eth|solana|supply|design tokens?|css|max\w*|budgets?|per minute|models?|llm|stop sequences?|context window)\b`],
	[`^((from|to|old|new|existing|which|kubernetes|docker|k8s|github|repository|the) )*(secrets?|keys?|credentials?|tokens?|connections?)$`, `\b((names?|ids?|alias(es)?|labels?) only|only (the|its|a|their) (names?|ids?|alias|label)|not (the|its|their) values?|names? as|by (its |the )?(names?|label|alias)|(to|be) (mounted?|rotated?|deleted?|revoked?|disabled|listed)|which (one|of them))\b|^((helm|terraform|kubernetes|docker|compose) )?names? of (the|an?) `],
]

# What a text says that wants the user to open its link.
link_words := latin_link_words if is_ascii

else := concat("|", [latin_link_words, other_link_words])

latin_link_words := `\b(visit|go to|click|log ?in|sign ?in|sign ?on|sign ?up|log ?on|verify|follow|see|read (more|it|about)|renew|re ?authori[sz]\w*|re ?authenticat\w*|authori[sz]e|authenticate|unlock|continue (at|on|via|in)|your (account|session|wallet|login|identity|bank|password|payment|billing|card|profile)|pay|claim|tap|scan|look at|register (at|on|here)|download (it|this|the|from)|install (it|this|the|from)|get (it|one|yours)|help|more info\w*|details at|first|then|here)\b|\bmelde\w* (sie )?(sich|dich)\b|logge\w* (sie )?(sich|dich)\b|\bgehen sie\b|rendez vous|allez sur|identifi|entra en|\bve a\b|visita|vai (a|su)\b|\bentre em\b|ga naar|przejdz|odwiedz|wejdz|ziyaret|gidin|logga in|\bbesok|ga till|log ind|kirjaudu|jelentkez|prihla|anmeld|einlogg|klick|besuch|offne|aufruf|cliqu|visite|ouvr|connecte|inicia|haz clic|pulsa|accede|abre|accedi|clicca|apri|acesse|clique|abra|klik|bezoek|inlogg|otworz|zaloguj|klikn|tiklay|giris yap|nhap vao|truy cap|dang nhap|kunjungi|masuk ke`

other_link_words := `увійд|відкри|войд|войти|перейд|нажм|откр|登录|登錄|点击|點擊|访问|訪問|打开|打開|ログイン|クリック|アクセス|開い|開く|ご覧|로그인|클릭|방문|접속|열어|سجل|اضغط|انقر|زيارة|افتح|लॉग ?इन|क्लिक|खोल|जाएं`

# "Open" and "connect" also say what the tool does.
opening_words := `\b(open|browse|navigate|connect|load|use)\b`

opening_tools := `\b(automated|automation|headless|playwright|puppeteer|chromium|crawler|scraper|allow|approve|permit|may i|shall i|should i|tool|agent|navigate|proceed|fetch|request)\b`

# A property of a secret, in languages other than English: the reason for its revocation, or its name.
foreign_properties := latin_foreign_properties if is_ascii

else := concat("|", [latin_foreign_properties, other_foreign_properties])

latin_foreign_properties := concat("|", [
	`\b(namen?|noms?|nombres?|nomes?|nomi|naam|naziv|nazev|navn|namn|raison|motifs?|motivos?|proprietari[oa]|propietari[oa]|proprietaire|besitzer|eigentumer|inhaber|eigenaar|zweck|proposito|scopo|finalidade?|doel|razon|grund|reden|bezeichnung|titel|titre|titulo|titolo|texte|texto|testo|beschreibung|descripcion|descrizione|descricao|datum|fecha|betreff|objet|asunto|oggetto|assunto|adresse|anzahl|quantita|cantidad) (\S+ ){0,3}(de|del|della|du|des|der|den|das|die|zum|zur|fur|pour|para|per|por|do|da|van|voor) .*`,
	`\b(powod|nazw|opis|dat)\w* (\S+ ){0,3}(hasl|token|klucz|sekret)\w*`,
	`\b(alasan|nama|jumlah) (\S+ ){0,3}(kata sandi|token|kunci)`,
])

other_foreign_properties := concat("|", [
	`(причин|описани|назван|назв|количеств|срок|тем|дат)\S* (\S+ ){0,3}(парол|токен|ключ|секрет)\S*`,
	`(سبب|اسم|وصف|تاريخ|عدد|نوع|مدة|صاحب|مالك|غرض) .*`,
	`(token|トークン|パスワード|キー|鍵|密钥|密鑰|令牌|密码|密碼|토큰|키|비밀번호|टोकन|पासवर्ड|कुंजी)[^,.;:，。、；：]{0,24}(原因|理由|名称|名前|备注|備註|说明|說明|説明|描述|概要|メモ|コメント|ラベル|用途|期限|長さ|长度|负责人|所有者|权限|范围|担当|権限|範囲|이유|사유|이름|설명|용도|소유자|담당자|권한|범위|नाम|कारण|विवरण|उपयोग|मालिक|उद्देश्य)`,
])

# Secrets that several words describe.
long_secrets := `\b(on|of) (the )?(front|back) of (your|the) (\w+ )?card\b|\blast (four|4) digits of (your|the) (card|account|social|ssn)\b|\bkeys? (of|for|from) your (\w+ ){0,3}account\b|\b(words?|phrase)\b.*\b(in order|of (your|the) (\w+ )?(wallet|ledger|trezor|backup|recovery))\b|\bwallet\b.*\b(12|18|24|twelve|eighteen|twenty ?four) words?\b|\bservice account\b.*\b(json|key)\b|\bcards? (numbers?|no)\b.*\b(expir\w+|cv[vc]2?|security code)\b|\bauthorization header\b|\bauth (print )?(access )?token\b`

# The beginning of an example in a description.
examples := `(?i)\b(for example|e\.g\.|such as|like|example:|zum beispiel|z\. ?b\.|par exemple|por ejemplo|por exemplo|ad esempio|bijvoorbeeld|na przykład|örneğin|misalnya|например|例如|例えば|例：|예:).*$`

about_verbs := latin_about_verbs if is_ascii

else := concat("|", [latin_about_verbs, other_about_verbs])

latin_about_verbs := `^who (owns|has|uses|created|made)\b|(customers?|users?|employees?|clients?|members?|people) who (forgot|lost|forget|lose)\b|^names? (the|a|your|this|new)\b|^(should|shall|is|are|was|does|did|will|has) |\b(describe|explain)\b.*\b(for|why|how)\b|\b(delet\w+|remov\w+|revo[kc]\w+|rotat\w+|reset\w*|expir\w+|renew\w*|disabl\w+|list|find|search|renam\w+|which|where|when|why|how (long|many|often|much)|creat\w+|generat\w+|issue|called|named|leak\w+|detected|stored|used by|label|translat\w+|manag\w+)\b|zuruckgesetzt|losch|widerruf|supprim|revoqu|elimin|borrar|revoca|\bapagar|exclu|\busun|verwijder|hapus|silin|\bxoa\b|abgelaufen|ablauf|warum|pourquoi|\bpor que\b|perche\b|waarom|dlaczego|neden\b|tai sao|mengapa|kenapa`

other_about_verbs := `удал|отозва|删除|撤销|刪除|削除|삭제|怎么办|怎麼辦|如何|为什么|為什麼|是否|要不要|何时|多久|过期|過期|失效|到期|どうします|なぜ|いつ|期限切れ|어떻게|왜|언제|만료|почему|зачем|истек|когда|لماذا|متى|क्यों`

# A warning is not a request: "do not enter passwords".
warnings := `\b(do not|don t|never|please no|without) (enter|give|share|send|submit|supply|disclose|reveal|tell|paste|include|type|put|provide|add|post|write)\b.*?(\b(but|instead|then)\b|$)|\b(leave out|omit|exclude|strip|redact) (\w+ ){0,5}(passwords|tokens|keys|secrets|credentials)\b`

harmless_words := latin_harmless_words if is_ascii

else := concat("|", [latin_harmless_words, other_harmless_words])

latin_harmless_words := concat("|", [
	`\b(type|enter|write) the name of (the|this|your) (\w+ )?(secrets?|keys?|tokens?|credentials?)( to \w+.*)?`,
	`\b(type|enter|write) (yes|y|no|ok|delete|confirm|revoke|rotate|remove|reset|regenerate|continue|proceed|agree|drop|destroy|purge|approve|i understand) to \w+ .*`,
	`\b(zip|postal|post)( codes?)? (or|and) pin ?codes?\b`,
	`\b(digits|characters|length|format|validity|lifetime|sender|owner|expiry|channel|design|wording) (in|of|for) (the|a|each) (new )?((one time|verification|confirmation|security|sms|login|access|door|entry) )*(codes?|pins?)\b`,
	`\b(last|first) (\w+ )?(digits|characters|letters) of (the|your) (order|invoice|tracking|phone|serial|booking|ticket|model|part|customer) (number|id|code)\b`,
	`\b(noms?|nombres?|nomi?|nomes?|name) (\w+ ){1,4}(qui contien\w+|que contien\w+|che contien\w+|que conte\w+|mit den) ((les|las|los|le|i|os|as) )?(mots de passe|contrasenas|senhas|passwords?|passwortern|tokens?|cles|claves|chiavi|chaves)`,
	concat("", [`\b(names?|ids?|identifiers?|labels?|titles?|paths?|locations?|arns?|descriptions?|purposes?|scopes?|owners?|expir\w+|types?|kinds?|lengths?|number|amount|count|lifetime|age|versions?|formats?|status|texts?|symbols?|address(es)?|tickers?|prices?|costs?|suppl(y|ies)) (of|for|on|in|to) ((the|a|an|your|this|that|each|every|new|old|any|used|about) )*`, secret_nouns, `\b`]),
	concat("", [`\b(names?|paths?|locations?|ids?) of ((the|a|an|this) )?(\w+ ){1,3}(that|which|with|where) (\w+ )?(holds?|contains?|stores?|keeps?|has|have|carr(y|ies)|takes?|expects?|transports?) ((the|a|an|your) )?`, secret_nouns, `\b`]),
	concat("", [`\b`, secret_nouns, ` (names?|labels?|titles?|ids?|identifiers?|polic(y|ies)|lengths?|counts?|limits?|budgets?|sizes?|usage|types?|kinds?|formats?|symbols?|address(es)?|supply|expir\w+|lifetime|ttl|age|rotation|strength|manager|generator|fields?|columns?|pages?|screens?|reminders?|status|scopes?|owners?|arns?|paths?|locations?|folders?|url|endpoint|provider|store|vault|prefix|descriptions?|purposes?|versions?|settings|requirements?|rules?|banner|notice|consent|preferences|recipes?|economics|prices?|prompts?|hints?|protected|protection|dialogs?|forms?|inputs?|boxe?s?|change|validation|hash\w*|complexity|history|headers?|engines?|helpers?|balance|pairs?|contracts?|holders?|santa|door|garden|gist|ingredients|per (second|minute|request|day))\b`]),
	`\b(max\w*|min\w*|number of|how many|count of|total|input|output|prompt|completion|design|next ?page|page|next|cursor|continuation|sync|stop|special|padding|mask|separator|cancel\w*|delimiter|game|nft|erc ?20|utility|governance|lexer|syntax|crypto) tokens?\b`,
	`\b(public|partition|sort|primary|foreign|project|issue|cache|object|map|json|config|configuration|dictionary|registry|shortcut|hot|arrow|musical|song|idempotency|translation|flag|feature|lookup|join|index|group|routing|citation|column|answer|house|piano|dedup\w*)( ssh| gpg| pgp)? keys?\b`,
	`\b(tracking|promo\w*|discount|coupon|voucher|referral|country|area|zip|postal|post|currency|language|locale|airport|iata|icao|product|item|error|exit|status|response|http|colou?r|qr|bar|source|dress|building|morse|swift|bic|tax|hs|job|order|booking|reservation|reference|department|course|class|room|invite|school|store|station) (codes?|numbers?|pins?)\b`,
	`\b(business|greeting|birthday|trello|kanban|index|score|report|graphics|video|sound|playing|flash|magic|game|library|memory|story|task|job|yellow|red) cards?( (numbers?|details|names?|titles?|ids?|texts?))?\b`,
	`\bconnection strings? (names?|formats?|types?)\b|\bjwt (issuers?|audience|algorithms?|claims?|expir\w+|library)\b|\b(basic|digest|none) (or |and )?bearer\b|\bbearer (or|and) (basic|digest|none)\b|\bbearer (auth\w*|scheme)\b`,
	`\bcards? (games?|texts?|titles?|ids?|decks?|stacks?|layouts?|names?)\b`,
	`\b(booking|hotel|order|reservation|flight|ticket) confirmation (codes?|numbers?)\b|\bconfirmation (codes?|numbers?) (of|for) (the|your) (\w+ )?(booking|hotel|order|reservation|flight|ticket)\b`,
	`\bpalabras? claves?\b|\b(puntos?|temas?|datos?|fechas?|ideas?|conceptos?|resultados?|personas?|indicador\w*|elementos?|aspectos?|momentos?) claves?\b|\bparol[ae] chiave\b|\bpassworts?richtlinien?\b|\bpin ?codes? (and|und|et|y) (city|town|area|state)\b`,
	`\b(name|nom|nombre|nome|naam|nama|nazwa|titel|titre|ten) (des|der|de la|de l|del|de|du|da|do|della|dell|van de|van het|untuk|cua) \S+( (api|ssh))?\b`,
	# codes that are no secrets, in other languages
	`\bcode (postal|produit|client|promo|pays|barres?|source|article|devise|de suivi)|\bcodigo (postal|(de |del |do |da )?(producto|produto|cliente|pais|barras|fuente|fonte|articulo|promocional|area|rastreio|rastreamento|seguimiento|envio|reserva))|\bcodice (postale|cliente|prodotto|fiscale|sorgente|paese|articolo|sconto|di spedizione|di prenotazione)|\bkod\w* (poczt|produkt|zrodl|kraj)\w*|\b(posta|urun|kaynak|ulke|alan) kod\w*|\bkode (pos|produk|sumber|negara|barang|area)|\bma (buu|san pham|nguon|don hang|vung|so thue)`,
	# names and properties of secrets, in other languages
	`\bwie (lang|oft|viele) (\w+ ){0,3}(passwort|passworter|kennwort|token)s?\b`,
	`\bpasswort ?(lange|richtlinie|manager|starke|regel|ablauf|feld)\w*|\b(lange|name|bezeichnung|art|typ|ablauf\w*|anzahl|regel\w*|richtlinien?) (des|der|von|fur) (\S+ )?(passwort|token|schlussel|geheimnis)\w*|\bwachtwoord(beleid|lengte|beheerder)`,
	`\b(politi\w+|criteri|longueur|longitud|lunghezza|comprimento|tamanho|duree|duracion|durata|nom|nombre|nome|types?|tipos?|expiration|caducidad|scadenza|validade|numero|cantidad|quantidade|reg\w+|gestionnaire|gestor|gestore|gerenciador) ((max|min)\w* )?(des?|du|de la|de los|de las|de l|d|del|della|delle|dei|di|do|da|dos|das) (mots? de passe|contrasenas?|senhas?|passwords?|tokens?|jetons?|cles?|claves?|chaves?|chiav[ei]|segred\w+|secret\w*)( d?e? ?l?a? ?(api|ssh))?`,
	`\b(polityka|dlugosc|menedzer|nazwa|liczba|typ) (hasel|hasla|token\w+|klucz\w+)|\b(parola|sifre|token|anahtar) (politika|uzunlu|yonetici|sayi|ad)\w*|\b(kebijakan|panjang|nama|jumlah) (kata sandi|token|kunci)|\b(chinh sach|do dai|ten|so luong) (mat khau|token|khoa)|\b(anzahl|aantal|liczba|jumlah|nombre|numero) (max\w* )?(de |di |der |von )?tokens?`,
	# things that only share a word with a secret
	`\b(aws|customer|supplier|vendor|support) account numbers?\b|\b(credit|debit|bank|payment) cards? (categor(y|ies)|types?|brands?|issuers?|benefits?|rewards?|statements?|expenses?|fees?|offers?|comparison)\b`,
	`\bboards? (for|of) (the|this|your|a) pins?\b|\bpin numbers? (of|on) (the|your) (board|chip|connector|header|sensor|led)\b`,
	`\bx \w+ (keys?|tokens?|secrets?) (by default|header)\b|\b(header|default) (name )?(is )?x \w+ (keys?|tokens?|secrets?)\b`,
	`\bhow \w+( \w+){0,3} works?\b|\bhaslo (reklamowe|wyborcze|przewodnie|dnia|miesiaca)\b`,
	`\b(gpio|board|input|output|connector|chip|data|clock) pins?( numbers?| headers?)?\b|\bpins? headers?\b`,
	`\bsecret (santa|door|garden|gist|recipe|level|agent|menu)s?\b|\bcookies? (cutter|dough|monster|recipe)s?\b|\b(how many|number of|bake|chocolate chip|fortune|christmas|oatmeal|favou?rite) cookies?\b|\bpass(ed)? (rate|count|mark|fail)\b|\bboarding pass( types?)?\b`,
])

other_harmless_words := concat("|", [
	# codes that are no secrets, in other languages
	`(почтов\S*|исходн\S*) (код|индекс)|код (отслеживания|товара|страны|города|продукта|программы)|الرمز البريدي|رمز (البلد|المنتج|المنطقة)|(पिन|उत्पाद|देश|सोर्स) कोड|(邮政|产品|国家|源|商品)(编码|代码)|(商品|ソース|国|地域) ?コード|(郵便|注文|電話|会員|商品|受付)番号|(상품|소스|국가|지역) ?코드|(우편|주문|전화|사업자|회원|송장) ?번호`,
	# names and properties of secrets, in other languages
	`(密钥|令牌|密码|密鑰|密碼|token|パスワード|トークン|キー) ?(的|の)?(名称|名字|名前|名|ラベル|标签|标识|编号|用途|别名|备注|策略|ポリシー|长度|長さ|强度|強度|数量|数|类型|種類|有効期限|有效期|管理)`, `(비밀번호|토큰|키|token)의? ?(정책|길이|개수|수|이름|유형|만료|관리)`,
	`\bсколько (\S+ )?токен\S*|токен\S* максимум|(トークン|token) ?(の|数の)?(上限|数|個数)|(最大|最多) ?(token|令牌) ?数?`, `(число|количеств\S*|лимит\S*|названи\S*|имя|срок\S*( действия)?|политик\S*|длин\S*|сложност\S*|менеджер\S*|тип\S*) (\S+ )?(токен|парол|ключ|секрет)\S*`, `(سياسة|طول|اسم|نوع) (كلمة المرور|الرمز|المفتاح)|पासवर्ड (नीति|की लंबाई)|टोकन (का नाम|की संख्या)`,
])

secret_nouns := `((api|access|auth|oauth|secret|personal access|bearer|refresh|session|private|signing|encryption|ssh|gpg|deploy|web ?hook|master|client|security|login) )*(pass ?words?|passphrases?|passcodes?|tokens?|keys?|secrets?|credentials?|cookies?|pins?)`

secret_words := latin_secret_words if is_ascii

else := concat("|", [latin_secret_words, other_secret_words])

latin_secret_words := concat("|", [
	# English
	`\bpass ?(words?|phrases?|wd|codes?|keys?)\d*\b`, `\bpw(d|rd)?\d*\b`, `\bpsw?d\b`, `\bcredentials?\b`, `\bsecret ?keys?\b|\bsecrets?( (tokens?|values?|codes?|access|answers?|pins?|numbers?|of|for|from|that|which|and|or|to|here|is|in|you|we|below|into|again|shown|used|with)\b|$)`, `token\b`, `\b(access|auth|api|bearer|refresh|session|security|id|jwt|oauth) ?tokens\b`, `\bjwt\b`,
	`\b(api|access|private|secret|ssh|gpg|pgp|encryption|decryption|signing|license|account|master|recovery|host|wallet|service account|open ?ai|anthropic|stripe|git ?hub|live|restricted|mistral|gemini|groq|perplexity|deep ?seek|deepl|tavily|resend|sendgrid|mailgun|algolia|mapbox|datadog|sentry|notion|airtable) ?keys?\b`, `\bapikeys?\b`, `\b(enter|paste|provide|give|share|send|supply|submit) (me |us )?your key\b`, `\bssn\b`, `\bitin\b`, `\b(social|national) (security|insurance)\b`, `\bcv[vc]2?\b`,
	`\b(credit|debit|bank|payment) ?cards? ?(numbers?|no|details|data|info\w*)?\b`, `\bcards? ?(numbers?|no|details|data|security codes?|verification \w+)\b`, `\b(on|of) (the )?(front|back) of (your|the) (\w+ )?card\b`, `\blast (four|4) digits of (your|the) (card|account|social|ssn)\b`,
	`\bpin ?(codes?|numbers?)\b`, `\bpins? (that )?unlocks?\b`, `\bkeys? (of|for|from) your (\w+ ){0,3}account\b`, `\bprivate part\b`, `\byour pins?\b( (to|for|code|number|here|below|and|or)|$)`, `\b(the card s?|card|sim|banking|atm|digit) pins?\b`, `\botp\b`, `\bone time (pass\w*|codes?|pins?)\b`, `\b(verification|confirmation|security|pairing|linking|auth|authentication|authenticator|authorization|access|login|sign in|sms|mfa|2 ?fa|totp|two factor|backup|recovery|reset|unlock|activation|device) ?codes?\b`, `\bverification (numbers?|digits?)\b`,
	`\b(seed|recovery|backup|mnemonic|secret) ?phrases?\b|\b(recovery|backup|mnemonic|your seed|wallet seed) words?\b|\bseed words? (of|for) (your|the) (wallet|ledger)`, `\bmnemonics?\b`, `\b(12|18|24|twelve|eighteen|twenty ?four) ?words? (recovery |seed |secret |backup )?(phrase|wallet|in order|list)`, `\bwallet\b.*\b(12|18|24|twelve|eighteen|twenty ?four) words?\b`, `\biban\b`, `\b(account|routing) numbers?\b`, `\bsession ?(id|cookie)s?\b`, `\b(session|auth\w*|login|browser|sso|csrf|your|site|sign in) cookies?\b|\bcookies? (value|header|string|jar|file)s?\b|^cookies?$`,
	`\bmaiden name\b|geburtsname der mutter|(nom de jeune fille|apellido de soltera|cognome da nubile|nome de solteira)`, `\bauthenticator( app)?\b.*\b(shows?|says?|displays?)\b|\b(shown|displayed) (in|by|on) (the|your) authenticator\b|\bwhat (does|did) the (sms|text message) say\b`, `\b(enter|paste|provide|needs?|your) (\w+ ){0,3}pat\b`, `\bwallet\b.*\byour (\w+ )?words\b|\byour words in order\b`, `\bsecurity (question|answer)s?\b`, `\b(login|log in|sign in|account) (details|data|info\w*)\b`, `\b(user(name)?|login|e ?mail|id) and pass\b`, `^(user ?name|login|e ?mail|account|user)\b.*\b(passwords?|passwd)\b`, `\b(tokens?|secrets?|passwords?|(old|new|current|api|full|private) keys?) values?\b`, `\b(api|app) hash\b`, `\bcreds\b|\b(access|sign in|log ?in|log ?on) (details|data)\b|\b(vault|unlock|master) keys?\b|\bpuk\b|\bmemorable (word|answer|information)\b`, `\b(guard|disarm|alarm|door|gate|entry|keypad|lock) code\b|\bcombination (of|for) (the|your) (safe|lock|locker)\b|\b(safe|lock|locker) combination\b|\b(product|activation) keys?\b`, `\bprivate (key )?(block|part|half)\b`, `\bunseal keys?\b|\bwi ?fi (key|password|passphrase)\b|\bnetwork key\b|\bwpa\w* (key|psk)\b|\bpsk\b`, `\bseed words\b|\bword 1 (to|through|until) word (12|24)\b`, `\bservice account (file|json|key|credentials?)\b`, `\bwith (the |your |a )?(user(name)?|login) and pass\w*\b`, `\blast (four|4)$`, `\bpersonal access tokens?\b`, `\b(git ?hub|git ?lab|your|azure|devops) pat\b`, `\bconnection strings?\b`, `\bbearer\b`, `\bauthorization header\b`, `\b(begin|rsa) (\w+ )?private\b`, `\bservice account\b.*\b(json|key)\b`, `\bkey ?(store|chain)\b`, `\b(totp|otp|2 ?fa|wallet) seed\b`, `\bunlock pattern\b`, `\bwords of (your|the) .*\b(backup|wallet|ledger|trezor|recovery)\b`, `\bkubeconfig\b`,
	# German, Dutch, Scandinavian
	`passwort`, `kennwort`, `zugangsdaten`, `anmeldedaten`, `\bpin (ein|an)`, `\bdeine pin\b|\bihre pin\b`, `\btan\b`, `karten(nummer|prufnummer)`, `pruf(nummer|ziffer)`, `((privat|geheim)\w*|api|ssh) ?schlussel`, `(bestatigungs|verifizierungs|sicherheits|einmal|anmelde|zugangs|sms) ?codes?`, `(wiederherstellungs|seed) ?(phrase|worter|codes?)`, `geheimzahl`, `geheimnis`,
	`wachtwoord`, `\bpincode\b`, `inloggegevens`, `kaartnummer`, `(prive|geheime|api) ?sleutel`, `(verificatie|beveiligings|inlog|herstel|sms) ?code`, `herstel(zin|woorden)`, `losenord`, `adgangskode`, `\bpassord`, `salasana`,
	# French, Spanish, Italian, Portuguese, Romanian
	`mots? de passe`, `cles? (privee|secrete|d ?acces|d api|api|ssh)`, `code (secret|de verification|de securite|confidentiel|de confirmation|pin|a usage unique|d ?authentification|sms)`, `identifiants? de connexion`, `(numero|code)s? de (la |votre |ma )?carte`, `cryptogramme`, `phrase (de recuperation|secrete|mnemonique|de recovery)`, `jetons? d (acces|authentification|api)`,
	`contrasenas?`, `\b(tu|su|la|mi) clave\b`, `claves? (privada|secreta|de api|api|de acceso|personal)`, `^clave$`, `codigo (de verificacion|de seguridad|pin|sms|de confirmacion|de acceso|de un solo uso)`, `numero de (la |tu |su )?tarjeta`, `frase (semilla|de recuperacion|secreta)`, `\bnip\b`, `credenciales`, `token de (acceso|acesso)`,
	`codice (di verifica|di sicurezza|pin|sms|segreto|di conferma|otp|di accesso)`, `chiav[ei] (privata|segreta|api|di accesso)`, `numero d(i|ella) carta`, `carta di credito`, `frase (di recupero|seed|segreta)`, `parola d ordine`, `credenziali`,
	`\bsenhas?\b`, `palavra passe`, `chaves? (privada|secreta|de api|api|de acesso)`, `codigo (de verificacao|de seguranca|de confirmacao|de acesso)`, `numero do (seu )?cartao`, `frase (de recuperacao|semente|secreta)`, `credenciais`, `\bparolan\w*|\bparolayi|\bparola (ta|dvs|contului|girin)`,
	# Polish, Turkish, Vietnamese, Indonesian
	`\bhasl(o|a|em)\b`, `klucz\w* (prywatn|api|tajn|dostepu)`, `numer\w* karty`, `kod\w* (sms|weryfikac|cvv|pin|zabezpiecz|potwierdz|jednoraz|z sms)`, `dane (do )?logowania`, `fraz\w* (odzysk|seed)`,
	`\bsifre`, `ozel anahtar|gizli anahtar|api anahtar`, `kart\w* numara`, `(dogrulama|guvenlik|onay|giris) kod`, `kurtarma (ifade|kelime|cumle)`, `kimlik bilgi`,
	`mat khau`, `khoa (rieng|bi mat|api|truy cap)`, `\bso the\b`, `\bma (otp|pin|xac (minh|nhan|thuc)|cvv|bao mat)`, `cum tu (khoi phuc|hat giong)`, `thong tin dang nhap`,
	`kata sandi|\bsandi\b`, `kunci (pribadi|privat|rahasia|api|akses)`, `nomor kartu`, `kode (verifikasi|otp|pin|keamanan|konfirmasi|akses)`, `frasa (pemulihan|rahasia|benih)`,
	# Czech, Slovak, Hungarian, Romanian, Croatian, Serbian, Greek, Malay
	`\bapi \S*(nyckel|nogle|nokkel|avain|kulcs|klic|kluc|cheie|kljuc|sleutel|schlussel|anahtar|klucz|ключ)`, `(vahvistus|kerta|tunnus)\w*(koodi|luku)|(engangs|verifikations|bekraftelse|bekreftelses|sakerhets)\w*kode?|(overovaci|hitelesito|ellenorzo)\w* kod`, `\bhesl(o|a|e|u|em)\b`, `\bjelsz(o|av)`, `introduceti (o )?parola|\bparola de (acces|conectare)`, `lozink`, `kata laluan`,
	# a wallet's words
	`\b(12|24|douze|doce|dodici|doze|zwolf|twaalf|dwanascie|двенадцать) (mots|palabras|parole|palavras|worter|woorden|slow|kelime|слов)\w*\b.*(portefeuille|billetera|cartera|monedero|portafoglio|carteira|brieftasche|wallet|portfel|cuzdan|кошел)`,
	# the beginnings of well-known keys
	`\bsk (live|test|ant|proj)\b`, `\bxox[abp]\b`, `\bghp\b`, `\bgithub pat\b`, `\bglpat\b`, `\bakia`, `\baiza`, `\beyj`, `\bstarts with sk\b`,
])

other_secret_words := concat("|", [
	# English
	`認証アプリ.*桁|인증 ?앱.*자리|验证器.*(位|数字)`,
	# Russian, Ukrainian
	`(секретн|мнемоническ|кодов|резервн)\S* фраз`, `парол`, `(закрыт|секретн|приватн)\S* ключ`, `ключ\S* (api|доступа)|api ключ`, `номер\S* (\S+ )?карты`, `(сид|seed)\S* ?фраз`, `(пин|pin) ?код`, `токен`, `код\S* (подтвержд|из смс|из sms|доступа|безопасност|авторизац)`, `учетные данные`, `фраз\S* восстановл`,
	# Czech, Slovak, Hungarian, Romanian, Croatian, Serbian, Greek, Malay
	`код підтвердж`, `κωδικ\S* (πρ\S*σβασης|ασφαλ\S*|επαλ\S*|μ\S*ας χρ\S*)|συνθηματικ`,
	# Chinese, Japanese, Korean
	`密码|密碼|口令`, `验证码|驗證碼|校验码|动态码`, `私钥|私鑰|密钥|密鑰|金鑰`, `(银行|信用|銀行)卡?号|卡号|卡號`, `安全码|安全碼`, `助记词|助記詞|恢复短语`, `身份证号`, `令牌`, `登录凭据|凭证`,
	`パスワード|パスフレーズ|パスコード|暗証番号`, `(認証|確認|検証|セキュリティ)(コード|番号)|ワンタイム`, `秘密鍵|シークレット`, `カードの?番号`, `(リカバリー?|復元|シード)フレーズ`, `apiキー|アクセスキー|api キー|トークン`, `ログイン情報|認証情報`,
	`비밀 ?번호|패스워드|암호`, `(인증|확인|보안) ?(번호|코드)`, `(개인|비밀|api|액세스) ?키`, `카드 ?번호`, `(복구|시드|니모닉) ?(문구|구문)`, `토큰`, `주민(등록)?번호`, `로그인 정보`,
	# Arabic, Hebrew, Hindi
	`كلمة (المرور|السر|مرور|سر)|كلمه المرور`, `(رمز|كود) (التحقق|التاكيد|الامان|التفعيل|الدخول)|رمز التأكيد|رمز الأمان`, `المفتاح (الخاص|السري)|مفتاح (api|خاص|سري)`, `رقم (بطاق\S*|البطاقة)`, `الرقم السري`, `عبارة (الاسترداد|الاستعادة|البذور)`, `بيانات (الدخول|الاعتماد)`, `סיסמ`, `رمز عبور|گذرواژه|پاس ?ورڈ`,
	`पासवर्ड`, `পাসওয়ার্ড`, `கடவுச்சொல்`, `รห.?สผ.?าน`, `ओटीपी`, `कार्ड (का )?नंबर`, `(निजी|गुप्त|एपीआई|api) कुंजी`, `(अपना|आपका|अपने|एटीएम) (\S+ )?पिन`, `सत्यापन कोड`, `रिकवरी (वाक्यांश|फ़्रेज़)`,
])

# A code and where it comes from, in one sentence, are a secret: "the 6-digit code we sent you".
code_words := latin_code_words if is_ascii

else := concat("|", [latin_code_words, other_code_words])

latin_code_words := `\b(a|the|that|this|magic|secret|digit) numbers?( (we|that|you|sent|from|in|on|to|shown|displayed|via|by)\b|$)|\b(codes?|digits|pins?|code|kode|kody?|koden|kodet|koodi|codigo|codice|ma|sayi|kodu)\b|ziffern|cijfer`

other_code_words := `代码|数字|コード|番号|코드|번호|رمز|الرمز|कोड|код|číslo`

code_contexts := latin_code_contexts if is_ascii

else := concat("|", [latin_code_contexts, other_code_contexts])

latin_code_contexts := `\bz(e|o)? (sms|mailu)\b|\b(fran|fra) (sms|mejl|mail)\b|\binbox\b|\b(sent|texted|emailed|mailed|messaged|received|(from|in|by) (the|an|your)? ?(e ?mail|mail|sms|text)|(got|received) (a|an) (text|sms|call|e ?mail)|(shown|displayed) on your|aus der (e ?mail|mail|sms|nachricht)|(dans|par) (le |l |votre )?(mail|e mail|sms)|(del|en el|por) (correo|mensaje|sms)|(dalla|nella|via) (mail|e mail|sms)|(do|no|por) (e mail|sms)|(uit|per) (de )?(mail|e mail|sms)|z (maila|e maila)|e posta\w*|authenticator|sms|text message|whatsapp)\b|\b(\d|one|two|three|four|five|six|seven|eight) ?(digits?|characters?)\b|\bdigits? (code|number)|on your (phone|device)|stellig\w* code|geschickt|gesendet|zugesandt|erhalten|recue? par|envoye|\bchiffres\b|enviamos|enviado|recibi|cifras|digitos|inviat|ricevut|\bcifre\b|enviou|recebe|wysla|cyfrow|otrzym|gonder|\bhaneli\b|gestuurd|ontvangen|cijferig|chung toi da gui|chu so|(kami|telah) kirim|\bdigit\b`

other_code_contexts := `аутентификатор|из приложени|(з|із) (смс|sms|листа)|из (письм|смс|почт|сообщен)|邮件|郵件|メール|메일|отправ|значн|смс|发送|发给|位数|短信|送信|桁|전송|보낸|자리|أرسل|ارقام|أرقام|المرسل|هاتفك|جوالك|भेजा|अंक|एसएमएस|문자로|短信`

# How a code reaches the user.
sending_words := latin_sending_words if is_ascii

else := concat("|", [latin_sending_words, other_sending_words])

latin_sending_words := `\b(got (a|an) (text|sms|call|e ?mail)|sent to you|sent you|texted|emailed|mailed|messaged|(from|in|by) (the|an|your) (e ?mail|sms|text message|app)|authenticator|sms|text message|whatsapp)\b|geschickt|gesendet|zugesandt|recue? par|envoye|enviamos|enviado|inviat|ricevut|enviou|wysla|gonder|gestuurd`

other_sending_words := `отправ|смс|发送|发给|短信|送信|전송|보낸|أرسل|المرسل|भेजा|एसएमएस|문자로|短信`

# A text without a match names no secret.
any_secret := concat("|", [secret_words, code_words, long_secrets, strong_secrets, `\bpins?\b|暗証|пин|핀 ?번호|\bcookies?\b|\b(your|bank|admin|root|router) (\w+ )?log ?ins?\b|\bpat\b|\blinks?\b|\bsecrets?\b|\bclave\b|\buser ?name\b|\blast (four|4)\b|\b(keys?|tokens?|numbers?)\b`])

# Secrets that a user has, and that no form is about.
strong_secrets := latin_strong_secrets if is_ascii

else := concat("|", [latin_strong_secrets, other_strong_secrets])

latin_strong_secrets := `with (the |your |a )?(user(name)?|login) and pass|cards? ?(numbers?|no\b)|\bcv[vc]2?\b|maiden name|geburtsname der mutter|(seed|recovery|mnemonic) ?phrase|\bssn\b|social security|\bnumer\w* karty|\bkart\w* numara|karten(nummer|prufnummer)|kreditkarte\w*\b.*\b(nummer|pruf\w+)|prufziffer|numeros? d(e|i|o) (la |tu |su |votre |ma |seu )?(carte|tarjeta|carta|cartao)|numero d(e|i|ella) carta|frase (semilla|de recuperacion|secreta|di recupero|seed|segreta|semente)|phrase (de recuperation|secrete|mnemonique)|(wiederherstellungs|seed) ?(phrase|worter)|kaartnummer|nomor kartu|\bso the\b`

other_strong_secrets := `сид ?фраз|номер\S* (\S+ )?карты|(银行|信用|銀行)卡号|卡号|助记词|助記詞|カードの?番号|(リカバリー?|復元|シード)フレーズ|카드 ?번호|(복구|시드|니모닉) ?(문구|구문)|رقم (بطاق\S*|البطاقة)|عبارة (الاسترداد|الاستعادة|البذور)|कार्ड (का )?नंबर`

# Files that hold secrets, and commands and headers that print one.
secret_files := `\bid_(rsa|dsa|ecdsa|ed25519)\b($|[^.]|\.($|[^p]))|(^|[\s/'"\x60])\.env($|[^a-z.]|\.($|[^est]))|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.git-credentials|\.aws/|\.docker/config|\.kube/config|kubeconfig|\.(pem|p12|pfx|jks|keystore|kdbx|ppk)\b|wallet\.dat|/etc/shadow|\.htpasswd|document\.cookie|json key file|service account.*\bkey\b|\bauth (print-access-)?token\b|-----begin|\bsk-([^a-z]|ant|proj|svc|xxx|$)|\bsk_(live|test)_|\bxox[abp]-|\bgh[pousr]_|github_pat_|\bglpat-|\bakia[0-9a-z]|\bhf_|\bprintenv\b|\x60env\x60|\bsecurity find-generic-password|\bop read\b|\bgit credential fill\b|export-credentials|values? of (the |your )?\w+ (cookie|header)\b|values? of (the |your )?cookie`

# These common words mean a secret only if they are the whole label of a field.
secret_labels := `^((user|your|my|new|old|current|enter|the) )*(pin|pins|pass|pat|code 2 ?fa|mfa|totp|tan|2 ?fa|auth|login code|pw|clave|密钥|पिन|last (four|4)( digits)?)$`

mixed_alphabets := `[A-Za-z][\p{Cyrillic}\p{Greek}\p{Armenian}\p{Cherokee}\p{Coptic}]|[\p{Cyrillic}\p{Greek}\p{Armenian}\p{Cherokee}\p{Coptic}][A-Za-z]|[\x{ff21}-\x{ff5a}]|[\x{1d400}-\x{1d7ff}]|[\x{1d00}-\x{1d2b}]{2}|[\x{24b6}-\x{24e9}]{2}`
