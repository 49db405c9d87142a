package gatekit.elicitation.gate_test

import data.gatekit.elicitation.gate

form(properties) := {"method": "elicitation/create", "kind": "request", "server": "files", "params": {"message": "Please say", "requestedSchema": {"type": "object", "properties": properties}}}

open_url(url) := {"method": "elicitation/create", "kind": "request", "server": "files", "params": {"mode": "url", "message": "go there", "url": url}}

test_forms_that_ask_for_secrets_are_denied if {
	every name in {"password", "userPassword", "pass_word", "PASSWORD2", "passwd", "api_key", "apiKey", "APIKEY", "token", "access-token", "secret", "client_secret", "ssn", "creditCardNumber", "cvv", "pin", "otp", "seedPhrase", "privateKey", "Passwort", "пароль", "密码", "pass\u200bword", "pаssword", "ｐassword", "sessionId"} {
		count(gate.deny) > 0 with input as form({name: {"type": "string"}})
		count(gate.deny) > 0 with input as form({"x": {"type": "object", "properties": {name: {"type": "string"}}}})
	}
	every text in {"Your API key", "Enter the verification code", "the password of your account", "Social security number", "Mot de passe"} {
		count(gate.deny) > 0 with input as form({"x": {"type": "string", "title": text}})
		count(gate.deny) > 0 with input as form({"x": {"type": "string", "description": text}})
		count(gate.deny) > 0 with input as {"method": "elicitation/create", "kind": "request", "params": {"mode": "form", "message": text, "requestedSchema": {"properties": {"x": {"type": "string"}}}}}
		count(gate.deny) > 0 with input as form({"x": {"type": "string", "title": text, "anyOf": [{"maxLength": 9}]}})
	}
}

test_confirmations_and_choices_pass if {
	every properties in [{}, {"sure": {"type": "boolean"}}, {"which": {"type": "string", "enum": ["old", "new"]}}, {"which": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}}, {"which": {"type": "array", "items": {"anyOf": [{"const": "a"}]}}}] {
		count(gate.deny) == 0 with input as {"method": "elicitation/create", "kind": "request", "params": {"message": "Delete the API key?", "requestedSchema": {"properties": properties}}}
	}
}

test_loopback_setting_allows_only_loopback_urls if {
	every url in {"http://localhost:8080/x", "http://127.0.0.1/", "https://[::1]:1/"} {
		count(gate.deny) == 0 with input as open_url(url) with data.config as {"elicitation/gate": {"loopback": true}}
	}
	every url in {"http://127.0.0.1@evil.example/", "http://192.168.1.1/", "http://router.local/", "http://example.com/", "ftp://localhost/x", "http://localhost:8080/?token=x", "http://localhost.evil.example/"} {
		count(gate.deny) > 0 with input as open_url(url) with data.config as {"elicitation/gate": {"loopback": true}}
	}
}

test_ordinary_fields_pass if {
	every name in {"name", "email", "max_tokens", "token_count", "tokenizer", "secretary", "passenger", "compass", "pinned", "keyboard", "opinion", "monkey", "country_code", "zipCode", "authors", "имя"} {
		count(gate.deny) == 0 with input as form({name: {"type": "string", "title": name, "description": "What you like"}})
	}
	count(gate.deny) == 0 with input as form({"method": {"type": "string", "enum": ["password", "key"]}})
	count(gate.deny) == 0 with input as form({"token": {"type": "string"}}) with data.config as {"elicitation/gate": {"except": ["token"]}}
	count(gate.deny) == 0 with input as form({})
}

test_invalid_forms_are_denied if {
	every params in [{}, {"message": "x"}, {"message": "x", "requestedSchema": {}}, {"requestedSchema": {"properties": {}}}, {"mode": "other", "message": "x", "requestedSchema": {"properties": {}}}, {"mode": "url"}, {"mode": "url", "url": 7}] {
		count(gate.deny) > 0 with input as {"method": "elicitation/create", "kind": "request", "params": params}
	}
}

