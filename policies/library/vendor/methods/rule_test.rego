package gatekit.vendor.methods_test

import data.gatekit.vendor.methods

message(kind, method) := {"kind": kind, "method": method, "server": "acme"}

test_undefined_methods_are_denied if {
	every kind in {"request", "notification"} {
		every method in {"acme/search", "tools/Call", "tools/call ", "", "TOOLS/LIST"} {
			count(methods.deny) == 1 with input as message(kind, method)
		}
		every method in {"tools/call", "notifications/progress", "sampling/createMessage"} {
			count(methods.deny) == 0 with input as message(kind, method)
		}
	}
	count(methods.deny) == 1 with input as {"kind": "request"}
	count(methods.deny) == 0 with input as message("response", "acme/search")
}

test_methods_in_settings_are_allowed if {
	count(methods.deny) == 0 with input as message("request", "acme/search") with data.config as {"vendor/methods": {"methods": ["acme/*"]}}
	count(methods.deny) == 0 with input as message("request", "acme/search") with data.config as {"vendor/methods": {"servers": {"acme": ["acme/search"]}}}
	count(methods.deny) == 1 with input as message("request", "acme/search") with data.config as {"vendor/methods": {"servers": {"other": ["acme/*"]}}}
	count(methods.deny) == 1 with input as message("request", "evil/acme/x") with data.config as {"vendor/methods": {"methods": ["acme/*"]}}
}
