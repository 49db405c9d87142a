package gatekit.house_test

import data.gatekit.house

test_context_is_removed if {
	some edit in house.set with input as {"method": "sampling/createMessage", "kind": "request"}
	edit == {"path": "/includeContext", "value": "none"}
}
