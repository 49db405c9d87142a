// Package builtin is the list of the plugins that come with Gatekit. Each is a folder of its own,
// and runs as a process of its own like anybody's.
package builtin

import (
	"gatekit/plugins/builtin/injection"
	"gatekit/plugins/builtin/limits"
	"gatekit/plugins/builtin/pii"
	"gatekit/plugins/builtin/secrets"
	"gatekit/plugins/builtin/tools"
	"gatekit/plugins/builtin/trace"
	"gatekit/plugins/sdk"
)

// All answers the built-in plugins by name.
func All() []sdk.Plugin {
	return []sdk.Plugin{
		injection.Plugin(),
		limits.Plugin(),
		pii.Plugin(),
		secrets.Plugin(),
		tools.Plugin(),
		trace.Plugin(),
	}
}
