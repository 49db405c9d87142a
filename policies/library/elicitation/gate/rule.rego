# METADATA
# title: Blocks elicitation that asks for secrets or opens suspicious URLs.
# description: |
#   Denies forms that ask for passwords, tokens, keys, codes, card or social security numbers (in
#   several languages), that contain a link, or that mix alphabets within a word. A form in which
#   the user can only confirm or choose cannot ask for a secret.
#   Denies URLs that are not https, or contain a user name or a secret. Denies URLs whose host is an
#   address or a name of the local network. Denies URLs whose host has non-ASCII letters, unless the
#   setting hosts lists this host.
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
	some text in texts
	asks_for_secret(words(text))
}

deny contains "a field has the name of a secret" if {
	input.method == "elicitation/create"
	input.kind == "request"
	mode == "form"
	has_text_field
	some name in names
	regex.match(secret_field_names, words(name))
}

# True when the form has a field into which the user can write text.
has_text_field if {
	walk(input.params.requestedSchema, [keys, field])
	count(keys) > 1
	keys[count(keys) - 2] == "properties"
	not is_choice(field)
}

is_choice(field) if field.type == "boolean"

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
	some text in texts
	regex.match(`(?i)\b(https?|javascript|data|file)(:|%3a)/*\S|\bwww\.`, without_invisible(text))
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
	"the scheme is not https": not_https(parsed),
	"the URL contains a user name": parsed.user,
	sprintf("the host is not public (%s)", [parsed.special]): not_public(parsed),
	"the host is an address": is_address(parsed),
	"the host has letters that are not ASCII": unlisted_idn(parsed),
	"the host is not allowed": other_host(parsed.host),
	"the URL contains a secret": regex.match(`(?i)[?&#;](access_?token|auth_?token|id_?token|refresh_?token|token|api_?key|key|secret|client_?secret|password|passwd|pwd|session_?id|sid|jwt|sig|signature)=[^&#]`, url),
}}

default not_https(_) := false

not_https(parsed) if {
	parsed.scheme != "https"
	not loopback_allowed(parsed)
}

default not_public(_) := false

not_public(parsed) if {
	parsed.special != ""
	not loopback_allowed(parsed)
}

default is_address(_) := false

is_address(parsed) if {
	regex.match(`^[0-9.]+$|:`, parsed.host)
	not loopback_allowed(parsed)
}

# True for a URL of this machine, when the settings allow such URLs.
loopback_allowed(parsed) if {
	config.loopback
	parsed.scheme in {"http", "https"}
	is_loopback(parsed)
}

is_loopback(parsed) if parsed.host == "localhost"

is_loopback(parsed) if parsed.special == "loopback"

default unlisted_idn(_) := false

unlisted_idn(parsed) if {
	parsed.punycode
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

# Splits pass_word, passWord and pass-word into words.
words(text) := regex.replace(lower(regex.replace(without_invisible(text), `([a-z0-9])([A-Z])`, "$1 $2")), `[\s_.\-/:*'"()]+`, " ")

asks_for_secret(text) if {
	some spelled in {text, regex.replace(text, `\b(\pL) `, "$1"), strings.replace_n({"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s"}, text)} # p a s s w o r d, p@ssw0rd
	regex.match(secret_words, regex.replace(spelled, `\btokens? (count|limit|budget|size|length|usage)\b|\b(max|number of|how many) tokens?\b`, ""))
}

secret_words := concat("|", [
	`\bpass ?(words?|phrases?|wd|codes?|keys?)\d*\b`, `\bpw(d|rd)?\d*\b`, `\bpsw?d\b`, `\bcredentials?\b`, `\bsecrets?( ?keys?)?\b`, `\btoken\b`, `\b(access|auth|api|bearer|refresh|session|security|id|jwt|oauth) ?tokens\b`,
	`\b(api|access|private|secret|ssh|encryption|signing|license|account|master|recovery|host) ?keys?\b`, `\bapikeys?\b`, `\bssn\b`, `\b(social|national) (security|insurance)\b`, `\bcvv2?\b`, `\bcvc2?\b`,
	`\b(credit|debit|bank) ?card ?(numbers?|no|details)?\b`, `\bcard ?(numbers?|no|details|security codes?)\b`, `\bpin ?(codes?|numbers?)\b`, `\botp\b`, `\bone time (codes?|passwords?|pins?)\b`, `\b(verification|confirmation|security|auth|authentication|authorization|login|sms|mfa|2fa|totp|backup|recovery) ?codes?\b`,
	`\b(seed|recovery|backup) ?(phrases?|words?)\b`, `\bmnemonics?\b`, `\biban\b`, `\b(account|routing) numbers?\b`, `\bsession ?(id|cookie)s?\b`, `\bcookies?\b`,
	`passwort`, `kennwort`, `contrase(ñ|n)a`, `mot de passe`, `\bsenha\b`, `\bclave\b`, `wachtwoord`, `l(ö|o)senord`, `\bhas(ł|l)o\b`, `\bparola\b`, `парол`, `密码`, `密碼`, `パスワード`, `暗証番号`, `비밀번호`, `كلمة (المرور|السر)`, `סיסמ`,
])

# These common words mean a secret only if they are the whole name of a field.
secret_field_names := `^((user|your|my|new|old|current) )?(pin|key|pass|code 2fa|mfa|totp|tan|2fa|auth|login code)$`

mixed_alphabets := `[A-Za-z][\p{Cyrillic}\p{Greek}\p{Armenian}\p{Cherokee}\p{Coptic}]|[\p{Cyrillic}\p{Greek}\p{Armenian}\p{Cherokee}\p{Coptic}][A-Za-z]|[\x{ff21}-\x{ff5a}]|[\x{1d400}-\x{1d7ff}]|[\x{1d00}-\x{1d2b}]{2}|[\x{24b6}-\x{24e9}]{2}`