test_forms_with_links_are_denied if {
	count(gate.deny) == 1 with input as form({"x": {"description": "see https://example.com"}})
	count(gate.deny) == 0 with input as form({"x": {"description": "data: what you have"}})
}

suspicious_urls := {
	"http://example.com/", "https://user@example.com/", "https://bank.example@evil.example/", "https://127.0.0.1/", "https://8.8.8.8/", "https://2130706433/", "https://[::1]/", "https://localhost/x", "https://xn--pypal-4ve.com/", "https://pаypal.com/",
	"javascript:alert(1)", "data:text/html,x", "https:/example.com", "https://example.com\\@evil.example", "https://example.com/?access_token=x", " https://example.com/", "https://intranet/", "", "//example.com", "https://example.com:x/", "https://[fe80::1%25eth0]/",
}

test_suspicious_urls_are_denied if {
	every url in suspicious_urls {
		count(gate.deny) > 0 with input as open_url(url)
		count(gate.deny) > 0 with input as {"kind": "error", "method": "tools/call", "error": {"code": -32042, "data": {"elicitations": [{"url": url}]}}}
	}
}

test_international_hosts_of_one_script_pass if {
	every host in {"münchen.de", "xn--mnchen-3ya.de", "россия.рф", "日本語.jp", "東京タワー.jp", "한국.kr", "παράδειγμα.gr", "مثال.مصر", "россия.com"} {
		count(gate.deny) == 0 with input as open_url(sprintf("https://%s/", [host]))
	}
}

test_imitated_hosts_are_denied if {
	every host in {"paypaI.com", "paypa1.com", "rnicrosoft.com", "gõogle.com", "google.com-login.evil.example", "paypal.com.evil.example", "secure-paypal.com", "аррӏе.com", "сбербанк-login.com", "goоgle.com"} {
		count(gate.deny) > 0 with input as open_url(sprintf("https://%s/", [host]))
		count(gate.deny) == 0 with input as open_url(sprintf("https://%s/", [host])) with data.config as {"elicitation/gate": {"hosts": ["*"]}}
	}
	every host in {"github.mycompany.com", "google-auth.mycompany.com", "LinkedIn.com", "s3.amazonaws.com.cn", "pineapple.com", "com.example.org", "user.github.io"} {
		count(gate.deny) == 0 with input as open_url(sprintf("https://%s/", [host]))
	}
}

text_form(message, name, title) := {"method": "elicitation/create", "kind": "request", "params": {"message": message, "requestedSchema": {"properties": {name: {"type": "string", "title": title}}}}}

test_messages_that_ask_for_secrets_are_denied if {
	every message in {
		"Enter the 6-digit code we sent you", "Paste the contents of ~/.ssh/id_rsa", "Paste your .env", "We made a token for you. Paste it here.", "Delete the old key? Then paste the new private key here",
		"Never enter passwords on other sites, but enter your password here", "Type the 12 words of your wallet", "Gib den sechsstelligen Code ein, den wir dir geschickt haben", "请输入验证码", "Введите пароль", "비밀번호를 입력하세요",
	} {
		count(gate.deny) > 0 with input as text_form(message, "value", "Answer")
	}
}

