# METADATA
# title: Servers ask the user nothing secret, and send them nowhere strange
# description: |
#   Refuses forms that ask for passwords, tokens, keys, codes, card or social security numbers (in several languages), that hold links, or whose words mix alphabets. A form that can only be
#   confirmed, or chosen in, asks for no secret.
#   Refuses pages that are not https, have a user or a secret in their URL, an address instead of a name, a name inside this network, or (unless it is among hosts) one with letters that are not ASCII.
#   Settings: servers, names or patterns of those that may ask (all); hosts, names or patterns of pages' hosts (all); except, names of fields that are no secrets; forms and pages, false refuses all;
#   loopback, true allows pages of this machine itself, also without https.
package gatekit.elicitation.gate

import data.config["elicitation/gate"] as config

deny contains "the server may not ask the user" if {
	input.method == "elicitation/create"
	input.kind == "request"
	config.servers
	not allowed
}

allowed if {
	some pattern in config.servers
	glob.match(pattern, null, input.server)
}

deny contains "it is no form and no page" if {
	input.method == "elicitation/create"
	input.kind == "request"
	not mode in {"form", "url"}
}

default mode := "" # there is nothing to judge

mode := object.get(input.params, "mode", "form")

deny contains "forms are not allowed" if {
	input.method == "elicitation/create"
	input.kind == "request"
	config.forms == false
	mode == "form"
}

deny contains "pages are not allowed" if {
	input.method == "elicitation/create"
	input.kind == "request"
	config.pages == false
	mode == "url"
}

deny contains "a form without fields that can be judged" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	not shaped
}

shaped if {
	is_object(input.params.requestedSchema.properties)
	is_string(input.params.message)
}

deny contains sprintf("it asks for something secret: %s", [substring(text, 0, 60)]) if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	typed
	some text in texts
	secret(words(text))
}

deny contains "a field is named like something secret" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	typed
	some name in names
	regex.match(short, words(name))
}

# There is a field that something can be written into.
typed if {
	walk(input.params.requestedSchema, [place, field])
	count(place) > 1
	place[count(place) - 2] == "properties"
	not chosen(field)
}

chosen(field) if field.type == "boolean"

chosen(field) if {
	field.type == "object"
	is_object(field.properties) # has fields of its own
}

chosen(field) if choices(field)

chosen(field) if {
	field.type == "array"
	choices(field.items)
}

choices(field) if {
	some word in ["enum", "oneOf", "anyOf"]
	count(field[word]) > 0
	every choice in field[word] {
		choice_is_given(word, choice)
	}
}

choice_is_given("enum", _)

choice_is_given(word, choice) if {
	word != "enum"
	_ = choice.const
}

deny contains "its words mix alphabets" if {
	input.method == "elicitation/create"
	input.kind == "request"
	some text in texts
	regex.match(mixed, invisible(text))
}

deny contains "a form holds a link" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	some text in texts
	regex.match(`(?i)\b(https?|javascript|data|file)(:|%3a)/*\S|\bwww\.`, invisible(text))
}

deny contains sprintf("the page: %s", [why]) if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "url"
	some why in faults(object.get(input.params, "url", ""))
}

# 2025-11-25: an error that says which pages have to be opened first.
deny contains sprintf("the page: %s", [why]) if {
	input.kind == "error"
	input.error.code == -32042
	some page in input.error.data.elicitations
	some why in faults(object.get(page, "url", ""))
}

deny contains "the server may not ask the user" if {
	input.kind == "error"
	input.error.code == -32042
	config.servers
	not allowed
}

deny contains "pages are not allowed" if {
	input.kind == "error"
	input.error.code == -32042
	config.pages == false
}

faults(url) := {"it is no text"} if not is_string(url)

faults(url) := {why | some why in reasons(url, gatekit.uri.parse(url))} if is_string(url)

reasons(url, parsed) := {why | some why, true in {
	parsed.fault: parsed.fault != "",
	"it is not https": insecure(parsed),
	"it has a user in it": parsed.user,
	sprintf("its host is %s", [parsed.special]): inside(parsed),
	"its host is an address": address(parsed),
	"its host has letters that are not ASCII": unusual(parsed),
	"its host is not allowed": foreign(parsed.host),
	"it has a secret in it": regex.match(`(?i)[?&#;](access_?token|auth_?token|id_?token|refresh_?token|token|api_?key|key|secret|client_?secret|password|passwd|pwd|session_?id|sid|jwt|sig|signature)=[^&#]`, url),
}}

default insecure(_) := false

insecure(parsed) if {
	parsed.scheme != "https"
	not own(parsed)
}

default inside(_) := false

inside(parsed) if {
	parsed.special != ""
	not own(parsed)
}

default address(_) := false

