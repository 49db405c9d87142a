package gatekit.resources.uris_test

import data.gatekit.resources.uris

read(uri) := {"method": "resources/read", "kind": "request", "server": "web", "name": uri}

list(uri) := {"method": "resources/list", "kind": "response", "server": "web", "items": [{"uri": uri}]}

attacks := {
	"http://127.0.0.1/", "http://localhost:8080/", "http://LOCALHOST./", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
	"http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://[fd00:ec2::254]/", "http://10.0.0.1/", "http://192.168.1.1/", "http://172.16.0.1/", "http://0.0.0.0/", "http://0/", "http://100.64.0.1/",
	"http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://①②⑦.⓪.⓪.①/", "http://%31%32%37.0.0.1/", "http://127.0.0.1.nip.io/", "http://intranet/", "http://a@127.0.0.1/", "http://user:pass@example.com/", "http:/127.0.0.1/", "http:127.0.0.1",
	"http://example.com\\@127.0.0.1/", "http://example.com /", "javascript:alert(1)", "DATA:text/html,x", "", "x", "http://", "http://[::1", "http://010.0.0.1/", "http://999.1.1.1/", "wss://127.0.0.1/x", "http://127.0.0.1:99999/", "http://１２７.0.0.1/", "http://127。0。0。1/",
	"ftp://10.1.1.1/", "custom://169.254.169.254/x",
}

test_attacks_are_denied_and_hidden if {
	every uri in attacks {
		count(uris.deny) > 0 with input as read(uri)
		uris.hide == {uri} with input as list(uri)
		count(uris.deny) > 0 with input as {"method": "tools/call", "kind": "response", "result": {"content": [{"type": "resource_link", "uri": uri}]}}
	}
}

test_public_hosts_pass if {
	every uri in {"https://example.com/x", "http://8.8.8.8/", "https://[2606:4700::1111]/", "file:///data/x", "notes://inbox/1", "urn:isbn:1", "ui://panel/x", "https://bücher.example/", "https://localhost.example.com/", "https://10.example.com/", "git+ssh://example.com/x", "test://box/a"} {
		count(uris.deny) == 0 with input as read(uri)
		count(uris.hide) == 0 with input as list(uri)
	}
}

test_requests_and_links_without_a_uri_are_denied if {
	count(uris.deny) > 0 with input as {"method": "resources/read", "kind": "request"}
	count(uris.deny) > 0 with input as {"method": "tools/call", "kind": "response", "result": {"content": [{"type": "resource_link"}]}}
	count(uris.deny) == 0 with input as {"method": "tools/call", "kind": "response", "result": {"content": [{"type": "text", "text": "http://127.0.0.1"}]}}
}

test_dangerous_templates_are_hidden_and_denied if {
	uris.hide == {"http://127.0.0.1/{x}", "javascript:{x}"} with input as {"method": "resources/templates/list", "kind": "response", "items": [{"uriTemplate": t} | some t in ["http://127.0.0.1/{x}", "https://{host}/x", "file:///{+path}", "javascript:{x}"]]}
	count(uris.deny) > 0 with input as {"method": "completion/complete", "kind": "request", "params": {"ref": {"type": "ref/resource", "uri": "http://127.0.0.1/{x}"}}}
	count(uris.deny) == 0 with input as {"method": "completion/complete", "kind": "request", "params": {"ref": {"type": "ref/resource", "uri": "file:///{x}"}}}
	uris.hide == {"http://10.0.0.1/"} with input as {"method": "subscriptions/listen", "kind": "request", "params": {"notifications": {"resourceSubscriptions": ["http://10.0.0.1/", "file:///x"]}}}
}

test_settings_allow_and_deny_schemes_and_hosts if {
	count(uris.deny) == 1 with input as read("ftp://example.com/") with data.config as {"resources/uris": {"schemes": ["https", "file"]}}
	count(uris.deny) == 0 with input as read("HTTPS://example.com/") with data.config as {"resources/uris": {"schemes": ["https", "file"]}}
	count(uris.deny) == 1 with input as read("https://example.com.evil.example/") with data.config as {"resources/uris": {"hosts": ["example.com", "*.example.com"]}}
	count(uris.deny) == 0 with input as read("https://A.Example.com/") with data.config as {"resources/uris": {"hosts": ["example.com", "*.example.com"]}}
	count(uris.deny) == 0 with input as read("file:///x") with data.config as {"resources/uris": {"hosts": ["example.com"]}}
	count(uris.deny) == 1 with input as read("https://a.example.com/") with data.config as {"resources/uris": {"deny_hosts": ["*.example.com"]}}
	count(uris.deny) == 0 with input as read("http://localhost:3000/") with data.config as {"resources/uris": {"internal": ["localhost"]}}
	count(uris.deny) == 1 with input as read("http://127.0.0.2/") with data.config as {"resources/uris": {"internal": ["localhost", "127.0.0.1"]}}
}

test_links_in_task_results_are_denied if {
	blocks := [{"type": "text", "text": "x"}, {"type": "resource_link", "uri": "http://169.254.169.254/"}]
	count(uris.deny) == 1 with input as {"method": "tools/call", "kind": "response", "result": {"content": blocks}}
	count(uris.deny) == 1 with input as {"method": "tasks/result", "kind": "response", "result": {"content": blocks}}
	count(uris.deny) == 1 with input as {"method": "tasks/get", "kind": "response", "result": {"result": {"content": blocks}}}
	count(uris.deny) == 1 with input as {"method": "notifications/tasks", "kind": "notification", "params": {"result": {"content": blocks}}}
}