test_forms_about_secrets_pass if {
	every form in [
		["Create a token for CI", "token_name", "Token name"], ["Which column is the key column?", "key_column", "Key column"], ["Revoke which token?", "token", "Token ID"], ["Please do not enter passwords here. What happened?", "what", "Description"],
		["Public key for the server (id_ed25519.pub)", "public_key", "Public key"], ["How many tokens?", "tokens", "Number of tokens"], ["Confirm the number of items", "n", "Items"], ["Enter the discount code we sent you", "code", "Discount code"],
	] {
		count(gate.deny) == 0 with input as text_form(form[0], form[1], form[2])
	}
	count(gate.deny) > 0 with input as text_form("Create a token for CI", "token", "Value")
	count(gate.deny) == 0 with input as {"method": "elicitation/create", "kind": "request", "params": {"message": "Add it", "requestedSchema": {"properties": {"url": {"type": "string", "format": "uri", "description": "For example https://github.com/a/b", "default": "https://github.com/"}}}}}
	count(gate.deny) > 0 with input as {"method": "elicitation/create", "kind": "request", "params": {"message": "Add it", "requestedSchema": {"properties": {"url": {"type": "string", "format": "uri", "description": "Sign in at https://evil.example/"}}}}}
	count(gate.deny) == 0 with input as {"method": "elicitation/create", "kind": "request", "params": {"message": "Delete the token", "requestedSchema": {"properties": {"token": {"type": "boolean", "title": "The token, too"}, "day": {"type": "string", "format": "date"}}}}}
}

test_loopback_setting_needs_the_usual_spelling if {
	every url in {"http://2130706433/", "http://0x7f.1/", "http://127.1/"} {
		count(gate.deny) > 0 with input as open_url(url) with data.config as {"elicitation/gate": {"loopback": true}}
	}
}

test_ordinary_urls_pass if {
	every url in {"https://example.com/sign?in=1", "HTTPS://Example.COM./x", "https://login.example.co.uk:8443/a@b?state=x#y"} {
		count(gate.deny) == 0 with input as open_url(url)
		count(gate.deny) == 0 with input as {"kind": "error", "method": "tools/call", "error": {"code": -32042, "data": {"elicitations": [{"url": url}]}}}
	}
	count(gate.deny) == 0 with input as open_url("https://xn--bcher-kva.example/") with data.config as {"elicitation/gate": {"hosts": ["xn--bcher-kva.example"]}}
	count(gate.deny) == 0 with input as open_url("https://a.example.com/") with data.config as {"elicitation/gate": {"hosts": ["*.example.com"]}}
	count(gate.deny) > 0 with input as open_url("https://example.com.evil.example/") with data.config as {"elicitation/gate": {"hosts": ["example.com", "*.example.com"]}}
	count(gate.deny) == 0 with input as {"kind": "error", "method": "tools/call", "error": {"code": -32000, "message": "no"}}
}

test_settings_limit_servers_forms_and_urls if {
	count(gate.deny) == 1 with input as form({}) with data.config as {"elicitation/gate": {"servers": ["github"]}}
	count(gate.deny) == 0 with input as form({}) with data.config as {"elicitation/gate": {"servers": ["f*"]}}
	count(gate.deny) == 1 with input as form({}) with data.config as {"elicitation/gate": {"forms": false}}
	count(gate.deny) == 1 with input as open_url("https://example.com/") with data.config as {"elicitation/gate": {"pages": false}}
	count(gate.deny) == 0 with input as open_url("https://example.com/") with data.config as {"elicitation/gate": {"forms": false}}
}

test_disguised_texts_are_denied if {
	count(gate.deny) > 0 with input as {"method": "elicitation/create", "kind": "request"}
	every name in {"enum", "oneOf", "anyOf", "enumNames", "properties"} {
		count(gate.deny) > 0 with input as form({name: {"type": "string", "title": "Your password"}})
	}
	count(gate.deny) > 0 with input as form({"x": {"type": "string", "title": "Your password", "properties": {}}})
	every text in {"Your p a s s w o r d", "P.A.S.S.W.O.R.D", "p@ssw0rd", "Passw0rd, please", "\u1d18\u1d00ss\u1d21\u1d0f\u0280\u1d05", "\u24df\u24d0\u24e2\u24e2", "p\u0561ssword"} {
		count(gate.deny) > 0 with input as form({"x": {"type": "string", "title": text}})
	}
	every text in {"Plan A or B", "a b c", "The 1st of 7 steps", "Q & A", "@alice", "$5"} {
		count(gate.deny) == 0 with input as form({"x": {"type": "string", "title": text}})
	}
}

