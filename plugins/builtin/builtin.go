// Package builtin lists the plugins that come with Gatekit. Each has a package of its own. They run
// together in one process, which is separate from the proxy.
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

// NeedsNetwork reports whether a built-in plugin with this configuration opens connections.
func NeedsNetwork(name string, config map[string]any) bool {
	return name == "injection" && config["classifier"] != nil
}

// All returns the built-in plugins, sorted by name.
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