address(parsed) if {
	regex.match(`^[0-9.]+$|:`, parsed.host)
	not own(parsed)
}

# Of this machine itself, as the settings allow.
own(parsed) if {
	config.loopback
	parsed.scheme in {"http", "https"}
	loopback(parsed)
}

loopback(parsed) if parsed.host == "localhost"

loopback(parsed) if parsed.special == "loopback"

default unusual(_) := false

unusual(parsed) if {
	parsed.punycode
	not listed(parsed.host)
}

default foreign(_) := false

foreign(host) if {
	config.hosts
	not listed(host)
}

listed(host) if {
	some pattern in config.hosts
	glob.match(lower(pattern), null, host)
}

# Names of fields, at any depth.
names contains name if {
	walk(input.params.requestedSchema, [place, _])
	count(place) > 1
	place[count(place) - 2] == "properties"
	name := place[count(place) - 1]
	not excepted(name)
}

texts contains name if some name in names

texts contains input.params.message

# What is shown beside a field; the values that can be chosen ask for nothing.
texts contains text if {
	walk(input.params.requestedSchema, [place, text])
	is_string(text)
	count([k | some i, k in place; k in {"enum", "enumNames", "oneOf", "anyOf"}; not is_name(place, i)]) == 0
	count([name | some i, name in place; i > 0; place[i - 1] == "properties"; excepted(name)]) == 0
}

# It is what a field is called, whatever else the word means.
is_name(place, i) if place[i - 1] == "properties"

excepted(name) if name in config.except

invisible(text) := regex.replace(text, `[\x{ad}\x{200b}-\x{200f}\x{2060}-\x{2064}\x{feff}\x{34f}\x{180e}]`, "")

# pass_word, passWord and pass-word are words like any other.
words(text) := regex.replace(lower(regex.replace(invisible(text), `([a-z0-9])([A-Z])`, "$1 $2")), `[\s_.\-/:*'"()]+`, " ")

secret(text) if {
	some spelled in {text, regex.replace(text, `\b(\pL) `, "$1"), strings.replace_n({"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s"}, text)} # p a s s w o r d, p@ssw0rd
	regex.match(lexicon, regex.replace(spelled, `\btokens? (count|limit|budget|size|length|usage)\b|\b(max|number of|how many) tokens?\b`, ""))
}

lexicon := concat("|", [
	`\bpass ?(words?|phrases?|wd|codes?|keys?)\d*\b`, `\bpw(d|rd)?\d*\b`, `\bpsw?d\b`, `\bcredentials?\b`, `\bsecrets?( ?keys?)?\b`, `\btoken\b`, `\b(access|auth|api|bearer|refresh|session|security|id|jwt|oauth) ?tokens\b`,
	`\b(api|access|private|secret|ssh|encryption|signing|license|account|master|recovery|host) ?keys?\b`, `\bapikeys?\b`, `\bssn\b`, `\b(social|national) (security|insurance)\b`, `\bcvv2?\b`, `\bcvc2?\b`,
	`\b(credit|debit|bank) ?card ?(numbers?|no|details)?\b`, `\bcard ?(numbers?|no|details|security codes?)\b`, `\bpin ?(codes?|numbers?)\b`, `\botp\b`, `\bone time (codes?|passwords?|pins?)\b`, `\b(verification|confirmation|security|auth|authentication|authorization|login|sms|mfa|2fa|totp|backup|recovery) ?codes?\b`,
	`\b(seed|recovery|backup) ?(phrases?|words?)\b`, `\bmnemonics?\b`, `\biban\b`, `\b(account|routing) numbers?\b`, `\bsession ?(id|cookie)s?\b`, `\bcookies?\b`,
	`passwort`, `kennwort`, `contrase(ñ|n)a`, `mot de passe`, `\bsenha\b`, `\bclave\b`, `wachtwoord`, `l(ö|o)senord`, `\bhas(ł|l)o\b`, `\bparola\b`, `парол`, `密码`, `密碼`, `パスワード`, `暗証番号`, `비밀번호`, `كلمة (المرور|السر)`, `סיסמ`,
])

# Alone they are words of every day, but not as the name of a field.
short := `^((user|your|my|new|old|current) )?(pin|key|pass|code 2fa|mfa|totp|tan|2fa|auth|login code)$`

mixed := `[A-Za-z][\p{Cyrillic}\p{Greek}\p{Armenian}\p{Cherokee}\p{Coptic}]|[\p{Cyrillic}\p{Greek}\p{Armenian}\p{Cherokee}\p{Coptic}][A-Za-z]|[\x{ff21}-\x{ff5a}]|[\x{1d400}-\x{1d7ff}]|[\x{1d00}-\x{1d2b}]{2}|[\x{24b6}-\x{24e9}]{2}`
