package library

// DefaultRules is the rules that are in force where nobody chose any, as before a server that `gatekit
// wrap` starts, with their settings. [FolderSettings] narrows them for one server.
//
// They refuse what no server and no client in its right mind sends, and nothing else: they never
// change a message, never ask anybody, need no settings, and read no result of a tool. What was
// weighed:
//
//   - roots/traversal refuses paths that climb without looking like it. Roots are not enforced:
//     what clients declare is where they work and not all that a server may reach (a database, a
//     configuration, a repository on the other side of the network), and most declare none.
//   - elicitation/gate is what the specification asks of servers: no secrets and no links in forms,
//     no pages but https. A server that runs here may show pages of this machine.
//   - sampling/gate lets servers ask the model: only a client that said it can be asked is asked,
//     and it asks its user. It refuses what reaches into other servers (includeContext =
//     "allServers"), and more than one question a second for a minute, which is a loop or a theft.
//
// Not among them: tools/readonly, tools/allowlist, flow/exfiltration and limits/rate, which nobody
// can set for another; tasks/gate and vendor/methods, since what a server may not do Gatekit does
// not carry anyway; resources/uris, which refuses whole results for a link to a machine of the own
// network, as servers for houses, printers and databases give; and plugins: a secret that is taken
// out of a file is missing when the file is written back, and each costs a process and some 300 µs
// a call.
func DefaultRules() map[string]map[string]any {
	return map[string]map[string]any{
		"elicitation/gate": {"loopback": true},
		"roots/traversal":  {"anywhere": true},
		"sampling/gate": {"servers": []any{"*"}, "context": []any{"none", "thisServer"},
			"tools": true, "per_minute": 60},
	}
}

// FolderSettings are the settings of roots/traversal for a server that is told its folders, as absolute
// paths, when it starts: paths stay within them, and within what the client declares, since such
// servers go by that, too. home is what ~ stands for; "" is not known. That a relative path starts
// in one of the folders is taken for granted.
func FolderSettings(folders []string, home string) map[string]any {
	roots := make([]any, len(folders))
	for i, f := range folders {
		roots[i] = f
	}
	settings := map[string]any{"roots": roots, "declared": true, "relative": true}
	if home != "" {
		settings["home"] = home
	}
	return settings
}
