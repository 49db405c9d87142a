package gatekit.tools.arguments_test

import data.gatekit.tools.arguments

call(args) := {"method": "tools/call", "kind": "request", "server": "git", "name": "clone", "params": {"arguments": args}}

rule(r) := {"tools/arguments": {"rules": [object.union({"argument": "x"}, r)]}}

test_patterns_match_the_whole_text if {
	every value in ["abc1", "1abc", "abc\n", "", ["abc", "1"], {"a": "abc"}, 7] {
		count(arguments.deny) == 1 with input as call({"x": value}) with data.config as rule({"pattern": "[a-z]+"})
		count(arguments.deny) == 1 with input as call({"in": [{"x": value}]}) with data.config as rule({"pattern": "[a-z]+"})
	}
	every value in ["abc", ["a", "b"], [], null] {
		count(arguments.deny) == 0 with input as call({"x": value, "y": "1"}) with data.config as rule({"pattern": "[a-z]+"})
	}
	count(arguments.deny) == 1 with input as call({"x": "ab"}) with data.config as rule({"pattern": "a|b"})
}

test_case_is_ignored if {
	every name in ["sink", "Sink", "SINK", "ſin\u212a"] {
		every argument in ["sink", "SinK", "/in/*/Sink"] {
			count(arguments.deny) == 1 with input as call({"in": [{name: "1"}]}) with data.config as {"tools/arguments": {"rules": [{"argument": argument, "pattern": "[a-z]+"}]}}
		}
	}
}

test_leading_dashes_are_denied if {
	every value in ["--upload-pack=x", "-oProxyCommand=x", " -x", "—x", "\"-x"] {
		count(arguments.deny) == 1 with input as call({"x": value}) with data.config as rule({"no_leading_dash": true})
	}
	count(arguments.deny) == 0 with input as call({"x": "a-b"}) with data.config as rule({"no_leading_dash": true})
	count(arguments.deny) == 0 with input as call({"x": "-b"}) with data.config as rule({"no_leading_dash": false})
}

test_long_values_are_denied if {
	count(arguments.deny) == 1 with input as call({"x": "abcd"}) with data.config as rule({"max_length": 3})
	count(arguments.deny) == 0 with input as call({"x": "äöü"}) with data.config as rule({"max_length": 3})
}

test_urls_of_other_hosts_are_denied if {
	every value in ["https://evil.example/", "https://example.com@evil.example/", "https://example.com.evil.example/", "ftp://example.com/", "example.com", "https://127.0.0.1/", "http://example.com\\@evil.example", "", "http://10.0.0.1.example.net"] {
		count(arguments.deny) == 1 with input as call({"x": value}) with data.config as rule({"hosts": ["example.com", "*.example.com"]})
	}
	count(arguments.deny) == 0 with input as call({"x": "https://A.example.com/x"}) with data.config as rule({"hosts": ["*.example.com"]})
	count(arguments.deny) == 1 with input as call({"x": "http://127.0.0.1/"}) with data.config as rule({"hosts": ["*"]})
	count(arguments.deny) == 0 with input as call({"x": "http://127.0.0.1:80/"}) with data.config as rule({"hosts": ["127.0.0.1"]})
}

test_settings_select_tools_and_arguments if {
	count(arguments.deny) == 0 with input as call({"x": "1"}) with data.config as rule({"pattern": "[a-z]", "tools": ["other", "other__*"]})
	count(arguments.deny) == 1 with input as call({"x": "1"}) with data.config as rule({"pattern": "[a-z]", "tools": ["git__*"]})
	count(arguments.deny) == 1 with input as call({"a": [{"b": "1"}, {"b": "a"}]}) with data.config as {"tools/arguments": {"rules": [{"argument": "/a/*/b", "pattern": "[a-z]"}]}}
	count(arguments.deny) == 1 with input as call({"a": ["1"]}) with data.config as {"tools/arguments": {"rules": [{"argument": "/a", "pattern": "[a-z]"}]}}
	count(arguments.deny) == 1 with input as {"method": "tools/call", "kind": "request", "params": {}}
}

complete(argument, context) := {"method": "completion/complete", "kind": "request", "server": "git", "name": "review", "params": {"ref": {"type": "ref/prompt", "name": "review"}, "argument": argument, "context": {"arguments": context}}}

test_arguments_of_completions_are_checked if {
	count(arguments.deny) == 1 with input as complete({"name": "x", "value": "--help"}, {}) with data.config as rule({"no_leading_dash": true})
	count(arguments.deny) == 1 with input as complete({"name": "y", "value": ""}, {"x": "--help"}) with data.config as rule({"no_leading_dash": true})
	count(arguments.deny) == 1 with input as complete({"name": "x", "value": {"a": "b"}}, {}) with data.config as rule({"pattern": "[a-z]+"})
	count(arguments.deny) == 1 with input as complete({"name": "y", "value": ""}, {"x": "1"}) with data.config as rule({"pattern": "[a-z]+"})
	count(arguments.deny) == 0 with input as complete({"name": "x", "value": "abc"}, {}) with data.config as rule({"pattern": "[a-z]{5}"})
	count(arguments.deny) == 0 with input as complete({"name": "y", "value": "--help"}, {"z": "--help"}) with data.config as rule({"no_leading_dash": true})
}