test_long_forms_are_denied if {
	long := concat("", [text | some _ in numbers.range(1, 2100); text := "Everything "])
	count(gate.deny) > 0 with input as text_form(long, "x", "X")
	count(gate.deny) == 0 with input as text_form(substring(long, 0, 19000), "x", "X")
	count(gate.deny) == 0 with input as {"method": "elicitation/create", "kind": "request", "params": {"message": "Which?", "requestedSchema": {"properties": {"x": {"type": "string", "enum": [long]}}}}}
}

test_a_warning_is_not_a_request if {
	count(gate.deny) == 0 with input as form({"number": {"type": "integer", "title": "Integer", "description": "Your favorite integer (do not give us your phone number, pin, or other sensitive info)"}})
	count(gate.deny) > 0 with input as form({"x": {"type": "string", "description": "Never share your seed phrase. Enter it below."}})
	count(gate.deny) > 0 with input as form({"x": {"type": "string", "description": "Do not share it with anyone, but enter your password here"}})
}

described_form(message, title, description) := {"method": "elicitation/create", "kind": "request", "params": {"message": message, "requestedSchema": {"properties": {"field": {"type": "string", "title": title, "description": description}}}}}

test_forms_that_only_mention_a_secret_pass_with_a_note if {
	every form in [
		["JWT settings", "Issuer"], ["Your API key stays on this computer. Which model should be used?", "Model"], ["Regex for redacting API keys in logs", "Pattern"], ["Why was the password changed?", "Reason"],
		["Which environment variable holds the token?", "Variable"], ["Grund für die Sperrung des API-Schlüssels", "Grund"], ["Почему отозван токен?", "Причина"], ["パスワードを変更する理由", "理由"],
	] {
		asked := text_form(form[0], "field", form[1])
		count(gate.deny) == 0 with input as asked
		count(gate.note) == 1 with input as asked
	}
	count(gate.note) == 0 with input as text_form("Which city?", "city", "City")
	count(gate.note) == 0 with input as text_form("Enter your password", "field", "Reason")
}

test_a_demand_is_denied_whatever_the_label if {
	every message in {
		"Enter your password", "For the ticket, give the password of the account", "We need your API key", "What is your password?", "Please hand over the admin password", "Type the code from the e-mail", "User name (and the password)",
		"Card number and CVV", "Enter the password with which you log in", "The client needs your password", "Wie lautet dein Passwort?", "Indiquez votre mot de passe", "Укажите пароль", "请提供密码", "パスワードを教えてください",
	} {
		count(gate.deny) > 0 with input as text_form(message, "field", "Reason")
	}
}

test_the_object_of_a_demand_decides if {
	every message in {
		"Enter a reason for viewing the secret", "Give the API key a budget", "Provide a description for the token", "Copy the secret to which environments?", "What do users see when they type a wrong password?", "What is the token for?",
		"Type YES to revoke the token", "Localization key for \"Enter your password\"", "Confirm the transfer of 12 tokens", "Name the verification code template",
	} {
		count(gate.deny) == 0 with input as text_form(message, "field", "Text for the page")
	}
}

test_a_field_that_takes_anything_makes_a_mention_a_request if {
	every title in {"Value", "Answer", "x", "Eingabe", "回答"} {
		count(gate.deny) > 0 with input as text_form("The admin password", "field", title)
	}
	count(gate.deny) > 0 with input as described_form("Sign in", "Account", "The password of the account")
	count(gate.deny) == 0 with input as described_form("How do users sign in?", "Method", "password, passkey or single sign-on")
	count(gate.deny) == 0 with input as described_form("Filter the log", "Query", "For example: invalid token")
	count(gate.deny) > 0 with input as described_form("Connect", "Database", "postgres://user:password@host/db")
}

