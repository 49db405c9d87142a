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

test_ordinary_urls_pass if {
	every url in {"https://example.com/sign?in=1", "HTTPS://Example.COM./x", "https://login.example.co.uk:8443/a@b?state=x#y"} {
		count(gate.deny) == 0 with input as open_url(url)
		count(gate.deny) == 0 with input as {"kind": "error", "method": "tools/call", "error": {"code": -32042, "data": {"elicitations": [{"url": url}]}}}
	}
	count(gate.deny) == 0 with input as open_url("https://xn--bcher-kva.example/") with data.config as {"elicitation/gate": {"hosts": ["xn--bcher-kva.example"]}}
	count(gate.deny) == 0 with input as open_url("https://a.example.com/") with data.config as {"elicitation/gate": {"hosts": ["*.example.com"]}}
	count(gate.deny) == 1 with input as open_url("https://example.com.evil.example/") with data.config as {"elicitation/gate": {"hosts": ["example.com", "*.example.com"]}}
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