test_fields_of_one_name_at_two_depths_are_read if {
	count(gate.deny) == 0 with input as form({"value": {"type": "string"}, "more": {"type": "object", "properties": {"value": {"type": "integer"}}}})
	count(gate.deny) > 0 with input as form({"value": {"type": "integer"}, "more": {"type": "object", "properties": {"value": {"type": "string", "description": "Your password"}}}})
}

test_words_with_another_meaning_pass if {
	every form in [["Which GPIO pin drives the relay?", "Pin"], ["Boarding pass for the family", "Pass"], ["Swap: symbol and amount", "Token"], ["Resume which session?", "Session ID"], ["Kubernetes secret to mount (name only)", "Secret"]] {
		count(gate.deny) == 0 with input as text_form(form[0], "field", form[1])
	}
	every title in {"PIN", "Pass", "Token", "Session ID", "Secret"} {
		count(gate.deny) > 0 with input as text_form("Sign in", "field", title)
	}
}

test_urls_of_tools_pass_with_a_note if {
	every message in {"Delete the webhook https://hooks.example.com/build?", "Navigate to https://shop.example.com/cart and click Remove?", "Approve fetch {\"url\": \"https://api.example.com/items\"}", "Open https://news.example.org/ in the automated browser?"} {
		asked := {"method": "elicitation/create", "kind": "request", "params": {"message": message, "requestedSchema": {"properties": {"ok": {"type": "boolean"}}}}}
		count(gate.deny) == 0 with input as asked
		count(gate.note) == 1 with input as asked
	}
	every message in {"Sign in at https://sso.example.net", "Your wallet needs an update, visit www.wallet.example", "Open https://evil.example/", "Verify your account at https://evil.example/ ?", "Bitte melden Sie sich unter https://konto.example.net an", "Run javascript:alert(1)?"} {
		count(gate.deny) > 0 with input as {"method": "elicitation/create", "kind": "request", "params": {"message": message, "requestedSchema": {"properties": {"ok": {"type": "boolean"}}}}}
	}
}

test_requests_in_other_words_are_denied if {
	every form in [["Look at your phone: which six digits are shown?", "Digits"], ["Read the numbers on the display of the card reader.", "Numbers"], ["Suite de chiffres du boîtier de sécurité", "Chiffres"]] {
		asked := text_form(form[0], "field", form[1])
		count(gate.requests_for_secrets) == 0 with input as asked
		count(gate.deny) == 1 with input as asked
		count(gate.note) == 0 with input as asked
	}
}

test_forms_that_only_seem_to_ask_pass_with_a_note if {
	every form in [["Kubeconfig context", "Context"], ["Text of the SMS that carries the code, with {code} as placeholder", "Text"], ["Texte du bouton « Mot de passe oublié »", "Texte"]] {
		asked := text_form(form[0], "field", form[1])
		count(gate.requests_for_secrets) > 0 with input as asked
		count(gate.deny) == 0 with input as asked
		gate.note == {"the form may ask for a secret"} with input as asked
	}
}

# Harmless sentences make the classifier's sum smaller, but a long form is denied for its words.
test_harmless_sentences_do_not_hide_a_request if {
	story := concat(" ", [text | some _ in numbers.range(1, 12); text := "The kubeconfig context names a cluster."])
	count(gate.deny) > 0 with input as text_form(concat(" ", ["Kubeconfig context.", story]), "field", "Context")
	count(gate.deny) > 0 with input as text_form("Which city should the weather report of next Monday cover? Enter your password.", "city", "City")
}

test_fields_that_are_no_objects_are_judged_by_their_names if {
	count(gate.deny) > 0 with input as form({"password": 1})
	count(gate.deny) == 0 with input as form({"city": true})
	count(gate.deny) == 0 with input as form({"city": {"type": ["string", "null"], "title": 1, "description": null}})
}
